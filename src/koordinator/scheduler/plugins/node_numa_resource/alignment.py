"""Alignment: NUMA nodes that satisfy all requests of a pod, on many rows and exactly on one."""

from collections.abc import Sequence
from functools import cache

import numpy as np

from koordinator.api.annotations.numa import NumaTopologyPolicy
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import subsets
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    NumaHintProvider,
    Refusal,
)
from koordinator.scheduler.plugins.node_numa_resource.requirements import NumaRequirements
from koordinator.scheduler.rules.numa.align import ResourceHints, align, policy_on
from koordinator.scheduler.rules.numa.align_kernel import AlignedScores, align_and_score
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.rules.numa.node import NOTHING, NumaNode, NumaRequest, Reusable
from koordinator.scheduler.rules.numa.rows import fits_of
from koordinator.scheduler.rules.numa.rows_align import OtherHints, align_rows, score_rows
from koordinator.scheduler.rules.numa.trial import NumaShortage, NumaTrial
from koordinator.scheduler.rules.numa.zone_scorer import MISSING_ZONES, ZoneScorer, resource_hints
from koordinator.scheduler.snapshot import PodClass, Snapshot
from koordinator.scheduler.snapshot.numa import BIND_POLICIES, POLICIES

SINGLE = POLICIES.index(NumaTopologyPolicy.SINGLE_NUMA_NODE)
RESTRICTED = POLICIES.index(NumaTopologyPolicy.RESTRICTED)
NO_POLICY = POLICIES.index(NumaTopologyPolicy.NONE)


@dataclass(frozen=True, slots=True)
class AlignmentSettings:
    """Settings from the plugin's arguments and its profile."""

    default_policy: str  # a CpuBindPolicy
    scorer: ZoneScorer  # of nodes
    zone_scorer: ZoneScorer  # of sets of NUMA nodes
    providers: Sequence[NumaHintProvider] = ()  # other plugins with NUMA hints

    @property
    def pack(self) -> bool:
        """Whether bound CPUs fill the fullest NUMA node first."""
        return self.zone_scorer.pack


def align_view(
    settings: AlignmentSettings, view: Snapshot, pod: PodClass, needs: NumaRequirements
) -> AlignedScores:
    """Return the NUMA nodes for the pod on rows with the policy Restricted or SingleNUMANode.

    Under BestEffort nothing is aligned before a node is chosen; rows whose NUMA nodes have enough
    are admitted.  Rows without a policy are admitted.
    """
    numa, rows = view.numa, view.row_numbers
    kinds = kinds_of(view, needs)
    if kinds.only is not None:
        aligned = _align_kind(settings, view, pod, needs, kinds.only)
    else:
        aligned = AlignedScores(
            np.ones(len(rows), bool), np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        )
        numbers = kinds.binds * len(POLICIES) + kinds.policies
        for kind in set(numbers.tolist()):
            kind_rows = np.flatnonzero(numbers == kind)
            of_kind = _align_kind(settings, view[kind_rows], pod, needs, kind)
            aligned.admitted[kind_rows], aligned.zones[kind_rows] = of_kind.admitted, of_kind.zones
            aligned.scores[kind_rows] = of_kind.scores
    if numa.any_wide:
        strict = kinds.strict
        for place in np.flatnonzero(kinds.aligned & numa.wide[rows]).tolist():
            at = align_at(settings, view, place, pod, needs)
            aligned.admitted[place] = isinstance(at, NumaPlacement)
            zones = at.zones if isinstance(at, NumaPlacement) else 0
            aligned.zones[place] = zones if strict[place] else 0
    return aligned


def _align_kind(
    settings: AlignmentSettings, view: Snapshot, pod: PodClass, needs: NumaRequirements, kind: int
) -> AlignedScores:
    """Return NUMA nodes and scores of rows with one NUMA policy and one CPU bind policy."""
    bind, policy = divmod(kind, len(POLICIES))
    request = needs.request(BIND_POLICIES[bind])
    if request is None or policy not in {SINGLE, RESTRICTED}:
        n = len(view)
        admitted = np.full(n, policy == NO_POLICY)
        if request is not None and policy != NO_POLICY:
            admitted = _with_enough(settings, view, pod, needs, request)
        return AlignedScores(admitted, np.zeros(n, np.int64), np.zeros(n, np.int64))
    return _align_rows(settings, view, pod, needs, (request, POLICIES[policy]))


def _with_enough(
    settings: AlignmentSettings,
    view: Snapshot,
    pod: PodClass,
    needs: NumaRequirements,
    request: NumaRequest,
) -> BoolArray:
    """Return ``(n,)``: the rows with the policy BestEffort whose NUMA nodes have enough.

    The pod gets a sufficient set of NUMA nodes, or all of them.
    """
    rows = view.numa.arrays.select(view.row_numbers)
    everything = rows.exists @ (1 << np.arange(rows.exists.shape[1]))
    enough, some = np.zeros(len(view), bool), np.zeros(len(view), bool)
    for fit in fits_of(rows, request).sets:
        some |= fit.fits
        enough |= fit.fits & (fit.zones == everything)
    for place in np.flatnonzero(some & ~enough).tolist():
        at = align_at(settings, view, place, pod, needs)
        enough[place] = isinstance(at, NumaPlacement)
    return enough


@dataclass(frozen=True, slots=True, eq=False)
class RowPolicies:
    """Bind policy and NUMA policy of rows for a pod; the pod's policy takes precedence."""

    count: int
    only: int | None  # bind policy * len(POLICIES) + policy, if all rows are alike
    _binds: IntArray | None = None  # None if all rows are alike
    _policies: IntArray | None = None

    @property
    def binds(self) -> IntArray:
        """``(n,)`` indices of ``BIND_POLICIES``."""
        if self._binds is None:
            return np.full(self.count, (self.only or 0) // len(POLICIES))
        return self._binds

    @property
    def policies(self) -> IntArray:
        """``(n,)`` indices of ``POLICIES``."""
        if self._policies is None:
            return np.full(self.count, (self.only or 0) % len(POLICIES))
        return self._policies

    @property
    def strict(self) -> BoolArray:
        """``(n,)``: the policy applies before a node is chosen."""
        policies = self.policies
        strict: BoolArray = (policies == SINGLE) | (policies == RESTRICTED)
        return strict

    @property
    def aligned(self) -> BoolArray:
        """``(n,)``: the row has a policy."""
        if self.only is not None:
            return np.full(self.count, self.may_be_aligned)
        aligned: BoolArray = self.policies != NO_POLICY
        return aligned

    @property
    def may_be_aligned(self) -> bool:
        """Whether some row may have a policy; exact if all rows are alike."""
        return self.only is None or self.only % len(POLICIES) != NO_POLICY


_KINDS: Memo[RowPolicies] = Memo()


def kinds_of(view: Snapshot, needs: NumaRequirements) -> RowPolicies:
    """Return the kinds of the rows; the kind of a row without a node is arbitrary."""
    alike = view.numa.survey.alike
    if alike is None:
        version = (view.usage_version, needs.policy)
        return _KINDS.as_of(view, version, _kinds_of, view, needs)
    bind, policy = alike
    return RowPolicies(len(view), bind * len(POLICIES) + (POLICIES.index(needs.policy) or policy))


def _kinds_of(view: Snapshot, needs: NumaRequirements) -> RowPolicies:
    numa, rows = view.numa, view.row_numbers
    binds, policies = numa.bind_policy.take(rows), numa.policy.take(rows)
    own = POLICIES.index(needs.policy)
    if own:
        policies = np.full_like(policies, own)
    # Comparing bytes is fastest for few rows.
    same = binds.tobytes() == binds[:1].tobytes() * len(rows) and (
        policies.tobytes() == policies[:1].tobytes() * len(rows)
    )
    if same and len(rows):
        return RowPolicies(len(rows), int(binds[0]) * len(POLICIES) + int(policies[0]))
    return RowPolicies(len(rows), None, binds.astype(np.int64), policies.astype(np.int64))


def _align_rows(
    settings: AlignmentSettings,
    view: Snapshot,
    pod: PodClass,
    needs: NumaRequirements,
    group: tuple[NumaRequest, NumaTopologyPolicy],
) -> AlignedScores:
    request, policy = group
    table, chosen = view.numa.arrays, view.row_numbers
    single = policy is NumaTopologyPolicy.SINGLE_NUMA_NODE
    sets = _sets(table.exists.shape[1], single=single)
    hints = [provider.numa_hints(view, pod, sets) for provider in settings.providers]
    others = _merge_hints([each for each in hints if each is not None])
    if view.uses_kernels:
        prepared = needs.prepared(table, request, policy, (settings.zone_scorer, settings.scorer))
        return align_and_score(table, chosen, prepared, others)
    rows = table.select(chosen)
    fits = fits_of(rows, request, largest=1) if single else fits_of(rows, request)
    answer = align_rows(
        rows,
        request,
        fits,
        policy,
        settings.zone_scorer,
        exclusive=needs.exclusive,
        others=others,
    )
    scores = score_rows(rows, request, fits, answer, settings.scorer)
    return AlignedScores(answer.admitted, answer.zones, scores)


@cache
def _sets(zones: int, *, single: bool) -> tuple[int, ...]:
    """Return the sets of NUMA nodes to compare, as masks."""
    every = subsets(tuple(range(zones)))
    return tuple(each for each in every if not single or each.bit_count() == 1)


def _merge_hints(hints: Sequence[OtherHints]) -> OtherHints | None:
    if not hints:
        return None
    first, *others = hints
    for other in others:
        first = OtherHints(
            first.prefers & other.prefers, first.named | other.named, first.scores + other.scores
        )
    return first


# -- one row ---------------------------------------------------------------------------------


def request_at(row: int, view: Snapshot, needs: NumaRequirements) -> NumaRequest | None:
    """Return the request on one row of the cluster; None if it must not request a part of a CPU."""
    return needs.request(BIND_POLICIES[int(view.numa.bind_policy[row])])


def policy_at(row: int, view: Snapshot, needs: NumaRequirements) -> NumaTopologyPolicy:
    """Return the policy for the pod on one row of the cluster."""
    policy = policy_on(POLICIES[int(view.numa.policy[row])], needs.policy)
    return needs.policy if policy is None else policy


def reusable_for_pod(node: Snapshot) -> Reusable:
    """Return the free CPUs held for the pod on the only row of a view."""
    cpus = 0
    for hold in node.restored:
        cpus |= hold.left.numa.cpus if hold.left.numa is not None else 0
    if not cpus:
        return NOTHING
    in_use = node.numa.node(int(node.row_numbers[0]), pack=False).ledger.cpus.in_use
    return Reusable(preferred_cpus=cpus & ~in_use)


@dataclass(frozen=True, slots=True)
class NumaPlacement:
    """NUMA nodes of a pod on one row (0: any of them)."""

    zones: int
    allocation: NumaAllocation | None = None  # the allocation, if already computed


def align_at(
    settings: AlignmentSettings, view: Snapshot, place: int, pod: PodClass, needs: NumaRequirements
) -> NumaPlacement | tuple[str, ...]:
    """Return the placement of a pod on one row of a view, or why there is none."""
    row = int(view.row_numbers[place])
    request, policy = request_at(row, view, needs), policy_at(row, view, needs)
    if policy is NumaTopologyPolicy.NONE or request is None:
        return NumaPlacement(0)
    node: NumaNode = view.numa.node(row, pack=settings.pack)
    if not node.zones:
        return (MISSING_ZONES,)
    refusals, hints = list[str](), list[ResourceHints]()
    alone = view if len(view) == 1 else view[np.array([place])]
    trial = NumaTrial(node, request, reusable_for_pod(alone))
    for provider in settings.providers:
        offered = provider.numa_hints_at(alone, pod)
        if isinstance(offered, Refusal):
            refusals.append(offered.reason)
        else:
            hints.append(offered)
    if refusals:
        return tuple(refusals)
    # SingleNUMANode needs sets of several NUMA nodes only for the message.
    single = policy is NumaTopologyPolicy.SINGLE_NUMA_NODE
    machine = node.machine_for(needs.exclusive)
    for largest in (1, len(node.zones)) if single else (len(node.zones),):
        own = resource_hints(trial, policy, settings.zone_scorer, largest=largest)
        answer = align(policy, [own, *hints], machine, needs.exclusive)
        if answer.admitted:
            allocation = trial.allocate(answer.zones)
            if isinstance(allocation, NumaShortage):
                return allocation.reasons
            return NumaPlacement(answer.zones or 0, allocation)
    return answer.reasons
