"""Alibaba's GPU trace of 2023 (openb) as a source.

The protocol ``arrivals`` is the one of the published experiments; ``times`` follows the trace.

The openb trace as objects of the API: nodes with devices, pods, and the mix of its pods.

The trace does not contain the GPU topology of its machines.  The assumed one is the usual one of
such machines: two GPUs per PCIe root, half of the roots on each of two NUMA nodes, and NVLink
between neighbours in groups of two, four and eight.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace as changed
from math import inf
from pathlib import Path
from typing import Any

from koordinator.api.annotations.devices import GpuPartition, gpu_partitions_entry
from koordinator.api.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ResourceRequirements,
)
from koordinator.api.defaults import with_defaults
from koordinator.api.device import Device, DeviceInfo, DeviceSpec, DeviceTopology
from koordinator.api.kubescheduler import KubeSchedulerConfiguration
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeStatus
from koordinator.api.pod import Container, Pod, PodSpec
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.snapshot.gpu_view import MODEL_LABEL
from koordinator.simulator.generation import SimulationPlan
from koordinator.simulator.job_metrics import expected_argument
from koordinator.simulator.policies import TRACE_CONFIGURATION
from koordinator.simulator.research.openb import Arrivals, OpenbTrace, TraceNode, TracePod, arrivals
from koordinator.simulator.sources.source import ARRIVING, Source, arriving
from koordinator.simulator.stages import PodLife
from koordinator.simulator.world import Submission

_PER_ROOT = 2
_NUMA_NODES = 2
_PODS_PER_NODE = Quantity.parse("10000")
_CARD_MEMORY = Quantity.parse("16Gi")  # the trace does not say; shares are of the ratio anyway

SEED = 42  # of the published experiments' first run
_WITHOUT_GPUS = "cpu"


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


def expected_pods(trace: OpenbTrace) -> list[dict[str, Any]]:
    """Return the pod list as the policy argument ``expected``."""
    return expected_argument((p.cpu_milli, p.num_gpu, p.gpu_milli, p.gpu_spec) for p in trace.pods)


def place_of(minor: int, gpus: int) -> DeviceTopology:
    """Return the topology of a GPU on a machine with ``gpus`` GPUs."""
    numa = minor * _NUMA_NODES // gpus
    return DeviceTopology(
        socket_id=numa, node_id=numa, pcie_id=f"pci{minor // _PER_ROOT}", bus_id=f"0000:{minor:02x}"
    )


def partitions_entry(gpus: int) -> dict[str, str]:
    """Return the annotation of the Device: groups that NVLink joins, and single GPUs."""
    sizes = [size for size in (1, 2, 4, 8) if size <= gpus]
    return gpu_partitions_entry(
        {
            size: tuple(
                GpuPartition(
                    minors=tuple(range(first, first + size)),
                    gpu_link_type="NVLink",
                    allocation_score=1,
                )
                for first in range(0, gpus - size + 1, size)
            )
            for size in sizes
        }
    )


def arriving_openb(
    trace: OpenbTrace, ratio: float, folder: Path | None, *, with_topology: bool = False
) -> Source:
    """Return a source in which every pod of the list arrives once, or up to a ratio of demand."""

    def generate(seed: int, _until_s: float) -> SimulationPlan:
        order = arrivals(trace, seed, ratio, folder)
        plan = changed(
            _cluster(trace, with_topology=with_topology),
            submissions=tuple(_arriving(trace, order)),
            ranks={
                node.name: int(rank) for node, rank in zip(trace.nodes, order.rank, strict=False)
            },
            order=order.source,
        )
        return arriving(plan)

    source = _source(trace, generate)
    return changed(
        source,
        timeless="pods arrive one per second, in their order",
        endless="pods that arrive never leave",
        only_requests=True,
    )


def timed_openb(trace: OpenbTrace, *, with_topology: bool = False) -> Source:
    """Return a source in which pods come and go as in the trace.

    Raises InputError if the list has no times.
    """
    if not any(pod.length_s for pod in trace.pods):
        text = "no pod has creation_time and deletion_time; without them only arrivals are possible"
        raise InputError(text, source=f"pod list {trace.name}")
    first_s = min(pod.created_s for pod in trace.pods)
    horizon_s = max(pod.created_s + pod.length_s for pod in trace.pods) - first_s

    def generate(_seed: int, until_s: float) -> SimulationPlan:
        cluster = _cluster(trace, with_topology=with_topology)
        submissions = sorted(_timed(trace, first_s, until_s), key=lambda each: each.at_s)
        return changed(cluster, submissions=tuple(submissions))

    source = _source(trace, generate)
    return changed(source, horizon_s=horizon_s, sample_every_s=max(60.0, horizon_s // 500))


def _source(trace: OpenbTrace, generate: Callable[[int, float], SimulationPlan]) -> Source:
    return Source(
        title=f"openb, list {trace.name}",
        kind="trace",
        generate=generate,
        horizon_s=inf,
        seed=SEED,
        configuration=_configuration,
        configuration_name="the trace's default",
        expected=lambda _plan: expected_pods(trace),
        name=trace.name,
    )


def _configuration() -> KubeSchedulerConfiguration:
    return TRACE_CONFIGURATION


def _cluster(trace: OpenbTrace, *, with_topology: bool) -> SimulationPlan:
    pools: dict[str, list[str]] = {}
    for node in trace.nodes:
        pools.setdefault(node.model or _WITHOUT_GPUS, []).append(node.name)
    objects = [o for n in trace.nodes for o in node_objects(n, with_topology=with_topology)]
    names = {pool: tuple(nodes) for pool, nodes in sorted(pools.items())}
    return SimulationPlan(tuple(objects), names, (), ())


def _specs(trace: OpenbTrace) -> list[PodSpec]:
    """Return the specs of the pods; pods with equal requests share one."""
    known: dict[tuple[object, ...], PodSpec] = {}
    specs = []
    for pod in trace.pods:
        key = (pod.cpu_milli, pod.memory_mib, pod.num_gpu, pod.gpu_milli, pod.gpu_spec)
        spec = known.get(key)
        if spec is None:
            made = with_defaults(Pod(metadata=ObjectMeta(name="x"), spec=pod_spec(pod)))
            spec = known[key] = made.spec
        specs.append(spec)
    return specs


def _arriving(trace: OpenbTrace, order: Arrivals) -> Iterator[Submission]:
    by_position = _specs(trace)
    for number, position in enumerate(order.order.tolist()):
        meta = ObjectMeta(name=order.names[number], namespace="default")
        pod = Pod(metadata=meta, spec=by_position[position])
        yield Submission(float(number), pod, kind=_kind_name(trace.pods[position]), life=ARRIVING)


def _timed(trace: OpenbTrace, first_s: float, until_s: float) -> Iterator[Submission]:
    for pod, spec in zip(trace.pods, _specs(trace), strict=True):
        at_s = pod.created_s - first_s
        if at_s > until_s:
            continue
        meta = ObjectMeta(name=pod.name, namespace="default")
        life = PodLife(work_s=pod.length_s or inf)
        yield Submission(at_s, Pod(metadata=meta, spec=spec), kind=_kind_name(pod), life=life)


def _kind_name(pod: TracePod) -> str:
    """Return the kind of a pod in totals: by its GPUs."""
    if not pod.num_gpu:
        return "no GPU"
    if pod.num_gpu == 1 and pod.gpu_milli < 1000:  # noqa: PLR2004 -- a whole GPU
        return "share of a GPU"
    return f"{pod.num_gpu} GPU{'s' if pod.num_gpu > 1 else ''}"
