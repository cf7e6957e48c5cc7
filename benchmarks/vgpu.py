"""Cost of the monitor of GPU slices: 64 regions on eight GPUs, read every five seconds.

The rounds and the scrapes of five minutes are done at once; the CPU that they take is put over the
time that they belong to.  Hostile regions claim to have all their 1,024 slots in use.
"""

import json
import struct
import tempfile
import time
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from tests.regions import RegionsFolder, region

from benchmarks.benchmark import Benchmark
from koordinator.api.codec import decode
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.host.gpus import NoGpus
from koordinator.host.linux.vgpu_regions import LinuxRegionFolders
from koordinator.vgpu_monitor.metrics import VgpuCollector
from koordinator.vgpu_monitor.monitor import ROUND_S, VgpuMonitor
from koordinator.vgpu_monitor.placement import GpuPod

REGIONS, GPUS, SLOTS = 64, 8, 1024
SECONDS, SCRAPED_EVERY_S = 300, 15


def _cost(scale: float, *, is_hostile: bool) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        return _measured(Path(folder), max(SECONDS * scale, 30.0), is_hostile=is_hostile)


def _measured(folder: Path, seconds: float, *, is_hostile: bool) -> dict[str, Any]:
    clock = VirtualClock(1e9)
    cluster = MemoryCluster(clock)
    regions = RegionsFolder(folder)
    for number in range(REGIONS):
        uuid = f"GPU-{number % GPUS:08}-0000-4000-8000-000000000000"
        data = region(gpus=(uuid,), used=((1 << 30,), (1 << 28,)), last_kernel=int(1e9))
        if is_hostile:
            struct.pack_into("<i", data, 2008896, SLOTS)
            for slot in range(SLOTS):
                struct.pack_into("<i", data, 1856 + 1960 * slot + 1928, 1)
        regions.put(_pod(cluster, number, uuid).metadata.uid, data)
    monitor = VgpuMonitor(
        cluster,
        clock,
        regions=LinuxRegionFolders(str(regions.path)),
        gpus=NoGpus(),
        node_name="n1",
    )
    registry = CollectorRegistry()
    collector = VgpuCollector("n1", lambda: monitor.snapshot, NoGpus(), clock, with_old_names=True)
    registry.register(collector)
    monitor.step()
    started, scrapes = time.process_time(), 0
    for number in range(int(seconds / ROUND_S)):
        clock.advance_to(clock.now_s() + ROUND_S)
        monitor.step()
        if number * ROUND_S % SCRAPED_EVERY_S == 0:
            generate_latest(registry)
            scrapes += 1
    taken_s = time.process_time() - started
    assert len(monitor.snapshot.regions) == REGIONS
    return {"percent_of_a_core": round(100 * taken_s / seconds, 2), "scrapes": scrapes}


def _pod(cluster: MemoryCluster, number: int, uuid: str) -> GpuPod:
    allocated = {"gpu": [{"minor": number % GPUS, "id": uuid}]}
    pod = decode(
        {
            "metadata": {
                "name": f"p{number}",
                "namespace": "default",
                "annotations": {
                    "scheduling.koordinator.sh/device-allocated": json.dumps(allocated)
                },
            },
            "spec": {"nodeName": "n1", "containers": [{"name": "main"}]},
        },
        GpuPod,
    )
    return cluster.create(pod)


BENCHMARKS = {
    "vgpu-monitor": Benchmark(
        "vgpu-monitor, 64 regions", "<= 1 % of a core", lambda scale: _cost(scale, is_hostile=False)
    ),
    "vgpu-monitor-hostile": Benchmark(
        "vgpu-monitor, 64 hostile regions",
        "<= 1 % of a core",
        lambda scale: _cost(scale, is_hostile=True),
    ),
}
