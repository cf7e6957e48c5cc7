"""Properties of pods that decide whether they may be evicted.

Source: koordinator pkg/descheduler/utils/pod.go; kubernetes-sigs/descheduler pkg/utils/pod.go.
"""

from typing import Final

from koordinator.api.annotations.descheduling import EVICT
from koordinator.api.pod import Pod

SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000
_MIRROR: Final = "kubernetes.io/config.mirror"
_SOURCE: Final = "kubernetes.io/config.source"
_FROM_API: Final = "api"


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
    return pod.status.phase in ("Succeeded", "Failed")
