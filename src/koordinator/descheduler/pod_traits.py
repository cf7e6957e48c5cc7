"""What a pod is, as far as it says whether the pod may be made to go.

Source: koordinator pkg/descheduler/utils/pod.go; kubernetes-sigs/descheduler pkg/utils/pod.go.
"""

from typing import Final

from koordinator.api.annotations.descheduling import EVICT
from koordinator.api.pod import Pod

SYSTEM_CRITICAL_PRIORITY: Final = 2_000_000_000
_MIRROR: Final = "kubernetes.io/config.mirror"
_SOURCE: Final = "kubernetes.io/config.source"
_FROM_API: Final = "api"


def asks_to_be_evicted(pod: Pod) -> bool:
    """Return whether an annotation says that the pod may go, whatever filters say."""
    return EVICT in pod.metadata.annotations


def is_mirror(pod: Pod) -> bool:
    """Return whether the pod only shows what a kubelet runs by itself."""
    return _MIRROR in pod.metadata.annotations


def is_static(pod: Pod) -> bool:
    """Return whether a kubelet has the pod from elsewhere than the API server."""
    return pod.metadata.annotations.get(_SOURCE, _FROM_API) != _FROM_API


def is_terminating(pod: Pod) -> bool:
    """Return whether the pod has been deleted and is still there."""
    return pod.metadata.deletion_timestamp is not None


def is_of_daemon_set(pod: Pod) -> bool:
    """Return whether some owner of the pod is a DaemonSet."""
    return any(owner.kind == "DaemonSet" for owner in pod.metadata.owner_references)


def is_system_critical(pod: Pod) -> bool:
    """Return whether the priority is one of the two system classes, or higher."""
    return pod.spec.priority is not None and pod.spec.priority >= SYSTEM_CRITICAL_PRIORITY


def has_local_storage(pod: Pod) -> bool:
    """Return whether the pod has data that would be lost: an emptyDir, or a folder of its node."""
    return any(
        each.empty_dir is not None or each.host_path is not None for each in pod.spec.volumes
    )


def has_volume_claim(pod: Pod) -> bool:
    """Return whether the pod mounts a PersistentVolumeClaim by name."""
    return any(each.persistent_volume_claim is not None for each in pod.spec.volumes)


def is_finished(pod: Pod) -> bool:
    """Return whether the pod has ended and holds nothing of its node any more."""
    return pod.status.phase in ("Succeeded", "Failed")
