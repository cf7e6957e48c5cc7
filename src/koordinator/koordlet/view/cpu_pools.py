"""Shared CPU pools: the CPUs that are not bound to a pod, by NUMA node.

Source: koordinator pkg/koordlet/statesinformer/impl/states_noderesourcetopology.go,
``calCPUSharePools``; pkg/koordlet/qosmanager cpusuppress, ``calcBECPUSet``.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from koordinator.api.annotations.numa import CpuSharedPool
from koordinator.api.qos import QosClass
from koordinator.foundation.cpu_list import format_cpu_list
from koordinator.koordlet.view.node_view import NodeView


@dataclass(frozen=True, slots=True)
class CpuPools:
    """Masks of CPUs by NUMA node, for latency-sensitive and for best-effort pods."""

    shared: Mapping[int, int]
    best_effort: Mapping[int, int]

    @property
    def all_shared(self) -> int:
        """Shared CPUs of all NUMA nodes."""
        return sum(self.shared.values())

    def without(self, mask: int) -> "CpuPools":
        """Return the pools without CPUs that become bound to a pod."""
        shared = {node: cpus & ~mask for node, cpus in self.shared.items()}
        return CpuPools(shared, self.best_effort)


def cpu_pools(view: NodeView) -> CpuPools:
    """Return the pools.  Best-effort pods may also use CPUs bound to pods other than LSE."""
    machine = view.machine
    bound = exclusive = 0
    for pod in view.active_pods:
        cpus = pod.bound_cpus
        bound |= cpus
        if pod.labelled_qos is QosClass.LSE:
            exclusive |= cpus
    kept = machine.reserved_cpus | machine.exclusive_system_cpus
    shared = machine.all_cpus & ~(bound | machine.kubelet_cpus | kept)
    best_effort = machine.all_cpus & ~(exclusive | kept)
    return CpuPools(
        {node: cpus & shared for node, cpus in machine.numa_nodes.items()},
        {node: cpus & best_effort for node, cpus in machine.numa_nodes.items()},
    )


def pool_entries(view: NodeView, pool: Mapping[int, int]) -> tuple[CpuSharedPool, ...]:
    """Return a pool in the form of its annotation."""
    sockets = view.machine.sockets
    return tuple(
        CpuSharedPool(socket=sockets[node], node=node, cpuset=format_cpu_list(mask))
        for node, mask in pool.items()
    )
