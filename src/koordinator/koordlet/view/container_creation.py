"""A container that the runtime is about to make."""

from collections.abc import Mapping
from dataclasses import dataclass

from koordinator.koordlet.view.pods import ContainerView, PodView


@dataclass(frozen=True, slots=True)
class ContainerCreation:
    """What is known before the container exists: its pod, its spec and its environment.

    ``pod`` has this container alone among its containers where the API server has not told of the
    pod yet: then labels, annotations and amounts are those that the kubelet gave to the runtime.
    """

    pod: PodView
    container: ContainerView
    env: Mapping[str, str]

    @property
    def owner(self) -> str:
        """How messages call it."""
        return f"{self.pod.key}/{self.container.name}"
