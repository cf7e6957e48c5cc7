"""Diagnoses of pods that fit nowhere, computed once per class of pods."""

from collections.abc import Container, Hashable
from collections.abc import Set as AbstractSet

from msgspec import structs

from koordinator.api.pod import Pod
from koordinator.scheduler.cycle import SchedulingCycle, Scorecard, priority_of
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.queue import Nominator
from koordinator.scheduler.snapshot import ClusterState, PodClass


class Diagnoses:
    """Diagnoses for one scheduler; to ``explain`` every pod, each is asked about on its own."""

    def __init__(
        self,
        state: ClusterState,
        nominator: Nominator,
        schedulers: AbstractSet[str],
        *,
        explain: bool,
    ) -> None:
        self._state, self._nominator, self._explain = state, nominator, explain
        self._schedulers = schedulers  # names of this process's schedulers
        self._rivals = Nominator()  # pods of other schedulers
        self.kept: dict[Hashable, Diagnosis] = {}  # by scheduler name and kind of pod
        self._known_at: Hashable = None
        self._nominated_at: tuple[Hashable, dict[str, list[tuple[Pod, PodClass]]]] = ((0, 0), {})

    def lost_rival(self, pod: Pod, *, gone: bool) -> bool:
        """Follow the nomination of a pod by another scheduler; return whether it has ended.

        Only more important pods count, not equals: these may have been nominated after ours.
        Source: koordinator pkg/scheduler/frameworkext, gate CrossSchedulerNomination.
        """
        if pod.spec.scheduler_name in self._schedulers:
            return False
        before = self._rivals.node_of(pod.key)
        self._rivals.remove(pod.key)
        if not (gone or pod.spec.node_name or pod.metadata.deletion_timestamp):
            spec = structs.replace(pod.spec, priority=priority_of(pod) - 1)
            self._rivals.add(structs.replace(pod, spec=spec))
        return bool(before) and self._rivals.node_of(pod.key) != before

    def nominated(self, but: Container[str] = ()) -> dict[str, list[tuple[Pod, PodClass]]]:
        """Return the pods nominated to each node; ``but`` are keys of pods that don't count."""
        version = (self._nominator.version, self._rivals.version)
        known_at, every = self._nominated_at
        if version != known_at:
            every = {
                node: [
                    (pod, self._state.classes.of(pod))
                    for pod in (*self._nominator.on_node(node), *self._rivals.on_node(node))
                ]
                for node in (*self._nominator.nodes(), *self._rivals.nodes())
            }
            self._nominated_at = (version, every)
        if not but:
            return every
        found = {node: [it for it in pods if it[0].key not in but] for node, pods in every.items()}
        return {node: pods for node, pods in found.items() if pods}

    def world(self) -> Hashable:
        """Return what changes with every change that could change a verdict."""
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
        """Ten thousand pods of one kind that don't fit are diagnosed once."""
        if cycle.extenders.concerns(pod_class):  # their next answer is unknown
            return None
        if self._explain or self.nominated() or self._known_at != self.world():
            return None
        return self.kept.get((cycle.profile.scheduler_name, pod_class.id))

    def diagnose(
        self,
        cycle: SchedulingCycle,
        pod: Pod,
        pod_class: PodClass,
        scorecard: Scorecard | None = None,
    ) -> Diagnosis:
        """Find out why a pod fits nowhere, and keep the answer for its like."""
        diagnosis = cycle.diagnose(pod, pod_class, self.nominated(), scorecard)
        if self._known_at != self.world():
            self.kept.clear()
            self._known_at = self.world()
        if not self.nominated():
            self.kept[cycle.profile.scheduler_name, pod_class.id] = diagnosis
        return diagnosis
