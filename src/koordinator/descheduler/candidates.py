"""Candidates for eviction: traits of pods, filters and order.

Source: koordinator pkg/descheduler/utils/sorter; koordinator pkg/descheduler/utils/pod.go;
kubernetes-sigs/descheduler pkg/utils/pod.go.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from koordinator.api.annotations.scheduling import (
    EVICT,
    PREFERS_NO_EVICTION,
    eviction_cost,
    pod_deletion_cost,
)
from koordinator.api.meta import LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_terminal
from koordinator.api.qos import KubeQos, PriorityBand, QosClass, band_of, kube_qos_of, qos_of
from koordinator.api.selectors import matches
from koordinator.descheduler.configuration import (
    DeschedulerPluginArgs,
    NamedPodSelector,
    NamespaceLists,
    check_namespaces,
    check_selector,
)
from koordinator.descheduler.contract import Handle
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.lazy_dataclass import dataclass

_BANDS: Final[Mapping[PriorityBand, int]] = {
    PriorityBand.FREE: 1,
    PriorityBand.BATCH: 2,
    PriorityBand.MID: 3,
    PriorityBand.PROD: 4,
    PriorityBand.NONE: 5,
}
_KUBE_QOS: Final[Mapping[KubeQos, int]] = {
    KubeQos.BEST_EFFORT: 1,
    KubeQos.BURSTABLE: 2,
    KubeQos.GUARANTEED: 3,
}
_QOS: Final[Mapping[QosClass, int]] = {
    QosClass.BE: 1,
    QosClass.LS: 2,
    QosClass.LSR: 3,
    QosClass.LSE: 4,
    QosClass.SYSTEM: 4,
    QosClass.NONE: 5,
}

SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000
_MIRROR: Final = "kubernetes.io/config.mirror"
_SOURCE: Final = "kubernetes.io/config.source"
_FROM_API: Final = "api"


class ScopedPluginArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Arguments of upstream's plugins that select pods by namespace and label."""

    namespaces: NamespaceLists | None = None
    label_selector: LabelSelector | None = None

    def validate(self) -> None:
        check_namespaces(self.namespaces, "namespaces")
        check_selector(self.label_selector, "labelSelector")


@dataclass(frozen=True, slots=True)
class CandidateFilter:
    """Pods in some namespaces that a selector matches and that the filters pass."""

    may_go: Callable[[Pod], bool]
    namespaces: NamespaceLists | None = None
    selectors: tuple[LabelSelector, ...] = ()  # none: all

    def is_in_scope(self, pod: Pod) -> bool:
        """Return whether namespaces and selectors cover the pod."""
        if self.namespaces is not None and not self.namespaces.covers(pod.metadata.namespace):
            return False
        labels = pod.metadata.labels
        return not self.selectors or any(matches(each, labels) for each in self.selectors)

    def is_candidate(self, pod: Pod) -> bool:
        """Return whether the pod is in scope and may be evicted."""
        return self.is_in_scope(pod) and self.may_go(pod)


def candidates_of(
    handle: Handle, namespaces: NamespaceLists | None, selectors: Sequence[NamedPodSelector]
) -> CandidateFilter:
    """Return the filter of a plugin with named selectors; those without a selector are skipped."""
    given = tuple(each.selector for each in selectors if each.selector is not None)
    return CandidateFilter(handle.evictor.filter, namespaces, given)


def scoped_candidates(handle: Handle, args: ScopedPluginArgs) -> CandidateFilter:
    """Return the filter of one of upstream's plugins.

    It does not include ``pre_eviction_filter``: the original's adaptor for these plugins calls the
    plain filter instead.
    """
    selectors = () if args.label_selector is None else (args.label_selector,)
    return CandidateFilter(handle.evictor.filter, args.namespaces, selectors)


def selected_nodes(nodes: Sequence[Node], selector: LabelSelector | None) -> Sequence[Node]:
    """Return the nodes that the selector matches; None matches all."""
    if selector is None:
        return nodes
    return [node for node in nodes if matches(selector, node.metadata.labels)]


SortKey = tuple[float, ...]


def eviction_rank(pod: Pod, usage: float | None = None) -> SortKey:
    """Return a sort key; the lowest pod is evicted first.

    ``usage`` is the relief by the eviction of the pod: among equals the largest comes first, and
    unknown ones (None) last.  Then younger pods come before older ones.
    """
    meta = pod.metadata
    return (
        _BANDS[band_of(pod)],
        pod.spec.priority or 0,
        _KUBE_QOS[kube_qos_of(pod)],
        _QOS[qos_of(pod)],
        pod_deletion_cost(meta),
        eviction_cost(meta),
        1 if usage is None else 0,
        -(usage or 0.0),
        -to_epoch_s(meta.creation_timestamp),
    )


def in_low_priority_order(pods: Iterable[Pod]) -> list[Pod]:
    """Return the pods in the order of upstream's plugins: by priority, then by Kubernetes QoS.

    Pods annotated to prefer no eviction come after their equals; other equals are reversed, as by
    upstream's sort of a few pods.
    Source: kubernetes-sigs/descheduler pkg/descheduler/pod/pods.go,
    ``SortPodsBasedOnPriorityLowToHigh``.
    """

    def key(pod: Pod) -> tuple[bool, int, int, bool]:
        priority = pod.spec.priority
        prefers_no_eviction = PREFERS_NO_EVICTION in pod.metadata.annotations
        return priority is not None, priority or 0, _KUBE_QOS[kube_qos_of(pod)], prefers_no_eviction

    backwards = list(pods)[::-1]
    return sorted(backwards, key=key)


def is_always_evictable(pod: Pod) -> bool:
    """Return whether an annotation of the pod bypasses the filters."""
    return EVICT in pod.metadata.annotations


def is_mirror(pod: Pod) -> bool:
    """Return whether the pod is the mirror of a static pod."""
    return _MIRROR in pod.metadata.annotations


def is_static(pod: Pod) -> bool:
    """Return whether the kubelet got the pod from another source than the API server."""
    return pod.metadata.annotations.get(_SOURCE, _FROM_API) != _FROM_API


def is_terminating(pod: Pod) -> bool:
    """Return whether the pod has a deletion timestamp."""
    return pod.metadata.deletion_timestamp is not None


def is_of_daemon_set(pod: Pod) -> bool:
    """Return whether an owner of the pod is a DaemonSet."""
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)


def is_system_critical(pod: Pod) -> bool:
    """Return whether the pod has a system-critical priority or a higher one."""
    return pod.spec.priority is not None and pod.spec.priority >= SYSTEM_CRITICAL_PRIORITY


def has_local_storage(pod: Pod) -> bool:
    """Return whether the pod has an emptyDir or a hostPath volume."""
    return any(
        each.empty_dir is not None or each.host_path is not None for each in pod.spec.volumes
    )


def has_volume_claim(pod: Pod) -> bool:
    """Return whether the pod mounts a PersistentVolumeClaim by name."""
    return any(each.persistent_volume_claim is not None for each in pod.spec.volumes)


def is_finished(pod: Pod) -> bool:
    """Return whether the pod has succeeded or failed."""
    return is_terminal(pod)
