"""What is done for a gang without places: whom to ask, what to keep of the answer, what to tell."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from koordinator.api.pod import Pod
from koordinator.domain.gangs import GangAttempt
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.app.gang_placing import GangDecision, GangTurn, Wanted
from koordinator.scheduler.contract import PostFilterResult
from koordinator.scheduler.cycle import UNBOUNDED, Cycle, Nominations, RoomCount, priority_of
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.snapshot import ClusterState, IntArray, PlacedPod, PodClass

NO_ROOM = "no room for {} members even without all pods of lower priority"
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
    limit: "Limit | None" = None

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


@dataclass(frozen=True, slots=True)
class Limit:
    """So many members would fit without anybody less important, and so many are needed."""

    pod_class: PodClass
    below: int
    room: RoomCount
    needed: int


class GangRooms:
    """Asks plugins for one scheduler, and remembers for whom they can do nothing."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        #: gang group -> the state of the world, and what was found out about it
        self._failed: dict[str, tuple[Hashable, Hashable, Limit | None]] = {}
        #: run key -> priority -> how many of the kind would fit without anybody less important
        self._limits: dict[Hashable, dict[int, RoomCount]] = {}

    def is_hopeless(self, cycle: Cycle, turn: GangTurn, world: Hashable) -> bool:
        """Return whether it is no use to ask again for a gang that found no room.

        It is not if nothing has changed, if even without everybody less important there would not
        be enough room, or if nobody is less important.
        """
        if not cycle.profile.post_filter:
            return True
        version, then, limit = self._failed.get(turn.attempt.group_id, (None, None, None))
        if version == turn.version and version is not None:
            if then == world:
                return True
            if limit is not None:
                most = cycle.room_without(limit.pod_class, limit.room, limit.below)
                if most < limit.needed:
                    return True
        return not self._has_pods_below(priority_of(turn.head.pod))

    def _has_pods_below(self, priority: int) -> bool:
        nodes = self._state.nodes
        lowest = self._state.pods.lowest_priority[: len(nodes)]  # no pods where a node is gone
        return bool(len(lowest)) and int(lowest.min()) < priority

    def most(self, cycle: Cycle, pod_class: PodClass, below: int) -> int:
        """Return for how many pods like this one, at most, PostFilter plugins may make room."""
        if not cycle.profile.post_filter or not self._has_pods_below(below):
            return 0
        known = self._limits.get(cycle.run_key(pod_class), {})
        nearest = min((priority for priority in known if priority >= below), default=None)
        if nearest is None:
            return UNBOUNDED
        return cycle.room_without(pod_class, known[nearest], nearest)

    def _note_limit(self, cycle: Cycle, limit: Limit) -> None:
        """Keep what is true of all such pods, if no node but its own matters to each."""
        if not cycle.takes_amounts_only(limit.pod_class):
            return
        if len(self._limits) >= KEPT:
            self._limits.clear()
        self._limits.setdefault(cycle.run_key(limit.pod_class), {})[limit.below] = limit.room

    def _is_bounded(self, cycle: Cycle, members: Sequence[Wanted], least: int) -> bool:
        """Return whether it is known of others that are alike that no room can be made."""
        first = members[0][1]
        run_key = cycle.run_key(first)
        if run_key not in self._limits or any(cycle.run_key(c) != run_key for _, c in members):
            return False
        below = min(priority_of(queued.pod) for queued, _ in members)
        return self._has_pods_below(below) and self.most(cycle, first, below) < least

    def note_failure(self, turn: GangTurn, world: Hashable, limit: Limit | None) -> None:
        """Remember that there is nothing more to do for a gang as long as nothing changes."""
        if len(self._failed) >= KEPT:
            self._failed.clear()
        self._failed[turn.attempt.group_id] = (turn.version, world, limit)

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
        if rows is None and fewest and self._is_bounded(cycle, members, len(fewest)):
            return Room(message=f"preemption: {NO_ROOM.format(len(members))}")
        tried = [list(members), [one for one in members if one[0].key in fewest]]
        said: list[str] = []
        limit: Limit | None = None
        for some in tried[: 1 if len(tried[0]) == len(tried[1]) or not tried[1] else 2]:
            said.clear()
            most: list[int] = []
            wanted = tuple((queued.pod, its_class) for queued, its_class in some)
            asked = cycle.attempt(head.pod, pod_class, verdict, nominations, wanted, rows=rows)
            for active in cycle.profile.post_filter:
                result: PostFilterResult = active.plugin.postfilter(asked)
                if result.places:
                    pods = {q.key: (q.pod, result.places[q.key]) for q, _ in some}
                    return Room(pods, result.victims, is_asked=True)
                if result.message:
                    said.append(result.message)
                    most.append(UNBOUNDED if result.most is None else result.most)
            if most and max(most) < len(some):
                below = min(priority_of(pod) for pod, _ in wanted)
                limit = Limit(pod_class, below, cycle.room_noted(pod_class, max(most)), len(some))
                self._note_limit(cycle, limit)
        return Room(message=", ".join(said), is_asked=True, limit=limit)


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
