"""One name per cgroup file, whatever the version."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.domain.cgroups.files import (
    MAX_INT64,
    CgroupFile,
    CgroupVersion,
    cgroup_path,
    check_value,
    is_same,
    least_shares_of_weight,
    parse_number,
    quota_of_milli,
    runtime_weight_of_shares,
    shares_of_milli,
    shares_of_weight,
    spell,
    weight_of_shares,
)
from koordinator.foundation.errors import InputError

V1, V2 = CgroupVersion.V1, CgroupVersion.V2


@pytest.mark.parametrize(
    ("file", "v1", "v2"),
    [
        (CgroupFile.CPU_SHARES, "cpu/a/b/cpu.shares", "a/b/cpu.weight"),
        (CgroupFile.CFS_QUOTA, "cpu/a/b/cpu.cfs_quota_us", "a/b/cpu.max"),
        (CgroupFile.CFS_BURST, "cpu/a/b/cpu.cfs_burst_us", "a/b/cpu.max.burst"),
        (CgroupFile.CPU_USAGE, "cpuacct/a/b/cpuacct.usage", "a/b/cpu.stat"),
        (CgroupFile.CPU_PRESSURE, "cpuacct/a/b/cpu.pressure", "a/b/cpu.pressure"),
        (CgroupFile.TASKS, "cpu/a/b/tasks", "a/b/cgroup.threads"),
        (CgroupFile.MEMORY_LIMIT, "memory/a/b/memory.limit_in_bytes", "a/b/memory.max"),
        (CgroupFile.MEMORY_USAGE, "memory/a/b/memory.usage_in_bytes", "a/b/memory.current"),
        (CgroupFile.MEMORY_IDLE_PAGES, "memory/a/b/memory.idle_page_stats", None),
        (CgroupFile.PAGE_CACHE_SIZE, None, "a/b/memory.pagecache_limit.size"),
        (CgroupFile.READ_BPS, "blkio/a/b/blkio.throttle.read_bps_device", "a/b/io.max"),
    ],
)
def test_paths_of_files_follow_the_cgroup_version(
    file: CgroupFile, v1: str | None, v2: str | None
) -> None:
    """v1 has a hierarchy per subsystem, v2 one for all; some files are of one version."""
    assert cgroup_path(file, "a/b", V1) == v1
    assert cgroup_path(file, "a/b", V2) == v2


def test_the_root_has_no_folder() -> None:
    """Files of the root lie in the hierarchy itself."""
    assert cgroup_path(CgroupFile.CPUSET, "", V1) == "cpuset/cpuset.cpus"
    assert cgroup_path(CgroupFile.CPUSET, "", V2) == "cpuset.cpus"


def test_shares_and_weight_lose_precision_both_ways() -> None:
    """Integer division, as in the original."""
    assert weight_of_shares(3072) == 118
    assert shares_of_weight(117) == 3043
    assert (weight_of_shares(2), weight_of_shares(262_144)) == (1, 10_000)


@pytest.mark.parametrize("weight", [-1, 0, 10_001, 2**63])
def test_invalid_weights_have_no_shares(weight: int) -> None:
    """An idle cgroup reads 0; as in the original that is refused, not computed."""
    with pytest.raises(InputError, match=rf"cpu.weight: must be 1..10000, got {weight}"):
        shares_of_weight(weight)
    with pytest.raises(InputError, match=r"cpu.weight"):
        parse_number(CgroupFile.CPU_SHARES, f"{weight}\n", V2)


@pytest.mark.parametrize("shares", [-1, 0, 1, 262_145])
def test_no_weight_stands_for_what_are_no_shares(shares: int) -> None:
    """Shares outside their range have no weight in either conversion."""
    for convert in (weight_of_shares, runtime_weight_of_shares):
        with pytest.raises(InputError, match=rf"cpu.shares: must be 2..262144, got {shares}"):
            convert(shares)


@pytest.mark.parametrize(
    ("shares", "weight"),
    [(2, 1), (3, 2), (102, 17), (512, 59), (768, 80), (1024, 100), (3072, 240), (262_144, 10_000)],
)
def test_newer_runtimes_give_one_cpu_the_default_weight(shares: int, weight: int) -> None:
    """opencontainers/cgroups 0.0.7 computes the same values."""
    assert runtime_weight_of_shares(shares) == weight


@given(st.integers(2, 262_143))
def test_newer_weights_grow_with_the_shares(shares: int) -> None:
    """More shares never have less weight, nor less than the kubelet gives them."""
    weight = runtime_weight_of_shares(shares)
    assert weight_of_shares(shares) <= weight <= runtime_weight_of_shares(shares + 1)


@given(st.integers(1, 10_000))
def test_every_weight_has_shares(weight: int) -> None:
    """Each weight is converted to the smallest shares that have it."""
    shares = least_shares_of_weight(weight)
    assert weight_of_shares(shares) == weight
    assert shares == 2 or weight_of_shares(shares - 1) < weight


@given(st.integers(1, 10_000))
def test_a_weight_stays_itself_or_one_less(weight: int) -> None:
    """A value read from cgroup v2 can be written again without drift."""
    assert weight - 1 <= weight_of_shares(shares_of_weight(weight)) <= weight


@pytest.mark.parametrize(
    ("file", "value", "written"),
    [
        (CgroupFile.CPU_SHARES, "3072", "118"),
        (CgroupFile.CFS_QUOTA, "-1", "max"),
        (CgroupFile.CFS_QUOTA, "50000", "50000"),
        (CgroupFile.MEMORY_LIMIT, "-1", "max"),
        (CgroupFile.MEMORY_HIGH, str(MAX_INT64), "max"),
        (CgroupFile.BVT_WARP, "-1", "-1"),
    ],
)
def test_values_are_spelt_for_v2(file: CgroupFile, value: str, written: str) -> None:
    """v1 takes them as they are."""
    assert spell(file, value, V2) == written
    assert spell(file, value, V1) == value


@pytest.mark.parametrize(
    ("file", "value"),
    [
        (CgroupFile.CPU_SHARES, "1"),
        (CgroupFile.CPU_SHARES, "262145"),
        (CgroupFile.CFS_BURST, "-1"),
        (CgroupFile.CFS_BURST, "100000001"),
        (CgroupFile.BVT_WARP, "-2"),
        (CgroupFile.BVT_WARP, "3"),
        (CgroupFile.CPU_IDLE, "2"),
        (CgroupFile.WMARK_RATIO, "101"),
        (CgroupFile.WMARK_SCALE, "0"),
        (CgroupFile.WMARK_MIN_ADJ, "-26"),
        (CgroupFile.WMARK_MIN_ADJ, "51"),
        (CgroupFile.MEMORY_PRIORITY, "13"),
        (CgroupFile.OOM_GROUP, "two"),
    ],
)
def test_a_value_out_of_range_is_never_written(file: CgroupFile, value: str) -> None:
    """The error names the file and what it takes."""
    with pytest.raises(InputError, match=r"^\S+: must be .*, got "):
        check_value(file, value)


@pytest.mark.parametrize(
    ("file", "text", "version", "number"),
    [
        (CgroupFile.CFS_QUOTA, "max 100000\n", V2, -1),
        (CgroupFile.CFS_QUOTA, "25000 100000\n", V2, 25_000),
        (CgroupFile.CFS_PERIOD, "25000 50000\n", V2, 50_000),
        (CgroupFile.CPU_SHARES, "117\n", V2, 3043),
        (CgroupFile.MEMORY_HIGH, "max\n", V2, MAX_INT64),
        (CgroupFile.MEMORY_LIMIT, "max\n", V2, -1),
        (CgroupFile.MEMORY_LIMIT, "9223372036854771712\n", V1, -1),
        (CgroupFile.MEMORY_LIMIT, "4096\n", V1, 4096),
        (CgroupFile.CFS_QUOTA, "-1\n", V1, -1),
    ],
)
def test_numbers_are_read_in_v1_units(
    file: CgroupFile, text: str, version: CgroupVersion, number: int
) -> None:
    """No limit is -1 in both versions."""
    assert parse_number(file, text, version) == number


@pytest.mark.parametrize("text", ["", "\n", "12 x", "-"])
def test_half_a_number_is_an_error(text: str) -> None:
    """The caller keeps what it had."""
    with pytest.raises(InputError):
        parse_number(CgroupFile.CFS_QUOTA, text, V1)


@pytest.mark.parametrize(
    ("file", "wanted", "current", "version", "same"),
    [
        (CgroupFile.CPUSET, "0,1,2", "0-2\n", V1, True),
        (CgroupFile.CPUSET, "0-2", "0-3\n", V1, False),
        (CgroupFile.MEMORY_HIGH, str(MAX_INT64), "max\n", V2, True),
        (CgroupFile.CFS_QUOTA, "-1", "max 100000\n", V2, True),
        (CgroupFile.CPU_SHARES, "3072", "118\n", V2, True),
        (CgroupFile.CPU_SHARES, "3072", "119\n", V2, False),
        (CgroupFile.CFS_QUOTA, "5000", "garbage", V1, False),
        (CgroupFile.MEMORY_LOW, "53687091", "53686272\n", V2, True),
        (CgroupFile.MEMORY_LOW, "53690368", "53686272\n", V2, False),
        (CgroupFile.MEMORY_LIMIT, "-1", "4096\n", V2, False),
    ],
)
def test_equal_values_need_no_write(
    file: CgroupFile, wanted: str, current: str, version: CgroupVersion, same: bool
) -> None:
    """Sets are compared as sets, memory in pages; the largest number equals max."""
    assert is_same(file, wanted, current, version) is same


@pytest.mark.parametrize(
    ("milli", "shares", "quota"),
    [(0, 2, -1), (-5, 2, -1), (1, 2, 1000), (750, 768, 75_000), (1_000_000, 262_144, 100_000_000)],
)
def test_shares_and_quota_of_cpus(milli: int, shares: int, quota: int) -> None:
    """Bounded as the kernel wants them; a quota is 1 ms at least."""
    assert shares_of_milli(milli) == shares
    assert quota_of_milli(milli) == quota
