"""Port to the container runtime of this node, for stopping containers as the kubelet does."""

from typing import Protocol


class ContainerRuntime(Protocol):
    """Container runtime; a call may take the whole grace period, so threads call it."""

    def reaches(self, container_id: str) -> bool:
        """Return immediately whether the runtime of a container is available."""

    def stop(self, pod_uid: str, container_id: str, grace_s: int) -> None:
        """Stop a container of a pod: SIGTERM, and SIGKILL after ``grace_s``.

        ``container_id`` is ``runtime://hash``, as the kubelet reports it.  Return when the
        container has stopped.  Raises HostError if that fails, or the pod does not own it.
        """
