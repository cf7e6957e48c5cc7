"""NodeResourceTopology object: CPUs, their allocation, and the resources of NUMA nodes.

Source: koordinator pkg/koordlet/statesinformer/impl/states_noderesourcetopology.go.
"""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations.numa import (
    BE_CPU_SHARED_POOLS,
    CPU_BASIC_INFO,
    CPU_SHARED_POOLS,
    CPU_TOPOLOGY,
    KUBELET_CPU_MANAGER_POLICY,
    NODE_RESERVATION,
    POD_CPU_ALLOCATIONS,
    SYSTEM_QOS_RESOURCE,
    CpuBasicInfo,
    CpuTopology,
    KubeletCpuManagerPolicy,
)
from koordinator.api.labels import ENABLE_NUMA_RESERVATION, MANAGED_BY
from koordinator.api.meta import ObjectMeta, OwnerReference
from koordinator.api.node import (
    NUMA_ZONE,
    Node,
    NodeResourceTopology,
    Zone,
    ZoneResource,
)
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.foundation.cpu_list import format_cpu_list
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.koordlet.view.cpus import cpu_pools, pool_entries
from koordinator.koordlet.view.node_view import NodeView

MANAGER = "Koordinator"
#: KiB per page, by name of the resource.
HUGE_PAGES: Final = MappingProxyType({"hugepages-1Gi": 1 << 20, "hugepages-2Mi": 1 << 11})


@dataclass(frozen=True, slots=True)
class NumaMemory:
    """Memory of a NUMA node in bytes; ``total`` includes ``huge_pages``, by resource name."""

    total: int
    huge_pages: Mapping[str, int] = field(default_factory=dict)

    @property
    def ordinary(self) -> int:
        """Bytes outside of huge page pools."""
        return max(self.total - sum(self.huge_pages.values()), 0)


def topology_of(
    view: NodeView, basics: CpuBasicInfo, memory: Mapping[int, NumaMemory]
) -> NodeResourceTopology:
    """Return the desired object; ``memory`` is by NUMA node.

    What depends on the CPUs that the kubelet has allocated is left out while these are unknown.
    """
    machine = view.machine
    pools = cpu_pools(view)
    meta = machine.node.metadata
    annotations = {
        **CPU_BASIC_INFO.entry(basics),
        **CPU_TOPOLOGY.entry(CpuTopology(detail=tuple(machine.cpus))),
        **BE_CPU_SHARED_POOLS.entry(pool_entries(view, pools.best_effort)),
        **NODE_RESERVATION.entry(
            replace(machine.reservation, reserved_cpus=format_cpu_list(machine.reserved_cpus))
        ),
    }
    if machine.knows_allocations:
        policy = KubeletCpuManagerPolicy(policy=machine.kubelet_policy)
        annotations |= {
            **CPU_SHARED_POOLS.entry(pool_entries(view, pools.shared)),
            **KUBELET_CPU_MANAGER_POLICY.entry(policy),
            **POD_CPU_ALLOCATIONS.entry(machine.kubelet_allocations),
        }
    if SYSTEM_QOS_RESOURCE.key in meta.annotations:
        annotations |= SYSTEM_QOS_RESOURCE.entry(machine.system_qos)
    labels = {MANAGED_BY: MANAGER}
    if meta.labels.get(ENABLE_NUMA_RESERVATION):
        labels[ENABLE_NUMA_RESERVATION] = meta.labels[ENABLE_NUMA_RESERVATION]
    return NodeResourceTopology(
        metadata=ObjectMeta(
            name=meta.name,
            labels=labels,
            annotations=annotations,
            owner_references=(owner_of(machine.node),),
        ),
        topology_policies=("None",),
        zones=tuple(
            _zone(view, node, memory.get(node, NumaMemory(0))) for node in machine.numa_nodes
        ),
    )


def merged_topology(
    existing: NodeResourceTopology, wanted: NodeResourceTopology
) -> NodeResourceTopology:
    """Return the existing object with the fields of this agent updated.

    Zones keep the resources of other writers.  What the node no longer has is removed: the
    scheduler would continue to keep CPUs for class SYSTEM.
    """
    meta = existing.metadata
    labels = {key: text for key, text in meta.labels.items() if key != ENABLE_NUMA_RESERVATION}
    annotations = {
        key: text for key, text in meta.annotations.items() if key != SYSTEM_QOS_RESOURCE.key
    }
    return replace(
        existing,
        metadata=replace(
            meta,
            labels=labels | wanted.metadata.labels,
            annotations=annotations | wanted.metadata.annotations,
        ),
        topology_policies=existing.topology_policies or wanted.topology_policies,
        zones=_merged_zones(existing.zones, wanted.zones),
    )


def owner_of(node: Node) -> OwnerReference:
    """Return an owner reference, so that the object is deleted together with its node."""
    return OwnerReference(
        api_version="v1",
        kind="Node",
        name=node.metadata.name,
        uid=node.metadata.uid,
        controller=True,
        block_owner_deletion=True,
    )


def _zone(view: NodeView, node: int, memory: NumaMemory) -> Zone:
    cpus = view.machine.numa_nodes[node].bit_count()
    in_bytes = {MEMORY: memory.ordinary, **memory.huge_pages}
    amounts = {CPU: (1000 * cpus, Quantity.from_int(cpus))} | {
        name: (amount, Quantity.from_int(amount, binary=True)) for name, amount in in_bytes.items()
    }
    resources = []
    for name, (amount, capacity) in amounts.items():
        left = max(amount - _reserved(view, name), 0)
        allocatable = (
            Quantity.from_milli(left) if name == CPU else Quantity.from_int(left, binary=True)
        )
        resources.append(
            ZoneResource(
                name=name, capacity=capacity, allocatable=allocatable, available=allocatable
            )
        )
    return Zone(name=f"node-{node}", type=NUMA_ZONE, resources=tuple(resources))


def _reserved(view: NodeView, name: str) -> int:
    """Return one NUMA node's part of the kubelet's reservation, if the node's label enables it."""
    machine = view.machine
    is_enabled = machine.node.metadata.labels.get(ENABLE_NUMA_RESERVATION) == "true"
    if not is_enabled or name in HUGE_PAGES:
        return 0
    capacity = machine.capacity_milli if name == CPU else machine.memory_bytes
    reserved = max(capacity - machine.raw_allocatable.get(name, capacity), 0)
    return -(-reserved // len(machine.numa_nodes))


def _merged_zones(existing: tuple[Zone, ...], wanted: tuple[Zone, ...]) -> tuple[Zone, ...]:
    by_name = {zone.name: zone for zone in existing}
    merged = []
    for zone in wanted:
        old = by_name.get(zone.name)
        if old is None:
            merged.append(zone)
            continue
        ours = {resource.name for resource in zone.resources}
        others = tuple(resource for resource in old.resources if resource.name not in ours)
        resources = tuple(sorted((*zone.resources, *others), key=lambda resource: resource.name))
        merged.append(replace(old, type=zone.type, resources=resources))
    return tuple(merged)
