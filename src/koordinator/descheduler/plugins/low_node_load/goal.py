"""What a move is good for by measured load: less above the high threshold, and no new one."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

import numpy as np

from koordinator.api.annotations.descheduling import PROVEN_MOVE
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob, PodMigrationJobPhase
from koordinator.descheduler.contract import ClusterView
from koordinator.descheduler.moves import MoveGain, Relocation
from koordinator.descheduler.plugins.low_node_load.usage import (
    CPU,
    PODS,
    Amounts,
    PoolUsage,
    is_prod,
    over,
    pod_amounts,
)
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import NANOS_PER_MILLI

_PERCENT = 100.0
_LIVE = ("", PodMigrationJobPhase.PENDING, PodMigrationJobPhase.RUNNING)


@dataclass(frozen=True, slots=True)
class LoadGoal:
    """Usage is counted where pods are proven to land, not where they could.

    Arrays are ``(n_nodes, n_resources)``.  ``usage`` and ``prod_usage`` change as moves are made:
    they are what sources use when all have been made.  ``most`` and ``prod_most`` are what targets
    may use meanwhile: pods that leave are still there when others arrive, in whatever order moves
    are made, and what is under way from earlier cycles arrives, too.
    """

    pool: PoolUsage
    usage: Amounts
    prod_usage: Amounts
    most: Amounts
    prod_most: Amounts
    rows: Mapping[str, int]
    is_prod: bool = False  # it is prod pods of the source that use too much

    @classmethod
    def of(cls, pool: PoolUsage, view: ClusterView) -> "LoadGoal":
        """Return the goal of a pool, as it was measured; that of prod pods shares its usage."""
        rows = {node.metadata.name: row for row, node in enumerate(pool.nodes)}
        usage, prod_usage = pool.usage, pool.prod_usage
        goal = cls(pool, usage.copy(), prod_usage.copy(), usage.copy(), prod_usage.copy(), rows)
        for pod, target in _under_way(pool, view):
            amounts = goal._use(pod, pod.spec.node_name)
            goal._arrives(pod, _estimate(pod, pool, target) if amounts is None else amounts, target)
        return goal

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return by how many percentage points the sources get closer to their thresholds."""
        for move in moves:
            if self._use(move.pod, move.source) is None:
                return MoveGain(0.0, f"nothing is known of what {move.pod.key} uses")
            if move.target not in self.rows:
                return MoveGain(0.0, f"nothing is known of what {move.target} uses")
        before, limits = self._judged()
        usage, prod_usage, most, prod_most = self._after(moves)
        after = prod_usage if self.is_prod else usage
        for move in moves:
            row = self.rows[move.target]
            for amounts, high, whose in (
                (most, self.pool.high, ""),
                (prod_most, self.pool.prod_high, "prod "),
            ):
                if over(amounts[row], high[row]):
                    said = self._percentages(amounts[row], high[row], row, whose)
                    return MoveGain(0.0, f"{move.target} would be overutilized instead: {said}")
        amount, told = 0.0, []
        for source in dict.fromkeys(move.source for move in moves if move.source in self.rows):
            row = self.rows[source]
            less = self._excess(before[row], limits[row], row) - self._excess(
                after[row], limits[row], row
            )
            amount += less
            told.append(f"{source}: {less:.2f} percentage points closer to its threshold")
        if amount <= 0:
            return MoveGain(0.0, "its going takes nothing off what is too much")
        return MoveGain(amount, "; ".join(told))

    def made(self, moves: Sequence[Relocation]) -> None:
        """Count what moves take along where they land."""
        arrays = (self.usage, self.prod_usage, self.most, self.prod_most)
        for known, after in zip(arrays, self._after(moves), strict=True):
            known[:] = after

    def _use(self, pod: Pod, source: str) -> Amounts | None:
        """Return ``(n_resources,)``: what was measured of a pod; None: nothing was."""
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

    def _arrives(self, pod: Pod, amounts: Amounts, target: str) -> None:
        row = self.rows.get(target)
        if row is not None:
            self.most[row] += amounts
            if self.pool.thresholds.needs_prod and is_prod(pod):
                self.prod_most[row] += amounts

    def _judged(self) -> tuple[Amounts, Amounts]:
        if self.is_prod:
            return self.prod_usage, self.pool.prod_high
        return self.usage, self.pool.high

    def _after(self, moves: Sequence[Relocation]) -> tuple[Amounts, Amounts, Amounts, Amounts]:
        """Return the four arrays after the moves; a pod that comes back changes nothing."""
        usage, prod_usage = self.usage.copy(), self.prod_usage.copy()
        most, prod_most = self.most.copy(), self.prod_most.copy()
        for move in moves:
            amounts = self._use(move.pod, move.source)
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

    def _excess(self, usage: Amounts, high: Amounts, row: int) -> float:
        """Return how far a node is above its thresholds, in percentage points of what it has."""
        base = np.maximum(self.pool.base[row], 1)
        return float((np.maximum(usage - high, 0) / base).sum()) * _PERCENT

    def _percentages(self, usage: Amounts, high: Amounts, row: int, whose: str) -> str:
        parts, base = [], np.maximum(self.pool.base[row], 1)
        for column, name in enumerate(self.pool.thresholds.resources):
            if usage[column] > high[column]:
                used, most = (
                    float(each[column]) / float(base[column]) * _PERCENT for each in (usage, high)
                )
                parts.append(f"{whose}{name} usage({used:.2f}%)>threshold({most:.2f}%)")
        return ", ".join(parts)


def _under_way(pool: PoolUsage, view: ClusterView) -> Iterator[tuple[Pod, str]]:
    """Yield the pods that will use something of a node which is not measured there, and the node.

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


def _estimate(pod: Pod, pool: PoolUsage, target: str) -> Amounts:
    """Return ``(n_resources,)``: what a pod of which nothing is measured asks for.

    Pods are counted, not measured: one that is there counts already.
    """
    asked = {**pod_requests(pod.spec), PODS: int(pod.spec.node_name != target)}
    names = pool.thresholds.resources
    amounts = [asked.get(name, 0) * (NANOS_PER_MILLI if name == CPU else 1) for name in names]
    return np.array(amounts, np.int64)
