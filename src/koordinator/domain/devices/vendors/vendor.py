"""What Koordinator has to know about one maker of accelerators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from koordinator.api.annotations.devices import DeviceAllocation, GpuPartitionTable
from koordinator.domain.devices.combinations import Combinations


class AdaptationError(ValueError):
    """The vendor's device plugin has no way to say what the pod was given."""


class Adapter(Protocol):
    """Says in the words of the vendor's device plugin what a pod was given."""

    def __call__(
        self, devices: Sequence[DeviceAllocation], *, model: str, now_ns: int
    ) -> dict[str, str]:
        """Return annotations for the pod; there is at least one device.

        ``model`` is the node's label gpu-model, ``now_ns`` counts from the epoch.
        Raises AdaptationError.
        """


@dataclass(frozen=True, slots=True)
class Vendor:
    """All but ``labels`` is for those who need it."""

    labels: tuple[str, ...]  # values of the node label gpu-vendor
    whole_card: str = ""  # the resource that counts whole cards
    amounts: tuple[str, ...] = ()  # resources of a card beside core, memory and memory ratio
    combinations: Combinations = field(default_factory=dict)  # beside those for everybody
    partitions: Mapping[str, GpuPartitionTable] = field(default_factory=dict)  # by model
    adapt: Adapter | None = None
    #: annotation of the node by which at most one pod at a time waits for the device plugin
    node_lock: str = ""
