"""Specifics of one maker of accelerators."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from koordinator.api.annotations.devices import DeviceAllocation, GpuPartitionTable
from koordinator.domain.devices.combinations import Combinations


class AdaptationError(ValueError):
    """An allocation that the vendor's device plugin can't represent."""


class Adapter(Protocol):
    """Conversion of an allocation to the annotations of the vendor's device plugin."""

    def __call__(
        self, devices: Sequence[DeviceAllocation], *, model: str, now_ns: int
    ) -> dict[str, str]:
        """Return annotations for the pod; there is at least one device.

        ``model`` is the node's label gpu-model, ``now_ns`` counts from the epoch. Raises
        AdaptationError.
        """


@dataclass(frozen=True, slots=True)
class Vendor:
    """Specifics of a vendor; all but ``labels`` are optional."""

    labels: tuple[str, ...]  # values of the node label gpu-vendor
    whole_card: str = ""  # the resource that counts whole cards
    amounts: tuple[str, ...] = ()  # resources of a card beside core, memory and memory ratio
    combinations: Combinations = field(default_factory=dict)  # in addition to the common ones
    partitions: Mapping[str, GpuPartitionTable] = field(default_factory=dict)  # by model
    adapt: Adapter | None = None
    #: node annotation that locks the node for one pending pod
    node_lock: str = ""
