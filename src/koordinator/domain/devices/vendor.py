"""Description of a vendor of accelerators, and valid combinations of resource names in a request.

Combinations of single vendors are in ``vendors``.

Source: koordinator pkg/scheduler/plugins/deviceshare/utils.go, ``ValidateDeviceRequest``.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field
from typing import Final, Protocol

from koordinator.api.annotations.devices import DeviceAllocation, GpuPartitionTable
from koordinator.api.resource_names import (
    FPGA,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    RDMA,
    WHOLE_DEVICE,
)
from koordinator.foundation.lazy_dataclass import dataclass

#: Maps non-zero requests to the name whose amount is invalid; None: all are valid.
AmountCheck = Callable[[Mapping[str, int]], str | None]
#: Valid sets of names, with the check of their amounts.
Combinations = Mapping[frozenset[str], AmountCheck]


def percentages(amounts: Mapping[str, int]) -> str | None:
    """AmountCheck for a part of one device or a number of whole devices."""
    for name in (GPU, GPU_CORE, GPU_MEMORY_RATIO, RDMA, FPGA):
        amount = amounts.get(name, 0)
        if amount > WHOLE_DEVICE and amount % WHOLE_DEVICE:
            return name
    return None


def shares(amounts: Mapping[str, int]) -> str | None:
    """AmountCheck for equal parts of ``gpu.shared`` devices, none larger than a device."""
    count = amounts[GPU_SHARED]
    for name in (GPU_CORE, GPU_MEMORY_RATIO):
        amount = amounts.get(name, 0)
        if amount % count or amount // count > WHOLE_DEVICE:
            return name
    return None


def anything(_amounts: Mapping[str, int]) -> str | None:
    """Accept every amount."""
    return None


COMMON: Final[Combinations] = {
    frozenset({GPU}): percentages,
    frozenset({GPU_MEMORY}): percentages,
    frozenset({GPU_MEMORY_RATIO}): percentages,
    frozenset({GPU_CORE, GPU_MEMORY}): percentages,
    frozenset({GPU_CORE, GPU_MEMORY_RATIO}): percentages,
    frozenset({GPU_SHARED, GPU_MEMORY}): shares,
    frozenset({GPU_SHARED, GPU_MEMORY_RATIO}): shares,
    frozenset({GPU_SHARED, GPU_CORE, GPU_MEMORY}): shares,
    frozenset({GPU_SHARED, GPU_CORE, GPU_MEMORY_RATIO}): shares,
    frozenset({RDMA}): percentages,
    frozenset({FPGA}): percentages,
}


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
