"""Scoring with a strategy per resource, e.g. pack GPUs and spread CPU.

Source: koordinator pkg/scheduler/plugins/noderesourcefitplus.
"""

from typing import ClassVar

import numpy as np

from koordinator.api.kubescheduler import NodeResourcesFitPlusArgs
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import (
    MAX_SCORE,
    PluginExample,
    PluginHints,
    PluginSpec,
    Reads,
)
from koordinator.scheduler.rules.curves import percent_floor
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.axis import CPU, MEMORY


@dataclass(frozen=True, slots=True)
class NodeResourcesFitPlus:
    """Weighted mean over the configured resources that the pod requests."""

    strategies: tuple[tuple[int, str, int], ...]  # (column, type, weight)
    reads: ClassVar = Reads.USAGE
    hints: ClassVar = PluginHints(key=lambda pod: (pod.demand, pod.nonzero_cpu, pod.nonzero_memory))

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)``, 0..100; 100 when the pod requests no configured resource."""
        total = np.zeros(len(snapshot), np.int64)
        weights = 0
        for column, strategy, weight in self.strategies:
            amount = pod.amount(column)
            if not amount:
                continue
            capacity = snapshot.allocatable[:, column]
            used = self._used(snapshot, pod, column, amount)
            if strategy == "LeastAllocated":
                total += weight * percent_floor(np.maximum(capacity - used, 0), capacity)
            elif strategy == "MostAllocated":
                total += weight * percent_floor(np.minimum(used, capacity), capacity)
            weights += weight
        if weights == 0:
            return np.full(len(snapshot), MAX_SCORE, np.int64)
        return total // weights

    @staticmethod
    def _used(snapshot: Snapshot, pod: PodClass, column: int, amount: int) -> IntArray:
        if column == CPU:
            return snapshot.nonzero_requested[:, 0] + pod.nonzero_cpu
        if column == MEMORY:
            return snapshot.nonzero_requested[:, 1] + pod.nonzero_memory
        return snapshot.requested[:, column] + amount


def build(args: NodeResourcesFitPlusArgs, axis: ResourceAxis) -> NodeResourcesFitPlus:
    return NodeResourcesFitPlus(
        tuple((axis.index(name), r.type, r.weight) for name, r in args.resources.items())
    )


EXAMPLE = PluginExample(
    args={
        "resources": {
            "example.com/foo": {"type": "MostAllocated", "weight": 3},
            "cpu": {"type": "LeastAllocated", "weight": 1},
        }
    },
)

PLUGIN = PluginSpec("NodeResourcesFitPlus", NodeResourcesFitPlusArgs, build, example=EXAMPLE)
