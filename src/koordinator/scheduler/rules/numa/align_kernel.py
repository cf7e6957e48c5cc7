"""Compiled loop over rows equivalent to ``fits_of``, ``align_rows`` and ``score_rows``.

For a few rows, array code is mostly overhead; this is a hundred times as fast, with the same
results.
"""

from collections.abc import Sequence
from math import ceil
from typing import Any, Final

import numpy as np

from koordinator.api.annotations.numa import (
    CpuBindPolicy,
    NumaTopologyExclusive,
    NumaTopologyPolicy,
)
from koordinator.api.resource_names import CPU
from koordinator.foundation.arrays import BoolArray, IntArray, Kernel
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import subsets
from koordinator.scheduler.rules.numa.node import NumaRequest
from koordinator.scheduler.rules.numa.rows import POLICIES, NumaRows
from koordinator.scheduler.rules.numa.rows_align import OtherHints
from koordinator.scheduler.rules.numa.zone_scorer import ALWAYS_SCORED, ZoneScorer

_FULL: Final = POLICIES.index(CpuBindPolicy.FULL_PCPUS)


@dataclass(frozen=True, slots=True)
class AlignedScores:
    """Result per row: the pod's set of NUMA nodes (0: none, or any), and its utilization score."""

    admitted: BoolArray
    zones: IntArray
    scores: IntArray


@dataclass(frozen=True, slots=True)
class KernelRequest:
    """A request under a policy in the loop's format, specific to the width of the rows."""

    requested: tuple[IntArray, IntArray]  # (columns, amounts)
    settings: IntArray  # see ``_loop``
    zone_weights: IntArray  # by resource; 0 if not scored
    weights: IntArray
    pod: IntArray  # amounts by resource
    sets: IntArray


def kernel_request(
    rows: NumaRows,
    request: NumaRequest,
    policy: NumaTopologyPolicy,
    scorers: tuple[ZoneScorer, ZoneScorer],
    exclusive: str,
) -> KernelRequest:
    """Prepare a request; ``scorers`` are the scorers of sets of NUMA nodes and of the result."""
    names = [name for name in request.amounts if name in rows.resources]
    single = policy is NumaTopologyPolicy.SINGLE_NUMA_NODE
    zones = tuple(range(rows.exists.shape[1]))
    binding = request.binding
    zone_scorer, scorer = scorers
    settings = (
        names.index(CPU) if CPU in names else -1,
        rows.resources.index(CPU) if CPU in rows.resources else -1,
        binding.count if binding is not None else -1,
        POLICIES.index(request.required_policy),
        single,
        exclusive == NumaTopologyExclusive.REQUIRED,
        zone_scorer.pack,
        scorer.pack,
    )
    return KernelRequest(
        (
            np.array([rows.resources.index(name) for name in names], np.int64),
            np.array([request.amounts[name] for name in names], np.int64),
        ),
        np.array(settings, np.int64),
        _weights(rows.resources, request, zone_scorer),
        _weights(rows.resources, request, scorer),
        np.array([request.amounts.get(name, 0) for name in rows.resources], np.int64),
        np.array([z for z in subsets(zones) if not single or z.bit_count() == 1], np.int64),
    )


def align_and_score(
    rows: NumaRows, chosen: IntArray, wanted: KernelRequest, others: OtherHints | None
) -> AlignedScores:
    """Return the results of ``align_rows`` and ``score_rows`` for the chosen rows."""
    n, sets = len(chosen), len(wanted.sets)
    if others is None:
        shape = (n, sets)
        others = OtherHints(np.ones(shape, bool), np.zeros(shape, bool), np.zeros(shape, np.int64))
    out = np.zeros((3, n), np.int64)
    _kernel.compiled(
        (rows.exists, rows.reported, rows.single, rows.shared),
        (rows.capacity, rows.used, rows.bindable),
        (rows.cpus_per_core, rows.bound_cpus, rows.cpu_ratio),
        chosen,
        (*wanted.requested, wanted.pod, wanted.zone_weights, wanted.weights),
        wanted.settings,
        wanted.sets,
        (others.prefers, others.named, others.scores),
        out,
    )
    return AlignedScores(out[0] > 0, out[1], out[2])


def _weights(resources: Sequence[str], request: NumaRequest, scorer: ZoneScorer) -> IntArray:
    scored = [
        scorer.weights.get(name, 0) if name in request.amounts or name in ALWAYS_SCORED else 0
        for name in resources
    ]
    return np.array(scored, np.int64)


def _loop(  # noqa: C901, PLR0912, PLR0915, PLR0917 (one loop: numba calls nothing cheaply)
    flags: Any,
    amounts: Any,
    facts: Any,
    chosen: Any,
    pod: Any,
    settings: Any,
    sets: Any,
    others: Any,
    out: Any,
) -> None:
    exists, reported, single_taken, shared_taken = flags
    capacity, used, bindable = amounts
    per_core, bound_cpus, ratios = facts
    columns, requests, pod_amounts, zone_weights, weights = pod
    prefers, named, other_scores = others
    cpu_kind, cpu, count, required = settings[0], settings[1], settings[2], settings[3]
    single, exclusive = settings[4] > 0, settings[5] > 0
    zones, resources, kinds = exists.shape[1], reported.shape[1], len(columns)
    available = np.zeros((zones, resources), np.int64)
    hinted = np.zeros((len(sets), kinds), np.bool_)
    touched = np.zeros((len(sets), zones), np.bool_)
    order = np.zeros(zones, np.int64)
    smallest = np.zeros(kinds, np.int64)
    for place in range(len(chosen)):
        row = chosen[place]
        ratio = max(ratios[row], 1.0)
        everything = 0
        for zone in range(zones):
            if exists[row, zone]:
                everything |= 1 << zone
            for name in range(resources):
                left = max(capacity[row, zone, name] - used[row, zone, name], 0)
                if required > 0 and name == cpu:
                    left = min(left, bindable[row, zone, required] * 1000)
                available[zone, name] = left
        any_reported = False
        for kind in range(kinds):
            smallest[kind] = zones + 1
            any_reported |= reported[row, columns[kind]]
        hinted[:] = False
        touched[:] = False
        # Feasibility and hints of each set, see ``fits_of``.
        for index in range(len(sets)):
            mask = sets[index]
            parts = 0
            fits = (mask & ~everything) == 0
            for zone in range(zones):
                parts += mask >> zone & 1
            for kind in range(kinds):
                if not fits:
                    break
                column = columns[kind]
                is_bound = kind == cpu_kind and count >= 0
                unit = 1
                if is_bound:
                    unit = 1000 * (per_core[row] if required == _FULL else 1)
                whole = 1000 if unit > 1 else 1
                left = requests[kind] if reported[row, column] else 0
                number = 0
                for zone in range(zones):
                    if mask >> zone & 1:
                        at = number
                        while at > 0 and available[order[at - 1], column] > available[zone, column]:
                            order[at] = order[at - 1]
                            at -= 1
                        order[at] = zone
                        number += 1
                bound = 0
                for step in range(parts):
                    zone = order[step]
                    rounded_up = -(-left // whole) * whole
                    share = min(
                        available[zone, column], rounded_up // unit // (parts - step) * unit
                    )
                    left -= share
                    if share > 0:
                        touched[index, zone] = True
                    if is_bound:
                        cpus = min(bindable[row, zone, required], share // 1000)
                        bound += cpus
                        if required == _FULL and cpus % per_core[row] != 0:
                            fits = False
                if left != 0 or (is_bound and bound != count):
                    fits = False
            if fits:
                for kind in range(kinds):
                    column = columns[kind]
                    has_all = reported[row, column]
                    for zone in range(zones):
                        if mask >> zone & 1 and available[zone, column] == 0:
                            has_all = False
                    hinted[index, kind] = has_all
                    if has_all:
                        smallest[kind] = min(smallest[kind], parts)
        # The best set that all resources and other plugins prefer, see ``align_rows``.
        best = best_size = best_score = 0
        best_index = -1
        any_named = False
        for index in range(len(sets)):
            any_named |= named[place, index]
        for index in range(len(sets)):
            mask = sets[index]
            size = 0
            for zone in range(zones):
                size += mask >> zone & 1
            agreed = (mask & ~everything) == 0 and prefers[place, index]
            agreed = agreed and (any_reported or named[place, index] or mask == everything)
            hints = 0
            for kind in range(kinds):
                liked = hinted[index, kind]
                hints += liked
                if single:
                    liked = liked and smallest[kind] == size and size == 1
                if reported[row, columns[kind]] and not liked:
                    agreed = False
            if agreed and exclusive:
                for zone in range(zones):
                    if mask >> zone & 1:
                        barred = single_taken[row, zone] if size > 1 else shared_taken[row, zone]
                        agreed = agreed and not barred
            if not agreed:
                continue
            points = weight_sum = 0
            for name in range(resources):
                if zone_weights[name] > 0:
                    has = free = 0
                    for zone in range(zones):
                        if mask >> zone & 1:
                            has += capacity[row, zone, name]
                            free += available[zone, name]
                    if has > 0:
                        more = pod_amounts[name]
                        if name == cpu and count >= 0:
                            more = ceil(more * ratio)
                        taken = max(has - free, 0) + more
                        part = min(taken, has) if settings[6] > 0 else max(has - taken, 0)
                        points += part * 100 // has * zone_weights[name]
                        weight_sum += zone_weights[name]
            score = points // max(weight_sum, 1) * hints + other_scores[place, index]
            better = size == best_size and (mask < best or score > best_score)
            if best == 0 or better:
                best, best_size, best_score, best_index = mask, size, score, index
        admitted = best > 0
        for kind in range(kinds):
            if reported[row, columns[kind]] and smallest[kind] > zones:
                admitted = False
        if single:
            if best == everything:
                best = 0
            admitted = admitted or (not any_reported and not any_named)
        admitted = admitted and everything > 0
        out[0, place] = admitted
        if not admitted or best == 0:
            continue
        out[1, place] = best
        # Utilization of the NUMA nodes that the pod uses, see ``score_rows``.
        points = weight_sum = 0
        for name in range(resources):
            if weights[name] > 0:
                has = taken = 0
                for zone in range(zones):
                    if touched[best_index, zone]:
                        has += capacity[row, zone, name]
                        taken += used[row, zone, name]
                more = pod_amounts[name]
                if name == cpu and count >= 0:
                    taken = ceil(bound_cpus[row] * 1000 * ratio)
                    more = ceil(more * ratio)
                taken += more
                if has > 0:
                    part = min(taken, has) if settings[7] > 0 else max(has - taken, 0)
                    points += part * 100 // has * weights[name]
                    weight_sum += weights[name]
        out[2, place] = points // max(weight_sum, 1)


def _signature(types: Any) -> Any:
    def array(kind: Any, dimensions: int) -> Any:
        return types.Array(kind, dimensions, "A", readonly=True)

    flags, numbers = types.boolean, types.int64
    return (
        types.UniTuple(array(flags, 2), 4),
        types.UniTuple(array(numbers, 3), 3),
        types.Tuple((array(numbers, 1), array(numbers, 1), array(types.float64, 1))),
        array(numbers, 1),
        types.UniTuple(array(numbers, 1), 5),
        array(numbers, 1),
        array(numbers, 1),
        types.Tuple((array(flags, 2), array(flags, 2), array(numbers, 2))),
        types.Array(numbers, 2, "C"),
    )


_kernel: Kernel[Any, None] = Kernel(_loop, _loop, _signature)
