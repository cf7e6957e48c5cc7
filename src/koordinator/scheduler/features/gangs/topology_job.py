"""Placement of one job on nodes that are near to each other, in the in-memory state.

Members of several kinds (gangs of a group, shapes of pods) go to one domain too: kind by kind, the
ones with the fewest candidate nodes first, each next to the kinds before.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from koordinator.domain.network import (
    OUTSIDE,
    DomainPlan,
    GatherRules,
    NetworkTree,
    OfferSlots,
    Planner,
    plan,
    shortage,
)
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.binding import Assumed, Binder
from koordinator.scheduler.cycle import NodeChoice, NominatedPods, SchedulingCycle, Scorecard
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.features.gangs.placement import Wanted
from koordinator.scheduler.snapshot import PodClass

GATHERS = "Coscheduling"  # plugin name in verdicts
#: Domains tried for members of several kinds, among those large enough for all.
MOST_DOMAINS = 128
MOST_PLANS = 16  # plans tried when nodes fit fewer members than they offered


@dataclass(frozen=True, slots=True)
class NearbyPods:
    """Number of relevant pods by row, ``(n_rows,)`` each."""

    existing: IntArray  # placed members of the group
    own: Mapping[str, IntArray]  # placed members by gang id
    near: IntArray  # pods that the job prefers to be near to

    def with_more(self, members: Iterable[tuple[str, int]]) -> "NearbyPods":
        """Return the surroundings after placing members, given as (gang id, row)."""
        rows_of: dict[str, list[int]] = defaultdict(list)
        for gang, row in members:
            rows_of[gang].append(row)
        more = {
            gang: np.bincount(rows, minlength=len(self.existing)) for gang, rows in rows_of.items()
        }
        all_of_them = sum(more.values(), np.zeros_like(self.existing))
        nothing = np.zeros_like(self.existing)
        own = {gang: self.own.get(gang, nothing) + rows for gang, rows in more.items()}
        return NearbyPods(self.existing + all_of_them, {**self.own, **own}, self.near + all_of_them)


@dataclass(frozen=True, slots=True)
class Kind:
    """Members of one gang that no plugin distinguishes, by rank."""

    gang: str
    members: Sequence[Wanted]
    rules: GatherRules  # of the gang
    is_whole: bool  # the gang has no other kinds

    @property
    def first(self) -> Wanted:
        """First member, as a sample of the kind."""
        return self.members[0]


class JobPlacer:
    """Placement of one job, with results cached for a second attempt with fewer members."""

    def __init__(
        self,
        binder: Binder,
        cycle: SchedulingCycle,
        tree: NetworkTree,
        around: NearbyPods,
        nominated: NominatedPods,
        *,
        card: Callable[[SchedulingCycle, PodClass], Scorecard | None],
        merges: bool,
    ) -> None:
        self._state, self._binder, self._cycle, self._tree = cycle.state, binder, cycle, tree
        self._around, self._nominated = around, nominated
        self._card, self._merges = card, merges
        self._slots: dict[str, IntArray] = {}  # by key of the first member
        self._refusal: Diagnosis | None = None  # refusal of a member on any node, e.g. a full quota

    # -- capacity ----------------------------------------------------------------------------

    def slots(self, kind: Kind) -> IntArray:
        """Return how many members of the kind fit on each node before the job is placed."""
        queued, pod_class = kind.first
        known = self._slots.get(queued.key)
        if known is None:
            known = self._cycle.offers(
                queued.pod, pod_class, self._nominated, most=len(kind.members)
            )
            self._slots[queued.key] = known
        return np.minimum(known, len(kind.members))

    def planner(self, kind: Kind) -> Planner:
        """Return the headroom of domains for this kind alone; multiples apply to whole gangs."""
        rules = kind.rules if kind.is_whole else GatherRules(kind.rules.must)
        return Planner(self._tree, rules, self._offer(kind, self.slots(kind)))

    def most(self, kind: Kind) -> int:
        """Return how many members of the kind fit in one domain, ignoring multiples."""
        rules = GatherRules(kind.rules.must)
        headroom = Planner(self._tree, rules, self._offer(kind, self.slots(kind))).best_headroom()
        return min(headroom, self._cycle.limit(kind.first[1], len(kind.members)))

    def note_headroom(self, kind: Kind) -> bool:
        """Cache the headroom of nodes for other jobs; return whether it stays valid."""
        slots, pod_class = self.slots(kind), kind.first[1]
        if self._nominated or not self._cycle.takes_amounts_only(pod_class):
            return False
        if int(slots.max(initial=0)) < len(kind.members):  # otherwise a node may fit more
            self._cycle.note_headroom(pod_class, slots)
        return True

    def _offer(self, kind: Kind, slots: IntArray, around: NearbyPods | None = None) -> OfferSlots:
        around = around or self._around
        nothing = np.zeros_like(slots)
        return OfferSlots(
            slots, self._around.existing, around.own.get(kind.gang, nothing), around.near, nothing
        )

    # -- placement ---------------------------------------------------------------------------

    def place(self, kinds: Sequence[Kind]) -> list[Assumed] | None:
        """Assume all members on nodes of one domain, or none."""
        self._refusal = None
        alike = len(kinds) == 1
        placed = self._place_alike(kinds[0]) if alike else self._place_kinds(kinds)
        if placed is not None:
            rows = {assumed.queued.key: assumed.placed.row for assumed in placed}
            self._slots.clear()
            self._around = self._around.with_more(
                [(kind.gang, rows[queued.key]) for kind in kinds for queued, _ in kind.members]
            )
        return placed

    def _place_alike(self, kind: Kind) -> list[Assumed] | None:
        slots = self.slots(kind).copy()
        for _ in range(MOST_PLANS):
            offer = self._offer(kind, slots)
            domain_plan = plan(self._tree, kind.rules, offer, len(kind.members))
            if domain_plan is None:
                return None
            placed = self._assume(kind, domain_plan, slots)
            if len(placed) == len(kind.members):
                return placed
            self._unreserve(placed)
            if self._refusal is not None:
                return None
        return None

    def _place_kinds(self, kinds: Sequence[Kind]) -> list[Assumed] | None:
        """Try the domains with room for each kind alone, best fit of the largest kind first."""
        planners = {id(kind): self.planner(kind) for kind in kinds}
        largest = max(kinds, key=lambda kind: len(kind.members))
        order = sorted(
            kinds, key=lambda kind: int(self.slots(kind).sum())
        )  # fewest candidates first
        tried = 0
        for level, domains in planners[id(largest)].candidates(len(largest.members)):
            for domain in domains[self._have_amounts(kinds, level)[domains]].tolist():
                if any(planners[id(k)].headroom[level][domain] < len(k.members) for k in kinds):
                    continue
                if tried == MOST_DOMAINS:
                    return None
                tried += 1
                for _ in kinds:
                    placed, failed = self._fill(order, level, domain)
                    if failed is None:
                        return placed
                    if self._refusal is not None:
                        return None
                    order.remove(failed)  # other kinds may have taken the only nodes that fit it
                    order.insert(0, failed)
        return None

    def _have_amounts(self, kinds: Sequence[Kind], level: int) -> BoolArray:
        """Return ``(n_domains,)``: free amounts cover the requests of all members.

        Return True everywhere if members may use reserved amounts, which the sums do not show.
        """
        each = [len(kind.members) * self._cycle.requests(kind.first[1]) for kind in kinds]
        wanted: IntArray = np.sum(each, axis=0)
        nodes, count = self._state.nodes, len(self._state.nodes)
        of_row = self._tree.of_row(level, count)
        inside = np.flatnonzero(of_row != OUTSIDE)
        enough = np.ones(int(of_row.max(initial=-1)) + 1, bool)
        if any(self._cycle.bound(kind.first[1]) is None for kind in kinds):
            return enough
        for column in np.flatnonzero(wanted).tolist():
            free = nodes.allocatable[column, inside] - nodes.requested[column, inside]
            sums = np.zeros(len(enough), np.int64)
            np.add.at(sums, of_row[inside], np.maximum(free, 0))
            enough &= sums >= wanted[column]
        return enough

    def _fill(
        self, kinds: Sequence[Kind], level: int, domain: int
    ) -> tuple[list[Assumed], Kind | None]:
        """Place kind by kind in one domain; return the kind that does not fit."""
        depth = self._tree.depth
        of_row = self._tree.domains(len(self._state.nodes))
        inside = np.flatnonzero(of_row[level] == domain) if level < depth else np.array([domain])
        done: list[Assumed] = []
        around = self._around
        for index, kind in enumerate(kinds):
            queued, pod_class = kind.first
            slots = self._cycle.offers(
                queued.pod, pod_class, self._nominated, most=len(kind.members), rows=inside
            )
            goes_on = any(later.gang == kind.gang for later in kinds[index + 1 :])
            rules = GatherRules(kind.rules.must) if goes_on else kind.rules
            planner = Planner(self._tree, rules, self._offer(kind, slots, around))
            shares = planner.shares(level, domain, len(kind.members))
            domain_plan = None if shares is None else DomainPlan(level, domain, shares)
            placed = [] if domain_plan is None else self._assume(kind, domain_plan, slots)
            done += placed
            around = around.with_more([(kind.gang, assumed.placed.row) for assumed in placed])
            if len(placed) < len(kind.members) or (
                index == len(kinds) - 1 and not self._keeps_multiples(kinds, around)
            ):
                self._unreserve(done)
                return [], kind
        return done, None

    def _keeps_multiples(self, kinds: Sequence[Kind], after: NearbyPods) -> bool:
        """Return whether all domains keep their multiples after kinds placed before."""
        of_row = self._tree.domains(len(self._state.nodes))
        for kind in kinds:
            own, before = after.own[kind.gang], self._around.own.get(kind.gang)
            taken = own if before is None else own - before
            for level, multiple in kind.rules.multiples.items():
                rows = np.arange(len(own)) if level == self._tree.depth else of_row[level]
                touched = np.unique(rows[taken > 0])
                counts = [int(own[rows == domain].sum()) for domain in touched.tolist()]
                if len(counts) > 1 and any(count % multiple for count in counts):
                    return False
        return True

    def _assume(self, kind: Kind, domain_plan: DomainPlan, slots: IntArray) -> list[Assumed]:
        """Assume the members on the rows of the plan; stop at the first refusal.

        ``slots`` of the refusing row is set to the number of its members.
        """
        rows, cycle = domain_plan.rows, self._cycle
        placed: list[Assumed] = []
        if self._merges and cycle.takes_amounts_only(kind.first[1]):
            most = cycle.limit(kind.first[1], len(rows))
            queued_pods = [queued for queued, _ in kind.members[:most]]
            classes = [pod_class for _, pod_class in kind.members[:most]]
            placed = self._binder.assume_run(queued_pods, classes, rows[:most]) if most else []
            if most < len(rows):
                self._refuse(kind.members[most])
            return placed
        for (queued, pod_class), row in zip(kind.members, rows.tolist(), strict=True):
            if cycle.is_refused(pod_class):
                self._refuse((queued, pod_class))
                break
            choice = cycle.choose_on(queued.pod, pod_class, row)
            if not isinstance(choice, NodeChoice):
                slots[row] = sum(other.placed.row == row for other in placed)
                break
            card = self._card(cycle, pod_class)
            assumed = self._binder.assume(queued, pod_class, choice)
            assumed.scorecard = card
            placed.append(assumed)
        return placed

    def _refuse(self, member: Wanted) -> None:
        """Record why a member is refused on every node with the previous ones placed."""
        queued, pod_class = member
        self._refusal = self._cycle.diagnose(queued.pod, pod_class, {})

    def _unreserve(self, placed: Sequence[Assumed]) -> None:
        for assumed in reversed(placed):
            self._binder.forget(assumed)

    # -- reasons -----------------------------------------------------------------------------

    def why_not(self, kinds: Sequence[Kind]) -> Diagnosis:
        """Return why the job does not fit: the verdict on the kind with the largest shortfall."""
        if self._refusal is not None:
            return self._refusal
        planners = [self.planner(kind) for kind in kinds]
        kind, planner = min(
            zip(kinds, planners, strict=True),
            key=lambda one: one[1].best_headroom() - len(one[0].members),
        )
        count, pod_class = len(kind.members), kind.first[1]
        if self._cycle.takes_amounts_only(pod_class):
            fit = self._cycle.diagnose_full(pod_class, self.slots(kind))
        else:
            fit = self._cycle.diagnose(kind.first[0].pod, pod_class, self._nominated)
            possible = fit.behind | {active.name for active in self._cycle.profile.filter}
            fit = replace(fit, behind=possible)  # the filters did not run for the second member
        if fit.refused_by:
            return fit
        text = shortage(planner, count, fit.message())
        others = sum(len(one.members) for one in kinds) - count
        if others:
            text += f", besides {others} other members of the job"
        return refused(fit, text)


def refused(fit: Diagnosis, why: str) -> Diagnosis:
    """Return the verdict that no domain fits, as a refusal on all nodes."""
    return replace(fit, refused_by=GATHERS, refusal=why, counts={}, behind=fit.behind | fit.plugins)
