"""Nodes with the calculated resources applied.

Source: koordinator pkg/slo-controller/noderesource/plugins, ``Prepare`` of each.
"""

from dataclasses import dataclass

from koordinator.api.annotations.node import (
    AMPLIFICATION_RATIOS,
    ORIGIN_EXTENDED_ALLOCATABLE,
    THIRD_PARTY_ALLOCATIONS,
    OriginExtendedAllocatable,
    ThirdPartyAllocations,
    amplification_entry,
    cpu_normalization_entry,
)
from koordinator.api.core import ResourceList
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.qos import PriorityBand
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY, RDMA
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity
from koordinator.manager.node_resources.calculation import GPU_RESOURCES, NodeResourceResult
from koordinator.manager.node_resources.node import CpuMemory, milli, units
from koordinator.manager.switches import NodePlugin

_NOTHING = Quantity(0)
_MILLIS = 1000


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


def published_cpu(batch: CpuMemory, ratio: float) -> Quantity:
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
        cpu = published_cpu(batch, ratio)
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


def noted_origin(annotations: dict[str, str]) -> ResourceList:
    """Return the annotated amounts before third-party allocations; empty without annotation.

    An annotation that can't be parsed is ignored.
    """
    try:
        origin = ORIGIN_EXTENDED_ALLOCATABLE.read(ObjectMeta(annotations=annotations))
    except InputError:
        return {}
    return origin.resources if origin is not None else {}


def is_balanced(node: Node) -> bool:
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
