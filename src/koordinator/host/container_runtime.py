"""The port to the container runtime of this node, for ending containers as the kubelet does."""

from typing import Protocol


class ContainerRuntime(Protocol):
    """Asked by threads: a container may take as long to end as it is given."""

    def reaches(self, container_id: str) -> bool:
        """Return at once whether there is somebody to ask about a container."""

    def stop(self, pod_uid: str, container_id: str, grace_s: int) -> None:
        """End a container of a pod: SIGTERM, and SIGKILL after so many seconds.

        ``container_id`` is ``runtime://hash``, as the kubelet reports it.  Returns when the
        container has ended.  Raises HostError if it can't be ended, or is not of that pod.
        """
