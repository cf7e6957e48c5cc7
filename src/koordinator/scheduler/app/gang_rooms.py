"""What is done for a gang without places: whom to ask, what to keep of the answer, what to tell."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from koordinator.api.pod import Pod
from koordinator.domain.gangs import GangAttempt
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.app.gang_placing import GangDecision, Wanted
from koordinator.scheduler.contract import PostFilterResult
from koordinator.scheduler.cycle import Cycle, Nominations
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.snapshot import ClusterState, IntArray, PlacedPod

TOLD = 3  # victims that members are told by name
KEPT = 1 << 14  # gangs whose failure is remembered; then all are forgotten


@dataclass(slots=True)
class Room:
    """What the PostFilter plugins have found for the members of a gang."""

    pods: dict[str, tuple[Pod, str]] = field(default_factory=dict)  # with their nodes, by key
    victims: tuple[PlacedPod, ...] = ()
    message: str = ""
    keeps: bool = False  # earlier nominations stay, although there is no new place
    is_asked: bool = False

    @property
    def places(self) -> dict[str, str]:
        """Nodes by pod key."""
        return {key: node for key, (_, node) in self.pods.items()}

    @property
    def result(self) -> str:
        """What metrics call it."""
        if not self.pods:
            return "preemption not helpful"
        return "success" if self.victims else "waiting for victims"

    def keep_place(self, pod: Pod, node: str) -> None:
        """Nominate a member, which had a place and gives it up now, to the same node."""
        if self.pods:
            self.pods[pod.key] = (pod, node)


class GangRooms:
    """Asks plugins for one scheduler, and remembers for whom they can do nothing."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._failed_at: dict[str, Hashable] = {}  # gang group -> the state of the world

    def is_hopeless(self, cycle: Cycle, attempt: GangAttempt, pod: Pod, world: Hashable) -> bool:
        """Return whether it is no use to ask for a gang that found no room: as before, or nobody.

        Nobody could be evicted if every pod on a node is at least as important.
        """
        if not cycle.profile.post_filter or self._failed_at.get(attempt.group_id) == world:
            return True
        nodes = self._state.nodes
        lowest = self._state.pods.lowest_priority[: len(nodes)][nodes.alive[: len(nodes)]]
        return not len(lowest) or int(lowest.min()) >= (pod.spec.priority or 0)

    def note_failure(self, attempt: GangAttempt, world: Hashable) -> None:
        """Remember that there is nothing more to do for a gang as long as nothing changes."""
        if len(self._failed_at) >= KEPT:
            self._failed_at.clear()
        self._failed_at[attempt.group_id] = world

    def find(
        self,
        cycle: Cycle,
        attempt: GangAttempt,
        decision: GangDecision,
        members: Sequence[Wanted],
        nominations: Nominations,
        *,
        rows: IntArray | None = None,
    ) -> Room:
        """Ask for room for all of the members, then for as few as are enough.

        ``rows`` are where they may be; None: anywhere.
        """
        if not decision.failed:
            return Room()
        head, pod_class, verdict = decision.failed[0]
        if not isinstance(verdict, Diagnosis) or not verdict.node_count:
            return Room()
        fewest = frozenset(attempt.fewest())
        tried = [list(members), [one for one in members if one[0].key in fewest]]
        said: list[str] = []
        for some in tried[: 1 if len(tried[0]) == len(tried[1]) or not tried[1] else 2]:
            said.clear()
            wanted = tuple((queued.pod, its_class) for queued, its_class in some)
            asked = cycle.attempt(head.pod, pod_class, verdict, nominations, wanted, rows=rows)
            for active in cycle.profile.post_filter:
                result: PostFilterResult = active.plugin.postfilter(asked)
                if result.places:
                    pods = {q.key: (q.pod, result.places[q.key]) for q, _ in some}
                    return Room(pods, result.victims, is_asked=True)
                if result.message:
                    said.append(result.message)
        return Room(message=", ".join(said), is_asked=True)


def told_of_room(room: Room, node: str, error: ClusterError | None) -> str:
    """Return what a member is told; ``node`` is its place, if it has one."""
    if not room.pods:
        return room.message
    names = ", ".join(victim.key for victim in room.victims[:TOLD])
    more = f" and {len(room.victims) - TOLD} more" if len(room.victims) > TOLD else ""
    if error is not None:
        text = f"preemption: not all of {names}{more} could be evicted: {error}"
    elif room.victims:
        text = f"preemption: {names}{more} evicted for {len(room.pods)} members of the gang"
    else:
        text = f"preemption: {len(room.pods)} members of the gang wait for pods that are ending"
    return f"{text}; its place is on node {node}" if node else text
