"""Prefer nodes whose resources would be used to the same degree.

Source: kubernetes pkg/scheduler/framework/plugins/noderesources/balanced_allocation.go.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from koordinator.api.kubescheduler import NodeResourcesBalancedAllocationArgs
from koordinator.scheduler.contract import MAX_SCORE, PluginSpec, Reads
from koordinator.scheduler.snapshot import IntArray, PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.axis import CPU, EPHEMERAL_STORAGE, MEMORY

ALWAYS_COUNTED = (CPU, MEMORY, EPHEMERAL_STORAGE)  # others only if the pod requests them


@dataclass(frozen=True, slots=True)
class NodeResourcesBalancedAllocation:
    """100 minus the standard deviation (in percent) of the used fractions."""

    columns: tuple[int, ...]
    reads: ClassVar = Reads.USAGE

    def scores(self, _snapshot: Snapshot, pod: PodClass) -> bool:
        """Leave out pods that request none of the resources: they would all go to the emptiest node."""
        return any(pod.amount(column) for column in self.columns)

    def key(self, pod: PodClass) -> Hashable:
        return pod.demand

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        allocatable, requested = snapshot.allocatable, snapshot.requested
        fractions, counted = [], []
        for column in self.columns:
            amount = pod.amount(column)
            if amount or column in ALWAYS_COUNTED:
                capacity = allocatable[:, column]
                used = (requested[:, column] + amount) / np.maximum(capacity, 1)
                fractions.append(np.minimum(used, 1.0))
                counted.append(capacity > 0)
        deviation = _deviation(np.array(fractions), np.array(counted))
        return ((1.0 - deviation) * MAX_SCORE).astype(np.int64)


def _deviation(fractions: np.ndarray, counted: np.ndarray) -> np.ndarray:  # type: ignore[type-arg]
    """Standard deviation over axis 0 of the counted fractions, with the reference's order of operations."""
    if len(fractions) == 2 and counted.all():  # noqa: PLR2004 (half the difference, for two)
        half: np.ndarray = np.abs((fractions[0] - fractions[1]) / 2)  # type: ignore[type-arg]
        return half
    number = counted.sum(axis=0)
    fractions = np.where(counted, fractions, 0.0)
    mean = fractions.sum(axis=0) / np.maximum(number, 1)
    squares = np.where(counted, (fractions - mean) * (fractions - mean), 0.0)
    deviation = np.sqrt(squares.sum(axis=0) / np.maximum(number, 1))
    low = np.where(counted, fractions, np.inf).min(axis=0)
    high = np.where(counted, fractions, -np.inf).max(axis=0)
    pair = np.where(number == 2, (high - low) / 2, deviation)  # noqa: PLR2004 (as above)
    return np.where(number < 2, 0.0, pair)  # noqa: PLR2004 (one fraction deviates from nothing)


def build(
    args: NodeResourcesBalancedAllocationArgs, axis: ResourceAxis
) -> NodeResourcesBalancedAllocation:
    return NodeResourcesBalancedAllocation(tuple(axis.index(r.name) for r in args.resources))


PLUGIN = PluginSpec("NodeResourcesBalancedAllocation", NodeResourcesBalancedAllocationArgs, build)
