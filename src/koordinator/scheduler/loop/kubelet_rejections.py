"""Nodes whose kubelets rejected pods recently: equal pods avoid them for a while.

A kubelet counts pods that the scheduler does not know, such as terminating pods.  If it rejects a
pod at admission and a controller replaces the pod, a scheduler without this module binds the
replacement to the same node, where it is rejected again.  The originals do that.
"""

from collections.abc import Hashable
from typing import Final

from koordinator.api.pod import Pod
from koordinator.foundation.clock import Clock
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.snapshot import ClusterState, PodClass

FIRST_S: Final = 30.0  # for which a node is avoided; twice as long with each further rejection
LONGEST_S: Final = 300.0
#: Of more, the oldest is forgotten.
_MOST_KINDS: Final = 1024
_MOST_NODES: Final = 64

#: Source: kubernetes pkg/kubelet/lifecycle/predicate.go, pkg/kubelet/kubelet.go.
_PREFIX: Final = "OutOf"
_REASONS: Final = frozenset(
    {"UnexpectedAdmissionError", "TopologyAffinityError", "NodeAffinity", "NodeName", "NodePorts"}
)


@dataclass(slots=True)
class _Rejection:
    until_s: float
    lasts_s: float


def is_rejected(pod: Pod) -> bool:
    """Return whether the kubelet of the pod's node has rejected it."""
    status = pod.status
    if status.phase != "Failed" or not pod.spec.node_name or status.container_statuses:
        return False
    return status.reason.startswith(_PREFIX) or status.reason in _REASONS


class KubeletRejections:
    """Recent rejections by kubelets, by likeness of pods and by node."""

    def __init__(self, clock: Clock, state: ClusterState) -> None:
        self._clock, self._state = clock, state
        #: rejections by node, by what the rejected pods have in common
        self.by_likeness: dict[Hashable, dict[str, _Rejection]] = {}

    def record(self, pod: Pod, *, deleted: bool) -> None:
        """Record a pod that its kubelet rejected; one that is deleted was recorded before."""
        if deleted or not is_rejected(pod):
            return
        now_s, node = self._clock.now_s(), pod.spec.node_name
        alike = _likeness(self._state.classes.of(pod))
        nodes = self.by_likeness[alike] = self._current(alike)
        before = nodes.pop(node, None)
        lasts_s = FIRST_S if before is None else min(before.lasts_s * 2, LONGEST_S)
        nodes[node] = _Rejection(now_s + lasts_s, lasts_s)
        if len(nodes) > _MOST_NODES:
            del nodes[next(iter(nodes))]
        if len(self.by_likeness) > _MOST_KINDS:
            del self.by_likeness[next(iter(self.by_likeness))]

    def avoided_rows(self, pod_class: PodClass) -> frozenset[int]:
        """Return the rows of the nodes that are avoided for such pods at present."""
        if not self.by_likeness:
            return frozenset()
        now_s, rows = self._clock.now_s(), self._state.nodes.rows
        known = self.by_likeness.get(_likeness(pod_class), {})
        return frozenset(
            rows[node]
            for node, rejection in known.items()
            if now_s < rejection.until_s and node in rows
        )

    def _current(self, alike: Hashable) -> dict[str, _Rejection]:
        """Return the recent rejections of such pods, and drop expired ones."""
        now_s, known = self._clock.now_s(), self.by_likeness.pop(alike, {})
        return {node: one for node, one in known.items() if now_s < one.until_s + one.lasts_s}


def _likeness(pod_class: PodClass) -> Hashable:
    """Return the key that a pod shares with its replacement."""
    for owner in pod_class.owner_references:
        if owner.controller and owner.uid:
            return pod_class.namespace, owner.uid
    return pod_class.id
