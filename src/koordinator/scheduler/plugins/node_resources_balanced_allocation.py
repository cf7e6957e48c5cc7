"""Prefer nodes whose resources would be used to the same degree.

Source: kubernetes pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go.
"""

from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from koordinator.api.kubescheduler import NodeResourcesBalancedAllocationArgs
from koordinator.domain.usage_kernels import Balance
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import PluginExample, PluginSpec, Reads, Speed
from koordinator.scheduler.snapshot import IntArray, PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.axis import CPU, EPHEMERAL_STORAGE, MEMORY

ALWAYS_COUNTED = (CPU, MEMORY, EPHEMERAL_STORAGE)  # others only if the pod requests them


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocation:
    """100 minus the standard deviation (in percent) of the used fractions."""

    columns: tuple[int, ...]
    _balance: Memo[Balance] = field(default_factory=Memo, repr=False, compare=False)
    reads: ClassVar = Reads.USAGE

    @property
    def speed(self) -> Speed:
        return Speed(key=lambda pod: pod.demand, scores=self._scores, formula=self._formula)

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        return snapshot.score(self._formula(snapshot, pod))

    def _scores(self, _snapshot: Snapshot, pod: PodClass) -> bool:
        """Leave out pods that request none of the resources.

        They would all go to the emptiest node.
        """
        return any(pod.amount(column) for column in self.columns)

    def _formula(self, _snapshot: Snapshot, pod: PodClass) -> Balance:
        """Count what judges every node, and what else the pod asks for."""
        return self._balance.of(pod, self._work_out, pod)

    def _work_out(self, pod: PodClass) -> Balance:
        columns = [c for c in self.columns if c in ALWAYS_COUNTED or pod.amount(c)]
        amounts = [pod.amount(c) for c in columns]
        return Balance(np.array(columns, np.int64), np.array(amounts, np.int64))


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
