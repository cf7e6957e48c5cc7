"""Diagnoses of pending pods: equal pods share one until the cluster changes."""

from collections.abc import Hashable

from koordinator.api.pod import Pod
from koordinator.scheduler.cycle import SchedulingCycle, Scorecard
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.loop.nominations import Nominations
from koordinator.scheduler.snapshot import ClusterState, PodClass


class Diagnoses:
    """Diagnoses for one scheduler; with ``explain`` each pod is diagnosed separately."""

    def __init__(self, state: ClusterState, nominations: Nominations, *, explain: bool) -> None:
        self._state, self._nominations, self._explain = state, nominations, explain
        self.kept: dict[Hashable, Diagnosis] = {}  # by scheduler name and kind of pod
        self._known_at: Hashable = None

    def world(self) -> Hashable:
        """Return a key that differs after every change that could change a verdict."""
        state = self._state
        return (
            state.usage_log.position,
            state.node_log.position,
            state.layout,
            state.cluster,
            state.objects.total_version,
            state.unbound_changes,
        )

    def known(self, cycle: SchedulingCycle, pod_class: PodClass) -> Diagnosis | None:
        """Return the cached diagnosis of an equal pod: a new one costs a full evaluation."""
        if cycle.extenders.concerns(pod_class):  # their next answer is unknown
            return None
        if self._explain or self._nominations.by_node() or self._known_at != self.world():
            return None
        return self.kept.get((cycle.profile.scheduler_name, pod_class.id))

    def diagnose(
        self,
        cycle: SchedulingCycle,
        pod: Pod,
        pod_class: PodClass,
        scorecard: Scorecard | None = None,
    ) -> Diagnosis:
        """Diagnose why a pod fits no node, and cache the diagnosis for equal pods."""
        diagnosis = cycle.diagnose(pod, pod_class, self._nominations.by_node(), scorecard)
        if self._known_at != self.world():
            self.kept.clear()
            self._known_at = self.world()
        if not self._nominations.by_node():
            self.kept[cycle.profile.scheduler_name, pod_class.id] = diagnosis
        return diagnosis
