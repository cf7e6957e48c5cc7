"""Pods of several classes, decided in one call with the outcome of deciding one by one.

For classes whose programs are arithmetic on the amounts of each row alone: checks, formulas and
results that facts of nodes determine.  The outcome is that of ``choose`` for each pod in order, up
to the first pod that no node takes.
"""

from collections.abc import Sequence
from math import sqrt
from typing import NamedTuple

import numpy as np

from koordinator.foundation.arrays import IntArray
from koordinator.foundation.errors import BugError
from koordinator.scheduler.contract import AllocationResult, NodeStates
from koordinator.scheduler.cycle.batch_kernel import DIRTY, choose_rows
from koordinator.scheduler.cycle.evaluation import Evaluation, Evaluator
from koordinator.scheduler.cycle.score_table import UNFIT
from koordinator.scheduler.rules.curves import EXACT_BELOW
from koordinator.scheduler.rules.usage_kernels import FAR, FREE_OF_ALL, Judgements, PluginColumns
from koordinator.scheduler.snapshot import PodClass
from koordinator.scheduler.snapshot.axis import CPU, MEMORY

#: Classes in one call: each has a row of all nodes in the table of scores.
MOST_CLASSES = 512
#: Pods of a batch or sequence from which compiled code saves more than loading it takes, if it is
#: not loaded.
COMPILED_FROM = 2_000


class Batch:
    """Rows chosen for pods, in order; the next pod fits nowhere or has to be decided alone."""

    def __init__(self, rows: IntArray, results: Sequence[AllocationResult] = ()) -> None:
        self.rows = rows
        self.results = results  # what each pod gets besides its requests; none if no pod does

    def confirm_placed(self) -> None:
        """Note that the pods, and nothing else, have been placed on these rows since."""


class _ScoredBatch(Batch):
    """A batch whose evaluations are current once its pods are placed."""

    def __init__(
        self,
        evaluator: Evaluator,
        rows: IntArray,
        positions: dict[Evaluation, int],
        followed: "_FollowedStates",
    ) -> None:
        super().__init__(rows, followed.results(rows))
        self._followed = followed
        self._log = evaluator.state.usage_log
        self._placed_at = self._log.position + len(rows)
        self._positions = positions
        for evaluation in positions:
            evaluation.usage_position = -1  # until the rows are in the log
        if not len(rows):
            self.confirm_placed()

    def confirm_placed(self) -> None:
        if self._log.position == self._placed_at:
            self._followed.record(self._placed_at)
            for evaluation, position in self._positions.items():
                evaluation.usage_position = position


def choose_batch(
    evaluator: Evaluator, members: Sequence[tuple[PodClass, Evaluation]], kinds: IntArray
) -> Batch | None:
    """Choose rows for pods; ``kinds`` ``(p,)`` are their classes, as indices of ``members``.

    The evaluations need not be current in single rows.  None if amounts are too large for the
    kernel.
    """
    state, table = evaluator.state, evaluator.table
    nodes, n, width = state.nodes, len(state.nodes), len(state.axis)
    evaluations = [*dict.fromkeys(evaluation for _, evaluation in members)]
    number = {evaluation: at for at, evaluation in enumerate(evaluations)}
    scored = [number[evaluation] for _, evaluation in members]
    more = _columns_of_plugins(evaluator, members)
    arithmetic = _joined(
        [
            _with_columns(evaluation, more, scored.index(at), width)
            for at, evaluation in enumerate(evaluations)
        ]
    )
    demand = np.zeros((len(members), width), np.int64)
    for at, (pod_class, _) in enumerate(members):
        demand[at, pod_class.columns] = pod_class.amounts
    effective = [pod_class.effective for pod_class, _ in members]
    nonzero = np.array([(each.nonzero_cpu, each.nonzero_memory) for each in effective], np.int64)
    read = (arithmetic.checks[:, 0], arithmetic.terms[:, 0], np.flatnonzero(demand.any(axis=0)))
    # Not by ``np.unique``, whose first call imports NumPy's masked arrays.
    own = np.array(sorted({CPU, MEMORY, *np.concatenate(read).tolist()}))
    own = own[own < width]
    columns = np.concatenate((own, width + np.arange(more.used.shape[1])))
    for entries in (arithmetic.checks, arithmetic.terms):
        entries[:, 0] = np.searchsorted(columns, entries[:, 0])
    demand = _beside(demand[:, own], np.zeros((len(members), more.used.shape[1]), np.int64))
    requested = _beside(nodes.requested[own, :n].T, more.used)
    capacity = _beside(nodes.allocatable[own, :n].T, more.capacity)
    most = max(
        int(array.max(initial=0)) for array in (demand, nonzero, more.added, arithmetic.terms)
    )
    reached = np.abs(requested)
    sums = int(reached[reached < FAR].max(initial=0)) + most * (len(kinds) + 1)
    if int(capacity.max(initial=0)) >= EXACT_BELOW or sums >= FAR:
        return None
    slots = [table.enter(evaluation) for evaluation in evaluations]
    node_totals, whose = table.node_totals(evaluations)
    start = min(evaluation.usage_position for evaluation in evaluations)
    since = np.array([evaluation.usage_position - start for evaluation in evaluations], np.int64)
    changed = state.usage_log.since(start)
    before = changed if changed is not None else np.zeros(0, np.int64)
    rows = np.zeros(len(kinds), np.int64)
    nodes.had_many_pods |= len(kinds) >= COMPILED_FROM
    pays = nodes.uses_kernels or choose_rows.is_compiled
    kernel = choose_rows.compiled if pays else choose_rows.reference
    followed = _FollowedStates(evaluator, evaluations, np.array(scored, np.int64)[kinds])
    log = np.concatenate((before, np.zeros(len(kinds), np.int64)))
    amounts = (len(columns) + 2, len(log))
    arguments = (
        kinds,
        rows,
        demand,
        nonzero,
        more.added,
        np.array(scored, np.int64),
        np.array(slots, np.int64),
        since,
        *arithmetic,
        table.totals,
        whose,
        node_totals,
        requested,
        nodes.nonzero[:, :n].T.copy(),
        capacity,
        more.case,
        nodes.rank[:n].copy(),
        log,
    )
    blocks = -(-n // max(int(sqrt(n)), 1))
    kept = (  # see ``batch_kernel``; it fills them
        np.full((len(evaluations), blocks), DIRTY, np.int64),
        np.full((len(evaluations), blocks), UNFIT, np.int64),
        np.empty(amounts),
        np.empty(amounts),
    )
    count, asks = 0, np.zeros(2, np.int64)
    while True:
        count = kernel(*arguments, len(before) + count, count, *followed.arguments, *kept, asks)
        if not followed.learn(*asks.tolist()):
            break
    followed.end()
    positions = zip(evaluations, (since + start).tolist(), strict=True)
    return _ScoredBatch(evaluator, rows[:count], dict(positions), followed)


class _StateArguments(NamedTuple):
    """See ``batch_kernel``."""

    state: IntArray
    states_before: IntArray
    columns_of: IntArray
    shown: IntArray
    weights_of: IntArray
    ratings: IntArray
    following: IntArray
    raws: IntArray
    totals: IntArray
    peaks: IntArray


class _FollowedStates:
    """States of nodes in a batch, for the classes that a plugin with ``hints.states`` concerns."""

    def __init__(
        self, evaluator: Evaluator, evaluations: Sequence[Evaluation], indices: IntArray
    ) -> None:
        """Prepare the states; ``indices`` ``(p,)`` is the evaluation of each pod."""
        snapshot, count = evaluator.snapshot, len(evaluations)
        self._stated = [
            (at, one, one.program.relative[one.program.stated].active, one.raw[one.program.stated])
            for at, one in enumerate(evaluations)
            if one.program.stated is not None
        ]
        self._states: NodeStates | None = None
        column_of, shown, weights = (np.full(count, -1, np.int64) for _ in range(3))
        if self._stated:
            make = self._stated[0][2].hints.states
            self._states = make(snapshot) if make is not None else None
        state = np.zeros(0, np.int64)
        if self._states is not None:
            state = self._states.refresh(snapshot)
            for place, (at, one, active, _) in enumerate(self._stated):
                column = self._states.column(snapshot, one.pod)
                if column is None:
                    raise BugError(f"{active.name} has no states for pods of a batch")
                column_of[at], shown[at], weights[at] = column, place, active.weight
        raws = np.zeros((len(self._stated), len(snapshot)), np.int64)
        for place, (*_, raw) in enumerate(self._stated):
            raws[place] = raw
        self._state, self._before = state, np.zeros(len(indices), np.int64)
        self._columns, self._raws = column_of[indices], raws
        self._totals, self._peaks = np.empty_like(raws), np.full((len(raws), 2), -1, np.int64)
        self._by_evaluation = column_of, shown, weights

    @property
    def arguments(self) -> "_StateArguments":
        """The arguments of the kernel about states."""
        states, none = self._states, np.zeros((0, 0), np.int64)
        return _StateArguments(
            self._state,
            self._before,
            *self._by_evaluation,
            none if states is None else states.ratings,
            none if states is None else states.following,
            self._raws,
            self._totals,
            self._peaks,
        )

    def learn(self, column: int, state: int) -> bool:
        """Work out the entry that a call requires; return False if that was nothing."""
        if self._states is None or column < 0:
            return False
        if state < 0:
            self._states.rate(column)
        else:
            self._states.follow(state, column)
        return True

    def end(self) -> None:
        """Hand over the raw scores to the evaluations."""
        for (_, one, _, raw), new in zip(self._stated, self._raws, strict=True):
            raw[:] = new
            one.flat[one.program.stated or 0] = not new.any()

    def results(self, rows: IntArray) -> Sequence[AllocationResult]:
        """Return what the pods on these rows get; none without states."""
        if self._states is None:
            return ()
        count = len(rows)
        return self._states.results(rows, self._before[:count], self._columns[:count])

    def record(self, position: int) -> None:
        """Note the states after the batch."""
        if self._states is not None:
            self._states.settle(self._state, position)


def _columns_of_plugins(
    evaluator: Evaluator, members: Sequence[tuple[PodClass, Evaluation]]
) -> PluginColumns:
    """Return the columns of the plugin that filters and scores by some of its own, if any."""
    joint = [part for _, evaluation in members for part, _ in evaluation.program.joint]
    columns = joint[0].active.hints.columns if joint else None
    if columns is not None:
        return columns(evaluator.snapshot, [pod_class for pod_class, _ in members])
    n, classes = len(evaluator.state.nodes), len(members)
    none = np.zeros((n, 0), np.int64)
    no_term = np.zeros((classes, 0), np.int64)
    added = np.zeros((classes, 1, 0), np.int64)
    case = np.zeros(n, np.int64)
    return PluginColumns(none, none, case, added, no_term, no_term, no_term, no_term[0], 0)


def _with_columns(evaluation: Evaluation, more: PluginColumns, at: int, width: int) -> Judgements:
    """Return what an evaluation asks, with what class ``at`` asks of the columns from ``width``.

    Cached with the evaluation: amounts of a class seldom change.
    """
    if not evaluation.program.joint:
        return evaluation.program.arithmetic.judgements
    parts = (more.checked[at], more.scored[at], more.amounts[at], more.weights)
    key = (width, more.dominant, *(array.tobytes() for array in parts))
    if evaluation.with_columns is None or evaluation.with_columns[0] != key:
        evaluation.with_columns = key, _beside_columns(evaluation, more, at, width)
    return evaluation.with_columns[1]


def _beside_columns(evaluation: Evaluation, more: PluginColumns, at: int, width: int) -> Judgements:
    judgements = evaluation.program.arithmetic.judgements
    for part, _ in evaluation.program.joint:
        amounts = more.amounts[at]
        checks = np.stack((width + more.checked[at], amounts), axis=1)
        terms = np.stack((width + more.scored[at], amounts, more.weights), axis=1)
        end = len(judgements.terms) + len(terms)
        head = [[FREE_OF_ALL, part.active.weight, more.dominant, end]]
        judgements = Judgements(
            np.concatenate((judgements.checks, checks)),
            np.concatenate((judgements.formulas, np.array(head, np.int64))),
            np.concatenate((judgements.terms, terms)),
        )
    return judgements


def _beside(first: IntArray, second: IntArray) -> IntArray:
    """Return the columns of both in a matrix that lies row by row."""
    return np.ascontiguousarray(np.concatenate((first, second), axis=1))


class _Arithmetic(NamedTuple):
    """Judgements of several evaluations, one after the other; see ``batch_kernel``."""

    checks: IntArray
    check_ends: IntArray
    formulas: IntArray
    formula_ends: IntArray
    terms: IntArray


def _joined(every: Sequence[Judgements]) -> _Arithmetic:
    formulas = np.concatenate([one.formulas for one in every])
    counts = [len(one.formulas) for one in every]
    ends = np.cumsum([len(one.terms) for one in every])
    formulas[:, 3] += np.repeat(np.concatenate(([0], ends[:-1])), counts)
    return _Arithmetic(
        np.concatenate([one.checks for one in every]),
        np.cumsum([len(one.checks) for one in every]),
        formulas,
        np.cumsum(counts),
        np.concatenate([one.terms for one in every]),
    )
