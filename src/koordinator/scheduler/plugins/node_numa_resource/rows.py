"""Verdicts and scores of many rows."""

from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np

from koordinator.api.annotations.numa import CpuBindPolicy
from koordinator.api.resource_names import CPU
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.contract import Rejections
from koordinator.scheduler.plugins.node_numa_resource.alignment import (
    Kinds,
    kinds_of,
)
from koordinator.scheduler.plugins.node_numa_resource.requirements import NumaRequirements
from koordinator.scheduler.rules.cpus.binding import FRACTIONAL_CPUS, PARTIAL_CORES, POLICY_CONFLICT
from koordinator.scheduler.rules.numa.align_kernel import AlignedScores
from koordinator.scheduler.rules.numa.amplification import (
    INSUFFICIENT_CPU,
    INVALID_RATIO,
    amplified_request,
    amplified_rows,
    short_of_cpu,
)
from koordinator.scheduler.rules.numa.node import MILLI
from koordinator.scheduler.rules.numa.offer import MISSING_ZONES
from koordinator.scheduler.rules.numa.policy import POLICY_MISMATCH
from koordinator.scheduler.rules.numa.request import NumaRequest
from koordinator.scheduler.rules.numa.rows import POLICIES as BINDABLE
from koordinator.scheduler.rules.numa.trial import INVALID_LAYOUT, NOT_ENOUGH_CPUS
from koordinator.scheduler.rules.numa.zone_scorer import ALWAYS_SCORED, MAX_SCORE, ZoneScorer
from koordinator.scheduler.snapshot import Snapshot
from koordinator.scheduler.snapshot.numa import BIND_POLICIES, POLICIES

UNALIGNED: Final = "NUMA nodes"  # stands for what is found out row by row
REASONS: Final = (
    POLICY_MISMATCH,
    FRACTIONAL_CPUS,
    INVALID_RATIO,
    INVALID_LAYOUT,
    POLICY_CONFLICT,
    PARTIAL_CORES,
    MISSING_ZONES,
    INSUFFICIENT_CPU,
    NOT_ENOUGH_CPUS,
    UNALIGNED,
)
NEVER: Final = (1 << REASONS.index(INSUFFICIENT_CPU)) - 1  # reasons that removing pods won't end


Where = BoolArray | Literal[True]  # (n,): some rows; True: all of them


class Codes:
    """One reason per row: the first that was found."""

    def __init__(self, count: int) -> None:
        self.codes = np.zeros(count, np.int64)

    def add(self, rejected: Where, reason: str) -> None:
        """Reject rows that are not rejected yet."""
        if np.logical_or.reduce(rejected, axis=None):
            self.codes[rejected & (self.codes == 0)] = 1 << REASONS.index(reason)

    def rejections(self, explain: Callable[[int], Sequence[str]]) -> Rejections:
        """Return them as the filter's answer; ``explain`` tells of one row why it is unaligned."""
        codes, unaligned = self.codes, 1 << REASONS.index(UNALIGNED)

        def reasons(row: int) -> Sequence[str]:
            code = int(codes[row])
            return explain(row) if code == unaligned else (REASONS[code.bit_length() - 1],)

        return Rejections(codes, REASONS, lambda: (codes & NEVER) > 0, reasons)


def verdicts(
    view: Snapshot, asked: NumaRequirements, aligned: Callable[[], AlignedScores]
) -> Codes:
    """Return why each row can't take the pod; ``aligned`` is asked if there is a policy."""
    numa, rows = view.numa, view.row_numbers
    found, kinds = Codes(len(rows)), kinds_of(view, asked)
    if not asked.suits_all(numa.survey):
        own = POLICIES.index(asked.policy)
        if own:
            of_nodes = numa.policy[rows]
            found.add((of_nodes > 0) & (of_nodes != own), POLICY_MISMATCH)
        _add_by_binding(found, view, asked, kinds)
    if kinds.may_be_aligned:
        refused = ~aligned().admitted  # also where there are no NUMA nodes
        if kinds.only is None:
            refused &= kinds.aligned
        if np.logical_or.reduce(refused):
            there = numa.arrays.exists[rows].any(axis=1) | numa.wide[rows]
            found.add(refused & ~there, MISSING_ZONES)
            found.add(refused, UNALIGNED)
    return found


def _add_by_binding(found: Codes, view: Snapshot, asked: NumaRequirements, kinds: Kinds) -> None:
    requests = [(code, where, asked.request(BIND_POLICIES[code])) for code, where in _binds(kinds)]
    for _, where, request in requests:
        if request is None:
            found.add(where, FRACTIONAL_CPUS)
    if view.numa.traits[2]:
        binds = np.zeros(len(view), bool)
        for _, where, request in requests:
            if request is not None and request.binding is not None:
                binds |= where
        _add_amplified(found, view, asked, binds)
    for code, where, request in requests:
        if request is not None and request.binding is not None:
            _add_unbindable(found, view, request, (where, kinds), code)


def _binds(kinds: Kinds) -> list[tuple[int, Where]]:
    """Return which rows bind CPUs in each way that occurs."""
    if kinds.only is not None:
        return [(kinds.only // len(POLICIES), True)]
    return [(code, kinds.binds == code) for code in set(kinds.binds.tolist())]


def _add_amplified(found: Codes, view: Snapshot, asked: NumaRequirements, binds: BoolArray) -> None:
    if not asked.cpu_milli:
        return
    ratios = view.numa.node_ratio[view.row_numbers]
    found.add(np.isnan(ratios), INVALID_RATIO)
    cpu = view.resources.index(CPU)
    short = short_of_cpu(
        asked.cpu_milli,
        binds=binds,
        allocatable=view.allocatable[:, cpu],
        requested=view.requested[:, cpu],
        bound=view.numa.arrays.bound_cpus[view.row_numbers] * MILLI,
        ratios=np.nan_to_num(ratios, nan=1.0),
    )
    found.add(short, INSUFFICIENT_CPU)


def _add_unbindable(
    found: Codes,
    view: Snapshot,
    request: NumaRequest,
    where: tuple[Where, Kinds],
    code: int,
) -> None:
    """Reject rows that can't bind the pod's CPUs, or not now.

    ``where`` says which rows bind it so, and of what kinds all of them are.
    """
    here, kinds = where
    numa, rows, binding = view.numa, view.row_numbers, request.binding
    if binding is None:
        return
    if not numa.survey.laid_out:
        found.add(here & ~numa.layout[rows], INVALID_LAYOUT)
    node_policy = BIND_POLICIES[code]
    if node_policy is not None and node_policy != binding.policy:
        found.add(here, POLICY_CONFLICT)
    if request.required_policy == CpuBindPolicy.FULL_PCPUS:
        found.add(here & (binding.count % numa.arrays.cpus_per_core[rows] > 0), PARTIAL_CORES)
    if binding.required:
        free = numa.arrays.bindable_in_all[rows, BINDABLE.index(request.required_policy)]
        short = free < binding.count
        found.add(here & (kinds.policies == 0) & short, NOT_ENOUGH_CPUS)


def is_plain(view: Snapshot, asked: NumaRequirements) -> bool:
    """Return whether neither the nodes nor the pod have any wishes."""
    return asked.own is None and not (asked.policy or any(view.numa.traits))


def scores(
    view: Snapshot,
    asked: NumaRequirements,
    scorer: ZoneScorer,
    aligned: Callable[[], AlignedScores],
) -> IntArray:
    """Return ``(n,)``: how full the nodes, or the NUMA nodes that the pod gets, would be.

    0 where it gets none though it has to be aligned.
    """
    if is_plain(view, asked):
        return view.score(asked.formula(view.resources, scorer))
    of_zones = aligned()
    unaligned = of_zones.admitted & (of_zones.zones == 0)
    if not np.logical_or.reduce(unaligned):
        return of_zones.scores
    kinds, found = kinds_of(view, asked), of_zones.scores.copy()
    policies, bind = kinds.policies, kinds.binds
    for code in set(bind[unaligned].tolist()):
        request = asked.request(BIND_POLICIES[code])
        if request is not None:
            chosen = np.flatnonzero((bind == code) & unaligned)
            found[chosen] = _node_scores(view, request, scorer, (chosen, policies[chosen] == 0))
    return found


def _node_scores(
    view: Snapshot,
    request: NumaRequest,
    scorer: ZoneScorer,
    where: tuple[IntArray, BoolArray],
) -> IntArray:
    """Return the scores of whole nodes.

    ``where`` says which places of the view, and which of them have no NUMA policy: elsewhere
    bound CPUs are all the CPU that counts for a pod with CPUs of its own, as in the original.
    """
    places, unaligned = where
    numa, rows, cpu = view.numa, view.row_numbers[places], view.resources.index(CPU)
    points, weights = np.zeros(len(places), np.int64), np.zeros(len(places), np.int64)
    allocatable, requested = view.allocatable, view.requested
    used_cpu, asked_cpu = requested[places, cpu], request.amounts.get(CPU, 0)
    asked_of_cpu = np.full(len(places), asked_cpu, np.int64)
    alive = np.ones(len(places), bool)
    _, _, amplified = view.numa.traits
    if request.binding is not None or amplified:
        ratios, bound = numa.arrays.cpu_ratio[rows], numa.arrays.bound_cpus[rows] * MILLI
        if asked_cpu:
            used_cpu = np.where(unaligned, amplified_request(used_cpu, bound, ratios), used_cpu)
        if request.binding is not None:
            asked_of_cpu = amplified_rows(asked_of_cpu, ratios)
            used_cpu = np.where(unaligned, used_cpu, amplified_rows(bound, ratios))
            free = numa.arrays.bindable_in_all[rows, BINDABLE.index(request.required_policy)]
            alive = numa.layout[rows] & (unaligned | (free >= request.binding.count))
    for name, weight in scorer.weights.items():
        asked = request.amounts.get(name, 0)
        if name not in view.resources or (not asked and name not in ALWAYS_SCORED):
            continue
        column = view.resources.index(name)
        capacity = allocatable[places, column]
        used = used_cpu + asked_of_cpu if name == CPU else requested[places, column] + asked
        part = np.minimum(used, capacity) if scorer.pack else np.maximum(capacity - used, 0)
        points += part * MAX_SCORE // np.maximum(capacity, 1) * weight
        weights += np.where(capacity > 0, weight, 0)
    return np.where(alive, points // np.maximum(weights, 1), 0)
