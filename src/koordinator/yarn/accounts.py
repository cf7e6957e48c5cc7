"""Conversion between the annotations of a node and its account.

The formats are the original's: koord-manager writes ``originExtendedAllocatable``, the operator
writes the entry ``hadoop-yarn`` of ``thirdPartyAllocations``.
Source: koordinator apis/extension/node_colocation.go; yarn-copilot pkg/controller/noderesource.
"""

from dataclasses import dataclass
from typing import Final

from koordinator.api.annotations.node import (
    ORIGIN_EXTENDED_ALLOCATABLE,
    THIRD_PARTY_ALLOCATIONS,
    ThirdPartyAllocation,
    ThirdPartyAllocations,
)
from koordinator.api.meta import JsonObject
from koordinator.api.node import Node
from koordinator.api.qos import PriorityBand
from koordinator.foundation.errors import InputError
from koordinator.hadoop.amounts import NOTHING, BatchAmounts, batch_amounts

ALLOCATION_NAME: Final = "hadoop-yarn"


@dataclass(frozen=True, slots=True)
class NodeShares:
    """Amounts in a node's annotations and status.

    ``has_entry`` is whether the operator's entry exists; ``problem`` is the error of reading
    ``origin``.
    """

    origin: BatchAmounts
    shown: BatchAmounts
    promised: BatchAmounts
    others: BatchAmounts
    has_entry: bool
    problem: str = ""


def read_shares(node: Node) -> NodeShares:
    """Return the shares of a node; an unreadable annotation of third parties counts as empty.

    Without the manager's annotation the node's allocatable is the origin, as in the original.
    """
    shown = batch_amounts(node.status.allocatable)
    problem = ""
    try:
        origin = ORIGIN_EXTENDED_ALLOCATABLE.read(node.metadata)
        amounts = shown if origin is None else batch_amounts(origin.resources)
    except InputError as error:
        amounts, problem = NOTHING, str(error)
    promised = others = NOTHING
    has_entry = False
    for each in _allocations(node):
        if each.name == ALLOCATION_NAME:
            has_entry = True
        if each.priority != PriorityBand.BATCH:
            continue
        if each.name == ALLOCATION_NAME:
            promised = promised.plus(batch_amounts(each.resources))
        else:
            others = others.plus(batch_amounts(each.resources))
    return NodeShares(amounts, shown, promised, others, has_entry, problem)


def promise_patch(node: Node, promise: BatchAmounts) -> JsonObject:
    """Return the merge patch that sets the operator's entry and keeps the others.

    The patch has the resource version, as other components write the same annotation: a concurrent
    change leads to a conflict.
    """
    ours = ThirdPartyAllocation(
        name=ALLOCATION_NAME, priority=PriorityBand.BATCH, resources=promise.resources()
    )
    before = _allocations(node)
    place = next((i for i, each in enumerate(before) if each.name == ALLOCATION_NAME), len(before))
    entries = [each for each in before if each.name != ALLOCATION_NAME]
    entries.insert(place, ours)
    entry = THIRD_PARTY_ALLOCATIONS.entry(ThirdPartyAllocations(allocations=tuple(entries)))
    return {
        "metadata": {
            "annotations": entry,
            "resourceVersion": node.metadata.resource_version,
            "uid": node.metadata.uid,
        }
    }


def _allocations(node: Node) -> tuple[ThirdPartyAllocation, ...]:
    try:
        annotation = THIRD_PARTY_ALLOCATIONS.read(node.metadata)
    except InputError:
        return ()
    return annotation.allocations if annotation is not None else ()
