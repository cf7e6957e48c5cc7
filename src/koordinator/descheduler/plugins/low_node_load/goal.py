"""Goal of LowNodeLoad's moves, and the nodes that may take them.

A move that would raise its target above the high threshold has no gain.

An assignment reduces the headroom of the node for the next pods.

Source: koordinator pkg/descheduler/framework/plugins/loadaware/utilization_util.go,
``podFitsAnyNodeWithThreshold``.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import suppress

import numpy as np
from numpy.typing import NDArray

from koordinator.api.annotations.scheduling import PROVEN_MOVE
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob, PodMigrationJobPhase
from koordinator.descheduler.candidates import is_terminating
from koordinator.descheduler.contract import ClusterView, MoveGain, Relocation
from koordinator.descheduler.node_fit import AcceptingNodes, has_headroom
from koordinator.descheduler.plugins.low_node_load.usage import (
    CPU,
    PODS,
    Mask,
    NodeAmounts,
    PoolUsage,
    is_prod,
    over,
    pod_amounts,
)
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import NANOS_PER_MILLI

_PERCENT = 100.0
_LIVE = ("", PodMigrationJobPhase.PENDING, PodMigrationJobPhase.RUNNING)

_FIRST = 256  # nodes checked as a first block: most pods fit on one of them


@dataclass(frozen=True, slots=True)
class LoadGoal:
    """Goal of a pool, with usage counted on the proven target nodes.

    Arrays are ``(n_nodes, n_resources)``.  ``usage`` and ``prod_usage`` are the usage after all
    moves made so far, without pods that leave by moves of earlier cycles or are deleted.
    ``most`` and ``prod_most`` are upper bounds of the usage in between: pods that leave may still
    run when others arrive, in any order of the moves, and pending moves of earlier cycles arrive
    as well.
    """

    pool: PoolUsage
    usage: NodeAmounts
    prod_usage: NodeAmounts
    most: NodeAmounts
    prod_most: NodeAmounts
    rows: Mapping[str, int]
    is_prod: bool = False  # the usage of prod pods exceeds the threshold

    @classmethod
    def of(cls, pool: PoolUsage, view: ClusterView) -> "LoadGoal":
        """Return the goal of a measured pool; a copy for prod pods shares the arrays."""
        rows = {node.metadata.name: row for row, node in enumerate(pool.nodes)}
        usage, prod_usage = pool.usage, pool.prod_usage
        goal = cls(pool, usage.copy(), prod_usage.copy(), usage.copy(), prod_usage.copy(), rows)
        for pod, target in _pending_arrivals(pool, view):
            amounts = goal._usage_of(pod, pod.spec.node_name)
            goal._add_arrival(
                pod, _estimate(pod, pool, target) if amounts is None else amounts, target
            )
        for pod in _pending_departures(pool, view):
            goal._subtract_departure(pod)
        return goal

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return the decrease above the thresholds of the sources, in percentage points."""
        for move in moves:
            if self._usage_of(move.pod, move.source) is None:
                return MoveGain(0.0, f"the usage of {move.pod.key} is unknown")
            if move.target not in self.rows:
                return MoveGain(0.0, f"the usage of {move.target} is unknown")
        before, limits = self._usage_and_limits()
        usage, prod_usage, most, prod_most = self._after(moves)
        after = prod_usage if self.is_prod else usage
        for move in moves:
            row = self.rows[move.target]
            for amounts, high, prefix in (
                (most, self.pool.high, ""),
                (prod_most, self.pool.prod_high, "prod "),
            ):
                if over(amounts[row], high[row]):
                    usages = self._percentages(amounts[row], high[row], row, prefix)
                    return MoveGain(0.0, f"{move.target} would be overutilized instead: {usages}")
        amount, parts = 0.0, []
        for source in dict.fromkeys(move.source for move in moves if move.source in self.rows):
            row = self.rows[source]
            less = self._excess(before[row], limits[row], row) - self._excess(
                after[row], limits[row], row
            )
            amount += less
            parts.append(f"{source}: {less:.2f} percentage points closer to its threshold")
        if amount <= 0:
            return MoveGain(0.0, "its eviction does not lower the usage above the threshold")
        return MoveGain(amount, "; ".join(parts))

    def made(self, moves: Sequence[Relocation]) -> None:
        """Add the usage of the moves to their targets."""
        arrays = (self.usage, self.prod_usage, self.most, self.prod_most)
        for known, after in zip(arrays, self._after(moves), strict=True):
            known[:] = after

    def _usage_of(self, pod: Pod, source: str) -> NodeAmounts | None:
        """Return the measured usage of a pod, ``(n_resources,)``; None if there is none."""
        row, meta = self.rows.get(source), pod.metadata
        if row is None:
            return None
        names = self.pool.thresholds.resources
        for each in self.pool.metrics[row].status.pods_metric:
            if (each.name, each.namespace) == (meta.name, meta.namespace):
                amounts = np.array(pod_amounts(each, names), np.int64)
                if PODS in names:
                    amounts[names.index(PODS)] = 1
                return amounts
        return None

    def _add_arrival(self, pod: Pod, amounts: NodeAmounts, target: str) -> None:
        row = self.rows.get(target)
        if row is not None:
            self.most[row] += amounts
            if self.pool.thresholds.needs_prod and is_prod(pod):
                self.prod_most[row] += amounts

    def _subtract_departure(self, pod: Pod) -> None:
        row, amounts = self.rows[pod.spec.node_name], self._usage_of(pod, pod.spec.node_name)
        if amounts is not None:
            self.usage[row] -= amounts
            if self.pool.thresholds.needs_prod and is_prod(pod):
                self.prod_usage[row] -= amounts

    def _usage_and_limits(self) -> tuple[NodeAmounts, NodeAmounts]:
        if self.is_prod:
            return self.prod_usage, self.pool.prod_high
        return self.usage, self.pool.high

    def _after(
        self, moves: Sequence[Relocation]
    ) -> tuple[NodeAmounts, NodeAmounts, NodeAmounts, NodeAmounts]:
        """Return the four arrays after the moves; moves to the same node change nothing."""
        usage, prod_usage = self.usage.copy(), self.prod_usage.copy()
        most, prod_most = self.most.copy(), self.prod_most.copy()
        for move in moves:
            amounts = self._usage_of(move.pod, move.source)
            if amounts is None or move.source == move.target:
                continue
            counts_prod = self.pool.thresholds.needs_prod and is_prod(move.pod)
            source, target = self.rows.get(move.source), self.rows.get(move.target)
            for all_pods, prod_pods, row, sign in (
                (usage, prod_usage, source, -1),
                (usage, prod_usage, target, 1),
                (most, prod_most, target, 1),
            ):
                if row is not None:
                    all_pods[row] += sign * amounts
                    if counts_prod:
                        prod_pods[row] += sign * amounts
        return usage, prod_usage, most, prod_most

    def _excess(self, usage: NodeAmounts, high: NodeAmounts, row: int) -> float:
        """Return the usage above the thresholds, in percentage points of allocatable."""
        base = np.maximum(self.pool.base[row], 1)
        return float((np.maximum(usage - high, 0) / base).sum()) * _PERCENT

    def _percentages(self, usage: NodeAmounts, high: NodeAmounts, row: int, prefix: str) -> str:
        parts, base = [], np.maximum(self.pool.base[row], 1)
        for column, name in enumerate(self.pool.thresholds.resources):
            if usage[column] > high[column]:
                used, most = (
                    float(each[column]) / float(base[column]) * _PERCENT for each in (usage, high)
                )
                parts.append(f"{prefix}{name} usage({used:.2f}%)>threshold({most:.2f}%)")
        return ", ".join(parts)


def _pending_arrivals(pool: PoolUsage, view: ClusterView) -> Iterator[tuple[Pod, str]]:
    """Yield pods whose usage is not measured on their node yet, and the node.

    They are on their way to it by a move of an earlier cycle, or have come since it was measured.
    """
    pods = view.objects(Pod)
    for job in view.objects(PodMigrationJob).values():
        if job.status.phase not in _LIVE:
            continue
        reference = job.spec.pod_ref
        pod = pods.get(f"{reference.namespace}/{reference.name}")
        with suppress(InputError):
            move = PROVEN_MOVE.read(job.metadata)
            if pod is not None and move is not None and pod.spec.node_name == move.source:
                yield pod, move.target
    for node, metric in zip(pool.nodes, pool.metrics, strict=True):
        name, status = node.metadata.name, metric.status
        measured = {(each.namespace, each.name) for each in status.pods_metric}
        measured_s = to_epoch_s(status.update_time)
        for pod in view.active_pods_on(name):
            meta = pod.metadata
            is_new = to_epoch_s(meta.creation_timestamp) >= measured_s
            if is_new and (meta.namespace, meta.name) not in measured:
                yield pod, name


def _pending_departures(pool: PoolUsage, view: ClusterView) -> Iterator[Pod]:
    """Yield pods that leave their node: terminating pods, and pods of jobs that are not paused."""
    leaving = {
        (job.spec.pod_ref.namespace, job.spec.pod_ref.name): job.spec.pod_ref.uid
        for job in view.objects(PodMigrationJob).values()
        if job.status.phase in _LIVE and not job.spec.paused
    }
    for node in pool.nodes:
        for pod in view.active_pods_on(node.metadata.name):
            meta = pod.metadata
            uid = leaving.get((meta.namespace, meta.name))
            if is_terminating(pod) or uid in {"", meta.uid}:
                yield pod


def _estimate(pod: Pod, pool: PoolUsage, target: str) -> NodeAmounts:
    """Return the requests of a pod without measured usage, ``(n_resources,)``.

    Pods are counted, not measured: a pod on the target is already in the count.
    """
    requested = {**pod_requests(pod.spec), PODS: int(pod.spec.node_name != target)}
    names = pool.thresholds.resources
    amounts = [requested.get(name, 0) * (NANOS_PER_MILLI if name == CPU else 1) for name in names]
    return np.array(amounts, np.int64)


class Targets:
    """Targets of a pool; ``usage`` and ``high`` are ``(n_nodes, n_resources)``.

    ``rows`` are the targets in the order of the checks.
    """

    def __init__(
        self,
        nodes: Sequence[Node],
        rows: NDArray[np.intp],
        usage: NodeAmounts,
        high: NodeAmounts,
        view: ClusterView,
    ) -> None:
        self._nodes = [nodes[row] for row in rows]
        self._rows, self._usage, self._view = rows, usage, view
        self._headroom = high[rows] - usage[rows]
        self._accepting = AcceptingNodes(self._nodes)
        self._refusing: dict[Hashable, Mask] = {}  # nodes without room, by requests

    def take(self, pod: Pod, amounts: NodeAmounts) -> bool:
        """Assign a pod with a usage of ``(n_resources,)`` to a node; return whether one fits."""
        candidates = self._accepting.of(pod)
        requests = tuple(sorted(pod_requests(pod.spec).items()))
        full = self._refusing.get(requests)
        if full is None:
            full = self._refusing[requests] = np.zeros(len(self._nodes), np.bool_)
        for start, end in ((0, _FIRST), (_FIRST, len(self._nodes))):
            block = slice(start, end)
            cool = (self._headroom[block] >= amounts).all(axis=1)
            for index in np.flatnonzero(cool & candidates[block] & ~full[block]):
                place = start + int(index)
                if has_headroom(self._nodes[place], requests, self._view):
                    self._headroom[place] -= amounts
                    self._usage[self._rows[place]] += amounts
                    return True
                full[place] = True
        return False
