"""Detail view of one node: NUMA nodes, CPUs, devices, partitions, and their allocation to pods."""

from typing import Any

from koordinator.api.device import DeviceType
from koordinator.api.resource_names import (
    AMD_GPU,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    HYGON_DCU,
    NVIDIA_GPU,
)
from koordinator.dashboard.access import ViewScope
from koordinator.domain.devices.allocation import RATIO
from koordinator.domain.devices.model import DeviceGroup
from koordinator.foundation.cpu_list import format_cpu_list
from koordinator.foundation.errors import NotFoundError
from koordinator.foundation.masks import bits_of
from koordinator.scheduler.diagnosis import quantity
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.rules.numa.node import NumaNode
from koordinator.scheduler.snapshot import ClusterState, PlacedPod

MAX_PARTITIONS = 64
HIDDEN = "a pod of another tenant"
#: Resource names of GPUs, those that count whole GPUs first.
_GPU_NAMES = (
    *(NVIDIA_GPU, AMD_GPU, HYGON_DCU),
    *(GPU, GPU_CORE, GPU_MEMORY_RATIO, GPU_MEMORY, GPU_SHARED),
)


def node_details(handle: SchedulerHandle, name: str, scope: ViewScope) -> dict[str, Any]:
    """Return the details of a node.

    ``cores`` of a NUMA node are lists of hardware threads.  The holder of a CPU or device is an
    index into ``pods``; -1 means free, -2 a CPU that no pod may be bound to.
    Raises NotFoundError for a node that does not exist or is outside the scope.
    """
    state = handle.state
    row = state.nodes.rows.get(name)
    node = state.nodes.objects[row] if row is not None else None
    if row is None or node is None or not scope.sees_nodes:
        raise NotFoundError(f"there is no node {name}")
    pods = sorted(state.pods.on_row[row].values(), key=lambda placed: placed.key)
    report = state.nodes.devices.reports.get(row)
    return {
        "name": name,
        "labels": dict(node.metadata.labels),
        "taints": [f"{t.key}={t.value}:{t.effect}" for t in node.spec.taints],
        "isCordoned": node.spec.unschedulable,
        "conditions": [
            {"type": c.type, "status": c.status, "reason": c.reason, "message": c.message}
            for c in node.status.conditions
        ],
        "resources": _resources(state, row),
        "numa": _numa(state.nodes.numa.node(row, pack=False), pods),
        "devices": [
            _device_group(group, report.healthy.get(group.kind, 0), pods)
            for report in ([report] if report is not None else [])
            for group in report.model.groups
        ],
        "partitions": _partitions(state, row),
        "pods": [_pod(placed, scope) for placed in pods],
    }


def _resources(state: ClusterState, row: int) -> list[dict[str, Any]]:
    """Return the amounts of a node.

    Several resource names describe the same GPUs. Those that pods on the node request are shown;
    where none is requested, the first of ``_GPU_NAMES`` that the node has.
    """
    allocatable, requested = state.nodes.allocatable[:, row], state.nodes.requested[:, row]
    amounts = {
        name: (int(total), int(used))
        for name, total, used in zip(state.axis.names, allocatable, requested, strict=False)
        if name and (total or used)
    }
    gpus = [name for name in _GPU_NAMES if name in amounts]
    shown = [name for name in gpus if amounts[name][1]] or gpus[:1]
    return [
        {
            "name": name,
            "used": quantity(name, used),
            "total": quantity(name, total),
            "share": used / total if total else None,
        }
        for name, (total, used) in amounts.items()
        if name not in gpus or name in shown
    ]


def _pod(placed: PlacedPod, scope: ViewScope) -> dict[str, Any]:
    allocation, spec = placed.pod_allocation, placed.pod.spec
    requests = {
        name: quantity(name, amount)
        for name, amount in placed.pod_class.effective.requests.items()
        if amount
    }
    is_own = scope.includes_namespace(placed.pod.metadata.namespace)
    return {
        "pod": placed.key if is_own else HIDDEN,
        "priority": spec.priority or 0,
        "sinceS": placed.since_s,
        "requests": requests,
        "cpus": format_cpu_list(allocation.numa.cpus) if allocation.numa is not None else "",
        "devices": {
            str(kind): [taken.minor for taken in devices]
            for kind, devices in allocation.devices.items()
        },
    }


def _numa(numa: NumaNode, pods: list[PlacedPod]) -> list[dict[str, Any]]:
    used = numa.used({})
    layout = numa.layout
    holder = {
        cpu: place
        for place, placed in enumerate(pods)
        if placed.pod_allocation.numa is not None
        for cpu in bits_of(placed.pod_allocation.numa.cpus)
    }
    unusable = set(bits_of(numa.unusable))
    zones = []
    for zone, amounts in numa.zones.items():
        cores: list[list[list[int]]] = []
        cpus = layout.numa_nodes.get(zone, 0) if layout is not None else 0
        if layout is not None and cpus:
            for core in bits_of(layout.cores_of(cpus)):
                threads = bits_of(layout.cpus_of(1 << core))
                cores.append(
                    [[cpu, holder.get(cpu, -2 if cpu in unusable else -1)] for cpu in threads]
                )
        zones.append(
            {
                "zone": zone,
                "cores": cores,
                "resources": [
                    {
                        "name": name,
                        "used": quantity(name, used.get(zone, {}).get(name, 0)),
                        "total": quantity(name, amount),
                    }
                    for name, amount in amounts.items()
                ],
            }
        )
    return zones


def _device_group(group: DeviceGroup, healthy: int, pods: list[PlacedPod]) -> dict[str, Any]:
    place_of_share = RATIO if group.kind is DeviceType.GPU else 0
    return {
        "type": str(group.kind),
        "devices": [
            {
                "minor": device.minor,
                "numa": device.numa,
                "pcie": device.pcie or "",
                "isHealthy": bool(healthy >> device.minor & 1),
                "holders": [
                    {
                        "pod": place,
                        "percent": int(taken.amounts[place_of_share]),
                        "functions": [function.bus_id for function in taken.functions],
                    }
                    for place, placed in enumerate(pods)
                    for taken in placed.pod_allocation.devices.get(group.kind, ())
                    if taken.minor == device.minor
                ],
            }
            for device in group.devices
        ],
    }


def _partitions(state: ClusterState, row: int) -> list[list[int]]:
    """Return the GPU minors of each partition of linked GPUs, largest partitions first."""
    report = state.nodes.devices.reports.get(row)
    table = report.model.partitions if report is not None else None
    if table is None:
        return []
    partitions = [
        list(partition.minors)
        for _, groups in sorted(table.sizes, key=lambda sized: -sized[0])
        for group in groups
        for partition in group
    ]
    return partitions[:MAX_PARTITIONS]
