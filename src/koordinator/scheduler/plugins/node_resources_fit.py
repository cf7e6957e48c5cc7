"""Does the pod fit, and how full would the node be?

Source: kubernetes pkg/scheduler/framework/plugins/noderesources: fit.go, least_allocated.go,
most_allocated.go, requested_to_capacity_ratio.go.
"""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from koordinator.api.kubescheduler import NodeResourcesFitArgs
from koordinator.domain.rounding import percent_floor
from koordinator.scheduler.contract import Action, EventHint, PluginSpec, Reads, Rejections
from koordinator.scheduler.snapshot import IntArray, PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.axis import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

#: (requested with this pod, capacity), both (n,) -> score 0..100, (n,)
Curve = Callable[[IntArray, IntArray], IntArray]


@dataclass(frozen=True, slots=True)
class NodeResourcesFit:
    """Filter on every requested resource; score the configured ones by a curve over their utilisation."""

    weights: tuple[tuple[int, int], ...]  # (column, weight)
    curve: Curve
    rounded: bool  # RequestedToCapacityRatio rounds its mean and leaves out resources that score 0
    axis: ResourceAxis
    ignored: frozenset[str]
    ignored_groups: frozenset[str]
    reads: ClassVar = Reads.USAGE

    def key(self, pod: PodClass) -> Hashable:
        return pod.demand, pod.nonzero_cpu, pod.nonzero_memory

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        """Reject where a request exceeds what is free; for good where it exceeds all there is."""
        allocatable, requested = snapshot.allocatable, snapshot.requested
        checked = [(c, amount) for c, amount in pod.demand if not self._is_ignored(c)]
        codes = np.zeros(len(snapshot), np.int64)
        for bit, (column, amount) in enumerate(checked):
            short = requested[:, column] + amount > allocatable[:, column]
            codes |= np.left_shift(short, bit, dtype=np.int64)
        if not codes.any():
            return Rejections(codes)
        never = np.zeros(len(snapshot), bool)
        for column, amount in checked:
            if column != PODS:
                never |= allocatable[:, column] < amount
        return Rejections(codes, tuple(self._reason(c) for c, _ in checked), never)

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return the weighted mean over the resources that the node has."""
        allocatable = snapshot.allocatable
        total = np.zeros(len(snapshot), np.int64)
        weights = np.zeros(len(snapshot), np.int64)
        for column, weight in self.weights:
            requested = self._requested(snapshot, pod, column)
            if requested is None:
                continue
            capacity = allocatable[:, column]
            score = self.curve(requested, capacity)
            counted = (capacity > 0) & (score > 0) if self.rounded else capacity > 0
            total += weight * (score * counted)
            weights += weight * counted
        if self.rounded:
            mean = np.floor(total / np.maximum(weights, 1) + 0.5)  # all positive: Go's math.Round
            return mean.astype(np.int64)
        return total // np.maximum(weights, 1)

    def _requested(self, snapshot: Snapshot, pod: PodClass, column: int) -> IntArray | None:
        """What would be requested with the pod; None where the resource is none of the pod's business."""
        if column == CPU:
            return snapshot.nonzero_requested[:, 0] + pod.nonzero_cpu
        if column == MEMORY:
            return snapshot.nonzero_requested[:, 1] + pod.nonzero_memory
        amount = pod.amount(column)
        if amount == 0 and column != EPHEMERAL_STORAGE:
            return None
        return snapshot.requested[:, column] + amount

    def _reason(self, column: int) -> str:
        return "Too many pods" if column == PODS else f"Insufficient {self.axis.names[column]}"

    def _is_ignored(self, column: int) -> bool:
        if not (self.ignored or self.ignored_groups):
            return False
        name = self.axis.names[column]
        return name in self.ignored or name.partition("/")[0] in self.ignored_groups


def least_allocated(requested: IntArray, capacity: IntArray) -> IntArray:
    """Return the free share in percent; 0 when more is requested than there is."""
    return percent_floor(np.maximum(capacity - requested, 0), capacity)


def most_allocated(requested: IntArray, capacity: IntArray) -> IntArray:
    """Return the used share in percent; what is beyond capacity counts as full."""
    return percent_floor(np.minimum(requested, capacity), capacity)


def piecewise(points: tuple[tuple[int, int], ...]) -> Curve:
    """Return the curve through (utilization percent, score 0..100), flat outside, truncating in between."""

    def curve(requested: IntArray, capacity: IntArray) -> IntArray:
        full = (capacity == 0) | (requested > capacity)
        x = np.where(full, 100, percent_floor(np.minimum(requested, capacity), capacity))
        out = np.full(len(x), points[-1][1], np.int64)
        for (x0, y0), (x1, y1) in reversed(list(zip(points, points[1:], strict=False))):
            rise = (y1 - y0) * (x - x0)
            step = np.where(rise < 0, -(-rise // (x1 - x0)), rise // (x1 - x0))
            out = np.where(x <= x1, y0 + step, out)
        return np.where(x <= points[0][0], points[0][1], out)

    return curve


def build(args: NodeResourcesFitArgs, axis: ResourceAxis) -> NodeResourcesFit:
    strategy = args.scoring_strategy
    shape = strategy.requested_to_capacity_ratio
    curve: Curve = least_allocated if strategy.type == "LeastAllocated" else most_allocated
    if strategy.type == "RequestedToCapacityRatio" and shape is not None:
        curve = piecewise(tuple((p.utilization, p.score * 10) for p in shape.shape))
    return NodeResourcesFit(
        weights=tuple((axis.index(r.name), r.weight) for r in strategy.resources),
        curve=curve,
        rounded=strategy.type == "RequestedToCapacityRatio",
        axis=axis,
        ignored=frozenset(args.ignored_resources),
        ignored_groups=frozenset(args.ignored_resource_groups),
    )


PLUGIN = PluginSpec(
    "NodeResourcesFit",
    NodeResourcesFitArgs,
    build,
    events=(
        EventHint("AssignedPod", Action.DELETE | Action.UPDATE_SCALE_DOWN),
        EventHint("Pod", Action.UPDATE_SCALE_DOWN),
        EventHint("Node", Action.ADD | Action.UPDATE_ALLOCATABLE),
    ),
)
