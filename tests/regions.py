"""Regions of HAMi-core as bytes, made from the offsets of its header, and their folders."""

import gzip
import struct
from pathlib import Path

MAGIC = 19920718
GPUS = tuple(f"GPU-00000000-0000-4000-8000-00000000000{number}" for number in range(4))
_SIZES = {0: 1197896, 1: 2008952}
_HEADS = {0: (48, 56, 1592), 1: (56, 64, 1600)}  # device count, UUIDs, memory limits
_SLOTS = {0: (1848, 1168, 40, 776, 24, 1160), 1: (1856, 1960, 64, 1160, 48, 1928)}
_TAILS = {0: 1197880, 1: 2008896}
_GOLDEN = Path(__file__).parent / "golden/vgpu"


def region(  # noqa: PLR0917 -- fields of a record
    version: int = 1,
    gpus: tuple[str, ...] = GPUS[:1],
    used: tuple[tuple[int, ...], ...] = ((1 << 30,),),
    limit: int = 2 << 30,
    recent: int = 2,
    switch: int = 1,
    priority: int = 1,
    sm: int = 20,
    last_kernel: int = 0,
    minor: int = 1,
) -> bytearray:
    """Return a region; ``used`` are bytes by process and GPU."""
    data = bytearray(_SIZES[version] + 1)
    put = struct.pack_into
    put("<i", data, 0, MAGIC)
    if version:
        put("<2I", data, 4, version, minor)
        put("<q", data, 2008912, last_kernel)
    count, uuids, limits = _HEADS[version]
    put("<Q", data, count, len(gpus))
    for index, uuid in enumerate(gpus):
        put("96s", data, uuids + 96 * index, uuid.encode())
        put("<Q", data, limits + 8 * index, limit)
    first, size, stride, use, use_stride, status = _SLOTS[version]
    for number, amounts in enumerate(used):
        at = first + size * number
        put("<2i", data, at, 10 + number, 1000 + number)
        put("<i", data, at + status, 1)
        for index, amount in enumerate(amounts):
            put("<5Q", data, at + 8 + stride * index, 1, 2, max(amount - 10, 0), 7, amount)
            put("<Q", data, at + use + use_stride * index + 16, sm)
    put("<4i", data, _TAILS[version], len(used), switch, recent, priority)
    return data


def recorded(name: str) -> bytes:
    """Return a region that the real library wrote."""
    return gzip.decompress((_GOLDEN / f"{name}.cache.gz").read_bytes())


class RegionsFolder:
    """``containers`` below a folder, as koordlet makes it."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "containers"
        self.uids: dict[str, str] = {}  # of pods, where tests call them by another name
        self.path.mkdir(parents=True)

    def folder(self, uid: str, container: str = "main") -> Path:
        """Return the folder of a container, made if needed."""
        made = self.path / f"{self.uids.get(uid, uid)}_{container}"
        made.mkdir(exist_ok=True)
        return made

    def file(self, uid: str, container: str = "main") -> Path:
        """Return where the region of a container is."""
        folder = self.folder(uid, container)
        return folder / f"{folder.name}.cache"

    def put(self, uid: str, data: bytes | bytearray, container: str = "main") -> Path:
        """Write a region in place of the one before."""
        file = self.file(uid, container)
        temporary = file.with_suffix(".new")
        temporary.write_bytes(data)
        temporary.replace(file)
        return file

    def recent(self, uid: str, version: int = 1) -> int:
        """Return the trace of kernels."""
        return self._word(uid, _TAILS[version] + 8)

    def switch(self, uid: str, version: int = 1) -> int:
        """Return whether the limit of cores is in force."""
        return self._word(uid, _TAILS[version] + 4)

    def launch(self, uid: str, version: int = 1, trace: int = 2) -> None:
        """Leave what the library leaves with a kernel."""
        with self.file(uid).open("r+b") as file:
            file.seek(_TAILS[version] + 8)
            file.write(struct.pack("<i", trace))

    def _word(self, uid: str, offset: int) -> int:
        (number,) = struct.unpack_from("<i", self.file(uid).read_bytes(), offset)
        return int(number)
