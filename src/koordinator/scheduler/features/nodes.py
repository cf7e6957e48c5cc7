"""Debugging pages of nodes: usage, load, NUMA topology and devices.

Some fields are spelled as in Go.  Terms of a pod's affinity stay in its spec, and the generation of
the node is left out.

Source: koordinator pkg/scheduler/plugins/deviceshare: service.go; device_cache.go,
``getNodeDeviceSummary`` (paths, fields and the message); koordinator
pkg/scheduler/plugins/loadaware/service.go; koordinator pkg/scheduler/plugins/nodenumaresource:
service.go; topology_options.go; node_allocation.go, ``PodAllocation``; cpu_topology.go (fields,
and how cores are numbered); koordinator pkg/scheduler/frameworkext/services (the paths);
koordinator pkg/scheduler/frameworkext/services/services.go (fields).
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, cast

import numpy as np

from koordinator.api.annotations.numa import CPU_TOPOLOGY, CpuTopology
from koordinator.api.codec import to_manifest, with_all_fields
from koordinator.api.device import DeviceType
from koordinator.api.node import NodeResourceTopology
from koordinator.api.pod import Pod
from koordinator.api.resource_names import GPU_MEMORY
from koordinator.domain.amounts import ZoneAmounts, go_amounts
from koordinator.domain.devices.allocation import NAMES
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.cpu_list import format_cpu_list
from koordinator.foundation.errors import NotFoundError
from koordinator.foundation.masks import bits_of
from koordinator.foundation.quantity import Quantity
from koordinator.scheduler.loop.feature import CallInLoop, Feature, StatePage
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.plugins import load_aware
from koordinator.scheduler.rules.load.pod_load import Addends, Sum
from koordinator.scheduler.rules.load.rules import LoadAmounts, LoadRules
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.rules.numa.node import NOTHING, NumaNode
from koordinator.scheduler.rules.volumes import named_claims
from koordinator.scheduler.snapshot import ClusterState, PlacedPod
from koordinator.scheduler.snapshot.load_ledger import LoadLedger
from koordinator.scheduler.snapshot.numa import POLICIES

PageAmounts = dict[str, int]  # by resource
Detail = dict[DeviceType, dict[int, PageAmounts]]  # by minor

_SUMS = {
    Sum.PROD_USAGE: "prodUsage",
    Sum.DELTA: "nodeDelta",
    Sum.PROD_DELTA: "prodDelta",
    Sum.ESTIMATED: "nodeEstimated",
}
_KIBI = 1024

_SOCKET = 16  # bits by which a socket's number is shifted in the number of a core


def device_summaries(state: ClusterState) -> dict[str, Any]:
    """Return the summaries of all nodes with reported or allocated devices."""
    return {
        name: _summary(state, row)
        for name, row in sorted(state.nodes.rows.items())
        if _is_known(state, row)
    }


def device_summary(state: ClusterState, name: str) -> dict[str, Any]:
    """Return the summary of one node.  Raises NotFoundError without devices."""
    row = state.nodes.rows.get(name)
    if row is None or not _is_known(state, row):
        raise NotFoundError(f"cannot find node {name}")
    return _summary(state, row)


def _is_known(state: ClusterState, row: int) -> bool:
    devices = state.nodes.devices
    return row in devices.reports or any(c.holders[row].any() for c in devices.columns.values())


def _summary(state: ClusterState, row: int) -> dict[str, Any]:
    devices = state.nodes.devices
    report = devices.reports.get(row)
    total: Detail = {}
    free: Detail = {}
    used: Detail = {}
    for kind, columns in devices.columns.items():
        group = report.model.group(kind) if report else None
        for minor in (device.minor for device in group.devices) if group else ():
            totals = _named(kind, columns.total[row, minor].tolist())
            left = dict(zip(NAMES[kind], columns.left[row, minor].tolist(), strict=True))
            total.setdefault(kind, {})[minor] = totals
            free.setdefault(kind, {})[minor] = {name: max(left[name], 0) for name in totals}
        for minor in columns.holders[row].nonzero()[0].tolist():
            used.setdefault(kind, {})[minor] = _named(kind, columns.used[row, minor].tolist())
    return {
        "deviceTotal": _texts(_sum(total)),
        "deviceFree": _texts(_sum(free)),
        "deviceUsed": _texts(_sum(used)),
        "deviceTotalDetail": _detail(total),
        "deviceFreeDetail": _detail(free),
        "deviceUsedDetail": _detail(used),
        "allocateSet": _allocate_set(state, row),
    }


def _allocate_set(state: ClusterState, row: int) -> dict[str, dict[str, dict[str, Any]]]:
    """Return the allocations by type, pod and minor."""
    allocations: dict[str, dict[str, dict[str, Any]]] = {}
    for key, placed in sorted(state.pods.on_row[row].items()):
        for kind, devices in placed.pod_allocation.devices.items():
            allocations.setdefault(str(kind), {})[key] = {
                str(taken.minor): _texts(_named(kind, taken.amounts)) for taken in devices
            }
    return allocations


def _named(kind: DeviceType, amounts: Iterable[int]) -> PageAmounts:
    return {name: amount for name, amount in zip(NAMES[kind], amounts, strict=True) if amount}


def _sum(detail: Detail) -> PageAmounts:
    total: PageAmounts = {}
    for by_minor in detail.values():
        for amounts in by_minor.values():
            for name, amount in amounts.items():
                total[name] = total.get(name, 0) + amount
    return total


def _detail(detail: Detail) -> dict[str, dict[str, dict[str, str]]]:
    return {
        str(kind): {str(minor): _texts(amounts) for minor, amounts in by_minor.items()}
        for kind, by_minor in detail.items()
    }


def _texts(amounts: Mapping[str, int]) -> dict[str, str]:
    return {
        name: str(Quantity.from_int(amount, binary=name == GPU_MEMORY))
        for name, amount in amounts.items()
    }


def load_page(state: ClusterState, rules: LoadRules, name: str) -> dict[str, Any]:
    """Return the pods of a node and their estimates; empty without data."""
    row = state.nodes.rows.get(name)
    if row is None:
        return {}
    ledger = state.load.by(rules)
    pods = sorted(state.pods.on_row[row].values(), key=lambda placed: placed.since_s)
    page: dict[str, Any] = {"pods": [_pod(placed) for placed in pods]} if pods else {}
    measured = ledger.measured[row]
    if measured is not None:
        sums = _by_sum(ledger.sums(measured, pods))
        page |= {text: _quantities(ledger.rules, sums[kind]) for kind, text in _SUMS.items()}
        page |= {
            f"{_SUMS[kind]}Pods": adding
            for kind in (Sum.DELTA, Sum.PROD_DELTA, Sum.ESTIMATED)
            if (adding := _adding(ledger, pods, kind))
        }
    return page


def _adding(ledger: LoadLedger, pods: list[PlacedPod], kind: Sum) -> list[str]:
    return sorted(placed.key for placed in pods if any(_by_sum(ledger.added_by(placed))[kind]))


def _by_sum(addends: Addends) -> list[LoadAmounts]:
    width = len(addends) // len(Sum)
    return [addends[width * kind : width * (kind + 1)] for kind in Sum]


def _pod(placed: PlacedPod) -> dict[str, Any]:
    when = to_datetime(placed.since_s).isoformat().replace("+00:00", "Z")
    return {"timestamp": when, "pod": to_manifest(placed.pod)}


def _quantities(rules: LoadRules, amounts: LoadAmounts) -> dict[str, str]:
    shown = {}
    for name, amount in zip(rules.resources, amounts, strict=True):
        if name == "cpu":
            quantity = Quantity.from_milli(amount)
        else:
            quantity = Quantity.from_int(amount, binary=name == "memory" and amount % _KIBI == 0)
        shown[name] = str(quantity)
    return shown


def node_page(state: ClusterState, name: str) -> dict[str, Any]:
    """Return the page of a node.  Raises NotFoundError."""
    row = state.nodes.rows.get(name)
    node = state.nodes.objects[row] if row is not None else None
    if row is None or node is None:
        raise NotFoundError(f"cannot find node {name}")
    pods = [placed for _, placed in sorted(state.pods.on_row[row].items())]
    allocatable, requested = state.nodes.allocatable[:, row], state.nodes.requested[:, row]
    cpu, memory = state.nodes.nonzero[:, row].tolist()
    page = {
        "node": to_manifest(node),
        "pods": _infos(pods),
        "podsWithAffinity": _infos(p for p in pods if _has_affinity(p.pod)),
        "podsWithRequiredAntiAffinity": _infos(
            p for p in pods if p.pod.spec.required_pod_anti_affinity
        ),
        "usedPorts": _ports(pods),
        "requested": _amounts(state, requested),
        "nonZeroRequested": go_amounts({"cpu": cpu, "memory": memory}),
        "remaining": _amounts(state, allocatable - requested),
        "allocatable": _amounts(state, allocatable),
        "imageStates": _images(state, row),
        "pvcRefCounts": dict(
            Counter(
                f"{placed.pod.metadata.namespace}/{name}"
                for placed in pods
                for name in named_claims(placed.pod.spec.volumes)
            )
        ),
    }
    return {field: value for field, value in page.items() if value}


def _amounts(state: ClusterState, column: IntArray) -> dict[str, Any]:
    named = zip(state.axis.names, column.tolist(), strict=False)
    return go_amounts({name: amount for name, amount in named if amount})


def _infos(pods: Iterable[PlacedPod]) -> list[dict[str, Any]]:
    return [{"Pod": to_manifest(placed.pod)} for placed in pods]


def _has_affinity(pod: Pod) -> bool:
    affinity = pod.spec.affinity
    return affinity is not None and (
        affinity.pod_affinity is not None or affinity.pod_anti_affinity is not None
    )


def _ports(pods: Iterable[PlacedPod]) -> dict[str, list[dict[str, Any]]]:
    """Return the host ports in use, by address."""
    taken = sorted({port for placed in pods for port in placed.pod_class.host_ports})
    ports: dict[str, list[dict[str, Any]]] = {}
    for address, protocol, port in taken:
        ports.setdefault(address, []).append({"Protocol": protocol, "Port": port})
    return ports


def _images(state: ClusterState, row: int) -> dict[str, Any]:
    """Return the images of the node with all nodes that have them."""
    shown = {}
    for name, image in sorted(state.nodes.images.items()):
        if image.present[row]:
            nodes = [
                state.nodes.names[image_row] for image_row in np.flatnonzero(image.present).tolist()
            ]
            shown[name] = {
                "Size": image.size,
                "NumNodes": len(nodes),
                "Nodes": {node: {} for node in nodes},
            }
    return shown


Cpus = dict[str, dict[str, Any]]  # by id


def numa_page(state: ClusterState, name: str) -> dict[str, Any]:
    """Return the page of a node.  Raises NotFoundError without reported CPU topology."""
    row = state.nodes.rows.get(name)
    table = state.nodes.numa
    facts = table.facts.get(row) if row is not None else None
    topology = state.objects.get(NodeResourceTopology, name)
    if row is None or facts is None or facts.topology is None or topology is None:
        raise NotFoundError(f"cannot find node {name}, or its NodeResourceTopology")
    node = table.node(row, pack=False)
    cpus = _cpus(CPU_TOPOLOGY.read(topology.metadata), node)
    ratios = facts.topology.ratios(facts.ratios)
    kubelet = facts.topology.kubelet
    return {
        "name": name,
        "cpuTopology": _topology(cpus, node),
        "reservedCPUs": format_cpu_list(node.unusable),
        "maxRefCount": node.max_holders,
        **({"policy": with_all_fields(kubelet)} if kubelet else {}),
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
        for cpu_id in bits_of(allocation.cpus):
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
    return [
        with_all_fields(part) for part in NumaAllocation(zones=zones).status().numa_node_resources
    ]


def _pods(state: ClusterState, row: int) -> Iterator[dict[str, Any]]:
    for _, placed in sorted(state.pods.on_row[row].items()):
        numa, meta = placed.pod_allocation.numa, placed.pod.metadata
        if numa is not None:
            yield {
                "uid": meta.uid,
                "namespace": meta.namespace,
                "name": meta.name,
                "cpuset": format_cpu_list(numa.cpus),
                "cpuExclusivePolicy": numa.exclusive_policy,
                "numaNodeResources": _zones(numa.zones),
            }


class NodePagesFeature(Feature):
    """Pages of nodes, and of the data that node filters use."""

    def __init__(self, handle: SchedulerHandle) -> None:
        self._handle = handle

    def pages(self, in_loop: CallInLoop) -> Mapping[str, StatePage]:
        """Return the pages of nodes, and of plugins that some profile has."""
        state, cycles = self._handle.state, self._handle.cycles.values()
        filters = [active for cycle in cycles for active in cycle.profile.filter]
        pages: dict[str, StatePage] = {
            "/plugins/DeviceShare/nodeDeviceSummaries": lambda _: in_loop(
                partial(device_summaries, state)
            ),
            "/plugins/DeviceShare/nodeDeviceSummaries/{name}": lambda given: in_loop(
                partial(device_summary, state, given["name"])
            ),
            "/plugins/NodeNUMAResource/nodes/{nodeName}": lambda given: in_loop(
                partial(numa_page, state, given["nodeName"])
            ),
        }
        # Looked up by name: timed plugins are wrapped in another class.
        by_name = {active.name: active.plugin for active in reversed(filters)}
        if load_aware.PLUGIN.name in by_name:  # of the first profile that has it
            load = cast("load_aware.LoadAwareScheduling", by_name[load_aware.PLUGIN.name])
            pages["/plugins/LoadAwareScheduling/node/{nodeName}"] = lambda given: in_loop(
                partial(load_page, state, load.rules, given["nodeName"])
            )
        on = {active.name for active in filters}
        shown = {path: page for path, page in pages.items() if path.split("/")[2] in on}
        return shown | {
            "/nodes/{nodeName}": lambda given: in_loop(partial(node_page, state, given["nodeName"]))
        }
