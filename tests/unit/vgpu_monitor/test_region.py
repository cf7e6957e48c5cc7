"""Reading regions of every version, and files that only look like one."""

import os
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.regions import GPUS, RegionsFolder, recorded, region

from koordinator.foundation.errors import HostError, InputError
from koordinator.host.linux.vgpu_regions import LinuxRegionFolders
from koordinator.vgpu_monitor.region import SLOTS, RegionReading, read_region

MIB = 1 << 20


class Bytes:
    """Implements ``vgpu_regions.RegionFile`` over bytes."""

    def __init__(self, data: bytes) -> None:
        self.data, self.size = data, len(data)

    def read(self, offset: int, size: int) -> bytes:
        return self.data[offset : offset + size]

    def write_int(self, offset: int, value: int) -> None:
        raise HostError(f"{offset} {value}")

    def close(self) -> None: ...


def reading(data: bytes) -> RegionReading:
    return read_region(Bytes(data))


def test_region_of_the_real_library_is_read() -> None:
    """HAMi-core, version 1.2: one process with 1 GiB in two GPUs, one with 256 MiB in the first."""
    result = reading(recorded("v1.2-two-processes"))

    assert [(use.index, use.uuid) for use in result.devices] == [(0, GPUS[0]), (1, GPUS[1])]
    assert [use.total for use in result.devices] == [1280 * MIB, 1024 * MIB]
    assert [use.memory_limit for use in result.devices] == [2048 * MIB] * 2
    assert [use.core_percent for use in result.devices] == [19, 19]
    assert (result.layout.version, result.switch, result.recent_kernel) == (1, 1, 2)
    assert result.last_kernel_s > 1_700_000_000


def test_a_killed_process_keeps_its_slot() -> None:
    """The library itself frees it only when the limit is met; what is shown is what it counts."""
    result = reading(recorded("v1.2-one-killed"))

    assert result.devices[0].total == 1280 * MIB


@pytest.mark.parametrize("version", [0, 1])
def test_every_version_is_read_from_where_its_fields_are(version: int) -> None:
    """Two processes on two GPUs; the parts of memory are sums, too."""
    data = region(version, GPUS[:2], ((100, 200), (1000, 2000)), recent=-1, switch=0, sm=7)
    result = reading(bytes(data))

    assert result.layout.version == version
    assert [use.total for use in result.devices] == [1100, 2200]
    first = result.devices[0]
    assert (first.context, first.module, first.data, first.core_percent) == (2, 4, 1080, 14)
    assert (result.recent_kernel, result.switch) == (-1, 0)


def test_only_slots_in_use_count() -> None:
    """Of 1,024 slots those below the count that have a process."""
    data = region(used=((100,), (200,), (400,)))
    struct.pack_into("<i", data, 1856 + 1960 + 1928, 0)  # the second has ended
    struct.pack_into("<i", data, 2008896, 2)  # the third is beyond the count

    assert reading(bytes(data)).devices[0].total == 100


def test_a_gpu_without_uuid_is_not_initialised_yet() -> None:
    """The GPU is left out, and the others keep their index."""
    result = reading(bytes(region(gpus=("", GPUS[1]), used=((1, 2),))))

    assert [use.index for use in result.devices] == [1]


@pytest.mark.parametrize(
    ("spoil", "problem"),
    [
        (lambda data: data[:3], "at least 12 bytes"),
        (lambda data: data[:1000], "1000 bytes in version 1"),
        (lambda data: data[:1_500_000], "1500000 bytes in version 1"),
        (lambda data: data[:-2], "2008951 bytes in version 1"),
        (lambda data: b"\0" * len(data), "magic number"),
        (lambda data: data[:4] + b"\x07" + data[5:], "version 7"),
    ],
)
def test_invalid_region_is_rejected_with_the_reason(
    spoil: Callable[[bytes], bytes], problem: str
) -> None:
    """Cut off, empty, of a version to come."""
    with pytest.raises(InputError, match=problem):
        reading(spoil(bytes(region())))


def test_impossible_numbers_are_bounded_by_the_memory() -> None:
    """4 billion devices, two billion slots, sums beyond 64 bits, a UUID that is no text."""
    data = region(gpus=(GPUS[0],) * 16, used=())
    struct.pack_into("<Q", data, 56, 2**32)
    struct.pack_into("<i", data, 2008896, 2**31 - 1)
    for slot in range(SLOTS):
        struct.pack_into("<i", data, 1856 + 1960 * slot + 1928, 1)
        struct.pack_into("<Q", data, 1856 + 1960 * slot + 8 + 32, 2**64 - 1)
    data[64:160] = b"\xff" * 96
    result = reading(bytes(data))

    assert len(result.devices) == 16
    assert result.devices[0].total == pytest.approx(SLOTS * 2.0**64)
    assert len(result.devices[0].uuid) == 40


@given(st.integers(0, 2008952), st.binary(max_size=64), st.sampled_from([0, 1]))
def test_no_bytes_anywhere_break_the_reader(offset: int, noise: bytes, version: int) -> None:
    """Any bytes give a reading within bounds, or an error."""
    data = region(version)
    data[offset : offset + len(noise)] = noise[: max(len(data) - offset, 0)]
    try:
        result = reading(bytes(data))
    except InputError:
        return
    assert len(result.devices) <= 16


def test_file_truncated_between_two_reads_is_rejected(tmp_path: Path) -> None:
    """A mapped file would end the process with SIGBUS here."""
    folder = RegionsFolder(tmp_path)
    path = folder.put("u", bytes(region()))
    file = LinuxRegionFolders(str(folder.path)).open("u_main", "u_main.cache")
    assert read_region(file).devices
    os.truncate(path, 5000)

    with pytest.raises(InputError, match="5000 bytes"):
        read_region(file)
    with pytest.raises(HostError, match="ends before"):
        file.write_int(2008904, -1)
    assert path.stat().st_size == 5000
    file.close()
