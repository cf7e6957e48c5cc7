"""The node of one pod: filter, score, choose, reserve."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from msgspec import Struct

from koordinator.api.pod import Pod
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.errors import ExtenderError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    EXTENDER,
    NOTHING,
    ActivePlugin,
    AllocationResult,
    Profile,
    Refusal,
    SchedulerExtender,
    Spread,
)
from koordinator.scheduler.cycle.evaluation import (
    Evaluation,
    EvaluationKey,
    Evaluator,
    NominatedPods,
    nominated_pods_with_priority,
)
from koordinator.scheduler.cycle.extenders import ExtenderChain
from koordinator.scheduler.cycle.program import Program, reading_cluster
from koordinator.scheduler.cycle.reserve import reserve
from koordinator.scheduler.cycle.score_table import UNFIT, best_row, best_spread, spread_onto
from koordinator.scheduler.cycle.scorecard import prefilter
from koordinator.scheduler.cycle.what_if import StateWhatIf, rejection
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot


class NodeChoice(Struct, frozen=True):  # a struct: one is made per pod
    """Chosen node of a pod, and its allocation there besides its requests."""

    row: int
    node: str
    allocation: AllocationResult
    profile: Profile  # of the plugins that apply to the pod


@dataclass(frozen=True, slots=True)
class ReserveRefusal:
    """A node was chosen, but a reserve plugin could not allocate the pod's request on it."""

    plugin: str
    reason: str


@dataclass(frozen=True, slots=True)
class ApplicablePlugins:
    """The plugins that apply to a class of pods."""

    profile: Profile
    cluster_filters: tuple[ActivePlugin, ...]
    cluster_scores: tuple[ActivePlugin, ...]

    @classmethod
    def with_pod(cls, profile: Profile, pod: PodClass) -> "ApplicablePlugins":
        profile = profile.applicable_plugins(pod)
        return cls(profile, reading_cluster(profile.filter), reading_cluster(profile.score))


def preferred_rows(profile: Profile, snapshot: Snapshot, pod_class: PodClass) -> list[int]:
    """Return the rows to try first, in order."""
    return [
        row
        for active in profile.prefer_nodes
        for row in active.plugin.prefer_nodes(snapshot, pod_class)
    ]


class NodeChooser:
    """Decisions about single pods."""

    def __init__(
        self, profile: Profile, state: ClusterState, extenders: Sequence[SchedulerExtender] = ()
    ) -> None:
        self.profile = profile
        self.state = state
        self.extenders = ExtenderChain(state, extenders)
        self._evaluator = Evaluator(profile, state)
        self._plugins: Memo[ApplicablePlugins] = Memo()  # per pod class
        self._mask: BoolArray | None = None  # rows that ``restricted_to`` allows; None: all
        #: plugins that update their state from arriving pods
        self._learning = [a for a in profile.score if "on_arrival" in a.has]

    def applicable_plugins(self, pod: PodClass) -> Profile:
        """Return the profile with the plugins that apply to pods of a class."""
        return self._applicable(pod).profile

    def _applicable(self, pod: PodClass) -> ApplicablePlugins:
        return self._plugins.of(pod, ApplicablePlugins.with_pod, self.profile, pod)

    @contextmanager
    def restricted_to(self, mask: BoolArray) -> Iterator[None]:
        """Restrict decisions to the nodes of ``mask``, ``(n_rows,)``, within the context."""
        before, self._mask = self._mask, mask
        try:
            yield
        finally:
            self._mask = before

    @property
    def is_restricted(self) -> bool:
        """Whether only some of the nodes count now."""
        return self._mask is not None

    def choose(
        self,
        pod: Pod,
        pod_class: PodClass,
        nominated: NominatedPods,
        *,
        nominated_node: str = "",
        first_attempt: bool = True,
        avoided: Collection[int] = (),
    ) -> NodeChoice | ReserveRefusal | None:
        """Return the best node and the allocation there.

        Where a plugin cannot reserve on the best node, the next best is tried; if none is left, the
        first reason is returned.  None if no node fits.  The pod's own ``nominated_node`` comes
        before better ones; ``avoided`` rows are skipped.  Of equally scored nodes the one with the
        lowest rank is chosen (row order by default).  Raises ExtenderError.
        """
        snapshot = self._evaluator.view(pod_class)
        known = self._evaluator.program(pod_class, snapshot)
        for active in known[0].pre_filter:
            if isinstance(active.plugin.prefilter(snapshot, pod_class), Refusal):
                return None
        for active in self._learning if first_attempt else ():
            active.plugin.on_arrival(snapshot, pod_class)
        refused: dict[int, ReserveRefusal | None] = dict.fromkeys(avoided)
        own = self.state.nodes.rows.get(nominated_node)
        views = (snapshot, known)
        for row in self._candidates(pod, pod_class, nominated, views, own=own, refused=refused):
            if row in refused:
                continue
            reserved = self._reserve(snapshot, pod_class, row, known[0])
            if isinstance(reserved, NodeChoice):
                return reserved
            refused[row] = reserved
        return next((why for why in refused.values() if why is not None), None)

    def _candidates(
        self,
        pod: Pod,
        pod_class: PodClass,
        nominated: NominatedPods,
        views: tuple[Snapshot, tuple[Program, EvaluationKey]],  # of the pod
        *,
        own: int | None,
        refused: Iterable[int],
    ) -> Iterator[int]:
        """Yield the rows that every filter accepts, in the order in which they are to be tried.

        First a planned one and its ``own``, to which it is nominated, then always the best that is
        not among the ``refused``, to which the caller adds.
        """
        snapshot, known = views
        program = known[0]
        extended = bool(self.extenders.members) and self.extenders.concerns(pod_class)
        planned = self._planned(snapshot, pod_class) if self.profile.find_one_node else None
        if self._is_masked(planned):
            planned = None
        if planned is not None and (not extended or self._extenders_accept(pod, planned)):
            yield planned
        if (
            own is not None
            and not self._is_masked(own)
            and self._is_free(own, pod, pod_class, nominated)
            and (not extended or self._extenders_accept(pod, own))
        ):
            yield own
        evaluation = self._evaluator.of(pod_class, snapshot, known)
        filters = program.cluster_filters
        feasible = self._feasible(filters, evaluation, snapshot, pod_class)
        if self._mask is not None:
            feasible = self._mask & (evaluation.totals != UNFIT if feasible is None else feasible)
        if nominated:
            feasible = self._filter_with_nominated_pods(
                feasible, evaluation.totals, pod, pod_class, nominated
            )
        if extended:
            feasible = evaluation.totals != UNFIT if feasible is None else feasible
            feasible = self.extenders.accepted(pod, feasible)
        extended_pod = pod if extended else None
        while True:
            if skipped := [*refused]:
                feasible = np.array(evaluation.totals != UNFIT if feasible is None else feasible)
                feasible[skipped] = False
            row = self._best(
                program, evaluation, snapshot, pod_class, feasible, extended=extended_pod
            )
            if row is None:
                return
            yield row

    def _is_masked(self, row: int | None) -> bool:
        """Return whether a row does not count now."""
        return row is not None and self._mask is not None and not self._mask[row]

    def _is_free(self, row: int, pod: Pod, pod_class: PodClass, nominated: NominatedPods) -> bool:
        what_if = StateWhatIf(
            self.profile, self.state, nominated_pods_with_priority(pod, nominated)
        )
        return not what_if.why_not(pod_class, row, ())

    def _extenders_accept(self, pod: Pod, row: int) -> bool:
        """Return whether extenders accept the pod on a row."""
        mask = np.zeros(len(self.state.nodes), bool)
        mask[row] = True
        return bool(self.extenders.accepted(pod, mask)[row])

    def _planned(self, snapshot: Snapshot, pod_class: PodClass) -> int | None:
        """Return the row that a plugin has planned for the pod, if every filter accepts it."""
        for active in self.profile.find_one_node:
            row: int | None = active.plugin.find_one_node(snapshot, pod_class)
            if row is not None and not rejection(self.profile, self.state, pod_class, row)[0]:
                return row
        return None

    def _feasible(
        self,
        filters: Sequence[ActivePlugin],
        evaluation: Evaluation,
        snapshot: Snapshot,
        pod_class: PodClass,
    ) -> BoolArray | None:
        """Return ``(n,)`` where the pod fits; None if no cluster-wide filter applies."""
        feasible: BoolArray | None = None
        for active in filters:
            if active.hints.filters(snapshot, pod_class):
                accepted = active.plugin.filter(snapshot, pod_class).codes == 0
                feasible = accepted if feasible is None else feasible & accepted
        if feasible is not None:
            feasible &= evaluation.totals != UNFIT
        return feasible

    def _filter_with_nominated_pods(
        self,
        feasible: BoolArray | None,
        totals: IntArray,
        pod: Pod,
        pod_class: PodClass,
        nominated: NominatedPods,
    ) -> BoolArray | None:
        """Return where the pod fits beside those that are nominated and at least as important."""
        nominated_pods = nominated_pods_with_priority(pod, nominated)
        if nominated_pods:
            feasible = totals != UNFIT if feasible is None else feasible
            what_if = StateWhatIf(self.profile, self.state, nominated_pods)
            for node in nominated_pods:
                row = self.state.nodes.rows.get(node)
                if row is not None and feasible[row]:
                    feasible[row] = not what_if.why_not(pod_class, row, ())
        return feasible

    def _best(
        self,
        program: Program,
        evaluation: Evaluation,
        snapshot: Snapshot,
        pod_class: PodClass,
        feasible: BoolArray | None,
        *,
        extended: Pod | None,
    ) -> int | None:
        """Return the best row; for ``extended``, a pod, extenders add to the scores."""
        scorers = [
            active for active in program.cluster_scores if active.hints.scores(snapshot, pod_class)
        ]
        totals, preferred = evaluation.totals, preferred_rows(program.profile, snapshot, pod_class)
        if not scorers and not preferred and extended is None:
            return self._best_locally(evaluation, snapshot, feasible)
        rows = np.flatnonzero(totals != UNFIT if feasible is None else feasible)
        if len(rows) <= 1:
            return int(rows[0]) if len(rows) else None
        fitting = set(rows.tolist()) if preferred else ()
        for row in preferred:
            if row in fitting:
                return row
        total = self._with_relative(evaluation, rows)
        for active in scorers:
            total = total + self._cluster_score(active, snapshot, pod_class, rows)
        if extended is not None:
            total = total + self.extenders.scores(extended, rows)
        return self._lowest_rank(rows[total == total.max()])

    def _best_locally(
        self, evaluation: Evaluation, snapshot: Snapshot, feasible: BoolArray | None
    ) -> int | None:
        """Return the best row by the scores of the evaluation alone."""
        totals = evaluation.totals
        if feasible is None and all(evaluation.flat):
            return self._highest(totals)
        if snapshot.uses_kernels and evaluation.spreads:
            return self._best_of_many(evaluation, totals, feasible)
        rows = np.flatnonzero(totals != UNFIT if feasible is None else feasible)
        if len(rows) <= 1:
            return int(rows[0]) if len(rows) else None
        total = self._with_relative(evaluation, rows)
        return self._lowest_rank(rows[total == total.max()])

    @staticmethod
    def _with_relative(evaluation: Evaluation, rows: IntArray) -> IntArray:
        """Return the totals of the feasible rows, relative scores included."""
        total = evaluation.totals[rows]
        for part, raw, flat in zip(
            evaluation.program.relative, evaluation.raw, evaluation.flat, strict=True
        ):
            if not flat:
                total = total + part.active.weight * part.active.plugin.normalize(raw[rows])
        return total

    def _highest(self, total: IntArray) -> int | None:
        row = int(total.argmax()) if len(total) else 0
        if not len(total) or total[row] == UNFIT:
            return None
        ranked = self.state.ranked
        return self._lowest_rank(np.flatnonzero(total == total[row])) if ranked else row

    def _best_of_many(
        self, evaluation: Evaluation, total: IntArray, feasible: BoolArray | None
    ) -> int | None:
        if feasible is not None:
            total = np.where(feasible, total, UNFIT)
        rank = self.state.nodes.rank
        spreads = [
            (raw, part.active.weight, part.active.hints.spread is Spread.LOWEST)
            for part, raw, flat in zip(
                evaluation.program.relative, evaluation.raw, evaluation.flat, strict=True
            )
            if not flat
        ]
        for raw, weight, reverse in spreads[:-1]:
            total = spread_onto.compiled(total, raw, weight, reverse)
        if spreads:
            raw, weight, reverse = spreads[-1]
            row = best_spread.compiled(total, raw, weight, reverse, rank)
        else:
            row = best_row.compiled(total, rank)
        return None if row == UNFIT else row

    @staticmethod
    def _cluster_score(
        active: ActivePlugin, snapshot: Snapshot, pod_class: PodClass, rows: IntArray
    ) -> IntArray:
        if "score_among" in active.has:
            raw = active.plugin.score_among(snapshot, pod_class, rows)
        else:
            raw = active.plugin.score(snapshot, pod_class)[rows]
        return active.weight * active.normalized(raw)

    def _lowest_rank(self, rows: IntArray) -> int:
        return int(rows[np.argmin(self.state.nodes.rank[rows])])

    def _reserve(
        self, snapshot: Snapshot, pod_class: PodClass, row: int, program: Program
    ) -> NodeChoice | ReserveRefusal:
        if not program.reserve and not snapshot.has_restorable:
            return NodeChoice(row, self.state.nodes.names[row], NOTHING, program.profile)
        reserved = reserve(program.profile, snapshot, pod_class, row, program.reserve)
        if isinstance(reserved, AllocationResult):
            return NodeChoice(row, self.state.nodes.names[row], reserved, program.profile)
        plugin, refusal = reserved
        return ReserveRefusal(plugin, refusal.reason)

    def is_refused(self, pod: PodClass) -> bool:
        """Return whether PreFilter rejects the pod for all nodes."""
        return prefilter(self.applicable_plugins(pod), self._evaluator.view(pod), pod) is not None

    def choose_on(self, pod: Pod, pod_class: PodClass, row: int) -> NodeChoice | ReserveRefusal:
        """Return the allocation of a pod on a given row, if every filter accepts the row."""
        plugin, reasons = rejection(self.profile, self.state, pod_class, row)
        if plugin:
            return ReserveRefusal(plugin, ", ".join(reasons))
        if self.extenders.concerns(pod_class):
            try:
                if not self._extenders_accept(pod, row):
                    return ReserveRefusal(EXTENDER, self.extenders.refusal(pod))
            except ExtenderError as error:
                return ReserveRefusal(EXTENDER, str(error))
        view = self._evaluator.view(pod_class)
        return self._reserve(view, pod_class, row, self._evaluator.program(pod_class, view)[0])
