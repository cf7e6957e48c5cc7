"""Container that the runtime is about to create."""

from collections.abc import Mapping
from dataclasses import dataclass

from koordinator.api.annotations.devices import DeviceAllocation
from koordinator.koordlet.view.pods import ContainerView, PodView


@dataclass(frozen=True, slots=True)
class ContainerCreation:
    """State before the container exists: its pod, its spec and its environment.

    If the watch has not delivered the pod yet, ``pod`` has no other container, and its labels,
    annotations and resources are those that the kubelet passed to the runtime.  ``claimed_gpus``
    are the GPUs of its resource claims, smallest share first.
    """

    pod: PodView
    container: ContainerView
    env: Mapping[str, str]
    claimed_gpus: tuple[DeviceAllocation, ...] = ()

    @property
    def owner(self) -> str:
        """Name of the container in messages."""
        return f"{self.pod.key}/{self.container.name}"
