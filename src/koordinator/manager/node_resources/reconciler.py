"""Controller of node resources: writes of nodes whose calculated resources differ enough.

Source: koordinator pkg/slo-controller/noderesource/resource_calculator.go; plugins, ``NeedSync``
and ``NeedSyncMeta`` of each.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace

from koordinator.api.annotations.node import (
    AMPLIFICATION_RATIOS,
    CPU_NORMALIZATION_RATIO,
    ORIGIN_EXTENDED_ALLOCATABLE,
    THIRD_PARTY_ALLOCATIONS,
    read_cpu_normalization_ratio,
)
from koordinator.api.codec import encode_part
from koordinator.api.meta import JsonObject, ObjectMeta
from koordinator.api.node import Node, NodeResourceTopology
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY, RDMA
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError
from koordinator.manager.configuration.strategies import Strategies
from koordinator.manager.node_resources.batch import is_different, with_amounts, zone_amounts
from koordinator.manager.node_resources.calculation import (
    ALL_PLUGINS,
    GPU_LABELS,
    GPU_RESOURCES,
    ManagedNode,
    NodeResourceResult,
    calculate,
    reset,
)
from koordinator.manager.node_resources.preparation import (
    PreparedNode,
    is_balanced,
    noted_origin,
    prepare,
)
from koordinator.manager.node_resources.ratios import is_another_ratio
from koordinator.manager.switches import NodePlugin
from koordinator.manager.writes import Patch, Write, difference

_RESOURCES = {
    NodePlugin.MID: (MID_CPU, MID_MEMORY),
    NodePlugin.BATCH: (BATCH_CPU, BATCH_MEMORY),
    NodePlugin.GPU: GPU_RESOURCES,
    NodePlugin.RDMA: (RDMA,),
}


@dataclass(frozen=True, slots=True)
class Synced:
    """Times of the last writes of node and topology; None before the first of this process."""

    status_s: float | None = None
    topology_s: float | None = None


@dataclass(frozen=True, slots=True)
class NodeOutcome:
    """Writes, the state to keep after they succeed, and the time to requeue the node."""

    writes: Sequence[Write] = ()
    synced: Synced = Synced()
    again_s: float | None = None
    calculated: NodeResourceResult | None = None
    problems: Sequence[tuple[NodePlugin, str]] = ()


def reconcile_node_resource(
    view: ManagedNode,
    strategies: Strategies,
    synced: Synced,
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
    before, after = noted_origin(node.metadata.annotations), noted_origin(prepared.annotations)
    return not is_balanced(node) or any(
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
    calculated: NodeResourceResult, synced: Synced, update_s: int, *, waits: bool
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
