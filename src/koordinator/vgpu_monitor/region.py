"""Shared region of HAMi-core, versions 0 and 1: layout, and a bounded reader.

Source: HAMi-core src/multiprocess/multiprocess_memory_limit.h (``shared_region_t``); HAMi
pkg/monitor/nvidia/cudevshr.go, v0/spec.go, v1/spec.go.
"""

from typing import Any, Final

import numpy as np
import numpy.typing as npt

from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.port import RegionFile

MAGIC: Final = 19920718
DEVICES: Final = 16
SLOTS: Final = 1024
UUID_BYTES: Final = 96
UUID_SHOWN: Final = 40  # characters of a GPU's UUID
_ATTEMPTS: Final = 3  # to read slots while they are being written

_MEMORY = ("context", "module", "data", "offset", "total")
_USE = ("decoder", "encoder", "sm")


def _slot(kinds: dict[str, tuple[Any, int]], size: int) -> "np.dtype[np.void]":
    return np.dtype(
        {
            "names": list(kinds),
            "formats": [kind for kind, _ in kinds.values()],
            "offsets": [offset for _, offset in kinds.values()],
            "itemsize": size,
        }
    )


def _per_device(names: tuple[str, ...], size: int) -> tuple["np.dtype[np.void]", tuple[int]]:
    """Return the type of 16 records of 64-bit numbers, of ``size`` bytes each."""
    one = _slot({name: ("<u8", 8 * at) for at, name in enumerate(names)}, size)
    return one, (DEVICES,)


@dataclass(frozen=True, slots=True)
class RegionLayout:
    """Offsets in bytes.  ``size`` is the size of the structure; the file has one more byte."""

    version: int
    size: int
    device_count: int
    uuids: int
    memory_limits: int
    slots: int
    slot: "np.dtype[np.void]"
    tail: int  # slot count, switch, recent kernel: 32 bits each
    last_kernel: int | None

    @property
    def switch(self) -> int:
        """Offset of the switch of the core limit."""
        return self.tail + 4

    @property
    def recent_kernel(self) -> int:
        """Offset of the number that kernels set, and that orders to wait."""
        return self.tail + 8


V1: Final = RegionLayout(
    version=1,
    size=2008952,
    device_count=56,
    uuids=64,
    memory_limits=1600,
    slots=1856,
    slot=_slot(
        {
            "memory": (_per_device(_MEMORY, 64), 8),
            "use": (_per_device(_USE, 48), 1160),
            "status": ("<i4", 1928),
            "sequence": ("<u8", 1936),  # since 1.2; odd while it is being written
        },
        1960,
    ),
    tail=2008896,
    last_kernel=2008912,
)
V0: Final = RegionLayout(
    version=0,
    size=1197896,
    device_count=48,
    uuids=56,
    memory_limits=1592,
    slots=1848,
    slot=_slot(
        {
            "memory": (_per_device(_MEMORY, 40), 8),
            "use": (_per_device(_USE, 24), 776),
            "status": ("<i4", 1160),
        },
        1168,
    ),
    tail=1197880,
    last_kernel=None,
)


@dataclass(frozen=True, slots=True)
class DeviceUse:
    """Usage of one GPU by the processes of a container in bytes, as recorded by the processes.

    ``index`` is within the container.  ``memory_limit`` 0 is none; ``core_percent`` is a sum over
    processes.
    """

    index: int
    uuid: str
    memory_limit: int
    context: float
    module: float
    data: float
    total: float
    core_percent: float

    @staticmethod
    def unused(index: int, uuid: str, memory_limit: int) -> "DeviceUse":
        """Return the usage of a container without processes."""
        return DeviceUse(index, uuid, memory_limit, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass(frozen=True, slots=True)
class RegionReading:
    """Copy of a region's numbers.  ``last_kernel_s`` is since the epoch, 0 for never."""

    layout: RegionLayout
    devices: tuple[DeviceUse, ...]
    switch: int
    recent_kernel: int
    last_kernel_s: int


def read_region(file: RegionFile) -> RegionReading:
    """Read a region, at most two megabytes of it.

    Devices without UUID are omitted, and invalid numbers of devices and slots are capped.  Raises
    InputError for a file that is no initialized region, HostError if it can't be read.
    """
    layout = _layout(file)
    head = _whole(file, 0, layout.slots)
    tail = np.frombuffer(_whole(file, layout.tail, 12), "<i4")
    slot_count, switch, recent_kernel = (int(number) for number in tail)
    used = _used_slots(file, layout, min(max(slot_count, 0), SLOTS))
    last_kernel = 0
    if layout.last_kernel is not None:
        last_kernel = int.from_bytes(_whole(file, layout.last_kernel, 8), "little", signed=True)
    return RegionReading(
        layout,
        tuple(_devices(layout, head, used)),
        switch,
        recent_kernel,
        last_kernel,
    )


def _layout(file: RegionFile) -> RegionLayout:
    start = np.frombuffer(_whole(file, 0, 12), "<i4")
    if start[0] != MAGIC:
        raise InputError(f"must start with the magic number {MAGIC}, got {start[0]}")
    size = file.size
    if size in {V0.size, V0.size + 1}:
        return V0
    if size >= V1.size and start[1] == V1.version:
        return V1
    raise InputError(
        f"must have {V0.size} bytes in version 0 or {V1.size} in version 1, "
        f"got {size} bytes in version {start[1]}"
    )


def _used_slots(file: RegionFile, layout: RegionLayout, count: int) -> npt.NDArray[np.void]:
    """Return the slots in use; retry while a slot is being written."""
    for _ in range(_ATTEMPTS):
        data = _whole(file, layout.slots, count * layout.slot.itemsize)
        slots = np.frombuffer(data, layout.slot)
        used: npt.NDArray[np.void] = slots[slots["status"] != 0]
        if "sequence" not in (layout.slot.names or ()) or not (used["sequence"] & 1).any():
            break
    return used


def _devices(layout: RegionLayout, head: bytes, used: npt.NDArray[np.void]) -> list[DeviceUse]:
    count = int.from_bytes(head[layout.device_count : layout.device_count + 8], "little")
    limits = np.frombuffer(head, "<u8", DEVICES, layout.memory_limits)
    memory, use = used["memory"], used["use"]
    sums = {name: memory[name].sum(axis=0, dtype=np.float64) for name in _MEMORY}
    percent = use["sm"].sum(axis=0, dtype=np.float64)
    result = []
    for index in range(min(count, DEVICES)):
        at = layout.uuids + UUID_BYTES * index
        uuid = head[at : at + UUID_BYTES].split(b"\0", 1)[0][:UUID_SHOWN]
        if not uuid:
            continue  # not initialized yet
        result.append(
            DeviceUse(
                index=index,
                uuid=uuid.decode("ascii", errors="replace"),
                memory_limit=int(limits[index]),
                context=float(sums["context"][index]),
                module=float(sums["module"][index]),
                data=float(sums["data"][index]),
                total=float(sums["total"][index]),
                core_percent=float(percent[index]),
            )
        )
    return result


def _whole(file: RegionFile, offset: int, size: int) -> bytes:
    """Return ``size`` bytes.  Raises InputError if the file ends earlier."""
    data = file.read(offset, size)
    if len(data) < size:
        raise InputError(f"must have at least {offset + size} bytes, got fewer")
    return data
