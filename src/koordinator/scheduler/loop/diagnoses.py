"""Diagnoses of pending pods, and nodes whose kubelets reject pods.

A kubelet counts pods that the scheduler does not know, such as terminating pods.  If it rejects a
pod at admission and a controller replaces the pod, a scheduler without this module binds the
replacement to the same node, where it is rejected again.  The originals do that.
"""

from collections.abc import Container, Hashable
from collections.abc import Set as AbstractSet
from typing import Final

from msgspec import structs

from koordinator.api.pod import Pod
from koordinator.foundation.clock import Clock
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.cycle import SchedulingCycle, Scorecard, priority_of
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.queue import Nominator
from koordinator.scheduler.snapshot import ClusterState, PodClass

FIRST_S: Final = 30.0  # for which a node is avoided; twice as long with each further refusal
LONGEST_S: Final = 300.0
#: Of more, the oldest is forgotten.
_MOST_KINDS: Final = 1024
_MOST_NODES: Final = 64

#: Source: kubernetes pkg/kubelet/lifecycle/predicate.go, pkg/kubelet/kubelet.go.
_PREFIX: Final = "OutOf"
_REASONS: Final = frozenset(
    {"UnexpectedAdmissionError", "TopologyAffinityError", "NodeAffinity", "NodeName", "NodePorts"}
)


class Diagnoses:
    """Diagnoses for one scheduler; with ``explain`` each pod is diagnosed separately."""

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

    def update_foreign_nomination(self, pod: Pod, *, ended: bool) -> bool:
        """Update the nomination of a pod of another scheduler; return whether it has ended.

        Only more important pods count, not equals: these may have been nominated after ours.
        Source: koordinator pkg/scheduler/frameworkext, gate CrossSchedulerNomination.
        """
        if pod.spec.scheduler_name in self._schedulers:
            return False
        before = self._rivals.node_of(pod.key)
        self._rivals.remove(pod.key)
        if not (ended or pod.spec.node_name or pod.metadata.deletion_timestamp):
            spec = structs.replace(pod.spec, priority=priority_of(pod) - 1)
            self._rivals.add(structs.replace(pod, spec=spec))
        return bool(before) and self._rivals.node_of(pod.key) != before

    def nominated(self, but: Container[str] = ()) -> dict[str, list[tuple[Pod, PodClass]]]:
        """Return the pods nominated to each node, except those with the keys in ``but``."""
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
        remaining = {
            node: [it for it in pods if it[0].key not in but] for node, pods in every.items()
        }
        return {node: pods for node, pods in remaining.items() if pods}

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
        """Diagnose why a pod fits no node, and cache the diagnosis for equal pods."""
        diagnosis = cycle.diagnose(pod, pod_class, self.nominated(), scorecard)
        if self._known_at != self.world():
            self.kept.clear()
            self._known_at = self.world()
        if not self.nominated():
            self.kept[cycle.profile.scheduler_name, pod_class.id] = diagnosis
        return diagnosis


@dataclass(slots=True)
class _Refusal:
    until_s: float
    lasts_s: float


def is_refused(pod: Pod) -> bool:
    """Return whether the kubelet of the pod's node has refused to start it."""
    status = pod.status
    if status.phase != "Failed" or not pod.spec.node_name or status.container_statuses:
        return False
    return status.reason.startswith(_PREFIX) or status.reason in _REASONS


class NodeRefusals:
    """Recent rejections by kubelets, by likeness of pods and by node."""

    def __init__(self, clock: Clock, state: ClusterState) -> None:
        self._clock, self._state = clock, state
        #: refusals by node, by what the refused pods have in common
        self.by_likeness: dict[Hashable, dict[str, _Refusal]] = {}

    def ended(self, pod: Pod, *, deleted: bool) -> None:
        """Record a pod that its kubelet rejected; one that is deleted was recorded before."""
        if deleted or not is_refused(pod):
            return
        now_s, node = self._clock.now_s(), pod.spec.node_name
        alike = _likeness(self._state.classes.of(pod))
        nodes = self.by_likeness[alike] = self._current(alike)
        before = nodes.pop(node, None)
        lasts_s = FIRST_S if before is None else min(before.lasts_s * 2, LONGEST_S)
        nodes[node] = _Refusal(now_s + lasts_s, lasts_s)
        if len(nodes) > _MOST_NODES:
            del nodes[next(iter(nodes))]
        if len(self.by_likeness) > _MOST_KINDS:
            del self.by_likeness[next(iter(self.by_likeness))]

    def rows_avoided(self, pod_class: PodClass) -> frozenset[int]:
        """Return the rows of the nodes that are avoided for such pods at present."""
        if not self.by_likeness:
            return frozenset()
        now_s, rows = self._clock.now_s(), self._state.nodes.rows
        known = self.by_likeness.get(_likeness(pod_class), {})
        return frozenset(
            rows[node]
            for node, refusal in known.items()
            if now_s < refusal.until_s and node in rows
        )

    def _current(self, alike: Hashable) -> dict[str, _Refusal]:
        """Return the recent rejections of such pods, and drop expired ones."""
        now_s, known = self._clock.now_s(), self.by_likeness.pop(alike, {})
        return {node: one for node, one in known.items() if now_s < one.until_s + one.lasts_s}


def _likeness(pod_class: PodClass) -> Hashable:
    """Return the key that a pod shares with its replacement."""
    for owner in pod_class.owner_references:
        if owner.controller and owner.uid:
            return pod_class.namespace, owner.uid
    return pod_class.id
