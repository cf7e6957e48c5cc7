"""GPUs of Device objects that can be claimed as well, and what claims have got of them.

A node agent offers them as slices of one driver, in a pool that is called as the node.  A GPU is
the same one whichever way it is asked for, so what claims have of it counts against pods that
request resources, and the other way round.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from koordinator.api.device import DeviceType
from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.api.resource_names import WHOLE_DEVICE
from koordinator.domain.devices.allocation import Allocation, Taken, completed
from koordinator.domain.devices.amounts import CORE, MEMORY, NAMES, RATIO
from koordinator.domain.dynamic_resources.allocation import devices_of
from koordinator.domain.dynamic_resources.inventory import DeviceId
from koordinator.domain.masks import MAX_MINOR
from koordinator.foundation.quantity import NANOS

DRIVER: Final = "gpu.koordinator.sh"
CDI_KIND: Final = "nvidia.com/gpu"  # under which the vendor's toolkit describes GPUs, by UUID
CORE_CAPACITY, MEMORY_CAPACITY = "core", "memory"  # percent of a GPU; bytes
_NAME = re.compile(r"gpu-(0|[1-9][0-9]{0,5})")
_EXTRA: Final = (0,) * (len(NAMES[DeviceType.GPU]) - RATIO - 1)  # amounts of single vendors


def device_name(minor: int) -> str:
    """Return how a slice calls a GPU."""
    return f"gpu-{minor}"


def minor_of(name: str) -> int | None:
    """Return which GPU a slice calls so; None if no GPU can be called so."""
    found = _NAME.fullmatch(name)
    minor = int(found[1]) if found else -1
    return minor if 0 <= minor <= MAX_MINOR else None


def device_id(node: str, minor: int) -> DeviceId:
    """Return how claims call a GPU of a node."""
    return DRIVER, node, device_name(minor)


class ClaimedGpu(NamedTuple):
    """What a claim has of a GPU; nothing is said of the amounts if it is all of it."""

    minor: int
    consumed: tuple[tuple[str, int], ...] = ()  # by capacity, in nanos

    def taken(self, total: Sequence[int]) -> Taken:
        """Return it in terms of pods that request resources, of a GPU with so much in all."""
        if not self.consumed:
            return Taken(self.minor, tuple(total))
        core, memory = self._asked
        # Rounded up: a GPU of which anything is taken is not free as a whole.
        ratio = -(-memory * 100 // total[MEMORY]) if total[MEMORY] else 0
        return Taken(self.minor, (core, memory, ratio, *_EXTRA))

    def granted(self, total: Sequence[int]) -> Taken:
        """Return what a pod is told that requests as much core and memory of such a GPU.

        A share of less than a percent, or of a GPU with no memory known, has one percent: it is
        a share all the same.
        """
        if not self.consumed:
            return Taken(self.minor, (*total[:RATIO], WHOLE_DEVICE, *_EXTRA))
        core, memory = self._asked
        told = (core, memory, 0, *_EXTRA)
        ratio = completed(told, total)[RATIO] if total[MEMORY] else 0
        return Taken(self.minor, (core, memory, max(ratio, 1), *_EXTRA))

    @property
    def memory_bytes(self) -> int:
        """The memory that it has; 0 if it is all of the GPU."""
        return self._asked[1]

    @property
    def _asked(self) -> tuple[int, int]:
        """Core and memory, rounded up."""
        asked = dict(self.consumed)
        return _units(asked.get(CORE_CAPACITY, 0)), _units(asked.get(MEMORY_CAPACITY, 0))


def _units(nanos: int) -> int:
    return -(-nanos // NANOS)


def claimed_gpus(claim: ResourceClaim, request: str = "") -> Mapping[str, tuple[ClaimedGpu, ...]]:
    """Return what a claim keeps of the GPUs of nodes, by name of the node.

    If a ``request`` is named, that of this request alone.
    """
    found: dict[str, list[ClaimedGpu]] = {}
    for (driver, pool, name), result in devices_of(claim):
        minor = minor_of(name) if driver == DRIVER else None
        is_meant = not request or result.request.partition("/")[0] == request
        if minor is not None and is_meant:
            consumed = tuple((n, amount.nanos) for n, amount in result.consumed_capacity.items())
            found.setdefault(pool, []).append(ClaimedGpu(minor, consumed))
    return {node: tuple(gpus) for node, gpus in found.items()}


def held_by_pods(allocations: Iterable[Allocation]) -> Mapping[int, Mapping[str, int]]:
    """Return what pods hold of the capacity of GPUs, in nanos, by minor and capacity.

    An empty mapping stands for a GPU that can't be shared with claims: its amounts are not known.
    """
    held: dict[int, dict[str, int]] = {}
    whole: set[int] = set()
    for allocation in allocations:
        for taken in allocation.get(DeviceType.GPU, ()):
            mine = held.setdefault(taken.minor, {CORE_CAPACITY: 0, MEMORY_CAPACITY: 0})
            mine[CORE_CAPACITY] += taken.amounts[CORE] * NANOS
            mine[MEMORY_CAPACITY] += taken.amounts[MEMORY] * NANOS
            if taken.amounts[MEMORY] <= 0:
                whole.add(taken.minor)
    return {minor: {} if minor in whole else mine for minor, mine in held.items()}
