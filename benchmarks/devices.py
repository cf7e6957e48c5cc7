"""Devices, NUMA nodes and CPUs: how fast pods get theirs.

5,000 nodes with eight GPUs on four PCIe roots and two NUMA nodes, given out by partition, with a
NIC of eight virtual functions per root and 256 CPUs; pods of 20 classes: shares, whole GPUs, and
for a third of the pods GPUs with NICs of the same roots.
"""

import gc
import json
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.benchmark import Benchmark
from koordinator.api.annotations.devices import GpuPartition, gpu_partitions_entry
from koordinator.api.annotations.numa import CPU_TOPOLOGY, CpuInfo, CpuTopology
from koordinator.api.core import ResourceRequirements
from koordinator.api.device import (
    Device,
    DeviceInfo,
    DeviceSpec,
    DeviceTopology,
    VirtualFunction,
    VirtualFunctionGroup,
)
from koordinator.api.labels import GPU_PARTITION_POLICY, NUMA_TOPOLOGY_POLICY, POD_QOS_CLASS
from koordinator.api.meta import KubeObject, ObjectMeta
from koordinator.api.node import Node, NodeResourceTopology, NodeStatus, Zone, ZoneResource
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.api.resource_names import GPU, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA
from koordinator.cli.input.configuration import read_configuration
from koordinator.cli.main import tune_garbage_collector
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.loop import Bound, SchedulerOptions
from koordinator.scheduler.snapshot import Snapshot
from koordinator.simulator import Embedded

NODES, PODS, CLASSES = 5_000, 40_000, 20
GPUS, NICS, FUNCTIONS, CORES, ZONES = 8, 4, 8, 128, 2
PROFILE = read_configuration(Path(__file__).with_name("koordinator.yaml"))

_SHARES = (25, 10, 30, 10, 20, 25, 10)  # percent of a GPU
_WHOLE = (1, 1, 2, 1, 1, 1)  # GPUs
_JOINT = (1, 1, 1, 1, 1, 1, 1)  # GPUs with NICs


def machine(name: str, *, policy: str = "") -> list[KubeObject]:
    """Return one node, its devices and its topology."""
    labels = {NUMA_TOPOLOGY_POLICY: policy} if policy else {}
    amounts = {
        "cpu": str(2 * CORES),
        "memory": "2048Gi",
        "pods": "110",
        GPU: str(GPUS * 100),
        GPU_CORE: str(GPUS * 100),
        GPU_MEMORY_RATIO: str(GPUS * 100),
        GPU_MEMORY: f"{GPUS * 80}Gi",
        RDMA: str(NICS * 100),
    }
    status = NodeStatus(allocatable=_quantities(amounts))
    node = Node(metadata=ObjectMeta(name=name, labels=labels), status=status)
    return [node, _devices(name), _topology(name)]


def _devices(name: str) -> Device:
    card = _quantities({GPU_CORE: "100", GPU_MEMORY: "80Gi", GPU_MEMORY_RATIO: "100"})
    gpus = [
        DeviceInfo(
            type="gpu",
            minor=minor,
            health=True,
            id=f"GPU-{name}-{minor}",
            resources=card,
            topology=_place(minor * NICS // GPUS),
        )
        for minor in range(GPUS)
    ]
    nics = [
        DeviceInfo(
            type="rdma",
            minor=root,
            health=True,
            id=f"0000:{root + 48:02x}:00.0",
            resources=_quantities({RDMA: "100"}),
            topology=_place(root),
            vf_groups=(
                VirtualFunctionGroup(
                    vfs=tuple(
                        VirtualFunction(minor=-1, bus_id=f"0000:{root + 48:02x}:01.{number}")
                        for number in range(FUNCTIONS)
                    )
                ),
            ),
        )
        for root in range(NICS)
    ]
    table = {
        size: tuple(
            GpuPartition(minors=tuple(range(first, first + size)), allocation_score=1)
            for first in range(0, GPUS, size)
        )
        for size in (1, 2, 4, 8)
    }
    meta = ObjectMeta(
        name=name, labels={GPU_PARTITION_POLICY: "Honor"}, annotations=gpu_partitions_entry(table)
    )
    return Device(metadata=meta, spec=DeviceSpec(devices=(*gpus, *nics)))


def _place(root: int) -> DeviceTopology:
    numa = root * ZONES // NICS
    return DeviceTopology(socket_id=numa, node_id=numa, pcie_id=f"pci{root}")


_DETAIL = CPU_TOPOLOGY.entry(
    CpuTopology(
        detail=tuple(
            CpuInfo(
                id=core + thread * CORES,
                core=core,
                socket=core * ZONES // CORES,
                node=core * ZONES // CORES,
            )
            for core in range(CORES)
            for thread in range(2)
        )
    )
)


def _topology(name: str) -> NodeResourceTopology:
    amounts = _quantities({"cpu": str(2 * CORES // ZONES), "memory": f"{2048 // ZONES}Gi"})
    resources = tuple(
        ZoneResource(name=key, capacity=much, allocatable=much, available=much)
        for key, much in amounts.items()
    )
    return NodeResourceTopology(
        metadata=ObjectMeta(name=name, annotations=_DETAIL),
        topology_policies=("None",),
        zones=tuple(
            Zone(name=f"node-{zone}", type="Node", resources=resources) for zone in range(ZONES)
        ),
    )


def pods(count: int, *, binding: bool) -> Iterator[Pod]:
    """Make pods of the classes at random; with ``binding`` all of them get CPUs of their own."""
    specs = [_wishes(number, binding=binding) for number in range(CLASSES)]
    for i, c in enumerate(np.random.default_rng(4).integers(0, CLASSES, count).tolist()):
        labels, annotations, spec = specs[c]
        meta = ObjectMeta(name=f"p{i}", namespace="default", labels=labels, annotations=annotations)
        yield Pod(metadata=meta, spec=spec)


def _wishes(number: int, *, binding: bool) -> tuple[dict[str, str], dict[str, str], PodSpec]:
    kind, index = number % 3, number // 3
    requests = {"cpu": str(2 + 2 * (number % 4)), "memory": f"{4 + number}Gi"}
    annotations = {}
    if kind == 0:
        requests |= {GPU: str(100 * _JOINT[index]), RDMA: "1"}
        annotations = {
            "scheduling.koordinator.sh/device-joint-allocate": json.dumps(
                {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
            ),
            "scheduling.koordinator.sh/device-allocate-hint": json.dumps(
                {"rdma": {"vfSelector": {}}}
            ),
        }
    elif kind == 1:
        requests |= {GPU_CORE: str(_SHARES[index]), GPU_MEMORY_RATIO: str(_SHARES[index])}
    else:
        requests |= {GPU: str(100 * _WHOLE[index])}
    container = Container(name="c", resources=ResourceRequirements(requests=_quantities(requests)))
    labels = {"app": f"a{number}", **({POD_QOS_CLASS: "LSR"} if binding else {})}
    spec = PodSpec(containers=(container,), scheduler_name="default-scheduler", priority=9500)
    return labels, annotations, spec


def throughput(policy: str, scale: float, *, binding: bool) -> dict[str, Any]:
    """Schedule and report pods per second."""
    world = Embedded(PROFILE, options=SchedulerOptions(report=False))
    count = max(int(NODES * scale), 1)
    world.load(obj for i in range(count) for obj in machine(f"n{i:05d}", policy=policy))
    world.cluster.load(list(pods(10, binding=binding)))
    world.scheduler.step()
    pending = list(pods(10 + int(PODS * scale), binding=binding))[10:]
    world.load(pending)
    gc.collect()
    tune_garbage_collector()
    started = time.perf_counter()
    bound = sum(isinstance(outcome, Bound) for outcome in world.scheduler.step())
    seconds = time.perf_counter() - started
    return {"pods/s": round(bound / seconds), "bound": bound, "s": round(seconds, 1)}


def choice(scale: float) -> dict[str, Any]:
    """Return how long it takes to choose devices and CPUs on a node that is about half full.

    Every class is asked once of every node, so nothing that is remembered answers.
    """
    figures = {}
    for title, policy in (("devices and CPUs", ""), ("aligned", "SingleNUMANode")):
        times = [_choose(policy, there) for there in [5, *[3, 4, 5, 6] * max(int(5 * scale), 1)]]
        figures[f"{title} µs"] = round(float(np.median(np.concatenate(times[1:]))) * 1e6)
    return figures


def _choose(policy: str, there: int) -> list[float]:
    """Return the seconds that each class takes on a new node with so many pods."""
    world = Embedded(PROFILE, options=SchedulerOptions(report=False))
    world.load(machine("n", policy=policy))
    world.load(pods(there, binding=True))
    world.scheduler.step()
    cycle = next(iter(world.scheduler.cycles.values()))
    state = world.state
    kinds = {state.classes.of(pod): None for pod in pods(60, binding=True)}
    seconds = []
    for pod in kinds:
        state.memory.clear()  # what classes share
        view = Snapshot(state)[np.array([0])]
        started = time.perf_counter()
        for active in cycle.profile.reserve:
            active.plugin.reserve(view, pod, None)
        seconds.append(time.perf_counter() - started)
    return seconds


def _quantities(amounts: dict[str, str]) -> dict[str, Quantity]:
    return {name: Quantity.parse(amount) for name, amount in amounts.items()}


BENCHMARKS = {
    "devices": Benchmark(
        "5,000 nodes of 8 GPUs, 40,000 pods, a third of them with NICs",
        "5,000 pods/s",
        partial(throughput, "", binding=False),
    ),
    "numa": Benchmark(
        "the same with SingleNUMANode, and CPUs bound for every pod",
        "2,500 pods/s",
        partial(throughput, "SingleNUMANode", binding=True),
    ),
    "choice": Benchmark("choice inside a node of 8 GPUs and 256 CPUs", "150 µs", choice),
}
