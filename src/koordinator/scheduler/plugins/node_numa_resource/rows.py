"""NUMA verdicts and scores of many rows."""

from collections.abc import Callable, Sequence
from typing import Final, Literal

import numpy as np

from koordinator.api.annotations.numa import CpuBindPolicy
from koordinator.api.resource_names import CPU
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.contract import Rejections
from koordinator.scheduler.plugins.node_numa_resource.alignment import (
    RowPolicies,
    kinds_of,
)
from koordinator.scheduler.plugins.node_numa_resource.requirements import NumaRequirements
from koordinator.scheduler.rules.cpus.binding import FRACTIONAL_CPUS, PARTIAL_CORES, POLICY_CONFLICT
from koordinator.scheduler.rules.numa.align import POLICY_MISMATCH
from koordinator.scheduler.rules.numa.align_kernel import AlignedScores
from koordinator.scheduler.rules.numa.node import MILLI, NumaRequest
from koordinator.scheduler.rules.numa.rows import (
    INSUFFICIENT_CPU,
    INVALID_RATIO,
    amplified_request,
    amplified_rows,
    short_of_cpu,
)
from koordinator.scheduler.rules.numa.rows import POLICIES as BINDABLE
from koordinator.scheduler.rules.numa.trial import INVALID_LAYOUT, NOT_ENOUGH_CPUS
from koordinator.scheduler.rules.numa.zone_scorer import (
    ALWAYS_SCORED,
    MAX_SCORE,
    MISSING_ZONES,
    ZoneScorer,
)
from koordinator.scheduler.snapshot import Snapshot
from koordinator.scheduler.snapshot.numa import BIND_POLICIES, POLICIES

UNALIGNED: Final = "NUMA nodes"  # placeholder for the reasons of one row
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
NEVER: Final = (1 << REASONS.index(INSUFFICIENT_CPU)) - 1  # reasons that evictions cannot remove


Where = BoolArray | Literal[True]  # (n,): some rows; True: all of them


class Codes:
    """Codes with one reason per row: the first one added."""

    def __init__(self, count: int) -> None:
        self.codes = np.zeros(count, np.int64)

    def add(self, rejected: Where, reason: str) -> None:
        """Reject rows that are not rejected yet."""
        if np.logical_or.reduce(rejected, axis=None):
            self.codes[rejected & (self.codes == 0)] = 1 << REASONS.index(reason)

    def rejections(self, explain: Callable[[int], Sequence[str]]) -> Rejections:
        """Return the result of the filter; ``explain`` returns the reasons of an unaligned row."""
        codes, unaligned = self.codes, 1 << REASONS.index(UNALIGNED)

        def reasons(row: int) -> Sequence[str]:
            code = int(codes[row])
            return explain(row) if code == unaligned else (REASONS[code.bit_length() - 1],)

        return Rejections(codes, REASONS, lambda: (codes & NEVER) > 0, reasons)


def verdicts(
    view: Snapshot, needs: NumaRequirements, aligned: Callable[[], AlignedScores]
) -> Codes:
    """Return the reasons by row; ``aligned`` is called only if some row has a policy."""
    numa, rows = view.numa, view.row_numbers
    codes, kinds = Codes(len(rows)), kinds_of(view, needs)
    if not needs.suits_all(numa.survey):
        own = POLICIES.index(needs.policy)
        if own:
            of_nodes = numa.policy[rows]
            codes.add((of_nodes > 0) & (of_nodes != own), POLICY_MISMATCH)
        _add_by_binding(codes, view, needs, kinds)
    if kinds.may_be_aligned:
        refused = ~aligned().admitted  # also where there are no NUMA nodes
        if kinds.only is None:
            refused &= kinds.aligned
        if np.logical_or.reduce(refused):
            has_zones = numa.arrays.exists[rows].any(axis=1) | numa.wide[rows]
            codes.add(refused & ~has_zones, MISSING_ZONES)
            codes.add(refused, UNALIGNED)
    return codes


def _add_by_binding(
    codes: Codes, view: Snapshot, needs: NumaRequirements, kinds: RowPolicies
) -> None:
    requests = [
        (code, bound_rows, needs.request(BIND_POLICIES[code])) for code, bound_rows in _binds(kinds)
    ]
    for _, bound_rows, request in requests:
        if request is None:
            codes.add(bound_rows, FRACTIONAL_CPUS)
    if view.numa.traits[2]:
        binds = np.zeros(len(view), bool)
        for _, bound_rows, request in requests:
            if request is not None and request.binding is not None:
                binds |= bound_rows
        _add_amplified(codes, view, needs, binds)
    for code, bound_rows, request in requests:
        if request is not None and request.binding is not None:
            _add_unbindable(codes, view, request, (bound_rows, kinds), code)


def _binds(kinds: RowPolicies) -> list[tuple[int, Where]]:
    """Return each occurring bind policy with its rows."""
    if kinds.only is not None:
        return [(kinds.only // len(POLICIES), True)]
    return [(code, kinds.binds == code) for code in set(kinds.binds.tolist())]


def _add_amplified(codes: Codes, view: Snapshot, needs: NumaRequirements, binds: BoolArray) -> None:
    if not needs.cpu_milli:
        return
    ratios = view.numa.node_ratio[view.row_numbers]
    codes.add(np.isnan(ratios), INVALID_RATIO)
    cpu = view.resources.index(CPU)
    short = short_of_cpu(
        needs.cpu_milli,
        binds=binds,
        allocatable=view.allocatable[:, cpu],
        requested=view.requested[:, cpu],
        bound=view.numa.arrays.bound_cpus[view.row_numbers] * MILLI,
        ratios=np.nan_to_num(ratios, nan=1.0),
    )
    codes.add(short, INSUFFICIENT_CPU)


def _add_unbindable(
    codes: Codes,
    view: Snapshot,
    request: NumaRequest,
    located: tuple[Where, RowPolicies],
    code: int,
) -> None:
    """Reject rows that cannot bind the pod's CPUs now or ever.

    ``located`` is the mask of rows with the bind policy, and the kinds of all rows.
    """
    with_policy, kinds = located
    numa, rows, binding = view.numa, view.row_numbers, request.binding
    if binding is None:
        return
    if not numa.survey.laid_out:
        codes.add(with_policy & ~numa.layout[rows], INVALID_LAYOUT)
    node_policy = BIND_POLICIES[code]
    if node_policy is not None and node_policy != binding.policy:
        codes.add(with_policy, POLICY_CONFLICT)
    if request.required_policy == CpuBindPolicy.FULL_PCPUS:
        codes.add(
            with_policy & (binding.count % numa.arrays.cpus_per_core[rows] > 0), PARTIAL_CORES
        )
    if binding.required:
        free = numa.arrays.bindable_in_all[rows, BINDABLE.index(request.required_policy)]
        short = free < binding.count
        codes.add(with_policy & (kinds.policies == 0) & short, NOT_ENOUGH_CPUS)


def is_plain(view: Snapshot, needs: NumaRequirements) -> bool:
    """Return whether neither nodes nor pod have NUMA or CPU requirements."""
    return needs.own is None and not (needs.policy or any(view.numa.traits))


def scores(
    view: Snapshot,
    needs: NumaRequirements,
    scorer: ZoneScorer,
    aligned: Callable[[], AlignedScores],
) -> IntArray:
    """Return ``(n,)``: the scores of the nodes, or of the NUMA nodes that the pod gets.

    The score is 0 where the pod must be aligned and cannot be.
    """
    if is_plain(view, needs):
        return view.score(needs.formula(view.resources, scorer))
    of_zones = aligned()
    unaligned = of_zones.admitted & (of_zones.zones == 0)
    if not np.logical_or.reduce(unaligned):
        return of_zones.scores
    kinds, node_scores = kinds_of(view, needs), of_zones.scores.copy()
    policies, bind = kinds.policies, kinds.binds
    for code in set(bind[unaligned].tolist()):
        request = needs.request(BIND_POLICIES[code])
        if request is not None:
            chosen = np.flatnonzero((bind == code) & unaligned)
            node_scores[chosen] = _node_scores(
                view, request, scorer, (chosen, policies[chosen] == 0)
            )
    return node_scores


def _node_scores(
    view: Snapshot,
    request: NumaRequest,
    scorer: ZoneScorer,
    located: tuple[IntArray, BoolArray],
) -> IntArray:
    """Return the scores of whole nodes.

    ``located`` are places of the view, and a mask of those without NUMA policy: elsewhere bound
    CPUs alone count as used CPU for a pod with exclusive CPUs, as in the original.
    """
    places, unaligned = located
    numa, rows, cpu = view.numa, view.row_numbers[places], view.resources.index(CPU)
    points, weights = np.zeros(len(places), np.int64), np.zeros(len(places), np.int64)
    allocatable, requested = view.allocatable, view.requested
    used_cpu, requested_cpu = requested[places, cpu], request.amounts.get(CPU, 0)
    cpu_request = np.full(len(places), requested_cpu, np.int64)
    alive = np.ones(len(places), bool)
    _, _, amplified = view.numa.traits
    if request.binding is not None or amplified:
        ratios, bound = numa.arrays.cpu_ratio[rows], numa.arrays.bound_cpus[rows] * MILLI
        if requested_cpu:
            used_cpu = np.where(unaligned, amplified_request(used_cpu, bound, ratios), used_cpu)
        if request.binding is not None:
            cpu_request = amplified_rows(cpu_request, ratios)
            used_cpu = np.where(unaligned, used_cpu, amplified_rows(bound, ratios))
            free = numa.arrays.bindable_in_all[rows, BINDABLE.index(request.required_policy)]
            alive = numa.layout[rows] & (unaligned | (free >= request.binding.count))
    for name, weight in scorer.weights.items():
        needs = request.amounts.get(name, 0)
        if name not in view.resources or (not needs and name not in ALWAYS_SCORED):
            continue
        column = view.resources.index(name)
        capacity = allocatable[places, column]
        used = used_cpu + cpu_request if name == CPU else requested[places, column] + needs
        part = np.minimum(used, capacity) if scorer.pack else np.maximum(capacity - used, 0)
        points += part * MAX_SCORE // np.maximum(capacity, 1) * weight
        weights += np.where(capacity > 0, weight, 0)
    return np.where(alive, points // np.maximum(weights, 1), 0)
