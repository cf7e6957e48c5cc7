"""Preemption for gangs: calls of PostFilter plugins, cached failures and messages."""

from collections.abc import Hashable, Sequence
from dataclasses import field

from koordinator.api.pod import Pod
from koordinator.domain.gangs import GangAttempt
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import ClusterError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.text import listed
from koordinator.scheduler.contract import ActivePlugin
from koordinator.scheduler.cycle import (
    UNBOUNDED,
    HeadroomBound,
    NominatedPods,
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

NO_HEADROOM = "{} members do not fit even without all pods of lower priority"
SHOWN = 3  # victims named in messages
KEPT = 1 << 14  # cached failures; the cache is cleared when full


@dataclass(slots=True)
class GangHeadroom:
    """Result of the PostFilter plugins for the members of a gang."""

    pods: dict[str, tuple[Pod, str]] = field(default_factory=dict)  # members with nodes, by key
    victims: tuple[PlacedPod, ...] = ()
    message: str = ""
    keeps: bool = False  # keep earlier nominations although there is no new one
    was_tried: bool = False

    @property
    def places(self) -> dict[str, str]:
        """Nominated nodes by pod key."""
        return {key: node for key, (_, node) in self.pods.items()}

    @property
    def result(self) -> str:
        """Label value for metrics."""
        if not self.pods:
            return "preemption not helpful"
        return "success" if self.victims else "waiting for victims"

    def keep_place(self, pod: Pod, node: str) -> None:
        """Nominate a member that gives up its assumed node to the same node."""
        if self.pods:
            self.pods[pod.key] = (pod, node)


class GangPreemption:
    """Preemption for the gangs of one scheduler, with cached failures."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        #: version and world version of the failure, by gang group
        self._failed: dict[str, tuple[Hashable, Hashable]] = {}
        self._lowest = (-1, UNBOUNDED)  # usage log position, and the lowest priority at it

    def is_futile(
        self,
        cycle: SchedulingCycle,
        group_attempt: GangGroupAttempt,
        lost: LostGang,
        world: Hashable,
    ) -> bool:
        """Return whether another preemption attempt for a gang cannot succeed.

        That is so if nothing has changed, or if capacity would not suffice even without all pods of
        lower priority.
        """
        if not cycle.profile.post_filter:
            return True
        if self._failed.get(group_attempt.attempt.group_id) == (group_attempt.version, world):
            return True
        bound, of_row = cycle.bound(lost.pod_class), cycle.domains_at(lost.level)
        return self.most(cycle, bound, lost.below, of_row) < lost.least

    def has_pods_below(self, priority: int) -> bool:
        """Return whether a pod of lower priority has a node."""
        return self._lowest_priority() < priority

    def _lowest_priority(self) -> int:
        """Return the lowest priority of pods with a node."""
        position = self._state.usage_log.position
        if position != self._lowest[0]:
            priorities = self._state.pods.lowest_priority[: len(self._state.nodes)]
            self._lowest = position, int(priorities.min(initial=UNBOUNDED))
        return self._lowest[1]

    def most(
        self,
        cycle: SchedulingCycle,
        bound: HeadroomBound | None,
        below: int,
        of_row: IntArray | None,
    ) -> int:
        """Return an upper bound of the pods for which preemption can free capacity.

        Only pods of lower priority are victims.
        """
        if not cycle.profile.post_filter or not self.has_pods_below(below):
            return 0
        return UNBOUNDED if bound is None else bound.most(below, of_row)

    def _is_bounded(self, cycle: SchedulingCycle, members: Sequence[Wanted], least: int) -> bool:
        """Return whether identical members do not fit even without all possible victims."""
        first = members[0][1]
        run_key = cycle.run_key(first)
        if any(cycle.run_key(one) != run_key for _, one in members):
            return False
        below = max(priority_of(queued.pod) for queued, _ in members)
        if not self.has_pods_below(below):
            return False
        return self.most(cycle, cycle.bound(first), below, None) < least

    def note_failure(self, group_attempt: GangGroupAttempt, world: Hashable) -> None:
        """Cache a failed preemption until the gang or the cluster changes."""
        if len(self._failed) >= KEPT:
            self._failed.clear()
        self._failed[group_attempt.attempt.group_id] = (group_attempt.version, world)

    def forget(self, group_id: str) -> None:
        """Drop the cached failure of a gang group that lost a member."""
        self._failed.pop(group_id, None)

    def find(
        self,
        cycle: SchedulingCycle,
        attempt: GangAttempt,
        decision: GangDecision,
        members: Sequence[Wanted],
        nominations: NominatedPods,
        *,
        plugins: Sequence[ActivePlugin] | None = None,
        rows: IntArray | None = None,
    ) -> GangHeadroom:
        """Try preemption for all members, then for the fewest that suffice.

        ``plugins`` make room; None means the PostFilter plugins of the profile.  ``rows`` restricts
        the nodes; None means all.
        """
        plugins = cycle.profile.post_filter if plugins is None else plugins
        if not decision.failed:
            return GangHeadroom()
        head, pod_class, verdict = decision.failed[0]
        if not isinstance(verdict, Diagnosis) or not verdict.node_count:
            return GangHeadroom()
        fewest = frozenset(attempt.fewest())
        # An upper bound of what eviction can free spares the search where it cannot succeed.
        if rows is None and fewest and self._is_bounded(cycle, members, len(fewest)):
            message = f"preemption: {NO_HEADROOM.format(len(members))}"
            every = tuple((queued.pod, its_class) for queued, its_class in members)
            attempted = cycle.attempt(head.pod, pod_class, verdict, nominations, every)
            for active in plugins:
                if "job_refusal" in active.has:
                    message = active.plugin.job_refusal(attempted, message)
            return GangHeadroom(message=message)
        # Room for all members is preferred; the gang can start with the fewest.
        tried = [list(members), [one for one in members if one[0].key in fewest]]
        messages: list[str] = []
        for some in tried[: 1 if len(tried[0]) == len(tried[1]) or not tried[1] else 2]:
            messages.clear()
            wanted = tuple((queued.pod, its_class) for queued, its_class in some)
            attempted = cycle.attempt(head.pod, pod_class, verdict, nominations, wanted, rows=rows)
            for active in plugins:
                result: PostFilterResult = active.plugin.postfilter(attempted)
                if result.places:
                    pods = {q.key: (q.pod, result.places[q.key]) for q, _ in some}
                    return GangHeadroom(pods, result.victims, was_tried=True)
                if result.message:
                    messages.append(result.message)
        return GangHeadroom(message=", ".join(messages), was_tried=True)


def headroom_message(headroom: GangHeadroom, node: str, error: ClusterError | None) -> str:
    """Return the preemption message for a member; ``node`` is its nominated node, if any."""
    if not headroom.pods:
        return headroom.message
    names = listed([victim.key for victim in headroom.victims], SHOWN)
    if error is not None:
        text = f"preemption: not all of {names} could be evicted: {error}"
    elif headroom.victims:
        text = f"preemption: {names} evicted for {len(headroom.pods)} members of the gang"
    else:
        text = f"preemption: {len(headroom.pods)} members of the gang wait for terminating pods"
    return f"{text}; it is nominated to node {node}" if node else text
