"""Checks of two processes on one card, and of HAMi-core's real library under a CUDA program."""

import json
import time
from pathlib import Path

import pynvml
from tests.gpu.checks import Machine
from tests.gpu.loads import OUT_OF_MEMORY, Limits, running
from tests.gpu.report import Figures, SkippedError, expect
from tests.regions import RegionsFolder

from koordinator.api.codec import decode
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import WallClock
from koordinator.host.gpus import NoGpus
from koordinator.host.linux.vgpu_regions import LinuxRegionFolders
from koordinator.vgpu_monitor.feedback import ACTIVE_S
from koordinator.vgpu_monitor.monitor import ROUND_S, OwnedRegion, VgpuMonitor
from koordinator.vgpu_monitor.placement import GpuPod

SHARE = 30
#: Of the share: between 27 and 33 % of the rate without a limit.
SHARE_TOLERANCE = 0.1
#: Between the rates of two equal processes.
FAIRNESS_TOLERANCE = 0.2
_SETTLE_S, _MEASURE_S = 6.0, 10.0
_MIB = 1 << 20


class Sharers:
    """Pods that share the first GPU on a node, with the monitor and real regions."""

    def __init__(self, folder: Path, uuid: str, memory_mib: int) -> None:
        self.regions = RegionsFolder(folder)
        self._uuid, self._memory_mib = uuid, memory_mib
        self._cluster = MemoryCluster(WallClock())
        self._monitor = VgpuMonitor(
            self._cluster,
            WallClock(),
            regions=LinuxRegionFolders(str(self.regions.path)),
            gpus=NoGpus(),
            node_name="n1",
        )

    def add(self, name: str, priority: int) -> Path:
        """Create a pod; return the file of its region."""
        resources = {"koordinator.sh/gpu-memory": f"{self._memory_mib}Mi"}
        allocated = {"gpu": [{"minor": 0, "id": self._uuid, "resources": resources}]}
        env = [{"name": "CUDA_TASK_PRIORITY", "value": str(priority)}]
        annotation = {"scheduling.koordinator.sh/device-allocated": json.dumps(allocated)}
        pod = {
            "metadata": {"name": name, "namespace": "default", "annotations": annotation},
            "spec": {"nodeName": "n1", "containers": [{"name": "main", "env": env}]},
        }
        self.regions.uids[name] = self._cluster.create(decode(pod, GpuPod)).metadata.uid
        return self.regions.file(name)

    def watch(self, seconds: float) -> None:
        """Run the monitor with its own interval for so many seconds."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self._monitor.step()
            time.sleep(0.2)

    def region(self, name: str) -> OwnedRegion | None:
        """Return the monitor's last reading of a pod's region."""
        regions = self._monitor.snapshot.regions
        return next((each for each in regions if each.owner.pod == name), None)

    def close(self) -> None:
        """Stop the monitor."""
        self._monitor.close()


def memory_limit(machine: Machine) -> Figures:
    """Allocate below and above a memory share of 30 %."""
    _, total_mib = _first_gpu()
    limit_mib = total_mib * SHARE // 100
    codes = []
    for number, percent in enumerate((SHARE - 10, SHARE + 5)):
        limits = _limits(machine, machine.folder / f"memory-{number}.cache", limit_mib)
        with running(total_mib * percent // 100, limits=limits) as load:
            codes.append(load.code)
    figures: Figures = {
        "limit MiB": limit_mib,
        f"code at {SHARE - 10} %": codes[0],
        f"code at {SHARE + 5} %": codes[1],
    }
    expect(codes[0] == 0, "an allocation below the share must succeed", figures)
    expect(codes[1] == OUT_OF_MEMORY, "an allocation above the share must be refused", figures)
    return figures


def core_limit(machine: Machine) -> Figures:
    """Compare the kernels per second at a core share of 30 % with those without a limit."""
    _, total_mib = _first_gpu()
    limits = _limits(machine, machine.folder / "core.cache", total_mib // 2)
    with running(64, sm_percent=100) as load:
        time.sleep(1)
        free = load.rate(_MEASURE_S / 2)
    with running(64, limits=limits, sm_percent=100) as load:
        time.sleep(_SETTLE_S)
        limited = load.rate(_MEASURE_S)
    percent = 100 * limited / free if free else 0.0
    figures: Figures = {
        "kernels per s without limit": free,
        f"kernels per s at {SHARE} %": limited,
        "share %": percent,
        "tolerance %": 100 * SHARE_TOLERANCE,
    }
    within = abs(percent - SHARE) <= SHARE * SHARE_TOLERANCE
    expect(within, f"the share must be within 10 % of {SHARE} %", figures)
    return figures


def monitor(machine: Machine) -> Figures:
    """Read the region of a running program with the monitor."""
    uuid, total_mib = _first_gpu()
    limit_mib = total_mib * SHARE // 100
    _library(machine)
    sharers = Sharers(machine.folder / "monitor", uuid, limit_mib)
    try:
        limits = _limits(machine, sharers.add("one", 1), limit_mib)
        with running(512, limits=limits):
            sharers.watch(ROUND_S + 1)
            read = sharers.region("one")
    finally:
        sharers.close()
    expect(read is not None, "the monitor must read the region", {})
    assert read is not None
    expect(bool(read.reading.devices), "the region must have a device", {})
    use = read.reading.devices[0]
    figures: Figures = {
        "uuid": use.uuid,
        "limit MiB": use.memory_limit // _MIB,
        "data MiB": use.data / _MIB,
        "total MiB": use.total / _MIB,
        "core %": use.core_percent,
    }
    expect(use.uuid == uuid, "the region must name the GPU", figures)
    expect(use.memory_limit == limit_mib * _MIB, "the region must have the limit", figures)
    expect(512 <= use.total / _MIB <= 512 + 1024, "the region must count the memory", figures)
    return figures


def priority(machine: Machine) -> Figures:
    """Block a program while one with precedence works on the same GPU.

    Both have a core limit: HAMi-core does not block programs without one.
    """
    uuid, total_mib = _first_gpu()
    _library(machine)
    sharers = Sharers(machine.folder / "priority", uuid, total_mib // 3)
    sharers.regions.path.mkdir(parents=True, exist_ok=True)
    try:
        low = _limits(machine, sharers.add("batch", 1), total_mib // 3, order=1)
        high = _limits(machine, sharers.add("service", 0), total_mib // 3, order=0)
        with running(64, limits=low, sm_percent=10) as batch:
            sharers.watch(ROUND_S + 1)
            alone = batch.rate(3)
            with running(64, limits=high, sm_percent=10) as service:
                sharers.watch(2 * ROUND_S + 1)
                blocked, important = batch.rate(3), service.rate(3)
            sharers.watch(ACTIVE_S + 2 * ROUND_S)
            released = batch.rate(3)
    finally:
        sharers.close()
    figures: Figures = {
        "batch alone kernels per s": alone,
        "batch blocked": blocked,
        "service": important,
        "batch released": released,
    }
    expect(blocked == 0 < important, "the batch program must wait for the service", figures)
    expect(released > 0.8 * alone > 0, "the batch program must continue afterwards", figures)
    return figures


def two_processes(machine: Machine) -> Figures:
    """Run two equal programs as two pods with half of the card each, with HAMi-core if present."""
    _, total_mib = _first_gpu()
    mib = 512
    limits: list[Limits | None] = [None, None]
    if machine.library is not None:
        limits = [
            _limits(machine, machine.folder / f"pod-{number}.cache", total_mib * 2 // 5, cores=50)
            for number in range(2)
        ]
    with running(mib, limits=limits[0]) as first:
        alone = first.rate(3)
        with running(mib, limits=limits[1]) as second:
            time.sleep(_SETTLE_S)
            before = first.rate(_MEASURE_S / 2)
            other = second.rate(_MEASURE_S / 2)
    figures: Figures = {
        "HAMi-core": machine.library is not None,
        "alone kernels per s": alone,
        "first of two": before,
        "second of two": other,
        "tolerance %": 100 * FAIRNESS_TOLERANCE,
    }
    expect(min(before, other) > 0, "both programs must work", figures)
    near = abs(before - other) <= FAIRNESS_TOLERANCE * max(before, other)
    expect(near, "two equal programs must have equal rates", figures)
    return figures


def _library(machine: Machine) -> Path:
    if machine.library is None:
        raise SkippedError("there is no libvgpu.so of HAMi-core")
    return machine.library


def _limits(
    machine: Machine, region: Path, memory_mib: int, *, cores: int = SHARE, order: int = 1
) -> Limits:
    return Limits(_library(machine), region, memory_mib, cores, order)


def _first_gpu() -> tuple[str, int]:
    """Return UUID and MiB of the first GPU, without the functions that only the agent needs."""
    pynvml.nvmlInit()
    handle = pynvml.nvmlDeviceGetHandleByIndex(0)
    total = int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)
    return str(pynvml.nvmlDeviceGetUUID(handle)), total // _MIB
