"""From which NUMA nodes a pod would get all that it takes: on many rows, and exactly on one."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from koordinator.api.annotations.numa import NumaTopologyPolicy
from koordinator.domain.numa.align import align
from koordinator.domain.numa.align_kernel import AlignedScores, align_and_score
from koordinator.domain.numa.hints import ResourceHints
from koordinator.domain.numa.masks import subsets
from koordinator.domain.numa.node import NumaNode
from koordinator.domain.numa.offer import MISSING_ZONES, resource_hints
from koordinator.domain.numa.policy import policy_on
from koordinator.domain.numa.request import NumaRequest
from koordinator.domain.numa.rows_align import OtherHints, align_rows, score_rows
from koordinator.domain.numa.rows_fit import fits_of
from koordinator.domain.numa.scoring import ZoneScorer
from koordinator.domain.numa.trial import NumaTrial, Shortage
from koordinator.scheduler.contract import NumaHintProvider
from koordinator.scheduler.plugins.node_numa_resource.asked import Asked
from koordinator.scheduler.snapshot import BoolArray, IntArray, PodClass, Snapshot
from koordinator.scheduler.snapshot.numa import BIND_POLICIES, POLICIES

SINGLE = POLICIES.index(NumaTopologyPolicy.SINGLE_NUMA_NODE)
RESTRICTED = POLICIES.index(NumaTopologyPolicy.RESTRICTED)


@dataclass(frozen=True, slots=True)
class Settings:
    """What the plugin's arguments and its profile say."""

    default_policy: str  # a CpuBindPolicy
    scorer: ZoneScorer  # of nodes
    zone_scorer: ZoneScorer  # of sets of NUMA nodes
    providers: Sequence[NumaHintProvider] = ()  # other plugins with a say about NUMA nodes

    @property
    def pack(self) -> bool:
        """Whether bound CPUs fill the fullest NUMA node first."""
        return self.zone_scorer.pack


@dataclass(frozen=True, slots=True)
class Aligned:
    """Of each row of a view: the NUMA nodes (0: any of them), and how full they would be.

    All rows are admitted to any where nothing is aligned before a node is chosen.
    """

    admitted: BoolArray
    zones: IntArray
    scores: IntArray


def align_view(settings: Settings, view: Snapshot, pod: PodClass, asked: Asked) -> Aligned:
    """Return the NUMA nodes for the pod on rows with the policy Restricted or SingleNUMANode."""
    numa, rows = view.numa, view.row_numbers
    admitted = np.ones(len(rows), bool)
    zones, scores = np.zeros(len(rows), np.int64), np.zeros(len(rows), np.int64)
    policies = policies_of(view, asked)
    strict = (policies == SINGLE) | (policies == RESTRICTED)
    if strict.any():
        kinds = np.where(strict, numa.bind_policy[rows] * len(POLICIES) + policies, -1)
        for kind in set(kinds[strict].tolist()):
            bind, policy = divmod(kind, len(POLICIES))
            request = asked.request(BIND_POLICIES[bind])
            where = np.flatnonzero(kinds == kind)
            if request is None:
                admitted[where] = False
                continue
            found = _align_rows(settings, view, pod, asked, (where, request, POLICIES[policy]))
            admitted[where], zones[where] = found.admitted, found.zones
            scores[where] = found.scores
        for place in np.flatnonzero(strict & numa.wide[rows]).tolist():
            at = align_at(settings, view, place, pod, asked)
            admitted[place] = isinstance(at, int)
            zones[place] = at if isinstance(at, int) else 0
    return Aligned(admitted, zones, scores)


def policies_of(view: Snapshot, asked: Asked) -> IntArray:
    """Return the policy for the pod on each row, by number; that of the pod if both have one."""
    of_nodes = view.numa.policy[view.row_numbers].astype(np.int64)
    own = POLICIES.index(asked.policy)
    return np.full_like(of_nodes, own) if own else of_nodes


def _align_rows(
    settings: Settings,
    view: Snapshot,
    pod: PodClass,
    asked: Asked,
    group: tuple[IntArray, NumaRequest, NumaTopologyPolicy],
) -> AlignedScores:
    where, request, policy = group
    table, chosen = view.numa.arrays, view.row_numbers[where]
    single = policy is NumaTopologyPolicy.SINGLE_NUMA_NODE
    among = tuple(range(table.exists.shape[1]))
    sets = [each for each in subsets(among) if not single or each.bit_count() == 1]
    part = view[where] if len(where) < len(view) else view
    opinions = [provider.numa_hints(part, pod, sets) for provider in settings.providers]
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


def request_at(row: int, view: Snapshot, asked: Asked) -> NumaRequest | None:
    """Return the request on one row of the cluster; None: it must not ask for parts of a CPU."""
    return asked.request(BIND_POLICIES[int(view.numa.bind_policy[row])])


def policy_at(row: int, view: Snapshot, asked: Asked) -> NumaTopologyPolicy:
    """Return the policy for the pod on one row of the cluster."""
    policy = policy_on(POLICIES[int(view.numa.policy[row])], asked.policy)
    return asked.policy if policy is None else policy


def align_at(
    settings: Settings, view: Snapshot, place: int, pod: PodClass, asked: Asked
) -> int | tuple[str, ...]:
    """Return the NUMA nodes on one row of a view (0: any of them), or why there are none."""
    row = int(view.row_numbers[place])
    request, policy = request_at(row, view, asked), policy_at(row, view, asked)
    if policy is NumaTopologyPolicy.NONE or request is None:
        return 0
    node: NumaNode = view.numa.node(row, pack=settings.pack)
    if not node.zones:
        return (MISSING_ZONES,)
    trial = NumaTrial(node, request)
    hints: list[ResourceHints] = [resource_hints(trial, policy, settings.zone_scorer)]
    refusals = []
    for provider in settings.providers:
        offered = provider.numa_hints_at(view[np.array([place])], pod)
        if isinstance(offered, str):
            refusals.append(offered)
        else:
            hints.append(offered)
    if refusals:
        return tuple(refusals)
    answer = align(policy, hints, node.machine, asked.exclusive)
    if not answer.admitted:
        return answer.reasons
    held = trial.allocate(answer.zones)
    return held.reasons if isinstance(held, Shortage) else answer.zones or 0
