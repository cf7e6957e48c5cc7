"""A container that the runtime is about to make."""

from collections.abc import Mapping
from dataclasses import dataclass

from koordinator.api.annotations.devices import DeviceAllocation
from koordinator.koordlet.view.pods import ContainerView, PodView


@dataclass(frozen=True, slots=True)
class ContainerCreation:
    """What is known before the container exists: its pod, its spec and its environment.

    ``pod`` has this container alone among its containers where the API server has not told of the
    pod yet: then labels, annotations and amounts are those that the kubelet gave to the runtime.
    ``claimed_gpus`` are those that the runtime gives it for claims, the smallest share first.
    """

    pod: PodView
    container: ContainerView
    env: Mapping[str, str]
    claimed_gpus: tuple[DeviceAllocation, ...] = ()

    @property
    def owner(self) -> str:
        """How messages call it."""
        return f"{self.pod.key}/{self.container.name}"
