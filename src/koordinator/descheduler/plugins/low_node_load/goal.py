"""What a move is good for by measured load: less above the high threshold, and no new one."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from koordinator.descheduler.moves import MoveGain, Relocation
from koordinator.descheduler.plugins.low_node_load.usage import (
    PODS,
    Amounts,
    PoolUsage,
    is_prod,
    over,
    pod_amounts,
)

_PERCENT = 100.0


@dataclass(frozen=True, slots=True)
class LoadGoal:
    """Usage is counted where pods are proven to land, not where they could.

    ``usage`` and ``prod_usage`` are ``(n_nodes, n_resources)`` and change as moves are made.
    """

    pool: PoolUsage
    usage: Amounts
    prod_usage: Amounts
    rows: Mapping[str, int]
    is_prod: bool = False  # it is prod pods of the source that use too much

    @classmethod
    def of(cls, pool: PoolUsage) -> "LoadGoal":
        """Return the goal of a pool, as it was measured; that of prod pods shares its usage."""
        rows = {node.metadata.name: row for row, node in enumerate(pool.nodes)}
        return cls(pool, pool.usage.copy(), pool.prod_usage.copy(), rows)

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return by how many percentage points the sources get closer to their thresholds."""
        moves = [move for move in moves if move.source != move.target]
        for move in moves:
            if self._use(move) is None:
                return MoveGain(0.0, f"nothing is known of what {move.pod.key} uses")
            if move.target not in self.rows:
                return MoveGain(0.0, f"nothing is known of what {move.target} uses")
        before, limits = self._judged()
        usage, prod_usage = self._after(moves)
        after = prod_usage if self.is_prod else usage
        for move in moves:
            row = self.rows[move.target]
            for amounts, high, whose in (
                (usage, self.pool.high, ""),
                (prod_usage, self.pool.prod_high, "prod "),
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
        self.usage[:], self.prod_usage[:] = self._after(moves)

    def _use(self, move: Relocation) -> Amounts | None:
        """Return ``(n_resources,)``: what was measured of a pod; None: nothing was."""
        row, meta = self.rows.get(move.source), move.pod.metadata
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

    def _judged(self) -> tuple[Amounts, Amounts]:
        if self.is_prod:
            return self.prod_usage, self.pool.prod_high
        return self.usage, self.pool.high

    def _after(self, moves: Sequence[Relocation]) -> tuple[Amounts, Amounts]:
        usage, prod_usage = self.usage.copy(), self.prod_usage.copy()
        for move in moves:
            amounts = self._use(move)
            if amounts is None:
                continue
            for node, sign in ((move.source, -1), (move.target, 1)):
                row = self.rows.get(node)
                if row is not None:
                    usage[row] += sign * amounts
                    if self.pool.thresholds.needs_prod and is_prod(move.pod):
                        prod_usage[row] += sign * amounts
        return usage, prod_usage

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
