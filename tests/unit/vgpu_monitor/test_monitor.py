"""The monitor over real files: who waits, what is shown, what is refused."""

import fcntl
import json
import os
import re
import signal
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace
from prometheus_client import CollectorRegistry, generate_latest
from tests.regions import GPUS, RegionsFolder, recorded, region

from koordinator.api.codec import decode
from koordinator.api.dynamic_resources import ResourceClaim
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import Clock, VirtualClock
from koordinator.host.gpus import Gpu, GpuUsage, NoGpus
from koordinator.host.linux.vgpu_regions import LinuxRegionFolders
from koordinator.vgpu_monitor.metrics import VgpuCollector
from koordinator.vgpu_monitor.monitor import VgpuMonitor
from koordinator.vgpu_monitor.placement import GpuPod

START_S = 1_000_000.0
ALLOCATED = "scheduling.koordinator.sh/device-allocated"


class TwoGpus(NoGpus):
    """The GPUs of the recorded regions."""

    def devices(self) -> list[Gpu]:
        return [
            Gpu(minor=at, uuid=GPUS[at], model="H100", memory_bytes=80 << 30, bus_id="")
            for at in range(2)
        ]

    def usage(self) -> list[GpuUsage]:
        whole = [
            GpuUsage(minor=at, core_percent=40, memory_bytes=5, memory_controller_percent=9)
            for at in range(2)
        ]
        return [*whole, GpuUsage(minor=0, core_percent=1, memory_bytes=1, pid=7)]


class Node:
    """One node with its regions, its pods and the monitor."""

    def __init__(self, folder: Path, wall_clock: Clock | None = None) -> None:
        self.clock = VirtualClock(START_S)
        self.wall_clock = wall_clock or self.clock
        self.cluster = MemoryCluster(self.clock)
        self.regions = RegionsFolder(folder)
        self.monitor = self.start()

    def start(self) -> VgpuMonitor:
        return VgpuMonitor(
            self.cluster,
            self.clock,
            regions=LinuxRegionFolders(str(self.regions.path)),
            gpus=TwoGpus(),
            node_name="n1",
            wall_clock=self.wall_clock,
        )

    def pod(self, name: str, priority: str | None = None, **more: Any) -> GpuPod:
        """Create a pod that has GPU 0, unless ``gpus`` names others by minor."""
        gpus = more.pop("gpus", {0: GPUS[0]})
        resources = {"koordinator.sh/gpu-memory": more.pop("memory", "2Gi")}
        allocated = {
            "gpu": [
                {"minor": minor, "id": uuid, "resources": resources} for minor, uuid in gpus.items()
            ]
        }
        env = [{"name": "CUDA_TASK_PRIORITY", "value": priority}] if priority else []
        return self.create(name, {ALLOCATED: json.dumps(allocated)}, env, **more)

    def create(
        self, name: str, annotations: dict[str, str], env: Sequence[Any] = (), **status: Any
    ) -> GpuPod:
        """Create a pod; its regions are found by its name."""
        pod = decode(
            {
                "metadata": {"name": name, "namespace": "default", "annotations": annotations},
                "spec": {"nodeName": "n1", "containers": [{"name": "main", "env": env}]},
                "status": status,
            },
            GpuPod,
        )
        stored = self.cluster.create(pod)
        self.regions.uids[name] = stored.metadata.uid
        return self.cluster.update_status(replace(stored, status=pod.status))

    def claiming(self, name: str, claim: str, annotations: dict[str, str]) -> None:
        """Create a pod whose container has what a claim has, and is to be held to that."""
        used = [{"name": "gpu"}]
        pod = decode(
            {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "annotations": annotations,
                    "labels": {"koordinator.sh/gpu-isolation-provider": "HAMi-core"},
                },
                "spec": {
                    "nodeName": "n1",
                    "resourceClaims": [{"name": "gpu", "resourceClaimName": claim}],
                    "containers": [{"name": "main", "resources": {"claims": used}}],
                },
            },
            GpuPod,
        )
        self.regions.uids[name] = self.cluster.create(pod).metadata.uid

    def claim(self, name: str, minor: int) -> None:
        """Create a claim that has a share of a GPU of the node."""
        result = {
            "request": "r",
            "driver": "gpu.koordinator.sh",
            "pool": "n1",
            "device": f"gpu-{minor}",
            "consumedCapacity": {"core": "25", "memory": "4Gi"},
        }
        status = {"allocation": {"devices": {"results": [result]}}}
        meta = {"name": name, "namespace": "default"}
        stored = self.cluster.create(decode({"metadata": meta}, ResourceClaim))
        self.cluster.update_status(
            replace(
                stored, status=decode({"metadata": meta, "status": status}, ResourceClaim).status
            )
        )

    def rounds(self, count: int = 1) -> None:
        """Advance the clock by some rounds."""
        for _ in range(count):
            self.monitor.step()
            self.clock.advance_to(self.clock.now_s() + 5)

    def metrics(self, *, old: bool = True) -> dict[str, float]:
        """Return what a scrape shows, series by text."""
        registry = CollectorRegistry()
        registry.register(
            VgpuCollector(
                "n1",
                lambda: self.monitor.snapshot,
                TwoGpus(),
                self.clock,
                with_old_names=old,
            )
        )
        lines = generate_latest(registry).decode().splitlines()
        pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
        return {series: float(value) for series, value in pairs}


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_container_with_lower_precedence_waits_and_continues(node: Node) -> None:
    """Priorities come from the pods' specs; the third container is on another GPU."""
    for uid, priority, gpus in (("a", "0", {0: ""}), ("b", None, {0: ""}), ("c", "5", {1: ""})):
        node.pod(uid, priority, gpus=gpus)
        node.regions.put(uid, region())
    node.rounds()

    assert [node.regions.recent(uid) for uid in "abc"] == [1, -1, 1]
    assert [node.regions.switch(uid) for uid in "abc"] == [0, 1, 0]
    node.rounds()  # a has launched nothing since
    assert [node.regions.recent(uid) for uid in "abc"] == [0, 0, 0]


def test_containers_that_claim_shares_are_neighbours_as_well(node: Node) -> None:
    """Of those on the GPU of their claim, which is read as soon as it can be, whatever they say."""
    node.claiming("little", "c", {ALLOCATED: json.dumps({"gpu": [{"minor": 0}]})})
    node.claiming("early", "d", {})
    for uid, minor in (("mine", 1), ("other", 0)):
        node.pod(uid, "0", gpus={minor: ""})
    node.claim("c", minor=1)
    for uid in ("little", "early", "mine", "other"):
        node.regions.put(uid, region())
    node.rounds()

    assert [node.regions.recent(uid) for uid in ("little", "mine", "other")] == [-1, 1, 1]
    assert list(node.monitor.snapshot.refused) == [f"{node.regions.uids['early']}_main"]
    node.claim("d", minor=0)
    node.rounds()
    assert not node.monitor.snapshot.refused
    assert {each.owner.pod for each in node.monitor.snapshot.regions} >= {"early", "little"}

    for name in ("little", "early"):
        node.cluster.delete(GpuPod, name, "default")
    node.rounds()
    assert not node.monitor._claims
    assert not node.monitor._claiming


def test_neighbours_of_one_priority_are_limited_to_their_cores(node: Node) -> None:
    """In regions of both versions, while both of them work."""
    for uid, version in (("a", 0), ("b", 1)):
        node.pod(uid)
        node.regions.put(uid, region(version, switch=0))
    node.rounds()
    assert (node.regions.switch("a", 0), node.regions.switch("b")) == (1, 1)

    node.rounds(2)
    node.regions.launch("a", 0)
    node.rounds()
    assert (node.regions.switch("a", 0), node.regions.recent("a", 0)) == (0, 1)


def test_nothing_else_of_a_region_is_written(node: Node) -> None:
    """All other bytes are the container's."""
    before = region()
    node.pod("a", "0")
    node.regions.put("a", region())
    node.pod("b")
    node.regions.put("b", before)
    node.rounds()
    after = node.regions.file("b").read_bytes()

    changed = {at // 4 * 4 for at, byte in enumerate(before) if after[at] != byte}
    assert changed == {2008904}
    assert len(after) == len(before)


def test_waiting_container_continues_when_the_monitor_stops(node: Node) -> None:
    """No other component would release it."""
    for uid, priority in (("a", "0"), ("b", "1")):
        node.pod(uid, priority)
        node.regions.put(uid, region())
    node.rounds()
    node.monitor.close()

    assert node.regions.recent("b") == 0
    assert node.regions.recent("a") == 1


def test_restarted_container_is_recognized_in_the_next_round(node: Node) -> None:
    """The new file has the old name; the monitor of HAMi keeps the old file."""
    node.pod("a")
    node.regions.put("a", region(used=((1 << 30,),)))
    node.rounds()
    node.regions.put("a", region(used=((7,),)))
    node.rounds()

    (entry,) = node.monitor.snapshot.regions
    assert entry.reading.devices[0].total == 7
    assert node.regions.recent("a") == 1


def test_region_does_not_affect_other_containers(node: Node) -> None:
    """A region claims priority 0 and constant activity on a GPU of others: no container waits."""
    node.pod("evil", gpus={1: GPUS[1]})
    node.regions.put("evil", region(gpus=GPUS[:2], used=((9, 9),), recent=2**31 - 1, priority=0))
    node.pod("good", "3")
    node.regions.put("good", region())
    node.rounds()

    assert node.regions.recent("good") == 1
    shown = [series for series in node.metrics() if 'pod="evil"' in series]
    assert shown
    assert all(GPUS[0] not in series for series in shown)


def test_ended_container_blocks_no_other(node: Node) -> None:
    """The region keeps the state of its last process until the pod is deleted."""
    ended = {"containerStatuses": [{"name": "main", "state": {"terminated": {"exitCode": 137}}}]}
    node.pod("a", "0", **ended)
    node.regions.put("a", region())
    node.pod("b")
    node.regions.put("b", region())
    node.rounds()

    assert node.regions.recent("b") == 1
    assert [entry.owner.pod for entry in node.monitor.snapshot.regions] == ["b"]


def _device(evil: Path, _: RegionsFolder) -> None:
    if os.geteuid():
        pytest.skip("only root makes devices")
    os.mknod(evil, 0o600 | stat.S_IFCHR, os.makedev(1, 9))


def _folder_link(evil: Path, regions: RegionsFolder) -> None:
    evil.parent.rmdir()
    evil.parent.symlink_to(regions.folder("good"))


def _huge(evil: Path, _: RegionsFolder) -> None:
    evil.touch()
    os.truncate(evil, 1 << 40)


def _of_another(evil: Path, regions: RegionsFolder) -> None:
    (evil.parent / regions.file("good").name).write_bytes(region(recent=-1))


def _many(evil: Path, _: RegionsFolder) -> None:
    for number in range(300):
        (evil.parent / f"{number}.cache").touch()


#: What a container may make of its folder; the path of its region is given.
HOSTILE: dict[str, Callable[[Path, RegionsFolder], object]] = {
    "a link to the region of another": lambda evil, all_: evil.symlink_to(all_.file("good")),
    "a FIFO": lambda evil, _: os.mkfifo(evil),
    "a device": _device,
    "a folder": lambda evil, _: evil.mkdir(),
    "an empty file": lambda evil, _: evil.touch(),
    "a terabyte of nothing": _huge,
    "a region with the name of another": _of_another,
    "300 files": _many,
}


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_folder_costs_its_own_container_only(node: Node, how: str) -> None:
    """The folder is refused with the reason; its neighbour is served normally."""
    node.pod("evil")
    node.pod("good")
    node.regions.put("good", region(used=((5,),)))
    HOSTILE[how](node.regions.file("evil"), node.regions)
    node.rounds(2)

    assert [entry.owner.pod for entry in node.monitor.snapshot.regions] == ["good"]
    assert [*node.monitor.snapshot.refused] == [node.regions.folder("evil").name]
    assert node.regions.recent("good") == 0


def test_folder_that_is_a_link_is_ignored(node: Node) -> None:
    """Only the agent's folders are looked into."""
    node.pod("evil")
    node.pod("good")
    node.regions.put("good", region())
    _folder_link(node.regions.file("evil"), node.regions)
    node.rounds()

    assert [entry.owner.pod for entry in node.monitor.snapshot.regions] == ["good"]


def test_lease_on_a_region_does_not_block(node: Node) -> None:
    """Opening a leased file blocks up to 45 seconds, unless the open is non-blocking."""
    node.pod("evil")
    file = node.regions.put("evil", region())
    node.pod("good")
    node.regions.put("good", region())
    with file.open("r+b") as holder:
        try:
            fcntl.fcntl(holder, fcntl.F_SETLEASE, fcntl.F_WRLCK)
        except OSError as error:
            pytest.skip(f"no leases here: {error}")
        before = signal.signal(signal.SIGIO, signal.SIG_IGN)
        try:
            node.rounds()
        finally:
            signal.signal(signal.SIGIO, before)

    assert [entry.owner.pod for entry in node.monitor.snapshot.regions] == ["good"]


def test_a_region_named_by_a_random_uuid_is_read(node: Node) -> None:
    """As HAMi's own device plugin names it; libraries beside it are none."""
    node.pod("a")
    folder = node.regions.folder("a")
    (folder / "0b53-11ee.cache").write_bytes(region())
    (folder / "libvgpu.so.cache").touch()
    node.rounds()

    assert len(node.monitor.snapshot.regions) == 1


def test_pods_without_gpus_and_bad_allocations_have_no_regions(node: Node) -> None:
    """A folder of theirs is refused, whatever is in it."""
    node.create("a", {})
    node.create("b", {ALLOCATED: "{"})
    for uid in "ab":
        node.regions.put(uid, region(recent=-1))
    node.rounds()

    assert {node.regions.folder(uid).name for uid in "ab"} == {*node.monitor.snapshot.refused}
    assert node.regions.recent("a") == -1


@pytest.mark.slow
def test_folders_of_deleted_pods_are_removed_after_the_retention_time(node: Node) -> None:
    """A folder with a file dated in the next century is removed as well; others stay."""
    node.pod("here")
    node.regions.put("here", region())
    abandoned = node.regions.folder("gone")
    deep = abandoned
    for level in range(300):
        deep = deep / "d"
        deep.mkdir()
        (deep / f"file-{level}").touch()
    (abandoned / "link").symlink_to(node.regions.folder("here"))
    os.utime(abandoned, (4e9, 4e9))
    own = node.regions.path / "lost+found"
    own.mkdir()
    node.rounds(60)
    assert abandoned.exists()

    node.rounds(5)
    assert not abandoned.exists()
    assert node.regions.file("here").exists()
    assert own.exists()


def test_nothing_is_removed_before_the_pods_are_known(node: Node) -> None:
    """A restarted monitor measures the retention time from its own first observation."""
    node.regions.put("a", region())
    node.clock.advance_to(START_S + 10_000)
    node.monitor.close()
    node.monitor = node.start()
    node.rounds()

    assert node.regions.file("a").exists()


def test_metrics_have_the_names_and_labels_of_both_generations(node: Node) -> None:
    """For the recorded region of the real library."""
    node.pod("a", gpus={0: GPUS[0], 1: ""})
    node.regions.put("a", recorded("v1.2-two-processes"))
    node.rounds()
    shown = node.metrics()
    new = 'namespace="default",pod="a",vdevice_index="0",zone="vGPU"'
    first = f'{{container="main",device_uuid="{GPUS[0]}",{new}}}'
    old = (
        f'ctrname="main",deviceuuid="{GPUS[1]}",podname="a",podnamespace="default",'
        'vdeviceid="1",zone="vGPU"'
    )
    gib = float(1 << 30)

    def value(name: str, labels: str) -> float:
        result = {_sorted(series): number for series, number in shown.items()}
        return result[_sorted(f"{name}{labels}")]

    assert value("hami_vgpu_memory_used_bytes", first) == 1.25 * gib
    assert value("hami_vgpu_memory_limit_bytes", first) == 2 * gib
    assert value("hami_container_device_memory_bytes", first) == 1.25 * gib
    assert value("hami_container_device_utilization_ratio", first) == 19
    assert value("hami_vgpu_memory_buffer_bytes", first) == 1.25 * gib
    assert value("hami_vgpu_memory_context_bytes", first) == 0
    assert value("hami_vgpu_memory_module_bytes", first) == 0
    assert value("hami_container_last_kernel_elapsed_seconds", first) == 0
    assert value("vGPU_device_memory_usage_in_bytes", f"{{{old}}}") == gib
    assert value("vGPU_device_memory_limit_in_bytes", f"{{{old}}}") == 2 * gib
    assert value("Device_utilization_desc_of_container", f"{{{old}}}") == 19
    assert value("Device_last_kernel_of_container", f"{{{old}}}") == 0
    parts = f'{old},context="0",module="0",data="{1 << 30}",offset="0"'
    assert value("Device_memory_desc_of_container", f"{{{parts}}}") == gib
    host = f'device_index="1",device_uuid="{GPUS[1]}",device_type="NVIDIA-H100"'
    assert value("hami_host_gpu_memory_used_bytes", f'{{node="n1",{host},zone="vGPU"}}') == 5
    assert value("hami_host_gpu_utilization_ratio", f'{{node="n1",{host},zone="vGPU"}}') == 40
    ratio = "hami_host_gpu_memory_controller_utilization_ratio"
    assert value(ratio, f'{{{host},zone="vGPU"}}') == 9
    old_host = f'nodeid="n1",deviceidx="1",deviceuuid="{GPUS[1]}",devicetype="NVIDIA-H100"'
    assert value("HostGPUMemoryUsage", f'{{{old_host},zone="vGPU"}}') == 5
    assert value("HostCoreUtilization", f'{{{old_host},zone="vGPU"}}') == 40
    names = {series.split("{")[0] for series in node.metrics(old=False)}
    assert all(name.startswith(("hami_", "koord_vgpu_monitor_")) for name in names)


def limits(node: Node, pod: str) -> dict[tuple[str, str], float]:
    """Return the limits of a pod that are shown, by index and UUID."""
    label = re.compile(r'(\w+)="([^"]*)"')
    shown = (
        (dict(label.findall(series)), value) for series, value in _series(node, _LIMIT).items()
    )
    return {
        (labels["vdevice_index"], labels["device_uuid"]): value
        for labels, value in shown
        if labels["pod"] == pod
    }


_LIMIT, _USED = "hami_vgpu_memory_limit_bytes", "hami_vgpu_memory_used_bytes"


def _series(node: Node, name: str) -> dict[str, float]:
    return {key: value for key, value in node.metrics().items() if key.startswith(f"{name}{{")}


def test_limits_are_shown_before_the_first_call_of_cuda(node: Node) -> None:
    """Of containers whose folder the agent made, under the labels that they have afterwards."""
    node.pod("a", gpus={1: "", 0: GPUS[0]})
    node.claiming("claiming", "c", {})
    node.claim("c", minor=1)
    node.pod("whole", memory="0")
    node.pod("unwatched")
    node.pod("ended", containerStatuses=[{"name": "main", "state": {"terminated": {}}}])
    for name in ("a", "claiming", "whole", "ended"):
        node.regions.folder(name)
    node.rounds()

    before = limits(node, "a")
    assert before == {("0", GPUS[0]): 2 << 30, ("1", GPUS[1]): 2 << 30}
    assert limits(node, "claiming") == {("0", GPUS[1]): 4 << 30}
    assert [limits(node, name) for name in ("whole", "unwatched", "ended")] == [{}, {}, {}]
    assert {*_series(node, _USED).values()} == {0}
    assert not _series(node, "hami_container_last_kernel_elapsed_seconds")

    node.regions.put("a", region(gpus=(), used=()))  # made, and not filled in
    node.rounds()
    assert limits(node, "a") == before
    node.regions.put("a", region(gpus=GPUS[:2], used=((5, 7),)))
    node.rounds()
    assert limits(node, "a") == before
    assert sorted(_series(node, _USED).values()) == [0, 5, 7]

    node.regions.file("a").write_bytes(b"")  # what it uses can't be read
    node.rounds()
    assert limits(node, "a") == {}


def test_deleted_pod_leaves_no_series(node: Node) -> None:
    """From the next round on."""
    pod = node.pod("a")
    node.regions.put("a", region())
    node.rounds()
    assert any('pod="a"' in series for series in node.metrics())
    node.cluster.delete(GpuPod, pod.metadata.name, "default")
    node.rounds()

    assert not any('pod="a"' in series for series in node.metrics())


def _sorted(series: str) -> str:
    name, _, labels = series.partition("{")
    return f"{name}{sorted(labels.rstrip('}').split(','))}"
