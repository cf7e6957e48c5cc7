"""Intents become files, in an order that the kernel accepts, and nothing is written twice."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.memory_host import MemoryHost
from tests.nodes import LAYOUT, START_S, V2, Tree, pod

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.cpu_list import format_cpu_list
from koordinator.foundation.errors import HostError
from koordinator.host.linux.host import LinuxHost
from koordinator.host.port import NoCoreScheduling
from koordinator.koordlet.executor import AgentAuditTrail, Executor
from koordinator.koordlet.executor.audit import LOG_NAME, ROTATED_BYTES, AuditEvent, read_events
from koordinator.koordlet.intents import (
    EvictPod,
    Intent,
    RemoveResctrl,
    SetBlockDevice,
    SetCgroup,
    SetFile,
    SetOomScore,
    SetResctrl,
)

POD, CONTAINER = "kubepods/besteffort/pod1", "kubepods/besteffort/pod1/c"


def executor(tree: Tree, audit: AgentAuditTrail | None = None) -> Executor:
    """Return the executor of a tree."""
    trail = audit or AgentAuditTrail(tree.host)
    return Executor(tree.host, tree.roots, tree.cgroups, trail, core_scheduling=NoCoreScheduling())


def nested(quota: str = "-1", cpus: str = "0-7") -> Tree:
    """Return a tree with one best-effort pod of one container."""
    tree = Tree("0-7")
    tree.add(LAYOUT.besteffort, cpuset=cpus)
    tree.add(POD, cfs_quota=quota, cpuset=cpus)
    tree.add(CONTAINER, cfs_quota=quota, cpuset=cpus)
    return tree


def quotas(of_pod: int, of_container: int) -> list[Intent]:
    """Return intents in the wrong order."""
    return [
        SetCgroup(CgroupFile.CFS_QUOTA, CONTAINER, str(of_container), "test"),
        SetCgroup(CgroupFile.CFS_QUOTA, POD, str(of_pod), "test"),
    ]


def written(tree: Tree) -> list[tuple[str, str]]:
    """Return the folders and values of all writes, in order."""
    return [(path.split("/")[-2], text) for path, text in tree.host.written]


def test_shrinking_begins_with_children() -> None:
    """A pod below its container is refused by the kernel."""
    tree = nested("200000")
    executor(tree).apply(quotas(120_000, 120_000), START_S)

    assert written(tree) == [("c", "120000"), ("pod1", "120000")]


def test_growing_begins_with_parents() -> None:
    """A container above its pod is refused by the kernel."""
    tree = nested("120000")
    executor(tree).apply(quotas(300_000, 300_000), START_S)

    assert written(tree) == [("pod1", "300000"), ("c", "300000")]


def test_a_cpu_set_moves_over_the_union() -> None:
    """From 0-3 to 4-7: parents get both first, then children the new one, then parents."""
    tree = nested(cpus="0-3")
    folders = [LAYOUT.besteffort, POD, CONTAINER]
    executor(tree).apply(
        [SetCgroup(CgroupFile.CPUSET, folder, "4-7", "test") for folder in folders], START_S
    )

    assert written(tree) == [
        ("besteffort", "0-7"),
        ("pod1", "0-7"),
        ("c", "0-7"),
        ("c", "4-7"),
        ("pod1", "4-7"),
        ("besteffort", "4-7"),
    ]


quota_values = st.sampled_from([-1, 1000, 50_000, 100_000, 400_000])
cpu_masks = st.integers(1, 255)


@given(st.lists(st.tuples(quota_values, quota_values), min_size=1, max_size=5))
def test_any_consistent_quotas_are_reached(states: list[tuple[int, int]]) -> None:
    """The kernel refuses no write, in whatever order the values come."""
    tree = nested()
    run = executor(tree)
    for step, pair in enumerate(states):
        unlimited = 10**9
        above, below = sorted(pair, key=lambda q: q if q > 0 else unlimited, reverse=True)
        run.apply(quotas(above, below), START_S + step)

        assert tree.get(CgroupFile.CFS_QUOTA, POD) == str(above)
        assert tree.get(CgroupFile.CFS_QUOTA, CONTAINER) == str(below)
    assert not any(event.error for event in run.audit.events)


@given(st.lists(st.tuples(cpu_masks, cpu_masks, cpu_masks), min_size=1, max_size=5))
def test_any_consistent_cpu_sets_are_reached(states: list[tuple[int, int, int]]) -> None:
    """Children are subsets of their parents before, after and in between."""
    tree = nested()
    run = executor(tree)
    for step, (tier, pod_, container) in enumerate(states):
        masks = [tier | pod_ | container, pod_ | container, container]
        folders = [LAYOUT.besteffort, POD, CONTAINER]
        intents = [
            SetCgroup(CgroupFile.CPUSET, folder, format_cpu_list(mask), "test")
            for folder, mask in zip(folders, masks, strict=True)
        ]
        run.apply(intents[:: 1 if step % 2 else -1], START_S + step)

        for folder, mask in zip(folders, masks, strict=True):
            assert tree.get(CgroupFile.CPUSET, folder) == format_cpu_list(mask)
    assert not any(event.error for event in run.audit.events)


def test_an_equal_value_is_not_written() -> None:
    """Sets are compared as sets; nothing appears in the audit."""
    tree = nested(cpus="0-3")
    run = executor(tree)
    run.apply([SetCgroup(CgroupFile.CPUSET, POD, "0,1,2,3", "test")], START_S)

    assert tree.host.written == []
    assert not run.audit.events


def test_cached_value_is_checked_again_after_a_minute() -> None:
    """Another program may have changed the cached value."""
    tree = nested()
    run = executor(tree)
    intent = [SetCgroup(CgroupFile.CPU_SHARES, POD, "2048", "test")]
    run.apply(intent, START_S)
    tree.set(CgroupFile.CPU_SHARES, POD, 5)
    run.apply(intent, START_S + 59)
    assert tree.get(CgroupFile.CPU_SHARES, POD) == "5"

    run.apply(intent, START_S + 61)
    assert tree.get(CgroupFile.CPU_SHARES, POD) == "2048"


def test_values_are_translated_for_v2() -> None:
    """Weight for shares, max for no limit."""
    tree = Tree(version=V2)
    tree.add(POD)
    tree.host.put(tree.path(CgroupFile.CPU_SHARES, POD), "1\n")
    executor(tree).apply(
        [
            SetCgroup(CgroupFile.CPU_SHARES, POD, "3072", "test"),
            SetCgroup(CgroupFile.MEMORY_LIMIT, POD, "4096", "test"),
            SetCgroup(CgroupFile.READ_BPS, POD, "1", "test"),
        ],
        START_S,
    )

    assert tree.get(CgroupFile.CPU_SHARES, POD) == "118"
    assert tree.get(CgroupFile.MEMORY_LIMIT, POD) == "4096"


def test_a_pod_that_vanishes_is_no_failure() -> None:
    """Between reading and writing its cgroup, or before."""
    tree = nested()
    run = executor(tree)
    tree.host.vanish(f"/sys/fs/cgroup/cpu/{POD}")
    run.apply(quotas(1000, 1000), START_S)

    assert not run.audit.events


def test_refusal_is_logged_once_and_retried(caplog: pytest.LogCaptureFixture) -> None:
    """A read-only file must not drown the log."""
    tree = nested()
    run = executor(tree)
    path = tree.path(CgroupFile.CPU_SHARES, POD)
    tree.host.read_only.add(path)
    for second in range(3):
        intent = SetCgroup(CgroupFile.CPU_SHARES, POD, "2048", "test", "pod-a")
        run.apply([intent], START_S + second)
    assert [event.error for event in run.audit.events] == [
        f"cannot write {path}: Read-only file system"
    ]
    assert len([r for r in caplog.records if r.message == "write rejected"]) == 1
    assert run.outcomes["cgroup", "failed"] == 3

    tree.host.read_only.clear()
    run.apply([SetCgroup(CgroupFile.CPU_SHARES, POD, "2048", "test")], START_S + 3)
    assert tree.get(CgroupFile.CPU_SHARES, POD) == "2048"


def test_a_value_out_of_range_is_never_written() -> None:
    """The audit names the permitted range."""
    tree = nested()
    run = executor(tree)
    run.apply([SetCgroup(CgroupFile.BVT_WARP, POD, "3", "test")], START_S)

    assert tree.host.written == []
    (event,) = run.audit.events
    assert "must be -1..2" in event.error


class MainlineKernel(MemoryHost):
    """Refuses a burst above the quota, and a quota below the burst."""

    def write(self, path: str, text: str) -> None:
        folder, _, name = path.rpartition("/")
        both = {"cpu.cfs_burst_us": "0", "cpu.cfs_quota_us": "-1"}
        if name in both:
            result = {n: int(self._files.get(f"{folder}/{n}", d)) for n, d in both.items()}
            result[name] = int(text)
            if 0 < result["cpu.cfs_quota_us"] < result["cpu.cfs_burst_us"]:
                raise HostError(f"cannot write {path}: Invalid argument")
        super().write(path, text)


def test_burst_is_no_larger_than_the_quota_where_the_kernel_wants_that() -> None:
    """The quota can be lowered afterwards."""
    tree = Tree()
    tree.host = MainlineKernel()
    tree.cgroups = type(tree.cgroups)(tree.host, tree.roots.cgroup, tree.cgroups.version)
    tree.add(POD, cfs_quota=300_000)
    run = executor(tree)
    run.apply([SetCgroup(CgroupFile.CFS_BURST, POD, "1500000", "test")], START_S)
    assert tree.get(CgroupFile.CFS_BURST, POD) == "300000"

    run.apply([SetCgroup(CgroupFile.CFS_QUOTA, POD, "150000", "test")], START_S)
    assert tree.get(CgroupFile.CFS_QUOTA, POD) == "150000"
    assert tree.get(CgroupFile.CFS_BURST, POD) == "150000"
    assert not any(event.error for event in run.audit.events)


def test_a_capped_burst_is_audited_once() -> None:
    """The kernel caps the burst, so the check after a minute is no change."""
    tree = Tree()
    tree.host = MainlineKernel()
    tree.cgroups = type(tree.cgroups)(tree.host, tree.roots.cgroup, tree.cgroups.version)
    tree.add(POD, cfs_quota=300_000)
    run = executor(tree)
    for now_s in (START_S, START_S + 61, START_S + 122):
        run.apply([SetCgroup(CgroupFile.CFS_BURST, POD, "1500000", "test")], now_s)

    assert [event.after for event in run.audit.events] == ["300000"]


def test_block_devices_are_lines_of_a_file() -> None:
    """A reset is written over a value only."""
    tree = nested()
    tree.set(CgroupFile.READ_BPS, POD, "8:0 100")
    tree.set(CgroupFile.WRITE_BPS, POD, "")
    run = executor(tree)
    run.apply(
        [
            SetBlockDevice(CgroupFile.READ_BPS, POD, "8:0", "0", "test", reset=True),
            SetBlockDevice(CgroupFile.READ_BPS, POD, "8:16", "0", "test", reset=True),
            SetBlockDevice(CgroupFile.WRITE_BPS, POD, "8:0", "7", "test"),
        ],
        START_S,
    )

    assert [text for _, text in tree.host.written] == ["8:0 0", "8:0 7"]


def test_block_devices_of_v2_share_one_file() -> None:
    """The kernel keeps the other values of a line, and 0 is no limit."""
    tree = Tree(version=V2)
    tree.set(CgroupFile.READ_BPS, POD, "8:0 rbps=1000 wbps=max riops=max wiops=500")
    tree.set(CgroupFile.IO_QOS, "", "8:0 enable=1 ctrl=user rpct=95.00 rlat=3000 min=1.00")
    run = executor(tree)
    run.apply(
        [
            SetBlockDevice(CgroupFile.READ_BPS, POD, "8:0", "1000", "test"),
            SetBlockDevice(CgroupFile.READ_IOPS, POD, "8:0", "0", "test", reset=True),
            SetBlockDevice(CgroupFile.WRITE_IOPS, POD, "8:0", "0", "test", reset=True),
            SetBlockDevice(CgroupFile.IO_QOS, "", "8:0", "enable=1 rpct=95 rlat=3000", "test"),
            SetBlockDevice(CgroupFile.IO_QOS, "", "8:16", "enable=1 rpct=95", "test"),
        ],
        START_S,
    )

    assert [(path.rpartition("/")[2], text) for path, text in tree.host.written] == [
        ("io.max", "8:0 wiops=max"),
        ("io.cost.qos", "8:16 enable=1 rpct=95"),
    ]


def test_settings_of_the_kernel_are_written_where_they_exist() -> None:
    """A word among others is compared as a word."""
    tree = Tree()
    tree.host.put("/proc/sys/vm/watermark_scale_factor", "10\n")
    tree.host.put("/sys/kernel/debug/sched_features", "A NO_B C\n")
    run = executor(tree)
    run.apply(
        [
            SetFile("sysctl", "vm/watermark_scale_factor", "20", "test"),
            SetFile("sysctl", "kernel/none", "1", "test"),
            SetFile("sys", "kernel/debug/sched_features", "NO_B", "test", matches="NO_B"),
            SetFile("sys", "kernel/debug/sched_features", "B", "test", matches="B"),
        ],
        START_S,
    )

    assert [text for _, text in tree.host.written] == ["20", "B"]


def test_oom_scores_are_set_for_every_process_that_differs() -> None:
    """A process that has ended meanwhile is skipped."""
    tree = nested()
    tree.set(CgroupFile.PROCS, CONTAINER, "1\n2\n3")
    tree.host.put("/proc/1/oom_score_adj", "0\n")
    tree.host.put("/proc/2/oom_score_adj", "300\n")
    executor(tree).apply([SetOomScore(CONTAINER, 300, "test")], START_S)

    assert tree.host.written == [("/proc/1/oom_score_adj", "300")]


def test_resctrl_groups_are_made_filled_and_removed() -> None:
    """Nothing happens while it is not mounted; threads are moved once."""
    tree = nested()
    tree.set(CgroupFile.TASKS, CONTAINER, "7\n8")
    run = executor(tree)
    intent = SetResctrl("BE", ("L3:0=f",), (CONTAINER,), "test")
    run.apply([intent], START_S)
    assert tree.host.written == []

    root = tree.roots.resctrl
    tree.host.put(f"{root}/schemata", "L3:0=ff\n")
    tree.host.put(f"{root}/BE/schemata", "L3:0=ff\nMB:0=100\n")
    tree.host.put(f"{root}/BE/tasks", "7\n")
    run.apply([intent], START_S)
    run.apply([intent], START_S)
    assert tree.host.written == [
        (f"{root}/BE/schemata", "L3:0=f\n"),
        (f"{root}/BE/tasks", "8\n"),
    ]
    run.apply([RemoveResctrl("BE", "test")], START_S)
    assert tree.host.folders(root) == []


def test_schemata_that_are_as_wanted_are_not_written_again() -> None:
    """Spelling and the lines of other caches have no influence."""
    tree = nested()
    root = "/sys/fs/resctrl"
    tree.host.put(f"{root}/schemata", "    L3:0=fff;1=fff\n")
    tree.host.put(f"{root}/BE/schemata", "    MB:0= 50;1=100\n    L3:0=00f;1=0ff\n")
    tree.host.put(f"{root}/BE/tasks", "")
    work = executor(tree)
    for schemata in (("L3:0=f;1=ff", "MB:0=50;1=100"), ("L3:0=f",)):
        work.apply([SetResctrl("BE", schemata, (), "test")], START_S)
    assert tree.host.written == []

    work.apply([SetResctrl("BE", ("MB:0=60;1=100",), (), "test")], START_S)
    assert tree.host.written == [(f"{root}/BE/schemata", "MB:0=60;1=100\n")]
    assert work.audit.events[-1].before == "MB:0= 50;1=100"


def test_a_victim_loses_all_its_processes() -> None:
    """The audit has their number and the reason."""
    tree = Tree()
    view = tree.add_pod(pod("a", "BE"), procs="5\n6")
    run = executor(tree)
    folders = tuple(container.folder for container in view.containers)
    victim = EvictPod(
        "default", "a", view.uid, folders, "MemoryEvict", "too much memory", view.folder
    )

    assert run.kill(victim, START_S) == 2
    assert tree.host.killed == [5, 6]
    (event,) = run.audit.events
    assert event.message == "default/a (too much memory)" or "2 processes ended" in event.message


def event_at(number: int) -> AuditEvent:
    from koordinator.foundation.clock import to_datetime  # noqa: PLC0415

    return AuditEvent(created_at=to_datetime(START_S + number), type="cgroup", owner=f"o{number}")


def test_the_audit_is_read_newest_first(tmp_path: Path) -> None:
    """A line that was cut by a kill is left out."""
    host = LinuxHost()
    trail = AgentAuditTrail(host, str(tmp_path))
    for number in range(3):
        trail.add(event_at(number))
        trail.flush(START_S)
    with (tmp_path / LOG_NAME).open("a") as log:
        log.write('{"createdAt":"20')

    assert [event.owner for event in read_events(host, str(tmp_path))] == ["o2", "o1", "o0"]
    with pytest.raises(HostError, match="no audit log in"):
        next(iter(read_events(host, str(tmp_path / "none"))))


def test_the_audit_keeps_texts_with_line_separators(tmp_path: Path) -> None:
    """JSON has U+2028 and U+0085 as they are."""
    host = LinuxHost()
    trail = AgentAuditTrail(host, str(tmp_path))
    event = AuditEvent(created_at=event_at(0).created_at, type="file", after="a\u2028b\u0085c")
    trail.add(event)
    trail.flush(START_S)

    assert list(read_events(host, str(tmp_path))) == [event]


def test_the_audit_is_rotated_and_bounded(tmp_path: Path) -> None:
    """Sixteen megabytes by default; here, two files."""
    host = LinuxHost()
    trail = AgentAuditTrail(host, str(tmp_path), most_bytes=2 * ROTATED_BYTES)
    text = "x" * 4000
    for number in itertools.takewhile(lambda n: n < 2000, itertools.count()):
        trail.add(AuditEvent(created_at=event_at(0).created_at, type="file", after=text))
        if number % 100 == 99:
            trail.flush(START_S + number)
    sizes = [file.stat().st_size for file in tmp_path.iterdir()]

    assert len(sizes) <= 3
    assert max(sizes) <= ROTATED_BYTES + 500_000


def test_a_full_disk_costs_the_audit_and_nothing_else() -> None:
    """The change is applied nevertheless."""
    tree = nested()
    tree.host.read_only.add(f"/log/{LOG_NAME}")
    trail = AgentAuditTrail(tree.host, "/log")
    executor(tree, trail).apply([SetCgroup(CgroupFile.CPU_SHARES, POD, "2048", "t")], START_S)

    assert tree.get(CgroupFile.CPU_SHARES, POD) == "2048"
    assert "Read-only" in trail.problem
