"""Aligned set of NUMA nodes and score of a pod on many nodes.

Equal to ``align`` (under Restricted and SingleNUMANode), node by node, within the limits of
``rows_fit``.
"""

from collections.abc import Mapping

import numpy as np

from koordinator.api.annotations.numa import NumaTopologyExclusive, NumaTopologyPolicy
from koordinator.api.resource_names import CPU
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.rules.numa.node import MILLI, NumaRequest
from koordinator.scheduler.rules.numa.rows import NumaFits, NumaRows, amplified_rows
from koordinator.scheduler.rules.numa.zone_scorer import ALWAYS_SCORED, MAX_SCORE, ZoneScorer


@dataclass(frozen=True, slots=True)
class OtherHints:
    """Hints of another plugin for every set of ``NumaFits.sets``.

    A row without hints prefers every set and names none.
    """

    prefers: BoolArray  # (n, n_sets)
    named: BoolArray  # (n, n_sets)
    scores: IntArray  # (n, n_sets)


@dataclass(frozen=True, slots=True)
class RowAlignments:
    """Results of a policy; ``zones`` is 0 if the pod is admitted without a set."""

    admitted: BoolArray  # (n,)
    zones: IntArray  # (n,)


def align_rows(
    rows: NumaRows,
    request: NumaRequest,
    fits: NumaFits,
    policy: NumaTopologyPolicy,
    scorer: ZoneScorer,
    *,
    exclusive: str = "",
    others: OtherHints | None = None,
) -> RowAlignments:
    """Return the best set that every resource prefers, under Restricted or SingleNUMANode.

    A row without NUMA nodes is not admitted.
    """
    n = len(rows.exists)
    single = policy is NumaTopologyPolicy.SINGLE_NUMA_NODE
    best, best_size, best_score = (np.zeros(n, np.int64) for _ in range(3))
    everything = rows.exists @ (1 << np.arange(rows.exists.shape[1]))
    smallest = np.full(fits.reported.shape, rows.exists.shape[1] + 1)
    for fit in reversed(fits.sets):
        smallest[fit.hinted] = fit.zones.bit_count()
    for index, fit in enumerate(fits.sets):
        size = fit.zones.bit_count()
        prefers = fit.hinted if not single else fit.hinted & (smallest == size) & (size == 1)
        agreed = (prefers | ~fits.reported).all(axis=1)
        named = fits.reported.any(axis=1) | (everything == fit.zones)
        score = _set_score(rows, request, fits, fit.zones, scorer) * fit.hinted.sum(axis=1)
        if others is not None:
            agreed &= others.prefers[:, index]
            named |= others.named[:, index]
            score += others.scores[:, index]
        agreed &= named & ((fit.zones & ~everything) == 0)
        agreed &= _accepts(rows, fit.zones, exclusive)
        first = best == 0
        better = (size == best_size) & ((fit.zones < best) | (score > best_score))
        replaced = agreed & (first | better)
        best[replaced], best_size[replaced] = fit.zones, size
        best_score[replaced] = score[replaced]
    admitted = (best > 0) & (smallest <= rows.exists.shape[1]).all(axis=1, where=fits.reported)
    if single:
        best[best == everything] = 0
        admitted |= ~fits.reported.any(axis=1) & (others is None or ~others.named.any(axis=1))
    admitted &= rows.exists.any(axis=1)
    return RowAlignments(admitted, np.where(admitted, best, 0))


def score_rows(
    rows: NumaRows,
    request: NumaRequest,
    fits: NumaFits,
    alignments: RowAlignments,
    scorer: ZoneScorer,
) -> IntArray:
    """Return ``(n,)`` utilization scores of the NUMA nodes that the pod uses; 0 without a set."""
    scores = np.zeros(len(rows.exists), np.int64)
    for fit in fits.sets:
        chosen = np.flatnonzero(alignments.zones == fit.zones)
        if not len(chosen):
            continue
        taken = fit.touched[chosen][:, :, None]
        requested = (rows.used[chosen] * taken).sum(axis=1)
        if request.binding is not None:
            bound = amplified_rows(rows.bound_cpus[chosen] * MILLI, rows.cpu_ratio[chosen])
            requested[:, rows.resources.index(CPU)] = bound
        allocatable = (rows.capacity[chosen] * taken).sum(axis=1)
        requests = _counted(rows, request, chosen)
        scores[chosen] = _score(rows.resources, requested, allocatable, requests, scorer)
    return scores


def _set_score(
    rows: NumaRows, request: NumaRequest, fits: NumaFits, zones: int, scorer: ZoneScorer
) -> IntArray:
    members = [zone for zone in range(rows.exists.shape[1]) if zones >> zone & 1]
    allocatable = rows.capacity[:, members].sum(axis=1)
    requested = np.maximum(allocatable - fits.available[:, members].sum(axis=1), 0)
    requests = _counted(rows, request, np.arange(len(rows.exists)))
    return _score(rows.resources, requested, allocatable, requests, scorer)


def _counted(rows: NumaRows, request: NumaRequest, chosen: IntArray) -> Mapping[str, IntArray]:
    """Return the request as counted on each row; bound CPUs are amplified."""
    ones = np.ones(len(chosen), np.int64)
    counted = {name: amount * ones for name, amount in request.amounts.items()}
    if request.binding is not None and CPU in counted:
        counted[CPU] = amplified_rows(counted[CPU], rows.cpu_ratio[chosen])
    return counted


def _score(
    resources: tuple[str, ...],
    requested: IntArray,
    allocatable: IntArray,
    requests: Mapping[str, IntArray],
    scorer: ZoneScorer,
) -> IntArray:
    points, weights = (np.zeros(len(requested), np.int64) for _ in range(2))
    for name, weight in scorer.weights.items():
        if name not in resources or (name not in requests and name not in ALWAYS_SCORED):
            continue
        column = resources.index(name)
        capacity = allocatable[:, column]
        used = requested[:, column] + requests.get(name, 0)
        part = np.minimum(used, capacity) if scorer.pack else np.maximum(capacity - used, 0)
        points += part * MAX_SCORE // np.maximum(capacity, 1) * weight
        weights += np.where(capacity > 0, weight, 0)
    return points // np.maximum(weights, 1)


def _accepts(rows: NumaRows, zones: int, exclusive: str) -> BoolArray:
    """Return the rows where exclusive pods don't bar the set."""
    if exclusive != NumaTopologyExclusive.REQUIRED:
        return np.ones(len(rows.exists), bool)
    members = [zone for zone in range(rows.exists.shape[1]) if zones >> zone & 1]
    barred = rows.single if len(members) > 1 else rows.shared
    return np.logical_not(barred[:, members].any(axis=1))
