"""Placement of gangs with requirements on the network topology.

The plugins return how many members fit on each node; the planner (``domain.network``) chooses the
domain.  The members get the nodes of the plan in the order of their ranks.  As for other gangs only
the in-memory state changes, completely or not at all.
"""

from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import field, replace

import numpy as np

from koordinator.api.annotations.gang import NETWORK_TOPOLOGY_SELECTOR, GatherStrategy
from koordinator.api.pod import Pod
from koordinator.domain.gangs import GangAttempt, GangCache
from koordinator.domain.network import GatherRules, rank_key, rules_of
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.binding import Binder
from koordinator.scheduler.cycle import NominatedPods, SchedulingCycle, Scorecard, priority_of
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.features.gangs.placement import (
    GangDecision,
    GangGroupAttempt,
    GangPlacer,
    LostGang,
    Wanted,
)
from koordinator.scheduler.features.gangs.topology_job import (
    GATHERS,
    JobPlacer,
    Kind,
    NearbyPods,
    refused,
)
from koordinator.scheduler.snapshot import ClusterState, PodClass

NO_TOPOLOGY = "no cluster network topology"


@dataclass(frozen=True, slots=True)
class TopologyDemand:
    """Network demand of a gang group; ``refusal`` is why it cannot be satisfied at all."""

    rules: Mapping[str, GatherRules] = field(default_factory=dict)  # by gang id
    refusal: str = ""

    def without_multiples(self) -> "TopologyDemand":
        """Return the demand on the node of a single member."""
        rules = {gang: GatherRules(one.must) for gang, one in self.rules.items()}
        return replace(self, rules=rules)

    @property
    def must(self) -> int:
        """Level of the domain that all members must share."""
        return max((rules.must for rules in self.rules.values()), default=0)


class TopologyPlacer:
    """Placement of gangs with a network topology spec."""

    def __init__(
        self,
        state: ClusterState,
        binder: Binder,
        placer: GangPlacer,
        card: Callable[[SchedulingCycle, PodClass], Scorecard | None],
    ) -> None:
        self._state, self._binder, self._placer, self._card = state, binder, placer, card

    def demand(self, gangs: GangCache, pod: Pod) -> TopologyDemand | None:
        """Return the mandatory network demand of a member's group; None without one.

        A group that only prefers proximity does not wait for a topology.
        """
        specs = gangs.networks(pod)
        if not specs:
            return None
        network = self._state.network
        if network.tree is None:
            has_to = any(
                rule.strategy == GatherStrategy.MUST_GATHER or rule.pod_count_multiple > 1
                for spec in specs.values()
                for rule in spec.gather_strategy
            )
            why = f"{NO_TOPOLOGY}: {network.warning}" if network.warning else NO_TOPOLOGY
            return TopologyDemand(refusal=why) if has_to else None
        try:
            names = network.tree.layer_names
            return TopologyDemand({gang: rules_of(spec, names) for gang, spec in specs.items()})
        except InputError as error:
            return TopologyDemand(refusal=str(error))

    def version(self, demand: TopologyDemand) -> Hashable:
        """Return the version of the network."""
        return demand.refusal, self._state.network.generation

    def surroundings(
        self, gangs: GangCache, members: Sequence[Wanted], nominated: NominatedPods
    ) -> NearbyPods:
        """Return placed and nominated members by row, and pods to be near to."""
        count, rows = len(self._state.nodes), self._state.nodes.rows
        by_key = self._state.pods.by_key
        own: dict[str, IntArray] = {}
        for key, gang in gangs.with_places(members[0][0].pod).items():
            placed = by_key.get(key)
            if placed is not None:
                own.setdefault(gang, np.zeros(count, np.int64))[placed.row] += 1
        existing = sum(own.values(), np.zeros(count, np.int64))
        near = existing.copy()
        keys = {queued.key for queued, _ in members}
        for node, pods in nominated.items():
            if node in rows:
                near[rows[node]] += sum(pod.key in keys for pod, _ in pods)
        selector = members[0][1].annotations.get(NETWORK_TOPOLOGY_SELECTOR, "")
        for placed in by_key.values() if selector else ():
            if placed.pod_class.annotations.get(NETWORK_TOPOLOGY_SELECTOR) == selector:
                near[placed.row] += 1
        return NearbyPods(existing, own, near)

    def place(
        self,
        cycle: SchedulingCycle,
        gangs: GangCache,
        group_attempt: GangGroupAttempt,
        members: Sequence[Wanted],
        demand: TopologyDemand,
        *,
        nominated: NominatedPods,
        merges: bool,
    ) -> GangDecision:
        """Assume the members on nodes of one domain, or none.

        If not all fit, assume as many of the first ranks as may start without the rest.
        """
        attempt, tree = group_attempt.attempt, self._state.network.tree
        own_keys = {queued.key for queued, _ in members}
        missing = [key for key in attempt.members if key not in own_keys]
        if attempt.is_lost(missing):
            return GangDecision(others=[queued for queued, _ in members], is_lost=True)
        if tree is None or demand.refusal:
            fit = cycle.diagnose(group_attempt.head.pod, _head(group_attempt, members)[1], {})
            return _failed_decision(
                group_attempt, members, refused(fit, demand.refusal or NO_TOPOLOGY)
            )
        around = self.surroundings(gangs, members, nominated)
        others = {
            node: [n for n in pods if n[0].key not in own_keys] for node, pods in nominated.items()
        }
        nominated_pods = {node: pods for node, pods in others.items() if pods}
        job = JobPlacer(
            self._binder, cycle, tree, around, nominated_pods, card=self._card, merges=merges
        )
        gang_order = {gang: place for place, gang in enumerate(attempt.members.values())}
        ranked = sorted(
            members,
            key=lambda one: (
                gang_order[attempt.members[one[0].key]],
                rank_key(one[0].pod.metadata),
            ),
        )
        kinds = _kinds(cycle, attempt, demand, ranked)
        needed = _needed(attempt, ranked, missing)
        # All members first, then the first ranks that may start without the rest: a gang that
        # fits as a whole is never split.
        for chosen in _choices(job, kinds, ranked, needed):
            is_all = len(chosen) == len(ranked)
            placed = job.place(kinds if is_all else _kinds(cycle, attempt, demand, chosen))
            if placed is None and attempt.is_alone:
                # A member that is added to a started gang completes no multiple by itself.
                placed = job.place(_kinds(cycle, attempt, demand.without_multiples(), chosen))
            if placed is not None:
                done = {assumed.queued.key for assumed in placed}
                decision = GangDecision(placed=placed)
                left = [one for one in ranked if one[0].key not in done]
                if left:
                    verdict = job.why_not(_kinds(cycle, attempt, demand, left))
                    decision.failed += [(*one, verdict) for one in left]
                return decision
        verdict = job.why_not(kinds)
        # For members of one kind, the headroom alone determines when a retry can succeed.
        if len(kinds) == 1 and not attempt.is_alone and verdict.refused_by == GATHERS:
            is_short = job.most(kinds[0]) < len(needed)
            if is_short and job.note_headroom(kinds[0]):
                pod_class, count = kinds[0].first[1], len(needed)
                below = max(priority_of(queued.pod) for queued, _ in members)
                lost = LostGang(
                    group_attempt.version, count, pod_class, verdict, below, demand.must
                )
                self._placer.remember(group_attempt, lost)
        return _failed_decision(group_attempt, members, verdict)


def _failed_decision(
    group_attempt: GangGroupAttempt, members: Sequence[Wanted], verdict: Diagnosis
) -> GangDecision:
    others = [queued for queued, _ in members if queued is not group_attempt.head]
    return GangDecision(
        failed=[(*_head(group_attempt, members), verdict)], others=others, is_lost=True
    )


def _head(group_attempt: GangGroupAttempt, members: Sequence[Wanted]) -> Wanted:
    return next(one for one in members if one[0] is group_attempt.head)


def _kinds(
    cycle: SchedulingCycle, attempt: GangAttempt, demand: TopologyDemand, ranked: Sequence[Wanted]
) -> list[Kind]:
    """Group the members by gang and by properties that plugins distinguish."""
    by_kind: dict[tuple[str, Hashable], list[Wanted]] = {}
    for one in ranked:
        by_kind.setdefault((attempt.members[one[0].key], cycle.kind_key(one[1])), []).append(one)
    kinds = Counter(gang for gang, _ in by_kind)
    nothing = GatherRules()
    return [
        Kind(
            gang,
            members,
            GatherRules(demand.must, demand.rules.get(gang, nothing).multiples),
            is_whole=kinds[gang] == 1,
        )
        for (gang, _), members in by_kind.items()
    ]


def _needed(
    attempt: GangAttempt, ranked: Sequence[Wanted], missing: Sequence[str]
) -> Sequence[Wanted]:
    """Return the members without the last ranks of each gang that may stay unplaced."""
    spare = Counter(attempt.spare)
    spare.subtract(attempt.members[key] for key in missing)
    if max(spare.values(), default=0) <= 0:
        return ranked
    kept: list[Wanted] = []
    for one in reversed(ranked):
        gang = attempt.members[one[0].key]
        if spare[gang] > 0:
            spare[gang] -= 1
        else:
            kept.append(one)
    return kept[::-1]


def _choices(
    job: JobPlacer, kinds: Sequence[Kind], ranked: Sequence[Wanted], needed: Sequence[Wanted]
) -> Iterator[Sequence[Wanted]]:
    """Yield the sets of members to try: all, as many as one domain fits, the fewest needed."""
    yield ranked
    most = job.most(kinds[0]) if len(kinds) == 1 and len(needed) < len(ranked) else 0
    if len(needed) < most < len(ranked):
        yield ranked[:most]
    if 0 < len(needed) < len(ranked):
        yield needed
