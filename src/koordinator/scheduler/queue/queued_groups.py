"""Pod groups of the scheduling queue, each one entity of its metrics.

Source: kubernetes v1.37 pkg/scheduler/backend/queue/scheduling_queue.go
``recordIncomingEntitiesMetrics``, pkg/scheduler/metrics/metric_recorder.go.  There a group is one
entry of the queue; here its members are entries, and the first one that moves moves the group.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

from koordinator.domain.gangs.terms import pod_group_key
from koordinator.foundation.errors import BugError
from koordinator.scheduler.queue.queued_pod import QueuedPod, QueueState

#: The queue of a group whose members are in several, first match
_PRECEDENCE = (
    QueueState.ACTIVE,
    QueueState.BACKOFF,
    QueueState.UNSCHEDULABLE,
    QueueState.GATED,
)


class QueuedGroups:
    """Number of members of each pod group by state, and moves of groups between queues.

    Only the scheduler's thread writes; any thread may read.
    """

    def __init__(self) -> None:
        self._group_of: dict[str, str] = {}  # by pod; as of when the pod was added
        self._members: dict[str, dict[QueueState, int]] = {}  # of groups that have pods here
        self._queues: dict[str, QueueState] = {}  # of those that are not in flight
        #: how often pods without a group came into each queue, by what brought them there
        self.incoming_pods: Counter[tuple[QueueState, str]] = Counter()
        #: the same of groups
        self.incoming_groups: Counter[tuple[QueueState, str]] = Counter()

    def add(self, queued: QueuedPod) -> None:
        """Add a pod, which has no state yet, to its group."""
        reference = queued.pod.spec.scheduling_group
        if reference is not None:
            group = pod_group_key(queued.pod.metadata, reference)
            self._group_of[queued.key] = group
            self._members.setdefault(group, dict.fromkeys(QueueState, 0))

    def forget(self, queued: QueuedPod) -> None:
        """Forget a pod that has no state any more, and its group if no pod of it remains."""
        group = self._group_of.pop(queued.key, None)
        if group is not None and not any(self._members[group].values()):
            del self._members[group]
            self._queues.pop(group, None)

    def move(self, queued: QueuedPod, old: QueueState | None, new: QueueState | None) -> None:
        """Note that a pod changed its state."""
        group = self._group_of.get(queued.key)
        if group is None:
            return
        if old is not None:
            self._members[group][old] -= 1
        if new is not None:
            self._members[group][new] += 1
        if new is QueueState.IN_FLIGHT:
            self._queues.pop(group, None)

    def arrived(self, queued: QueuedPod, state: QueueState, cause: str) -> None:
        """Count a pod that was just moved into a queue, or its group if that moves with it."""
        group = self._group_of.get(queued.key)
        if group is None:
            self.incoming_pods[state, cause] += 1
            return
        queue = _queue_of(self._members[group])
        if queue is state and queue is not self._queues.get(group):
            self._queues[group] = queue
            self.incoming_groups[queue, cause] += 1

    def groups_by_queue(self) -> Counter[QueueState]:
        """Return the number of groups in each queue; a group in flight is in none."""
        queues: Counter[QueueState] = Counter()
        for members in list(self._members.values()):
            if not members[QueueState.IN_FLIGHT] and any(members.values()):
                queues[_queue_of(members)] += 1
        return queues

    def members_by_state(self) -> Counter[QueueState]:
        """Return the number of pods of groups in each state."""
        total: Counter[QueueState] = Counter()
        for members in list(self._members.values()):
            total.update(members)
        return total

    def validate(self, pods: Iterable[QueuedPod]) -> None:
        """Raise BugError unless these are the pods that were counted."""
        derived: dict[str, Counter[QueueState]] = {}
        for queued in pods:
            if (group := self._group_of.get(queued.key)) is not None and queued.state is not None:
                derived.setdefault(group, Counter())[queued.state] += 1
        counted = {group: Counter(members) for group, members in self._members.items()}
        if derived != counted:
            raise BugError(f"groups have {derived}. Counted {counted}.")


def _queue_of(members: Mapping[QueueState, int]) -> QueueState:
    return next((state for state in _PRECEDENCE if members[state]), QueueState.IN_FLIGHT)
