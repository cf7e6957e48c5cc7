"""The openb trace as objects of the API: nodes with devices, pods, and the mix of its pods.

The trace does not contain the GPU topology of its machines.  The assumed one is the usual one of
such machines: two GPUs per PCIe root, half of the roots on each of two NUMA nodes, and NVLink
between neighbours in groups of two, four and eight.
"""

from collections import Counter
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
from koordinator.api.device import Device, DeviceInfo, DeviceSpec, DeviceTopology
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node, NodeStatus
from koordinator.api.pod import Container, PodSpec
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO
from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.snapshot.gpu_view import MODEL_LABEL
from koordinator.simulator.research.openb import OpenbTrace, TraceNode, TracePod

_PER_ROOT = 2
_NUMA_NODES = 2
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
