"""GPUs of Device objects that claims can request too, and their usage by claims.

A node agent publishes them as slices of one driver, in a pool with the node's name. Usage by claims
counts against pods that request resources, and vice versa.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from koordinator.api.device import DeviceType
from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.api.resource_names import WHOLE_DEVICE
from koordinator.domain.devices.allocation import (
    CORE,
    MEMORY,
    NAMES,
    RATIO,
    Allocation,
    TakenDevice,
    completed,
)
from koordinator.domain.dynamic_resources.allocation import devices_of
from koordinator.domain.dynamic_resources.inventory import DeviceId
from koordinator.foundation.masks import MAX_MINOR
from koordinator.foundation.quantity import NANOS

DRIVER: Final = "gpu.koordinator.sh"
CDI_KIND: Final = "nvidia.com/gpu"  # CDI kind of the vendor's toolkit; GPUs by UUID
CORE_CAPACITY, MEMORY_CAPACITY = "core", "memory"  # percent of a GPU; bytes
_NAME = re.compile(r"gpu-(0|[1-9][0-9]{0,5})")
_EXTRA: Final = (0,) * (len(NAMES[DeviceType.GPU]) - RATIO - 1)  # amounts of specific vendors


def device_name(minor: int) -> str:
    """Return the device name of a GPU in a slice."""
    return f"gpu-{minor}"


def minor_of(name: str) -> int | None:
    """Return the minor of a device name; None if it is not a GPU's name."""
    match = _NAME.fullmatch(name)
    minor = int(match[1]) if match else -1
    return minor if 0 <= minor <= MAX_MINOR else None


def device_id(node: str, minor: int) -> DeviceId:
    """Return the device id of a node's GPU in claims."""
    return DRIVER, node, device_name(minor)


class ClaimedGpu(NamedTuple):
    """A claim's usage of a GPU; ``consumed`` is empty if it has the whole GPU."""

    minor: int
    consumed: tuple[tuple[str, int], ...] = ()  # (capacity name, nanos)

    def taken(self, total: Sequence[int]) -> TakenDevice:
        """Convert to the amounts of pods that request resources, given the GPU's total."""
        if not self.consumed:
            return TakenDevice(self.minor, tuple(total))
        core, memory = self._units_used
        # Rounded up so that a partly used GPU never counts as entirely free.
        ratio = -(-memory * 100 // total[MEMORY]) if total[MEMORY] else 0
        return TakenDevice(self.minor, (core, memory, ratio, *_EXTRA))

    def granted(self, total: Sequence[int]) -> TakenDevice:
        """Return the allocation of a pod that requests as much core and memory of such a GPU.

        The ratio is at least one percent, also for a GPU of unknown memory, so that it counts as a
        share.
        """
        if not self.consumed:
            return TakenDevice(self.minor, (*total[:RATIO], WHOLE_DEVICE, *_EXTRA))
        core, memory = self._units_used
        consumed = (core, memory, 0, *_EXTRA)
        ratio = completed(consumed, total)[RATIO] if total[MEMORY] else 0
        return TakenDevice(self.minor, (core, memory, max(ratio, 1), *_EXTRA))

    @property
    def memory_bytes(self) -> int:
        """The claimed memory; 0 for a whole GPU."""
        return self._units_used[1]

    @property
    def _units_used(self) -> tuple[int, int]:
        """Core and memory, rounded up."""
        consumed = dict(self.consumed)
        return _units(consumed.get(CORE_CAPACITY, 0)), _units(consumed.get(MEMORY_CAPACITY, 0))


def _units(nanos: int) -> int:
    return -(-nanos // NANOS)


def claimed_gpus(claim: ResourceClaim, request: str = "") -> Mapping[str, tuple[ClaimedGpu, ...]]:
    """Return a claim's usage of GPUs by node name, restricted to a ``request`` if named."""
    by_node: dict[str, list[ClaimedGpu]] = {}
    for (driver, pool, name), result in devices_of(claim):
        minor = minor_of(name) if driver == DRIVER else None
        is_of_request = not request or result.request.partition("/")[0] == request
        if minor is not None and is_of_request:
            consumed = tuple((n, amount.nanos) for n, amount in result.consumed_capacity.items())
            by_node.setdefault(pool, []).append(ClaimedGpu(minor, consumed))
    return {node: tuple(gpus) for node, gpus in by_node.items()}


def usage_by_minor(allocations: Iterable[Allocation]) -> Mapping[int, Mapping[str, int]]:
    """Return pods' usage of GPU capacity in nanos, by minor and capacity name.

    An empty mapping marks a GPU of unknown amounts, which can't be shared with claims.
    """
    by_minor: dict[int, dict[str, int]] = {}
    whole: set[int] = set()
    for allocation in allocations:
        for taken in allocation.get(DeviceType.GPU, ()):
            usage = by_minor.setdefault(taken.minor, {CORE_CAPACITY: 0, MEMORY_CAPACITY: 0})
            usage[CORE_CAPACITY] += taken.amounts[CORE] * NANOS
            usage[MEMORY_CAPACITY] += taken.amounts[MEMORY] * NANOS
            if taken.amounts[MEMORY] <= 0:
                whole.add(taken.minor)
    return {minor: {} if minor in whole else usage for minor, usage in by_minor.items()}
