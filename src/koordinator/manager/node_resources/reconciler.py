"""Controller of node resources: writes of nodes whose calculated resources differ enough.

Source: koordinator pkg/slo-controller/noderesource/resource_calculator.go; plugins, ``Prepare``,
``NeedSync`` and ``NeedSyncMeta`` of each.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace

from koordinator.api.annotations.node import (
    AMPLIFICATION_RATIOS,
    CPU_NORMALIZATION_RATIO,
    ORIGIN_EXTENDED_ALLOCATABLE,
    THIRD_PARTY_ALLOCATIONS,
    OriginExtendedAllocatable,
    ThirdPartyAllocations,
    amplification_entry,
    cpu_normalization_entry,
    read_cpu_normalization_ratio,
)
from koordinator.api.codec import difference, encode_part
from koordinator.api.core import ResourceList
from koordinator.api.meta import JsonObject, ObjectMeta
from koordinator.api.node import Node, NodeResourceTopology
from koordinator.api.qos import PriorityBand
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY, RDMA
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.manager.configuration.strategies import Strategies
from koordinator.manager.node_resources.batch import is_different, with_amounts, zone_amounts
from koordinator.manager.node_resources.calculation import (
    ALL_PLUGINS,
    GPU_LABELS,
    GPU_RESOURCES,
    ManagedNode,
    NodePlugin,
    NodeResourceResult,
    calculate,
    reset,
)
from koordinator.manager.node_resources.node import CpuMemory, milli, units
from koordinator.manager.node_resources.ratios import is_another_ratio
from koordinator.manager.writes import Patch, Write

_NOTHING = Quantity(0)
_MILLIS = 1000

_RESOURCES = {
    NodePlugin.MID: (MID_CPU, MID_MEMORY),
    NodePlugin.BATCH: (BATCH_CPU, BATCH_MEMORY),
    NodePlugin.GPU: GPU_RESOURCES,
    NodePlugin.RDMA: (RDMA,),
}


@dataclass(slots=True)
class PreparedNode:
    """Copies of the fields of a node that the manager writes."""

    labels: dict[str, str]
    annotations: dict[str, str]
    capacity: ResourceList
    allocatable: ResourceList
    problem: str = ""


def prepare(node: Node, calculated: NodeResourceResult) -> PreparedNode:
    """Return the fields of the node with the calculated resources; the node is not modified."""
    prepared = PreparedNode(
        labels=dict(node.metadata.labels),
        annotations=dict(node.metadata.annotations),
        capacity=dict(node.status.capacity),
        allocatable=dict(node.status.allocatable),
    )
    plugins = calculated.plugins
    if NodePlugin.NORMALIZATION in plugins and calculated.normalization is not None:
        prepared.annotations |= cpu_normalization_entry(calculated.normalization)
    if NodePlugin.AMPLIFICATION in plugins:
        prepared.annotations.pop(AMPLIFICATION_RATIOS, None)
        if calculated.amplification:
            prepared.annotations |= amplification_entry(calculated.amplification)
    if NodePlugin.MID in plugins:
        mid = calculated.mid
        _set(prepared, MID_CPU, Quantity.from_int(mid.cpu_milli) if mid else None)
        memory = Quantity.from_int(mid.memory_bytes, binary=True) if mid else None
        _set(prepared, MID_MEMORY, memory)
    if NodePlugin.BATCH in plugins:
        batch = calculated.batch.batch() if calculated.batch is not None else None
        _prepare_batch(prepared, batch, calculated.normalization or 1.0)
    _prepare_devices(prepared, calculated)
    return prepared


def _published_cpu(batch: CpuMemory, ratio: float) -> Quantity:
    """Return the batch CPU that a node publishes: milli-CPU, times a normalization above 1."""
    amount = milli(batch.cpu)
    if ratio > 1:
        amount = -(-int(amount * _MILLIS * ratio) // _MILLIS)
    return Quantity.from_int(amount)


def _prepare_devices(prepared: PreparedNode, calculated: NodeResourceResult) -> None:
    plugins = calculated.plugins
    if NodePlugin.GPU in plugins:
        for name in GPU_RESOURCES:
            if calculated.gpus is None:
                _set(prepared, name, None)
            elif name in calculated.gpus:
                _set(prepared, name, calculated.gpus[name])
        prepared.labels |= calculated.gpu_labels
    if NodePlugin.RDMA in plugins:
        _set(prepared, RDMA, calculated.rdma[RDMA] if calculated.rdma is not None else None)


def _prepare_batch(prepared: PreparedNode, batch: CpuMemory | None, ratio: float) -> None:
    if batch is None:
        cpu = memory = None
    else:
        cpu = _published_cpu(batch, ratio)
        memory = Quantity.from_int(units(batch.memory), binary=True)
    _set(prepared, BATCH_CPU, cpu)
    _set(prepared, BATCH_MEMORY, memory)
    _note_origin(prepared, {BATCH_CPU: cpu or _NOTHING, BATCH_MEMORY: memory or _NOTHING})
    if cpu is None or memory is None:
        return
    try:
        allocations = THIRD_PARTY_ALLOCATIONS.read(_meta(prepared))
    except InputError as error:
        prepared.problem = str(error)
        return
    if allocations is None:
        return
    remaining = _remaining({BATCH_CPU: cpu, BATCH_MEMORY: memory}, allocations)
    for name, amount in remaining.items():
        _set(prepared, name, amount)


def _remaining(amounts: ResourceList, allocations: ThirdPartyAllocations) -> ResourceList:
    """Return batch resources minus third-party allocations, at least 0."""
    remaining = dict(amounts)
    for each in allocations.allocations:
        if each.priority == PriorityBand.BATCH:
            for name in remaining:
                remaining[name] -= each.resources.get(name, _NOTHING)
    return {name: max(amount, _NOTHING) for name, amount in remaining.items()}


def _noted_origin(annotations: dict[str, str]) -> ResourceList:
    """Return the annotated amounts before third-party allocations; empty without annotation.

    An annotation that can't be parsed is ignored.
    """
    try:
        origin = ORIGIN_EXTENDED_ALLOCATABLE.read(ObjectMeta(annotations=annotations))
    except InputError:
        return {}
    return origin.resources if origin is not None else {}


def _is_balanced(node: Node) -> bool:
    """Return whether a node publishes its annotated amounts minus third-party allocations.

    If not, a third party has changed its allocation.  The node is then written even if the change
    is small, since the third party waits until the allocatable amount excludes its allocation.
    Annotations that can't be parsed count as balanced.
    """
    try:
        origin = ORIGIN_EXTENDED_ALLOCATABLE.read(node.metadata)
        allocations = THIRD_PARTY_ALLOCATIONS.read(node.metadata)
    except InputError:
        return True
    allocatable = node.status.allocatable
    if allocations is None or not allocatable.keys() >= {BATCH_CPU, BATCH_MEMORY}:
        return True
    amounts = {name: allocatable[name] for name in (BATCH_CPU, BATCH_MEMORY)}
    noted = amounts if origin is None else {n: origin.resources.get(n, _NOTHING) for n in amounts}
    return _remaining(noted, allocations) == amounts


def _note_origin(prepared: PreparedNode, amounts: ResourceList) -> None:
    """Annotate the amounts before third-party allocations.

    As in the original, a node without any annotation gets none.
    """
    if not prepared.annotations:
        return
    try:
        before = ORIGIN_EXTENDED_ALLOCATABLE.read(_meta(prepared))
    except InputError:
        before = None
    resources = {**(before.resources if before is not None else {}), **amounts}
    entry = ORIGIN_EXTENDED_ALLOCATABLE.entry(OriginExtendedAllocatable(resources=resources))
    prepared.annotations |= entry


def _meta(prepared: PreparedNode) -> ObjectMeta:
    return ObjectMeta(annotations=prepared.annotations)


def _set(prepared: PreparedNode, name: str, amount: Quantity | None) -> None:
    for amounts in (prepared.capacity, prepared.allocatable):
        if amount is None:
            amounts.pop(name, None)
        else:
            amounts[name] = amount


@dataclass(frozen=True, slots=True)
class LastWrites:
    """Times of the last writes of node and topology; None before the first of this process."""

    status_s: float | None = None
    topology_s: float | None = None


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """Writes, the state to keep after they succeed, and the time to requeue the node."""

    writes: Sequence[Write] = ()
    synced: LastWrites = LastWrites()
    again_s: float | None = None
    calculated: NodeResourceResult | None = None
    problems: Sequence[tuple[NodePlugin, str]] = ()


def reconcile_node_resource(
    view: ManagedNode,
    strategies: Strategies,
    synced: LastWrites,
    now_s: float,
    *,
    plugins: AbstractSet[NodePlugin] = ALL_PLUGINS,
    shows_shared_gpus: bool = False,
) -> NodeOutcome:
    """Return the writes by which a node publishes its batch, mid and device resources."""
    status = view.node.status
    known = strategies.of(view.node.metadata)
    strategy = known.colocation
    if strategy is None or not status.capacity or not status.allocatable:
        return NodeOutcome(synced=synced)
    if known.is_colocated:
        calculated = calculate(
            view, strategy, known, plugins, now_s, shows_shared_gpus=shows_shared_gpus
        )
    else:
        calculated = reset(plugins)
    writes: list[Write] = []
    if calculated.zones and view.topology is not None:
        patch = _topology_patch(view.topology, calculated, strategy.difference)
        is_due = _is_due(synced.topology_s, strategy.update_s, now_s)
        if patch is not None:
            writes.append(patch)
        if patch is not None or is_due:
            synced = replace(synced, topology_s=now_s)
    # Amounts and annotations go into one write of the status if it is due or the amounts changed
    # noticeably; annotations alone are written without a status, so that small changes of usage do
    # not cause a write per node and minute.
    prepared = prepare(view.node, calculated)
    node_patch = _node_patch(view.node, prepared)
    is_due = _is_due(synced.status_s, strategy.update_s, now_s)
    if (
        is_due
        or _status_differs(view.node, prepared, plugins, strategy.difference)
        or (
            NodePlugin.BATCH in plugins and _shares_differ(view.node, prepared, strategy.difference)
        )
    ):
        synced = replace(synced, status_s=now_s)
        if node_patch:
            _guard(view.node, node_patch)
            writes.append(Patch(Node, view.node.metadata.name, node_patch, subresource="status"))
            node_patch = {}
    elif "metadata" in node_patch and _meta_differs(view.node, prepared, plugins):
        body = {"metadata": _without_origin(view.node, node_patch["metadata"])}
        writes.append(Patch(Node, view.node.metadata.name, body))
    problems = list(calculated.problems)
    if prepared.problem:
        problems.append((NodePlugin.BATCH, prepared.problem))
    return NodeOutcome(
        writes=writes,
        synced=synced,
        again_s=_again_s(calculated, synced, strategy.update_s, waits=bool(node_patch)),
        calculated=calculated,
        problems=problems,
    )


def _shares_differ(node: Node, prepared: PreparedNode, least: float) -> bool:
    """Return whether third parties need a new amount, or the node a changed allocation.

    The allocatable amount may be unchanged: it stays 0 while third parties hold everything.
    """
    if THIRD_PARTY_ALLOCATIONS.key not in node.metadata.annotations:
        return False
    before, after = _noted_origin(node.metadata.annotations), _noted_origin(prepared.annotations)
    return not _is_balanced(node) or any(
        is_different(before.get(name), after.get(name), least) for name in (BATCH_CPU, BATCH_MEMORY)
    )


def _without_origin(node: Node, metadata: JsonObject) -> JsonObject:
    """Return the metadata to write without a status, for a node with third-party allocations.

    The amounts before third-party allocations are written only together with the allocatable
    amounts.
    """
    if THIRD_PARTY_ALLOCATIONS.key not in node.metadata.annotations:
        return metadata
    annotations = metadata.get("annotations", {})
    left = {k: v for k, v in annotations.items() if k != ORIGIN_EXTENDED_ALLOCATABLE.key}
    return {**metadata, "annotations": left}


def _guard(node: Node, patch: JsonObject) -> None:
    """Make the patch of a node with third-party allocations conditional on its resourceVersion.

    Otherwise the patch could publish resources that a third party has just been allocated.
    """
    if THIRD_PARTY_ALLOCATIONS.key in node.metadata.annotations:
        metadata = patch.setdefault("metadata", {})
        metadata["resourceVersion"] = node.metadata.resource_version


def _again_s(
    calculated: NodeResourceResult, synced: LastWrites, update_s: int, *, waits: bool
) -> float | None:
    """Return the time to requeue: the NodeMetric expires, or a small change becomes due."""
    times = [calculated.degrades_s] if calculated.degrades_s is not None else []
    if waits and synced.status_s is not None:
        times.append(synced.status_s + update_s)
    return min(times) if times else None


def _is_due(last_s: float | None, update_s: int, now_s: float) -> bool:
    return last_s is None or now_s - last_s > update_s


def _node_patch(node: Node, prepared: PreparedNode) -> JsonObject:
    patch: JsonObject = {}
    meta, status = node.metadata, node.status
    metadata = {
        "labels": difference(meta.labels, prepared.labels),
        "annotations": difference(meta.annotations, prepared.annotations),
    }
    resources = {
        "capacity": difference(status.capacity, prepared.capacity),
        "allocatable": difference(status.allocatable, prepared.allocatable),
    }
    if changed := {key: change for key, change in metadata.items() if change}:
        patch["metadata"] = changed
    if changed := {
        name: {key: None if amount is None else str(amount) for key, amount in change.items()}
        for name, change in resources.items()
        if change
    }:
        patch["status"] = changed
    return patch


def _status_differs(
    node: Node, prepared: PreparedNode, plugins: AbstractSet[NodePlugin], least: float
) -> bool:
    before, after = node.status.allocatable, prepared.allocatable
    return any(
        is_different(before.get(name), after.get(name), least)
        for plugin, names in _RESOURCES.items()
        if plugin in plugins
        for name in names
    )


def _meta_differs(node: Node, prepared: PreparedNode, plugins: AbstractSet[NodePlugin]) -> bool:
    before, after = node.metadata, prepared
    if NodePlugin.NORMALIZATION in plugins and _ratio_differs(before, after.annotations):
        return True
    if NodePlugin.AMPLIFICATION in plugins:
        old = before.annotations.get(AMPLIFICATION_RATIOS, "")
        if old != after.annotations.get(AMPLIFICATION_RATIOS, ""):
            return True
    return NodePlugin.GPU in plugins and any(
        before.labels.get(key, "") != after.labels.get(key, "") for key in GPU_LABELS
    )


def _ratio_differs(before: ObjectMeta, annotations: dict[str, str]) -> bool:
    new = annotations.get(CPU_NORMALIZATION_RATIO)
    if new == before.annotations.get(CPU_NORMALIZATION_RATIO):
        return False
    try:
        old = read_cpu_normalization_ratio(before)
    except InputError:
        return True
    if old is None or new is None:
        return True
    return is_another_ratio(old, float(new))


def _topology_patch(
    topology: NodeResourceTopology, calculated: NodeResourceResult, least: float
) -> Patch | None:
    amounts = zone_amounts(calculated.zones, calculated.normalization or 1.0)
    zones = with_amounts(topology.zones, amounts, least)
    if zones == topology.zones:
        return None
    body = {
        "metadata": {"resourceVersion": topology.metadata.resource_version},
        "zones": decode_json(encode_part(zones)),
    }
    return Patch(NodeResourceTopology, topology.metadata.name, body)
