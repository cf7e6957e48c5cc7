"""Prefer nodes whose resources would be used to the same degree.

Source: kubernetes pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from koordinator.api.kubescheduler import NodeResourcesBalancedAllocationArgs
from koordinator.domain.usage_kernels import Balance
from koordinator.scheduler.contract import PluginExample, PluginSpec, Reads
from koordinator.scheduler.snapshot import IntArray, PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.axis import CPU, EPHEMERAL_STORAGE, MEMORY

ALWAYS_COUNTED = (CPU, MEMORY, EPHEMERAL_STORAGE)  # others only if the pod requests them


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocation:
    """100 minus the standard deviation (in percent) of the used fractions."""

    columns: tuple[int, ...]
    reads: ClassVar = Reads.USAGE

    def scores(self, _snapshot: Snapshot, pod: PodClass) -> bool:
        """Leave out pods that request none of the resources.

        They would all go to the emptiest node.
        """
        return any(pod.amount(column) for column in self.columns)

    def key(self, pod: PodClass) -> Hashable:
        return pod.demand

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        return snapshot.score(self.formula(snapshot, pod))

    def formula(self, _snapshot: Snapshot, pod: PodClass) -> Balance:
        """Count what judges every node, and what else the pod asks for."""
        key = NodeResourcesBalancedAllocation, self.columns
        known: Balance | None = pod.facts.get(key)
        if known is None:
            columns = [c for c in self.columns if c in ALWAYS_COUNTED or pod.amount(c)]
            amounts = [pod.amount(c) for c in columns]
            known = pod.facts[key] = Balance(
                np.array(columns, np.int64), np.array(amounts, np.int64)
            )
        return known


def build(
    args: NodeResourcesBalancedAllocationArgs, axis: ResourceAxis
) -> NodeResourcesBalancedAllocation:
    return NodeResourcesBalancedAllocation(tuple(axis.index(r.name) for r in args.resources))


EXAMPLE = PluginExample(
    args={"resources": [{"name": name} for name in ("cpu", "memory", "example.com/foo")]},
)

PLUGIN = PluginSpec(
    "NodeResourcesBalancedAllocation", NodeResourcesBalancedAllocationArgs, build, example=EXAMPLE
)
