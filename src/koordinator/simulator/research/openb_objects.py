"""The openb trace as objects of the API: nodes with devices, pods, and the mix of its pods."""

from collections import Counter
from typing import Any

from koordinator.api.core import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ResourceRequirements,
)
from koordinator.api.device import Device, DeviceInfo, DeviceSpec
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeStatus
from koordinator.api.pod import Container, PodSpec
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.snapshot.gpu_view import MODEL_LABEL
from koordinator.simulator.research.openb import OpenbTrace, TraceNode, TracePod
from koordinator.simulator.research.openb_topology import partitions_entry, place_of

_PODS_PER_NODE = Quantity.parse("10000")
_CARD_MEMORY = Quantity.parse("16Gi")  # the trace does not say; shares are of the ratio anyway


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
    counts = Counter((p.cpu_milli, p.num_gpu, p.gpu_milli, p.gpu_spec) for p in trace.pods)
    return [
        {"count": count, "cpuMilli": cpu, "gpus": gpus, "gpuMilli": milli, "models": list(models)}
        for (cpu, gpus, milli, models), count in sorted(counts.items())
    ]
