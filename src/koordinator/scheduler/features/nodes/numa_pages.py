"""Page of the CPUs and NUMA nodes of a node, with their holders.

Source: koordinator pkg/scheduler/plugins/nodenumaresource: service.go; topology_options.go;
node_allocation.go, ``PodAllocation``; cpu_topology.go (fields, and how cores are numbered).
"""

from collections.abc import Iterator
from typing import Any

from koordinator.api.annotations.numa import CPU_TOPOLOGY, CpuTopology
from koordinator.api.codec import spelt_out
from koordinator.api.node_resource_topology import NodeResourceTopology
from koordinator.domain.amounts import ZoneAmounts
from koordinator.foundation.cpu_list import cpu_ids, format_cpu_list
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.rules.numa.node import NOTHING, NumaNode
from koordinator.scheduler.snapshot import ClusterState
from koordinator.scheduler.snapshot.numa import POLICIES

_SOCKET = 16  # bits by which a socket's number is shifted in the number of a core

Cpus = dict[str, dict[str, Any]]  # by id


def numa_page(state: ClusterState, name: str) -> dict[str, Any]:
    """Return the page of a node.  Raises NotFoundError without reported CPU topology."""
    row = state.nodes.rows.get(name)
    table = state.nodes.numa
    facts = table.facts.get(row) if row is not None else None
    found = state.objects.get(NodeResourceTopology, name)
    if row is None or facts is None or facts.topology is None or found is None:
        raise NotFoundError(f"cannot find node {name}, or its NodeResourceTopology")
    node = table.node(row, pack=False)
    cpus = _cpus(CPU_TOPOLOGY.read(found.metadata), node)
    ratios = facts.topology.ratios(facts.ratios)
    kubelet = facts.topology.kubelet
    return {
        "name": name,
        "cpuTopology": _topology(cpus, node),
        "reservedCPUs": format_cpu_list(node.unusable),
        "maxRefCount": node.max_holders,
        **({"policy": spelt_out(kubelet)} if kubelet else {}),
        "numaTopologyPolicy": str(POLICIES[int(table.policy[row])]),
        "numaNodeResources": _zones(node.zones),
        **({"amplificationRatios": dict(ratios)} if ratios else {}),
        "remainingNUMANodeResources": _zones(node.available(NOTHING.zones)),
        "allocatedNUMANodeResources": _zones(node.used(NOTHING.zones)),
        "availableCPUs": format_cpu_list(node.free_cpus(NOTHING).cpus),
        "allocatedCPUs": {cpu: info for cpu, info in cpus.items() if info["refCount"]},
        "allocatedPods": list(_pods(state, row)),
    }


def _cpus(topology: CpuTopology | None, node: NumaNode) -> Cpus:
    cpus: Cpus = {
        str(cpu.id): {
            "cpuID": cpu.id,
            "coreID": cpu.socket << _SOCKET | cpu.core,
            "nodeID": cpu.node,
            "socketID": cpu.socket,
            "refCount": 0,
            "exclusivePolicy": "",
        }
        for cpu in (topology.detail if topology else ())
    }
    for allocation in node.ledger.cpus:
        for cpu_id in cpu_ids(allocation.cpus):
            info = cpus.get(str(cpu_id))
            if info is not None:
                info["refCount"] += 1
                info["exclusivePolicy"] = allocation.exclusive_policy or info["exclusivePolicy"]
    return cpus


def _topology(cpus: Cpus, node: NumaNode) -> dict[str, Any]:
    layout = node.layout
    return {
        "numCPUs": len(cpus),
        "numCores": len({info["coreID"] for info in cpus.values()}),
        # A NUMA node of two sockets counts twice, as in the original.
        "numNodes": len({(info["socketID"], info["nodeID"]) for info in cpus.values()}),
        "numSockets": len(layout.sockets) if layout else 0,
        "cpuDetails": cpus,
    }


def _zones(zones: ZoneAmounts) -> list[Any]:
    return [spelt_out(part) for part in NumaAllocation(zones=zones).status().numa_node_resources]


def _pods(state: ClusterState, row: int) -> Iterator[dict[str, Any]]:
    for _, placed in sorted(state.pods.on_row[row].items()):
        held, meta = placed.pod_allocation.numa, placed.pod.metadata
        if held is not None:
            yield {
                "uid": meta.uid,
                "namespace": meta.namespace,
                "name": meta.name,
                "cpuset": format_cpu_list(held.cpus),
                "cpuExclusivePolicy": held.exclusive_policy,
                "numaNodeResources": _zones(held.zones),
            }
