"""From the files of a host to samples; nothing absurd becomes one."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.memory_host import MemoryHost
from tests.nodes import GIB, LAYOUT, START_S, V2, Tree, cpus, machine, pod, slo

from koordinator.api.node_slo import NodeSloSpec
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import HostError
from koordinator.host.gpus import Gpu, GpuUsage
from koordinator.koordlet.app.discovery import read_cpus
from koordinator.koordlet.collectors.accelerators import GpuCollector
from koordinator.koordlet.collectors.context import CollectionContext, Collector, Counters
from koordinator.koordlet.collectors.node import (
    BestEffortCollector,
    Disks,
    HostApplicationCollector,
    NodeCollector,
    SystemCollector,
)
from koordinator.koordlet.collectors.performance import ColdPageCollector, PressureCollector
from koordinator.koordlet.collectors.pods import PodCollector
from koordinator.koordlet.metrics import MEMORY_METRICS, MemoryMetrics, Metric, MetricStore
from koordinator.koordlet.view.pods import PodView
from koordinator.koordlet.view.slo import effective_slo

MEMINFO = (
    "MemTotal: 32 kB\nMemFree: 8 kB\nMemAvailable: 20 kB\n"
    "Active(file): 4 kB\nInactive(file): 4 kB\nSReclaimable: 2 kB\n"
)


def context(
    tree: Tree, *pods: PodView, spec: NodeSloSpec | None = None, **changes: object
) -> CollectionContext:
    """Return what collectors work with."""
    collection_context = CollectionContext(
        files=tree.host,
        roots=tree.roots,
        cgroups=tree.cgroups,
        store=MetricStore(600, 1),
        layout=LAYOUT,
        machine=machine(),
        slo=effective_slo(spec or NodeSloSpec(), LAYOUT),
        pods=pods,
    )
    return replace(collection_context, **changes)  # type: ignore[arg-type]


def last(where: CollectionContext, metric: Metric, owner: str = "") -> float | None:
    """Return the newest sample."""
    return where.store.last(metric, owner, 0)


def collect(where: CollectionContext, collector: Collector, *seconds: float) -> None:
    """Collect at some seconds from the start."""
    for second in seconds:
        collector.collect(where, START_S + second)


def stat(busy: Sequence[int]) -> str:
    """Return /proc/stat of two CPUs with so many busy ticks."""
    lines = [f"cpu{n} {ticks} 0 0 9 9 0 0" for n, ticks in enumerate(busy)]
    return "\n".join([f"cpu  {sum(busy)} 0 0 9 9 0 0", *lines, "intr 1"])


def test_node_cpu_needs_two_readings() -> None:
    """100 ticks of 10 ms in one second are one core."""
    tree = Tree()
    where = context(tree, machine=machine(2))
    collector = NodeCollector(1.0, 100.0)
    tree.host.put("/proc/meminfo", MEMINFO)
    tree.host.put("/proc/stat", stat([500, 500]))
    collect(where, collector, 0)
    assert last(where, Metric.NODE_CPU) is None

    tree.host.put("/proc/stat", stat([550, 550]))
    collect(where, collector, 1)
    assert last(where, Metric.NODE_CPU) == pytest.approx(1.0)
    assert last(where, Metric.NUMA_CPU, "0") == pytest.approx(1.0)
    assert last(where, Metric.NODE_MEMORY) == 12 * 1024
    assert last(where, Metric.NODE_MEMORY_WITH_PAGE_CACHE) == 24 * 1024


@pytest.mark.parametrize("text", ["", "cpu  1 2", stat([100, 100]), stat([9_000_000, 0])])
def test_a_half_written_reset_or_absurd_counter_gives_no_sample(text: str) -> None:
    """The next good pair of readings does."""
    tree = Tree()
    where = context(tree, machine=machine(2))
    collector = NodeCollector(1.0, 100.0)
    tree.host.put("/proc/stat", stat([500, 500]))
    collect(where, collector, 0)
    tree.host.put("/proc/stat", text)
    collect(where, collector, 1)

    assert last(where, Metric.NODE_CPU) is None


def test_no_rate_after_a_long_pause() -> None:
    """An average over a minute is no usage of this second."""
    counters = Counters(1.0)

    assert counters.rate(("a", ""), 0, 0) is None
    assert counters.rate(("a", ""), 20, 10) == 0.5
    assert counters.rate(("a", ""), 41, 30) is None
    assert counters.rate(("a", ""), 41, 30) is None
    assert counters.rate(("a", ""), 40, 31) is None
    assert counters.rate(("a", ""), 42, 31) == 0.0


@pytest.mark.parametrize("version", [1, 2])
def test_pods_and_containers_are_measured(version: int) -> None:
    """CPU by its counter, memory without cache, throttling as a share of periods."""
    tree = Tree(version=V2) if version == 2 else Tree()
    view = tree.add_pod(pod("a", "LS"))
    where = context(tree, view)
    collector = PodCollector(1.0)
    folders = [view.folder, view.containers[0].folder]

    def write(used_ns: int, periods: int, throttled: int) -> None:
        for folder in folders:
            if version == 2:
                text = f"usage_usec {used_ns // 1000}\nnr_periods {periods}\n"
                text += f"nr_throttled {throttled}\nthrottled_usec 0"
                tree.set(CgroupFile.CPU_STAT, folder, text)
                memory = "active_anon 1\ninactive_anon 2\nactive_file 4\ninactive_file 8\n"
                tree.set(CgroupFile.MEMORY_STAT, folder, f"{memory}unevictable 16")
                continue
            tree.set(CgroupFile.CPU_USAGE, folder, used_ns)
            text = f"nr_periods {periods}\nnr_throttled {throttled}\nthrottled_time 0"
            tree.set(CgroupFile.CPU_STAT, folder, text)
            memory = "total_active_anon 1\ntotal_inactive_anon 2\ntotal_active_file 4\n"
            memory += "total_inactive_file 8\ntotal_unevictable 16"
            tree.set(CgroupFile.MEMORY_STAT, folder, memory)

    write(10**9, 100, 10)
    collect(where, collector, 0)
    write(2_500_000_000, 110, 14)
    collect(where, collector, 1)

    for metric in (Metric.POD_CPU, Metric.CONTAINER_CPU):
        owner = view.uid if metric is Metric.POD_CPU else view.containers[0].id
        assert last(where, metric, owner) == pytest.approx(1.5)
    assert last(where, Metric.POD_MEMORY, view.uid) == 19
    assert last(where, Metric.POD_MEMORY_WITH_PAGE_CACHE, view.uid) == 31
    assert last(where, Metric.CONTAINER_MEMORY, view.containers[0].id) == 19
    assert last(where, Metric.POD_THROTTLED, view.uid) == pytest.approx(0.4)


def test_a_pod_that_vanishes_costs_its_samples_only() -> None:
    """The others of the round are there."""
    tree = Tree()
    vanished, stays = tree.add_pod(pod("a")), tree.add_pod(pod("b"))
    where = context(tree, vanished, stays)
    collector = PodCollector(1.0)
    collect(where, collector, 0)
    tree.host.vanish(f"/sys/fs/cgroup/cpuacct/{vanished.folder}")
    collect(where, collector, 1)

    assert last(where, Metric.POD_CPU, vanished.uid) is None
    assert last(where, Metric.POD_CPU, stays.uid) == 0


def test_more_memory_than_there_is_is_no_sample() -> None:
    """Half of a number looks like a number."""
    tree = Tree()
    view = tree.add_pod(pod("a"))
    where = context(tree, view)
    tree.set(
        CgroupFile.MEMORY_STAT,
        view.folder,
        f"total_active_anon {33 * GIB}\n"
        "total_inactive_anon 0\ntotal_active_file 0\ntotal_inactive_file 0\n"
        "total_unevictable 0",
    )
    collect(where, PodCollector(1.0), 0)

    assert last(where, Metric.POD_MEMORY, view.uid) is None


def test_the_real_limit_of_best_effort_is_its_smallest_set_or_its_quota() -> None:
    """The smaller one counts; a request is the sum of the pods' batch CPUs."""
    tree = Tree("0-7")
    view = tree.add_pod(pod("b", "BE", requests={"kubernetes.io/batch-cpu": 1500}), cpuset="0-3")
    where = context(tree, view)
    collect(where, BestEffortCollector(1.0), 0)
    assert last(where, Metric.BE_CPU_LIMIT) == 4000
    assert last(where, Metric.BE_CPU_REQUEST) == 1500

    tree.set(CgroupFile.CFS_QUOTA, LAYOUT.besteffort, 250_000)
    collect(where, BestEffortCollector(1.0), 1)
    assert last(where, Metric.BE_CPU_LIMIT) == 2500


def test_system_usage_is_the_rest() -> None:
    """Node less pods less known programs; never below zero, and nothing without a fresh input."""
    tree = Tree()
    view = tree.add_pod(pod("a"))
    where = context(tree, view, spec=slo(hostApplications=[{"name": "app"}]))
    values = {
        (Metric.NODE_CPU, ""): 4.0,
        (Metric.POD_CPU, view.uid): 2.5,
        (Metric.HOST_APP_CPU, "app"): 1.0,
        (Metric.NODE_MEMORY, ""): 100.0,
        (Metric.POD_MEMORY, view.uid): 170.0,
        (Metric.NUMA_CPU, "0"): 4.0,
        (Metric.NUMA_MEMORY, "0"): 90.0,
    }
    for (metric, owner), value in values.items():
        where.store.add(metric, owner, START_S, value)
    collect(where, SystemCollector(10), 20)
    assert last(where, Metric.SYSTEM_CPU) is None

    collect(where, SystemCollector(10), 5)
    assert last(where, Metric.SYSTEM_CPU) == pytest.approx(0.5)
    assert last(where, Metric.SYSTEM_MEMORY) == 0
    assert last(where, Metric.SYSTEM_NUMA_CPU, "0") == pytest.approx(0.5)
    assert last(where, Metric.SYSTEM_NUMA_MEMORY, "0") == 90


@pytest.mark.parametrize("series", MEMORY_METRICS.values(), ids=MEMORY_METRICS)
def test_the_system_counts_page_cache_as_the_node_does(series: MemoryMetrics) -> None:
    """With page cache, without, or with its hot part: each less the same of pods and programs."""
    tree = Tree()
    view = tree.add_pod(pod("a"))
    where = context(tree, view, spec=slo(hostApplications=[{"name": "app"}]))
    values = {
        (Metric.NODE_CPU, ""): 1.0,
        (Metric.NODE_MEMORY, ""): 100.0,
        (series.node, ""): 100.0,
        (series.pod, view.uid): 40.0,
        (series.host_application, "app"): 25.0,
    }
    for (metric, owner), value in values.items():
        where.store.add(metric, owner, START_S, value)
    collect(where, SystemCollector(10), 0)

    assert last(where, series.system) == 35.0


def test_host_applications_are_measured_where_they_are() -> None:
    """By the folder of the NodeSLO."""
    tree = Tree()
    tree.add("host-latency-sensitive/app")
    where = context(tree, spec=slo(hostApplications=[{"name": "app", "qos": "LS"}]))
    collector = HostApplicationCollector(1.0)
    collect(where, collector, 0)
    tree.set(CgroupFile.CPU_USAGE, "host-latency-sensitive/app", 500_000_000)
    collect(where, collector, 1)

    assert last(where, Metric.HOST_APP_CPU, "app") == pytest.approx(0.5)
    assert last(where, Metric.HOST_APP_MEMORY, "app") == 0


def test_pressure_is_taken_where_the_kernel_has_it() -> None:
    """A file without ``full`` gives ``some``."""
    tree = Tree()
    view = tree.add_pod(pod("a"))
    where = context(tree, view)
    line = "avg10=1.50 avg60=0.00 avg300=0.00 total=1"
    tree.set(CgroupFile.CPU_PRESSURE, view.folder, f"some {line}")
    tree.set(CgroupFile.MEMORY_PRESSURE, view.folder, f"some {line}\nfull {line}")
    collect(where, PressureCollector(), 0)

    assert last(where, Metric.POD_PSI, f"{view.uid}/cpu/some") == 1.5
    assert last(where, Metric.POD_PSI, f"{view.uid}/cpu/full") is None
    assert last(where, Metric.POD_PSI, f"{view.uid}/mem/full") == 1.5
    assert last(where, Metric.POD_PSI, f"{view.uid}/io/some") is None


def test_cold_pages_need_kidled() -> None:
    """Without it there are no samples, and it is looked for again."""
    tree = Tree()
    where = context(tree)
    collector = ColdPageCollector()
    collect(where, collector, 0)
    assert not collector.is_started

    tree.host.put("/sys/kernel/mm/kidled/scan_period_in_seconds", "0")
    tree.host.put("/sys/kernel/mm/kidled/use_hierarchy", "0")
    tree.host.put("/proc/meminfo", MEMINFO)
    rows = ["cfei 0 0 0 0 0 1024", *(f"r{n} 0" for n in range(16))]
    text = "\n".join([*(f"# {n}" for n in range(14)), *rows])
    tree.set(CgroupFile.MEMORY_IDLE_PAGES, "", text)
    collect(where, collector, 5)

    assert collector.is_started
    assert tree.host.read("/sys/kernel/mm/kidled/scan_period_in_seconds") == "5\n"
    assert last(where, Metric.NODE_COLD_PAGES) == 1024
    assert last(where, Metric.NODE_MEMORY_WITH_HOT_PAGES) == 23 * 1024


class FakeGpus:
    """Two GPUs; the second is used by process 7."""

    driver_version = "1"
    fails = False

    def devices(self) -> Sequence[Gpu]:
        return ()

    def usage(self) -> Sequence[GpuUsage]:
        if self.fails:
            raise HostError("driver")
        return [
            GpuUsage(minor=0, core_percent=0, memory_bytes=0),
            GpuUsage(minor=1, core_percent=80, memory_bytes=5),
            GpuUsage(minor=1, core_percent=30, memory_bytes=4, pid=7),
            GpuUsage(minor=1, core_percent=50, memory_bytes=1, pid=8),
        ]


def test_gpu_usage_of_a_pod_is_the_sum_over_its_processes() -> None:
    """A process outside of containers is ignored; a failing driver yields no samples."""
    tree = Tree()
    view = tree.add_pod(pod("a"), procs="7")
    where = context(tree, view)
    gpus = FakeGpus()
    collect(where, GpuCollector(gpus), 0)
    gpus.fails = True
    collect(where, GpuCollector(gpus), 1)

    assert last(where, Metric.NODE_GPU_CORE, "1") == 80
    assert last(where, Metric.POD_GPU_CORE, f"{view.uid}/1") == 30
    assert last(where, Metric.POD_GPU_MEMORY, f"{view.uid}/1") == 4


def test_cpus_are_read_from_sysfs() -> None:
    """Cores are numbered over all sockets, as lscpu does."""
    host = MemoryHost({"/sys/devices/system/cpu/online": "0-7\n"})
    for cpu in cpus(8, sockets=2, threads=2):
        folder = f"/sys/devices/system/cpu/cpu{cpu.id}"
        host.put(f"{folder}/topology/physical_package_id", f"{cpu.socket}\n")
        host.put(f"{folder}/topology/core_id", f"{cpu.core % 2}\n")
        host.put(f"{folder}/node{cpu.node}/x", "")

    assert read_cpus(host, "/sys") == cpus(8, sockets=2, threads=2)
    with pytest.raises(HostError):
        read_cpus(MemoryHost(), "/sys")


def test_disks_behind_names_groups_and_mounts() -> None:
    """Always the whole disk, whatever lies on it."""
    host = MemoryHost(
        {
            "/sys/block/vda/dev": "253:0\n",
            "/sys/block/vda/vda1/dev": "253:1\n",
            "/sys/block/dm-0/dev": "252:0\n",
            "/sys/block/dm-0/dm/name": "my--data-lv\n",
            "/sys/block/dm-0/dm/uuid": "LVM-abc\n",
            "/sys/block/dm-0/slaves/vda1/x": "",
            "/proc/1/mountinfo": (
                "1 0 253:1 / / rw - ext4 /dev/vda1 rw\n"
                "2 1 252:0 / /data rw - ext4 /dev/mapper/x rw\n"
                "3 1 0:5 / /proc rw - proc proc rw\n"
            ),
        }
    )
    host.link("/sys/dev/block/253:1", "/sys/block/vda/vda1")
    host.link("/sys/dev/block/252:0", "/sys/block/dm-0")
    disks = Disks(host, "/sys", "/proc")

    assert disks.of_device("/dev/vda") == disks.of_device("vda") == "253:0"
    assert disks.of_volume_group("my-data") == "253:0"
    assert disks.of_volume_group("my") is None  # another group, whose name begins in the same way
    assert disks.of_mount("/") == disks.of_mount("/data") == "253:0"
    assert disks.of_mount("/proc") is None
    assert disks.of_mount("/none") is disks.of_device("none") is disks.of_volume_group("x") is None
