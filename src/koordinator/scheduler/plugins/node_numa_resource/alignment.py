"""From which NUMA nodes a pod would get all that it takes: on many rows, and exactly on one."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np

from koordinator.api.annotations.numa import NumaTopologyPolicy
from koordinator.domain.numa_masks import subsets
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    NumaHintProvider,
    Refusal,
)
from koordinator.scheduler.plugins.node_numa_resource.requirements import NumaRequirements
from koordinator.scheduler.rules.numa.align import align
from koordinator.scheduler.rules.numa.align_kernel import AlignedScores, align_and_score
from koordinator.scheduler.rules.numa.hints import ResourceHints
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.rules.numa.node import NumaNode
from koordinator.scheduler.rules.numa.offer import MISSING_ZONES, resource_hints
from koordinator.scheduler.rules.numa.policy import policy_on
from koordinator.scheduler.rules.numa.request import NOTHING, NumaRequest, Reusable
from koordinator.scheduler.rules.numa.rows_align import OtherHints, align_rows, score_rows
from koordinator.scheduler.rules.numa.rows_fit import fits_of
from koordinator.scheduler.rules.numa.trial import NumaShortage, NumaTrial
from koordinator.scheduler.rules.numa.zone_scorer import ZoneScorer
from koordinator.scheduler.snapshot import PodClass, Snapshot
from koordinator.scheduler.snapshot.numa import BIND_POLICIES, POLICIES

SINGLE = POLICIES.index(NumaTopologyPolicy.SINGLE_NUMA_NODE)
RESTRICTED = POLICIES.index(NumaTopologyPolicy.RESTRICTED)
NO_POLICY = POLICIES.index(NumaTopologyPolicy.NONE)


@dataclass(frozen=True, slots=True)
class AlignmentSettings:
    """What the plugin's arguments and its profile say."""

    default_policy: str  # a CpuBindPolicy
    scorer: ZoneScorer  # of nodes
    zone_scorer: ZoneScorer  # of sets of NUMA nodes
    providers: Sequence[NumaHintProvider] = ()  # other plugins with a say about NUMA nodes

    @property
    def pack(self) -> bool:
        """Whether bound CPUs fill the fullest NUMA node first."""
        return self.zone_scorer.pack


def align_view(
    settings: AlignmentSettings, view: Snapshot, pod: PodClass, asked: NumaRequirements
) -> AlignedScores:
    """Return the NUMA nodes for the pod on rows with the policy Restricted or SingleNUMANode.

    Under BestEffort nothing is aligned before a node is chosen; rows are admitted whose NUMA nodes
    have enough.  Rows without a policy are admitted.
    """
    numa, rows = view.numa, view.row_numbers
    kinds = kinds_of(view, asked)
    if kinds.only is not None:
        aligned = _align_kind(settings, view, pod, asked, kinds.only)
    else:
        aligned = AlignedScores(
            np.ones(len(rows), bool), np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
        )
        numbers = kinds.binds * len(POLICIES) + kinds.policies
        for kind in set(numbers.tolist()):
            where = np.flatnonzero(numbers == kind)
            found = _align_kind(settings, view[where], pod, asked, kind)
            aligned.admitted[where], aligned.zones[where] = found.admitted, found.zones
            aligned.scores[where] = found.scores
    if numa.any_wide:
        strict = kinds.strict
        for place in np.flatnonzero(kinds.aligned & numa.wide[rows]).tolist():
            at = align_at(settings, view, place, pod, asked)
            aligned.admitted[place] = isinstance(at, NumaPlacement)
            zones = at.zones if isinstance(at, NumaPlacement) else 0
            aligned.zones[place] = zones if strict[place] else 0
    return aligned


def _align_kind(
    settings: AlignmentSettings, view: Snapshot, pod: PodClass, asked: NumaRequirements, kind: int
) -> AlignedScores:
    """Return NUMA nodes and scores of rows that all have one policy, and bind CPUs by one."""
    bind, policy = divmod(kind, len(POLICIES))
    request = asked.request(BIND_POLICIES[bind])
    if request is None or policy not in {SINGLE, RESTRICTED}:
        n = len(view)
        admitted = np.full(n, policy == NO_POLICY)
        if request is not None and policy != NO_POLICY:
            admitted = _with_enough(settings, view, pod, asked, request)
        return AlignedScores(admitted, np.zeros(n, np.int64), np.zeros(n, np.int64))
    return _align_rows(settings, view, pod, asked, (request, POLICIES[policy]))


def _with_enough(
    settings: AlignmentSettings,
    view: Snapshot,
    pod: PodClass,
    asked: NumaRequirements,
    request: NumaRequest,
) -> BoolArray:
    """Return which rows with the policy BestEffort have NUMA nodes with enough, ``(n,)``.

    The pod gets a set that has enough for it, or all NUMA nodes.
    """
    rows = view.numa.arrays.select(view.row_numbers)
    everything = rows.exists @ (1 << np.arange(rows.exists.shape[1]))
    enough, some = np.zeros(len(view), bool), np.zeros(len(view), bool)
    for found in fits_of(rows, request).sets:
        some |= found.fits
        enough |= found.fits & (found.zones == everything)
    for place in np.flatnonzero(some & ~enough).tolist():
        at = align_at(settings, view, place, pod, asked)
        enough[place] = isinstance(at, NumaPlacement)
    return enough


@dataclass(frozen=True, slots=True, eq=False)
class Kinds:
    """How rows bind a pod's CPUs, and their policies for it; that of the pod if both have one."""

    count: int
    only: int | None  # of all rows, if they are alike: bind policy * len(POLICIES) + policy
    _binds: IntArray | None = None  # None if they are alike
    _policies: IntArray | None = None

    @property
    def binds(self) -> IntArray:
        """``(n,)``, see ``BIND_POLICIES``."""
        if self._binds is None:
            return np.full(self.count, (self.only or 0) // len(POLICIES))
        return self._binds

    @property
    def policies(self) -> IntArray:
        """``(n,)``, see ``POLICIES``."""
        if self._policies is None:
            return np.full(self.count, (self.only or 0) % len(POLICIES))
        return self._policies

    @property
    def strict(self) -> BoolArray:
        """``(n,)``: the policy is one of those that are kept before a node is chosen."""
        policies = self.policies
        strict: BoolArray = (policies == SINGLE) | (policies == RESTRICTED)
        return strict

    @property
    def aligned(self) -> BoolArray:
        """``(n,)``: there is a policy."""
        if self.only is not None:
            return np.full(self.count, self.may_be_aligned)
        aligned: BoolArray = self.policies != NO_POLICY
        return aligned

    @property
    def may_be_aligned(self) -> bool:
        """Whether this can be so of any row; of alike ones, whether it is."""
        return self.only is None or self.only % len(POLICIES) != NO_POLICY


_KINDS: Memo[Kinds] = Memo()


def kinds_of(view: Snapshot, asked: NumaRequirements) -> Kinds:
    """Return of what kinds the rows are; rows without a node may be of any."""
    alike = view.numa.survey.alike
    if alike is None:
        version = (view.usage_version, asked.policy)
        return _KINDS.as_of(view, version, _kinds_of, view, asked)
    bind, policy = alike
    return Kinds(len(view), bind * len(POLICIES) + (POLICIES.index(asked.policy) or policy))


def _kinds_of(view: Snapshot, asked: NumaRequirements) -> Kinds:
    numa, rows = view.numa, view.row_numbers
    binds, policies = numa.bind_policy.take(rows), numa.policy.take(rows)
    own = POLICIES.index(asked.policy)
    if own:
        policies = np.full_like(policies, own)
    # Bytes are compared: of a few rows that is the fastest.
    same = binds.tobytes() == binds[:1].tobytes() * len(rows) and (
        policies.tobytes() == policies[:1].tobytes() * len(rows)
    )
    if same and len(rows):
        return Kinds(len(rows), int(binds[0]) * len(POLICIES) + int(policies[0]))
    return Kinds(len(rows), None, binds.astype(np.int64), policies.astype(np.int64))


def _align_rows(
    settings: AlignmentSettings,
    view: Snapshot,
    pod: PodClass,
    asked: NumaRequirements,
    group: tuple[NumaRequest, NumaTopologyPolicy],
) -> AlignedScores:
    request, policy = group
    table, chosen = view.numa.arrays, view.row_numbers
    single = policy is NumaTopologyPolicy.SINGLE_NUMA_NODE
    sets = _sets(table.exists.shape[1], single=single)
    opinions = [provider.numa_hints(view, pod, sets) for provider in settings.providers]
    others = _together([opinion for opinion in opinions if opinion is not None])
    if view.is_large:
        prepared = asked.prepared(table, request, policy, (settings.zone_scorer, settings.scorer))
        return align_and_score(table, chosen, prepared, others)
    rows = table.select(chosen)
    fits = fits_of(rows, request, largest=1) if single else fits_of(rows, request)
    answer = align_rows(
        rows,
        request,
        fits,
        policy,
        settings.zone_scorer,
        exclusive=asked.exclusive,
        others=others,
    )
    scores = score_rows(rows, request, fits, answer, settings.scorer)
    return AlignedScores(answer.admitted, answer.zones, scores)


@cache
def _sets(zones: int, *, single: bool) -> tuple[int, ...]:
    """Return the sets of NUMA nodes to be compared."""
    every = subsets(tuple(range(zones)))
    return tuple(each for each in every if not single or each.bit_count() == 1)


def _together(opinions: Sequence[OtherHints]) -> OtherHints | None:
    if not opinions:
        return None
    first, *others = opinions
    for other in others:
        first = OtherHints(
            first.prefers & other.prefers, first.named | other.named, first.scores + other.scores
        )
    return first


# -- one row ---------------------------------------------------------------------------------


def request_at(row: int, view: Snapshot, asked: NumaRequirements) -> NumaRequest | None:
    """Return the request on one row of the cluster; None: it must not ask for parts of a CPU."""
    return asked.request(BIND_POLICIES[int(view.numa.bind_policy[row])])


def policy_at(row: int, view: Snapshot, asked: NumaRequirements) -> NumaTopologyPolicy:
    """Return the policy for the pod on one row of the cluster."""
    policy = policy_on(POLICIES[int(view.numa.policy[row])], asked.policy)
    return asked.policy if policy is None else policy


def kept_at(node: Snapshot) -> Reusable:
    """Return the free CPUs on the one row of a view that are kept for the pod."""
    kept = 0
    for hold in node.restored:
        kept |= hold.left.numa.cpus if hold.left.numa is not None else 0
    if not kept:
        return NOTHING
    held = node.numa.node(int(node.row_numbers[0]), pack=False).ledger.cpus.held
    return Reusable(preferred_cpus=kept & ~held)


@dataclass(frozen=True, slots=True)
class NumaPlacement:
    """The NUMA nodes that a pod comes from on one row (0: any of them)."""

    zones: int
    held: NumaAllocation | None = None  # what it gets of them, as far as that has been worked out


def align_at(
    settings: AlignmentSettings, view: Snapshot, place: int, pod: PodClass, asked: NumaRequirements
) -> NumaPlacement | tuple[str, ...]:
    """Return where a pod goes on one row of a view, or why nowhere."""
    row = int(view.row_numbers[place])
    request, policy = request_at(row, view, asked), policy_at(row, view, asked)
    if policy is NumaTopologyPolicy.NONE or request is None:
        return NumaPlacement(0)
    node: NumaNode = view.numa.node(row, pack=settings.pack)
    if not node.zones:
        return (MISSING_ZONES,)
    refusals, hints = list[str](), list[ResourceHints]()
    alone = view if len(view) == 1 else view[np.array([place])]
    trial = NumaTrial(node, request, kept_at(alone))
    for provider in settings.providers:
        offered = provider.numa_hints_at(alone, pod)
        if isinstance(offered, Refusal):
            refusals.append(offered.reason)
        else:
            hints.append(offered)
    if refusals:
        return tuple(refusals)
    # Larger sets than single ones matter to SingleNUMANode only when it tells what there is.
    single = policy is NumaTopologyPolicy.SINGLE_NUMA_NODE
    machine = node.machine_for(asked.exclusive)
    for largest in (1, len(node.zones)) if single else (len(node.zones),):
        own = resource_hints(trial, policy, settings.zone_scorer, largest=largest)
        answer = align(policy, [own, *hints], machine, asked.exclusive)
        if answer.admitted:
            held = trial.allocate(answer.zones)
            if isinstance(held, NumaShortage):
                return held.reasons
            return NumaPlacement(answer.zones or 0, held)
    return answer.reasons
