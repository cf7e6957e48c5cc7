"""What is done for a gang without places: whom to ask, what to keep of the answer, what to tell."""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

from koordinator.api.pod import Pod
from koordinator.domain.gangs import GangAttempt
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.cycle import (
    UNBOUNDED,
    HeadroomBound,
    Nominations,
    SchedulingCycle,
    priority_of,
)
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.features.gangs.placement import (
    GangDecision,
    GangGroupAttempt,
    LostGang,
    Wanted,
)
from koordinator.scheduler.post_filter import PostFilterResult
from koordinator.scheduler.snapshot import ClusterState, PlacedPod

NO_HEADROOM = "no room for {} members even without all pods of lower priority"
TOLD = 3  # victims that members are told by name
KEPT = 1 << 14  # gangs whose failure is remembered; then all are forgotten


@dataclass(slots=True)
class GangHeadroom:
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


class GangPreemption:
    """Asks plugins for one scheduler, and remembers for whom they can do nothing."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        #: gang group -> its version and the state of the world
        self._failed: dict[str, tuple[Hashable, Hashable]] = {}
        self._lowest = (-1, UNBOUNDED)  # position in the log of usage, and the lowest priority then

    def is_hopeless(
        self,
        cycle: SchedulingCycle,
        group_attempt: GangGroupAttempt,
        lost: LostGang,
        world: Hashable,
    ) -> bool:
        """Return whether it is no use to ask again for a gang that found no room.

        It is not if nothing has changed, if even without everybody less important there would not
        be enough room, or if nobody is less important.
        """
        if not cycle.profile.post_filter:
            return True
        if self._failed.get(group_attempt.attempt.group_id) == (group_attempt.version, world):
            return True
        bound, of_row = cycle.bound(lost.pod_class), cycle.domains_at(lost.level)
        return self.most(cycle, bound, lost.below, of_row) < lost.least

    def has_pods_below(self, priority: int) -> bool:
        """Return whether a pod of lower priority has a place."""
        return self._lowest_priority() < priority

    def _lowest_priority(self) -> int:
        """Return the priority of the least important pod that has a place."""
        position = self._state.usage_log.position
        if position != self._lowest[0]:
            there = self._state.pods.lowest_priority[: len(self._state.nodes)]
            self._lowest = position, int(there.min(initial=UNBOUNDED))
        return self._lowest[1]

    def most(
        self,
        cycle: SchedulingCycle,
        bound: HeadroomBound | None,
        below: int,
        of_row: IntArray | None,
    ) -> int:
        """Return for how many pods, at most, PostFilter plugins may make room.

        They evict nobody who is as important.
        """
        if not cycle.profile.post_filter or not self.has_pods_below(below):
            return 0
        return UNBOUNDED if bound is None else bound.most(below, of_row)

    def _is_bounded(self, cycle: SchedulingCycle, members: Sequence[Wanted], least: int) -> bool:
        """Return whether there is no room for members that are alike, whoever goes."""
        first = members[0][1]
        run_key = cycle.run_key(first)
        if any(cycle.run_key(one) != run_key for _, one in members):
            return False
        below = max(priority_of(queued.pod) for queued, _ in members)
        if not self.has_pods_below(below):
            return False
        return self.most(cycle, cycle.bound(first), below, None) < least

    def note_failure(self, group_attempt: GangGroupAttempt, world: Hashable) -> None:
        """Remember that there is nothing more to do for a gang as long as nothing changes."""
        if len(self._failed) >= KEPT:
            self._failed.clear()
        self._failed[group_attempt.attempt.group_id] = (group_attempt.version, world)

    def forget(self, group_id: str) -> None:
        """Forget a gang group of which a member is gone: it is another one now, or none."""
        self._failed.pop(group_id, None)

    def find(
        self,
        cycle: SchedulingCycle,
        attempt: GangAttempt,
        decision: GangDecision,
        members: Sequence[Wanted],
        nominations: Nominations,
        *,
        rows: IntArray | None = None,
    ) -> GangHeadroom:
        """Ask for room for all of the members, then for as few as are enough.

        ``rows`` are where they may be; None: anywhere.
        """
        if not decision.failed:
            return GangHeadroom()
        head, pod_class, verdict = decision.failed[0]
        if not isinstance(verdict, Diagnosis) or not verdict.node_count:
            return GangHeadroom()
        fewest = frozenset(attempt.fewest())
        if rows is None and fewest and self._is_bounded(cycle, members, len(fewest)):
            message = f"preemption: {NO_HEADROOM.format(len(members))}"
            every = tuple((queued.pod, its_class) for queued, its_class in members)
            asked = cycle.attempt(head.pod, pod_class, verdict, nominations, every)
            for active in cycle.profile.post_filter:
                if "job_refusal" in active.has:
                    message = active.plugin.job_refusal(asked, message)
            return GangHeadroom(message=message)
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
                    return GangHeadroom(pods, result.victims, is_asked=True)
                if result.message:
                    said.append(result.message)
        return GangHeadroom(message=", ".join(said), is_asked=True)


def headroom_message(headroom: GangHeadroom, node: str, error: ClusterError | None) -> str:
    """Return what a member is told; ``node`` is its place, if it has one."""
    if not headroom.pods:
        return headroom.message
    names = ", ".join(victim.key for victim in headroom.victims[:TOLD])
    more = f" and {len(headroom.victims) - TOLD} more" if len(headroom.victims) > TOLD else ""
    if error is not None:
        text = f"preemption: not all of {names}{more} could be evicted: {error}"
    elif headroom.victims:
        text = f"preemption: {names}{more} evicted for {len(headroom.pods)} members of the gang"
    else:
        text = f"preemption: {len(headroom.pods)} members of the gang wait for pods that are ending"
    return f"{text}; its place is on node {node}" if node else text
