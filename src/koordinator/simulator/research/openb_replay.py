"""Replays of the openb trace through the real scheduler.

Protocol: pods arrive in the given order and never leave; one that fits nowhere is dropped for good.
The figure is the GPU allocation ratio as a function of the GPU demand that has arrived.
"""

import csv
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ResourceRequirements,
)
from koordinator.api.device import Device, DeviceInfo, DeviceSpec, DeviceType
from koordinator.api.kubescheduler import (
    KubeSchedulerConfiguration,
    KubeSchedulerProfile,
    Plugin,
    PluginConfig,
    Plugins,
    PluginSet,
)
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeStatus
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordinator.domain.gpus.mix import WHOLE_GPU, ExpectedPods
from koordinator.domain.gpus.options import Fragmentation
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.decoders import convert
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.loop import Bound, SchedulerOptions
from koordinator.scheduler.snapshot import Snapshot
from koordinator.scheduler.snapshot.gpu_view import MODEL_LABEL, expected_mix, gpu_nodes, node_kinds
from koordinator.simulator.embedded import Embedded
from koordinator.simulator.interruption import RunInterrupted
from koordinator.simulator.research.openb import Arrivals, OpenbTrace, TraceNode, TracePod
from koordinator.simulator.research.openb_topology import partitions_entry, place_of

POLICIES: Mapping[str, str] = {
    "bestfit": "GPUBestFit",
    "packing": "GPUPacking",
    "fgd": "GPUFragmentation",
    "price": "GPUPrice",
    "price-online": "GPUPrice",
}
DEFAULT_POLICY = "price"
_FORMULA = ("=", "+", "-", "@", "\t", "\r")  # with which a cell begins that spreadsheets run
MARKS = (80, 90, 95, 100, 110, 120, 130)  # reported points, in percent of requested GPUs
_KNOWS_MIX = ("fgd", "price")
_PODS_PER_NODE = Quantity.parse("10000")
_CARD_MEMORY = Quantity.parse("16Gi")  # the trace does not say; shares are of the ratio anyway


@dataclass(frozen=True, slots=True)
class TracePlacement:
    """An arrival; no node if it failed."""

    arrival: int
    pod: str
    node: str
    gpus: tuple[tuple[int, int], ...]  # (minor, milli)


@dataclass(frozen=True)
class ReplayResult:
    """What became of the arrivals of one seed."""

    trace: str
    policy: str
    seed: int
    arrived_milli: IntArray  # (n_arrivals,) GPU demand so far
    allocated_milli: IntArray  # (n_arrivals,)
    capacity_milli: int
    fragmentation: float  # share of the capacity that a typical pod could not use, at the end
    placements: tuple[TracePlacement, ...]
    failed: Mapping[str, int]  # reason -> arrivals
    source: str  # where the order comes from

    def allocation_at(self, percent: int) -> float | None:
        """Return the mean allocation in percent while the demand rounds to that percentage.

        None: not reached.
        """
        demand = np.round(self.arrived_milli / self.capacity_milli * 100)
        ratio = np.round(self.allocated_milli / self.capacity_milli * 100, 2)
        there = demand == percent
        return round(float(ratio[there].mean()), 2) if there.any() else None

    def as_data(self) -> dict[str, Any]:
        """Return the figures for printing."""
        last, allocated_percent = 0, 0.0
        if len(self.arrived_milli):
            last = round(float(self.arrived_milli[-1]) / self.capacity_milli * 100)
            allocated_percent = 100 * float(self.allocated_milli[-1]) / self.capacity_milli
        at = {str(mark): self.allocation_at(mark) for mark in MARKS}
        return {
            "trace": self.trace,
            "policy": self.policy,
            "seed": self.seed,
            "order": self.source,
            "arrivals": len(self.placements),
            "failed": sum(self.failed.values()),
            "failedByReason": dict(self.failed),
            "gpuCapacityMilli": self.capacity_milli,
            "gpuArrivedPercent": last,
            "gpuAllocatedPercentAt": {mark: a for mark, a in at.items() if a is not None},
            "gpuAllocatedPercent": round(allocated_percent, 2),
            "gpuFragmentedPercent": round(100 * self.fragmentation, 2),
        }


def replay(
    trace: OpenbTrace,
    arrivals: Arrivals,
    seed: int,
    policy: str = DEFAULT_POLICY,
    on_arrival: Callable[[int], None] | None = None,
    *,
    with_topology: bool = False,
) -> ReplayResult:
    """Place every arrival; call ``on_arrival(done)`` at intervals.

    RunInterrupted, raised by ``on_arrival``, ends the replay with the result so far.

    ``with_topology``: GPUs are wired as ``openb_topology`` has it, and chosen accordingly.

    Raises InputError for an unknown policy.
    """
    world = Embedded(policy_configuration(policy, trace), options=SchedulerOptions(report=False))
    world.load(
        [obj for node in trace.nodes for obj in node_objects(node, with_topology=with_topology)]
    )
    world.scheduler.step()
    world.state.set_ranks(
        {node.name: int(rank) for node, rank in zip(trace.nodes, arrivals.rank, strict=False)}
    )
    specs = {pod: pod_spec(pod) for pod in set(trace.pods)}
    placements: list[TracePlacement] = []
    failed: Counter[str] = Counter()
    arrived, allocated = [], []
    demand = held = 0
    for number, index in enumerate(arrivals.order.tolist()):
        pod = trace.pods[index]
        name = arrivals.names[number]
        world.clock.advance_to(float(number))
        meta = ObjectMeta(name=name, namespace="default")
        world.cluster.load([Pod(metadata=meta, spec=specs[pod])])
        outcome = world.scheduler.step()[-1]
        demand += pod.total_gpu_milli
        if isinstance(outcome, Bound):
            held += pod.total_gpu_milli
            gpus = _gpus(outcome)
            placements.append(TracePlacement(number, name, outcome.node, gpus))
        else:
            placements.append(TracePlacement(number, name, "", ()))
            failed[getattr(outcome, "reason", "")] += 1
            world.cluster.delete(Pod, name, "default")
        arrived.append(demand)
        allocated.append(held)
        if on_arrival is not None and number % 100 == 0:
            try:
                on_arrival(number)
            except RunInterrupted:
                break
    return ReplayResult(
        trace=trace.name,
        policy=policy,
        seed=seed,
        arrived_milli=np.array(arrived, np.int64),
        allocated_milli=np.array(allocated, np.int64),
        capacity_milli=trace.gpu_milli,
        fragmentation=_fragmentation(world, trace),
        placements=tuple(placements),
        failed=dict(failed),
        source=arrivals.source,
    )


def demand_ratio(trace: OpenbTrace) -> float:
    """Return the GPU requests of all pods as a ratio of the cluster's GPUs."""
    return sum(pod.total_gpu_milli for pod in trace.pods) / max(trace.gpu_milli, 1)


def write_placements(path: Path, placements: tuple[TracePlacement, ...]) -> None:
    """Write a line per arrival: ``arrival,pod,node,gpus``.

    gpus are ``minor:milli`` joined by ``;``.  A name that a spreadsheet would run gets a ``'``
    before it.  Raises InputError if the file can't be written.
    """
    try:
        file = path.open("w", newline="", encoding="utf-8")
    except OSError as error:
        raise InputError(f"cannot be written: {error.strerror}", source=str(path)) from None
    with file:
        writer = csv.writer(file)
        writer.writerow(("arrival", "pod", "node", "gpus"))
        for placement in placements:
            gpus = ";".join(f"{minor}:{milli}" for minor, milli in placement.gpus)
            names = (_as_text(placement.pod), _as_text(placement.node))
            writer.writerow((placement.arrival, *names, gpus))


def _as_text(cell: str) -> str:
    """Return a cell that spreadsheets take as text: names may begin like a formula."""
    return f"'{cell}" if cell.startswith(_FORMULA) or cell.lstrip().startswith(_FORMULA) else cell


# -- the trace as objects ------------------------------------------------------------------------


def node_objects(node: TraceNode, *, with_topology: bool = False) -> list[Node | Device]:
    """Return the node as koord-manager would have it, and its Device object if it has GPUs."""
    allocatable = {
        "cpu": Quantity.from_milli(node.cpu_milli),
        "memory": Quantity.parse(f"{node.memory_mib}Mi"),
        "pods": _PODS_PER_NODE,
    }
    if not node.gpu:
        return [
            Node(metadata=ObjectMeta(name=node.name), status=NodeStatus(allocatable=allocatable))
        ]
    each = {
        GPU_CORE: Quantity.from_int(100),
        GPU_MEMORY: _CARD_MEMORY,
        GPU_MEMORY_RATIO: Quantity.from_int(100),
    }
    allocatable |= {
        GPU_CORE: Quantity.from_int(100 * node.gpu),
        GPU_MEMORY_RATIO: Quantity.from_int(100 * node.gpu),
        GPU_MEMORY: Quantity.parse(f"{16 * node.gpu}Gi"),
    }
    meta = ObjectMeta(name=node.name, labels={MODEL_LABEL: node.model})
    devices = tuple(
        DeviceInfo(
            type="gpu",
            minor=minor,
            id=f"{node.name}-{minor}",
            health=True,
            resources=each,
            topology=place_of(minor, node.gpu) if with_topology else None,
        )
        for minor in range(node.gpu)
    )
    groups = partitions_entry(node.gpu) if with_topology else {}
    return [
        Node(metadata=meta, status=NodeStatus(allocatable=allocatable)),
        Device(
            metadata=ObjectMeta(name=node.name, annotations=groups),
            spec=DeviceSpec(devices=devices),
        ),
    ]


def pod_spec(pod: TracePod) -> PodSpec:
    """Return the pod with Koordinator's resource names and its GPU models as node affinity."""
    requests = {
        "cpu": Quantity.from_milli(pod.cpu_milli),
        "memory": Quantity.parse(f"{pod.memory_mib}Mi"),
    }
    if pod.num_gpu:
        percent = Quantity.from_int(pod.total_gpu_milli * 100 // WHOLE_GPU)
        requests |= {GPU_CORE: percent, GPU_MEMORY_RATIO: percent}
    affinity = None
    if pod.gpu_spec:
        wanted = NodeSelectorRequirement(key=MODEL_LABEL, operator="In", values=pod.gpu_spec)
        terms = (NodeSelectorTerm(match_expressions=(wanted,)),)
        required = NodeSelector(node_selector_terms=terms)
        affinity = Affinity(
            node_affinity=NodeAffinity(required_during_scheduling_ignored_during_execution=required)
        )
    return PodSpec(
        containers=(Container(name="main", resources=ResourceRequirements(requests=requests)),),
        scheduler_name="default-scheduler",
        affinity=affinity,
        priority=0,
    )


def policy_configuration(policy: str, trace: OpenbTrace) -> KubeSchedulerConfiguration:
    """Return the profile of a policy: what decides feasibility, and that one score plugin."""
    if policy not in POLICIES:
        accepted = ", ".join(POLICIES)
        raise InputError(f"must be one of {accepted}, got {policy!r}", source="--policy")
    name = POLICIES[policy]
    every = (Plugin(name="*"),)
    device_share = Plugin(name="DeviceShare")
    config: tuple[PluginConfig, ...] = ()
    if policy in _KNOWS_MIX:
        config = (PluginConfig(name=name, args={"expected": expected_pods(trace)}),)
    plugins = Plugins(
        filter=PluginSet(enabled=(device_share,)),
        post_filter=PluginSet(disabled=every),
        score=PluginSet(disabled=every, enabled=(Plugin(name=name),)),
        reserve=PluginSet(enabled=(device_share,)),
    )
    profile = KubeSchedulerProfile(
        scheduler_name="default-scheduler", plugins=plugins, plugin_config=config
    )
    return KubeSchedulerConfiguration(profiles=(profile,))


def expected_pods(trace: OpenbTrace) -> list[dict[str, Any]]:
    """Return the pod list as the policy argument ``expected``."""
    counts = Counter((p.cpu_milli, p.num_gpu, p.gpu_milli, p.gpu_spec) for p in trace.pods)
    return [
        {"count": count, "cpuMilli": cpu, "gpus": gpus, "gpuMilli": milli, "models": list(models)}
        for (cpu, gpus, milli, models), count in sorted(counts.items())
    ]


def _gpus(bound: Bound) -> tuple[tuple[int, int], ...]:
    meta = ObjectMeta(annotations=dict(bound.annotations))
    allocated = (ALLOCATED.read(meta) or {}).get(DeviceType.GPU, ())
    return tuple(
        (a.minor, a.resources[GPU_MEMORY_RATIO].value() * WHOLE_GPU // 100) for a in allocated
    )


def _fragmentation(world: Embedded, trace: OpenbTrace) -> float:
    snapshot = Snapshot(world.state)
    expected = convert(expected_pods(trace), tuple[ExpectedPods, ...])
    mix = expected_mix(snapshot, expected)
    measure = Fragmentation(mix.typical(), node_kinds(snapshot)[0])
    return float(measure.unusable(gpu_nodes(snapshot)).sum()) / max(trace.gpu_milli, 1)
