"""The stages of a pod that is popped from the queue: filter, score, choose, reserve."""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from weakref import WeakValueDictionary

import numpy as np
from msgspec import Struct

from koordinator.api.pod import Pod
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.errors import ExtenderError
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
from koordinator.scheduler.cycle.batch import MOST_CLASSES, Batch, choose_batch
from koordinator.scheduler.cycle.best import best_row, best_spread, spread_onto
from koordinator.scheduler.cycle.evaluation import Evaluation, EvaluationKey, Evaluator
from koordinator.scheduler.cycle.extenders import ExtenderChain
from koordinator.scheduler.cycle.headroom import UNBOUNDED, HeadroomBound, HeadroomTable
from koordinator.scheduler.cycle.nominated_pods import (
    Nominations,
    nominated_pods_with_priority,
    priority_of,
)
from koordinator.scheduler.cycle.offers import SamplePod, offers
from koordinator.scheduler.cycle.program import Program, compared, reading_cluster
from koordinator.scheduler.cycle.reserve import reserve
from koordinator.scheduler.cycle.runs import merge_run
from koordinator.scheduler.cycle.score_table import UNFIT
from koordinator.scheduler.cycle.scorecard import Scorecard, prefilter, scorecard
from koordinator.scheduler.cycle.what_if import StateWhatIf, rejection
from koordinator.scheduler.diagnosis import Diagnosis
from koordinator.scheduler.post_filter import Attempt, Member
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot
from koordinator.scheduler.transaction import Transaction

_LONG_RUN = 8  # pods


class NodeChoice(Struct, frozen=True):  # a struct: one is made per pod
    """Where a pod goes and what it takes there besides its requests."""

    row: int
    node: str
    allocation: AllocationResult


@dataclass(frozen=True, slots=True)
class ReserveRefusal:
    """A node was chosen, but a reserve plugin could not get there what the pod needs."""

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


def _preferred(profile: Profile, snapshot: Snapshot, pod_class: PodClass) -> list[int]:
    """Return the rows to try first, in order."""
    return [
        row
        for active in profile.prefer_nodes
        for row in active.plugin.prefer_nodes(snapshot, pod_class)
    ]


class RunKey:
    """Identity of pods that are decided as one run."""

    __slots__ = ("__weakref__",)


class SchedulingCycle:
    """Scheduling decisions of one profile on one state.  Decides; the caller places and binds."""

    def __init__(
        self, profile: Profile, state: ClusterState, extenders: Sequence[SchedulerExtender] = ()
    ) -> None:
        self.profile = profile
        self.state = state
        self.extenders = ExtenderChain(state, extenders)
        self._evaluator = Evaluator(profile, state)
        self._headrooms = HeadroomTable(state)
        #: per pod class; a class keeps its keys as long as it lives
        self._run_key: Memo[RunKey] = Memo()
        self._queue_key: Memo[Hashable] = Memo()
        self._plugins: Memo[ApplicablePlugins] = Memo()
        self._batch_key = RunKey()  # of all pods that batches may take
        self._run_keys: WeakValueDictionary[Hashable, RunKey] = WeakValueDictionary()
        self._counts_requests = any(a.hints.compares is not None for a in profile.filter)
        self._mask: BoolArray | None = None  # rows that ``restricted_to`` allows; None: all
        #: plugins that learn from arriving pods
        self._learning = [a for a in profile.score if "on_arrival" in a.has]
        #: plugins that limit pods across nodes, such as quotas
        self.limiting = [a for a in profile.pre_filter if "run_limit" in a.has]
        judging = {active.name: active for active in (*profile.filter, *profile.score)}
        self._distinguishing = [a for a in judging.values() if "distinguishes" in a.has]

    def run_key(self, pod: PodClass) -> Hashable:
        """Return what pods must share to be decided as one run; cheap to compare."""
        return self._run_key.of(pod, self._find_run_key, pod)

    def _find_run_key(self, pod: PodClass) -> RunKey:
        shared = (
            self._evaluator.key(pod),
            pod.demand,
            pod.nonzero_cpu,
            pod.nonzero_memory,
            pod.held.nonzero_cpu,
            pod.held.nonzero_memory,
            tuple(a.hints.key(pod) for a in self.limiting),
        )
        return self._run_keys.setdefault(shared, RunKey())

    def queue_key(self, pod: PodClass) -> Hashable:
        """Return what neighbours in the queue share to be popped together.

        The run key, or one key for all pods that a batch may take; None where a plugin decides the
        pod with its group.
        """
        return self._queue_key.of(pod, self._find_queue_key, pod)

    def _find_queue_key(self, pod: PodClass) -> Hashable:
        if not self.runs_with_others(pod):
            return None
        snapshot = self._evaluator.snapshot
        if self._may_be_in_batch(snapshot, pod) and not self.permits((pod,)):
            return self._batch_key
        return self.run_key(pod)

    def kind_key(self, pod: PodClass) -> Hashable:
        """Return the key of pods that no plugin distinguishes, cluster-wide plugins included."""
        snapshot = self._evaluator.view(pod)
        filters = self._applicable(pod).cluster_filters
        around = any(active.hints.filters(snapshot, pod) for active in filters)
        return self.run_key(pod), pod.id if around else None

    def applicable_plugins(self, pod: PodClass) -> Profile:
        """Return the plugins that may have something to say about such a pod."""
        return self._applicable(pod).profile

    def _applicable(self, pod: PodClass) -> ApplicablePlugins:
        return self._plugins.of(pod, ApplicablePlugins.with_pod, self.profile, pod)

    @contextmanager
    def restricted_to(self, mask: BoolArray) -> Iterator[None]:
        """Decide as if there were only the nodes of ``mask``, ``(n_rows,)``, meanwhile."""
        before, self._mask = self._mask, mask
        try:
            yield
        finally:
            self._mask = before

    @property
    def is_restricted(self) -> bool:
        """Whether only some of the nodes count now."""
        return self._mask is not None

    def runs_with_others(self, pod: PodClass) -> bool:
        """Return whether such a pod may be one of a run: no plugin decides it with its group."""
        return not any(active.applies(pod) for active in self.profile.gangs)

    def distinguishes(self, keys: Collection[str]) -> bool:
        """Return whether some plugin may count one of these pods otherwise than its class.

        What is decided for all of them at once may then differ from deciding one by one.
        """
        return any(
            active.plugin.distinguishes(self._evaluator.snapshot, keys)
            for active in self._distinguishing
        )

    def permits(self, pods: Iterable[PodClass]) -> bool:
        """Return whether a permit plugin applies to one of these pods."""
        return any(self.applicable_plugins(pod).permit for pod in dict.fromkeys(pods))

    def scorecard(self, pod: PodClass) -> Scorecard:
        """Return every node's verdict and scores, computed from scratch."""
        return scorecard(self.profile, self.state, pod)

    def diagnose(
        self,
        pod: Pod,
        pod_class: PodClass,
        nominated: Nominations,
        scorecard: Scorecard | None = None,
    ) -> Diagnosis:
        """Return why no node takes the pod, nodes kept free for others included."""
        card = scorecard or self.scorecard(pod_class)
        if self._mask is not None:
            card = card.restricted_to(self._mask)
        diagnosis = self.extenders.added_to(card.diagnosis(), pod)
        nominated_pods = (
            nominated_pods_with_priority(pod, nominated) if nominated and len(card.feasible) else {}
        )
        if not nominated_pods:
            return diagnosis
        what_if = StateWhatIf(self.profile, self.state, nominated_pods)
        taken = {row: what_if.rejection(pod_class, row) for row in card.feasible.tolist()}
        return diagnosis.with_rejections({row: why for row, why in taken.items() if why[0]})

    def diagnose_after(self, pod: PodClass, rows: IntArray) -> Diagnosis:
        """Return why no node takes one more pod after a run of such pods on these rows."""
        taken = np.bincount(rows, minlength=len(self.state.nodes))
        return scorecard(self.profile, self.state, pod, taken).diagnosis()

    def diagnose_full(self, pod: PodClass, taken: IntArray) -> Diagnosis:
        """Return why no node takes one more after each row has taken so many, ``(n_rows,)``."""
        return scorecard(self.profile, self.state, pod, taken).diagnosis()

    def bound(self, *pods: PodClass) -> HeadroomBound | None:
        """Return an upper bound of the pods of these classes together; None: unknown."""
        if not self._counts_requests:
            return None
        versions = []
        for pod in pods:
            view = self._evaluator.view(pod)
            if view.restorable is not None:
                return None
            versions.append(self._evaluator.versions_of(pod, view))
        return HeadroomBound(
            self._headrooms,
            tuple(map(self.run_key, pods)),
            tuple(versions),
            lambda: np.min([compared(self.profile, self.state, pod) for pod in pods], axis=0),
            lambda below: self._accepted(pods, below),
        )

    def _accepted(self, pods: Sequence[PodClass], below: int | None) -> BoolArray:
        """Return where one of the pods may be, as things are or without less important pods."""
        accepted = np.zeros(len(self.state.nodes), bool)
        for pod in pods:
            evaluation = self._evaluator.of(pod)
            accepted |= evaluation.best != UNFIT if below is None else evaluation.eligible
        return accepted

    def requests(self, pod: PodClass) -> IntArray:
        """Return ``(n_columns,)``: what of the pod's requests is compared with what is free."""
        return compared(self.profile, self.state, pod)

    def note_headroom(self, pod: PodClass, fits: IntArray) -> None:
        """Note how many such pods the rows take, ``(n_rows,)``, as things are."""
        bound = self.bound(pod)
        if bound is not None:
            bound.note(fits)

    def headroom_at_most(self, pod: PodClass, level: int | None = None) -> int:
        """Return how many such pods may fit by now, at most; with a level: in one domain of it."""
        bound = self.bound(pod)
        most = UNBOUNDED if bound is None else bound.most(of_row=self.domains_at(level))
        return self.limit(pod, most)

    def domains_at(self, level: int | None) -> IntArray | None:
        """Return the number of each row's network domain; None if that does not matter."""
        tree = None if level is None else self.state.network.tree
        return None if tree is None else tree.of_row(level or 0, len(self.state.nodes))

    def attempt(
        self,
        pod: Pod,
        pod_class: PodClass,
        diagnosis: Diagnosis,
        nominated: Nominations,
        members: Sequence[Member] = (),
        *,
        rows: IntArray | None = None,
        nominated_node: str = "",
    ) -> Attempt:
        """Return the failed attempt for PostFilter plugins; ``members`` are the members of a gang.

        Then ``nominated`` contains none of them, and ``rows`` are the rows where they may be.
        ``nominated_node`` is the pod's own.
        """
        least = min((member for member, _ in members), key=priority_of, default=pod)
        what_if = StateWhatIf(
            self.profile, self.state, nominated_pods_with_priority(least, nominated)
        )
        return Attempt(
            pod.key,
            pod,
            pod_class,
            what_if,
            diagnosis.rejected,
            diagnosis.resolvable,
            diagnosis.refused_by,
            tuple(members),
            rows,
            nominated_node,
            self.extenders,
        )

    # -- one pod -----------------------------------------------------------------------------

    def choose(
        self,
        pod: Pod,
        pod_class: PodClass,
        nominated: Nominations,
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
        nominated: Nominations,
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
            feasible = self._mask & (evaluation.best != UNFIT if feasible is None else feasible)
        if nominated:
            feasible = self._filter_with_nominated_pods(
                feasible, evaluation.best, pod, pod_class, nominated
            )
        if extended:
            feasible = evaluation.best != UNFIT if feasible is None else feasible
            feasible = self.extenders.accepted(pod, feasible)
        asked = pod if extended else None
        while True:
            if skipped := [*refused]:
                feasible = np.array(evaluation.best != UNFIT if feasible is None else feasible)
                feasible[skipped] = False
            row = self._best(program, evaluation, snapshot, pod_class, feasible, extended=asked)
            if row is None:
                return
            yield row

    def _is_masked(self, row: int | None) -> bool:
        """Return whether a row does not count now."""
        return row is not None and self._mask is not None and not self._mask[row]

    def _is_free(self, row: int, pod: Pod, pod_class: PodClass, nominated: Nominations) -> bool:
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
            feasible &= evaluation.best != UNFIT
        return feasible

    def _filter_with_nominated_pods(
        self,
        feasible: BoolArray | None,
        best: IntArray,
        pod: Pod,
        pod_class: PodClass,
        nominated: Nominations,
    ) -> BoolArray | None:
        """Return where the pod fits beside those that are nominated and at least as important."""
        nominated_pods = nominated_pods_with_priority(pod, nominated)
        if nominated_pods:
            feasible = best != UNFIT if feasible is None else feasible
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
        best, preferred = evaluation.best, _preferred(program.profile, snapshot, pod_class)
        if not scorers and not preferred and extended is None:
            if feasible is None and all(evaluation.flat):
                return self._highest(best)
            if snapshot.is_large and evaluation.spreads:
                return self._best_of_many(evaluation, best, feasible)
        rows = np.flatnonzero(best != UNFIT if feasible is None else feasible)
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

    @staticmethod
    def _with_relative(evaluation: Evaluation, rows: IntArray) -> IntArray:
        """Return the totals of the feasible rows, relative scores included."""
        total = evaluation.best[rows]
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
            return NodeChoice(row, self.state.nodes.names[row], NOTHING)
        held = reserve(program.profile, snapshot, pod_class, row, program.reserve)
        if isinstance(held, AllocationResult):
            return NodeChoice(row, self.state.nodes.names[row], held)
        plugin, refusal = held
        return ReserveRefusal(plugin, refusal.reason)

    # -- places chosen elsewhere -------------------------------------------------------------

    def takes_amounts_only(self, pod: PodClass) -> bool:
        """Return whether amounts are all that such pods take, and no other node matters to them."""
        snapshot = self._evaluator.snapshot
        if any(a.hints.filters(snapshot, pod) for a in self._applicable(pod).cluster_filters):
            return False
        if self.extenders.concerns(pod):
            return False
        return self._is_linear(pod)

    def _is_linear(self, pod: PodClass) -> bool:
        return self._evaluator.is_linear(pod, self._evaluator.view(pod))

    def offers(
        self,
        pod: Pod,
        pod_class: PodClass,
        nominated: Nominations,
        *,
        most: int,
        rows: IntArray | None = None,
    ) -> IntArray:
        """Return how many such pods each row takes, one after another, ``(n_rows,)``.

        No more than ``most``; 0 for rows that are not among ``rows``.  What is nominated counts as
        placed.
        """
        snapshot = self._evaluator.view(pod_class)
        slots = np.zeros(len(snapshot), np.int64)
        applicable = self._applicable(pod_class)
        if prefilter(applicable.profile, snapshot, pod_class) is not None:
            return slots
        among = np.arange(len(snapshot)) if rows is None else rows
        cluster = [a for a in applicable.cluster_filters if a.hints.filters(snapshot, pod_class)]
        with Transaction(self.state) as transaction:
            for node, nominated_pods in (
                nominated_pods_with_priority(pod, nominated) if nominated else {}
            ).items():
                row = self.state.nodes.rows.get(node)
                for other, other_class in nominated_pods if row is not None else ():
                    transaction.place(f"nominated:{other.key}", other, other_class, row or 0)
            sample = SamplePod(pod, pod_class, cluster, self._held_on)
            slots[among] = offers(self._evaluator, sample, among, most)
        return slots

    def _held_on(self, pod: PodClass, row: int) -> AllocationResult | None:
        view = self._evaluator.view(pod)
        found = self._reserve(view, pod, row, self._evaluator.program(pod, view)[0])
        return found.allocation if isinstance(found, NodeChoice) else None

    def is_refused(self, pod: PodClass) -> bool:
        """Return whether the pod is refused whatever the node."""
        return prefilter(self.applicable_plugins(pod), self._evaluator.view(pod), pod) is not None

    def choose_on(self, pod: Pod, pod_class: PodClass, row: int) -> NodeChoice | ReserveRefusal:
        """Return what a pod holds on a row that was chosen for it, if every filter accepts it."""
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

    # -- a run of identical pods -------------------------------------------------------------

    def choose_run(self, pods: Sequence[PodClass]) -> IntArray | None:
        """Return the rows for these pods of one run key, in order.

        None when they must go one by one.  After fewer rows than requested, the next pod has
        to be tried on its own: most likely it fits nowhere.
        """
        snapshot = self._evaluator.snapshot
        if self.profile.find_one_node or not self._is_linear(pods[0]):
            return None
        different = dict.fromkeys(pods)
        if any(self._must_schedule_individually(snapshot, pod_class) for pod_class in different):
            return None
        if len({self._evaluator.key(pod_class) for pod_class in different}) > 1:
            return None  # what they have in common is not what it was when they were queued
        evaluation = self._evaluator.of(pods[0], snapshot)
        if not all(evaluation.flat):
            return None
        count = self.limit(pods[0], len(pods))
        return merge_run(evaluation, snapshot, self.state.nodes.rank, count)

    def choose_batch(self, pods: Sequence[PodClass]) -> Batch:
        """Return the rows for the first of these pods, with the outcome of ``choose`` for each.

        Without rows the first one has to be decided alone: most likely it fits nowhere.
        """
        snapshot = self._evaluator.snapshot
        length = self._run_length(pods)
        is_long = length >= _LONG_RUN and not snapshot.is_large  # without kernels a merge is faster
        batch = None if is_long else self._choose_mixed(snapshot, pods, length)
        if batch is None and length > 1:
            rows = self.choose_run(pods[:length])
            batch = None if rows is None else Batch(rows)
        return batch or Batch(np.zeros(0, np.int64))

    def _choose_mixed(
        self, snapshot: Snapshot, pods: Sequence[PodClass], length: int
    ) -> Batch | None:
        """Return the rows for pods of several classes; None if the first one is not arithmetic.

        The first ``length`` have one run key.
        """
        members: dict[PodClass, Evaluation] = {}
        for pod_class in dict.fromkeys(pods):
            evaluation = self._evaluation_for_batch(snapshot, pod_class)
            if evaluation is None or len(members) == MOST_CLASSES:
                break
            members[pod_class] = evaluation
        number = {pod_class: at for at, pod_class in enumerate(members)}
        kinds: list[int] = []
        for pod_class in pods:
            kind = number.get(pod_class)
            if kind is None:
                break
            kinds.append(kind)
        if not kinds:
            return None
        if self.limiting and not self._are_admitted(snapshot, pods[: len(kinds)]):
            kinds = kinds[: self.limit(pods[0], min(length, len(kinds)))]
        return choose_batch(self._evaluator, [*members.items()], np.array(kinds, np.int64))

    def _run_length(self, pods: Sequence[PodClass]) -> int:
        """Return how many of the first pods have one run key."""
        first, length = self.run_key(pods[0]), 1
        while length < len(pods) and (
            pods[length] is pods[0] or self.run_key(pods[length]) is first
        ):
            length += 1
        return length

    def _may_be_in_batch(self, snapshot: Snapshot, pod: PodClass) -> bool:
        """Return whether the nodes of such pods are chosen by arithmetic alone, as things are."""
        program = self._evaluator.program(pod, self._evaluator.view(pod))[0]
        return (
            program.is_arithmetic
            and not self.profile.find_one_node
            and all(
                part.active.hints.is_neutral is not None and part.active.hints.is_neutral(snapshot)
                for part, _ in program.joint
            )
            and not self._must_schedule_individually(snapshot, pod)
        )

    def _evaluation_for_batch(self, snapshot: Snapshot, pod: PodClass) -> Evaluation | None:
        """Return the evaluation of a class that a batch may take now."""
        if not self._may_be_in_batch(snapshot, pod):
            return None
        evaluation = self._evaluator.of(pod, snapshot, rows=False)
        return evaluation if all(evaluation.flat) else None

    def _are_admitted(self, snapshot: Snapshot, pods: Sequence[PodClass]) -> bool:
        """Return whether no plugin that limits pods across nodes refuses one of all these."""
        return all(
            active.hints.limits_sums and active.plugin.shortfall(snapshot, pods) is None
            for active in self.limiting
        )

    def _must_schedule_individually(self, snapshot: Snapshot, pod: PodClass) -> bool:
        """Return whether a placement depends on other nodes, or the pod has restorable holds."""
        applicable = self._applicable(pod)
        return (
            self._evaluator.view(pod).restorable is not None
            or self.extenders.concerns(pod)
            or prefilter(applicable.profile, snapshot, pod) is not None
            or any(a.hints.filters(snapshot, pod) for a in applicable.cluster_filters)
            or any(a.hints.scores(snapshot, pod) for a in applicable.cluster_scores)
            or bool(_preferred(applicable.profile, snapshot, pod))
        )

    def limit(self, pod: PodClass, most: int) -> int:
        """Return how many such pods in a row are not refused as a whole, at most ``most``."""
        for active in self.limiting:
            if self.refuses(active, pod):
                return 0
            most = active.plugin.run_limit(self._evaluator.snapshot, pod, most)
        return most

    def refuses(self, active: ActivePlugin, pod_class: PodClass) -> bool:
        """Return whether a plugin refuses a pod as a whole, as things are now."""
        return active.plugin.prefilter(self._evaluator.snapshot, pod_class) is not None

    def headroom_for(self, active: ActivePlugin, pod_class: PodClass, most: int) -> int:
        """Return how many such pods in a row one plugin does not refuse, at most ``most``."""
        if self.refuses(active, pod_class):
            return 0
        headroom: int = active.plugin.run_limit(self._evaluator.snapshot, pod_class, most)
        return headroom

    def version(self, active: ActivePlugin) -> Hashable:
        """Return the version of a plugin."""
        version = active.hints.version
        return version(self._evaluator.snapshot) if version is not None else None
