"""Controller of node resources: writes of nodes whose calculated resources differ enough.

Source: koordinator pkg/slo-controller/noderesource/resource_calculator.go; plugins, ``Prepare``,
``NeedSync`` and ``NeedSyncMeta`` of each.
"""

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import replace
from typing import TypeVar

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
from koordinator.api.codec import encode_part
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

_GPUS = frozenset(GPU_RESOURCES)

ValueT = TypeVar("ValueT")


@dataclass(slots=True)
class NodeChanges:
    """Values of the fields of a node that the manager writes; None removes an entry."""

    amounts: dict[str, Quantity | None]  # of capacity and allocatable
    labels: dict[str, str]
    annotations: dict[str, str | None]  # without the one of ``origin``
    origin: ResourceList | None = None  # batch amounts to annotate, before third parties take any
    problem: str = ""


def changes_of(node: Node, calculated: NodeResourceResult) -> NodeChanges:
    """Return the fields of the node with the calculated resources; the node is not modified."""
    changes = NodeChanges({}, {}, {})
    plugins, amounts = calculated.plugins, changes.amounts
    if NodePlugin.NORMALIZATION in plugins and calculated.normalization is not None:
        changes.annotations |= cpu_normalization_entry(calculated.normalization)
    if NodePlugin.AMPLIFICATION in plugins:
        changes.annotations[AMPLIFICATION_RATIOS] = None
        if calculated.amplification:
            changes.annotations |= amplification_entry(calculated.amplification)
    if NodePlugin.MID in plugins:
        mid = calculated.mid
        amounts[MID_CPU] = Quantity.from_int(mid.cpu_milli) if mid else None
        amounts[MID_MEMORY] = Quantity.from_int(mid.memory_bytes, binary=True) if mid else None
    if NodePlugin.BATCH in plugins:
        batch = calculated.batch.batch() if calculated.batch is not None else None
        _add_batch(changes, node, batch, calculated.normalization or 1.0)
    _add_devices(changes, node, calculated)
    return changes


def _published_cpu(batch: CpuMemory, ratio: float) -> Quantity:
    """Return the batch CPU that a node publishes: milli-CPU, times a normalization above 1."""
    amount = milli(batch.cpu)
    if ratio > 1:
        amount = -(-int(amount * _MILLIS * ratio) // _MILLIS)
    return Quantity.from_int(amount)


def _add_devices(changes: NodeChanges, node: Node, calculated: NodeResourceResult) -> None:
    plugins, status = calculated.plugins, node.status
    if NodePlugin.GPU in plugins:
        gpus = calculated.gpus
        if gpus is not None:
            changes.amounts |= {name: gpus[name] for name in GPU_RESOURCES if name in gpus}
        elif not (_GPUS.isdisjoint(status.capacity) and _GPUS.isdisjoint(status.allocatable)):
            changes.amounts |= dict.fromkeys(GPU_RESOURCES)
        changes.labels |= calculated.gpu_labels
    if NodePlugin.RDMA in plugins:
        changes.amounts[RDMA] = calculated.rdma[RDMA] if calculated.rdma is not None else None


def _add_batch(changes: NodeChanges, node: Node, batch: CpuMemory | None, ratio: float) -> None:
    cpu = memory = None
    if batch is not None:
        cpu = _published_cpu(batch, ratio)
        memory = Quantity.from_int(units(batch.memory), binary=True)
    changes.amounts |= {BATCH_CPU: cpu, BATCH_MEMORY: memory}
    if _has_annotations(node, changes):  # as in the original, a node without any gets none
        changes.origin = {BATCH_CPU: cpu or _NOTHING, BATCH_MEMORY: memory or _NOTHING}
    if cpu is None or memory is None:
        return
    try:
        allocations = THIRD_PARTY_ALLOCATIONS.read(node.metadata)
    except InputError as error:
        changes.problem = str(error)
        return
    if allocations is not None:
        changes.amounts |= _remaining({BATCH_CPU: cpu, BATCH_MEMORY: memory}, allocations)


def _has_annotations(node: Node, changes: NodeChanges) -> bool:
    """Return whether the node has an annotation after the changes."""
    changed = changes.annotations
    return any(text is not None for text in changed.values()) or any(
        key not in changed for key in node.metadata.annotations
    )


def _remaining(amounts: ResourceList, allocations: ThirdPartyAllocations) -> ResourceList:
    """Return batch resources minus third-party allocations, at least 0."""
    remaining = dict(amounts)
    for each in allocations.allocations:
        if each.priority == PriorityBand.BATCH:
            for name in remaining:
                remaining[name] -= each.resources.get(name, _NOTHING)
    return {name: max(amount, _NOTHING) for name, amount in remaining.items()}


def _noted_origin(node: Node) -> ResourceList:
    """Return the annotated amounts before third-party allocations; empty without annotation.

    An annotation that can't be parsed is ignored.
    """
    try:
        origin = ORIGIN_EXTENDED_ALLOCATABLE.read(node.metadata)
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
    changes, waits = changes_of(view.node, calculated), False
    is_due = _is_due(synced.status_s, strategy.update_s, now_s)
    if (
        is_due
        or _status_differs(view.node, changes, strategy.difference)
        or (NodePlugin.BATCH in plugins and _shares_differ(view.node, changes, strategy.difference))
    ):
        synced = replace(synced, status_s=now_s)
        node_patch = _node_patch(view.node, changes)
        if node_patch:
            _guard(view.node, node_patch)
            writes.append(Patch(Node, view.node.metadata.name, node_patch, subresource="status"))
    else:
        waits = _differs(view.node, changes)
        if _meta_differs(view.node, changes, plugins):
            metadata = _node_patch(view.node, changes)["metadata"]
            body = {"metadata": _without_origin(view.node, metadata)}
            writes.append(Patch(Node, view.node.metadata.name, body))
    problems = list(calculated.problems)
    if changes.problem:
        problems.append((NodePlugin.BATCH, changes.problem))
    return NodeOutcome(
        writes=writes,
        synced=synced,
        again_s=_again_s(calculated, synced, strategy.update_s, waits=waits),
        calculated=calculated,
        problems=problems,
    )


def _shares_differ(node: Node, changes: NodeChanges, least: float) -> bool:
    """Return whether third parties need a new amount, or the node a changed allocation.

    The allocatable amount may be unchanged: it stays 0 while third parties hold everything.
    """
    if THIRD_PARTY_ALLOCATIONS.key not in node.metadata.annotations:
        return False
    before = _noted_origin(node)
    after = {**before, **(changes.origin or {})}
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


def _node_patch(node: Node, changes: NodeChanges) -> JsonObject:
    patch: JsonObject = {}
    meta, status = node.metadata, node.status
    annotations = dict(changes.annotations)
    if changes.origin is not None:
        annotations[ORIGIN_EXTENDED_ALLOCATABLE.key] = _origin_text(node, changes.origin)
    metadata = {
        "labels": _changed(meta.labels, changes.labels),
        "annotations": _changed(meta.annotations, annotations),
    }
    resources = {
        "capacity": _changed(status.capacity, changes.amounts),
        "allocatable": _changed(status.allocatable, changes.amounts),
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


def _changed(before: Mapping[str, ValueT], after: Mapping[str, ValueT | None]) -> JsonObject:
    """Return the entries that differ; None is equal to a missing one."""
    return {key: value for key, value in after.items() if before.get(key) != value}


def _origin_text(node: Node, amounts: ResourceList) -> str:
    """Return the annotation with the amounts before third-party allocations."""
    resources = {**_noted_origin(node), **amounts}
    return ORIGIN_EXTENDED_ALLOCATABLE.write(OriginExtendedAllocatable(resources=resources))


def _differs(node: Node, changes: NodeChanges) -> bool:
    """Return whether ``_node_patch`` is not empty."""
    meta, status = node.metadata, node.status
    for before in (status.allocatable, status.capacity):
        for name, amount in changes.amounts.items():
            if before.get(name) != amount:
                return True
    return bool(
        _changed(meta.labels, changes.labels)
        or _changed(meta.annotations, changes.annotations)
        or (
            changes.origin is not None
            and meta.annotations.get(ORIGIN_EXTENDED_ALLOCATABLE.key)
            != _origin_text(node, changes.origin)
        )
    )


def _status_differs(node: Node, changes: NodeChanges, least: float) -> bool:
    before = node.status.allocatable
    return any(
        is_different(before.get(name), amount, least) for name, amount in changes.amounts.items()
    )


def _meta_differs(node: Node, changes: NodeChanges, plugins: AbstractSet[NodePlugin]) -> bool:
    before, after = node.metadata, changes.annotations
    if NodePlugin.NORMALIZATION in plugins and _ratio_differs(before, after):
        return True
    if NodePlugin.AMPLIFICATION in plugins:
        old = before.annotations.get(AMPLIFICATION_RATIOS, "")
        if old != (after.get(AMPLIFICATION_RATIOS) or ""):
            return True
    return NodePlugin.GPU in plugins and any(
        before.labels.get(key, "") != changes.labels.get(key, before.labels.get(key, ""))
        for key in GPU_LABELS
    )


def _ratio_differs(before: ObjectMeta, changed: Mapping[str, str | None]) -> bool:
    new = changed.get(CPU_NORMALIZATION_RATIO)
    if CPU_NORMALIZATION_RATIO not in changed or new == before.annotations.get(
        CPU_NORMALIZATION_RATIO
    ):
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
