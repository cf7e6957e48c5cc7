"""One claim on many nodes at once: shortages, scores and hints, row by row."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from koordinator.domain.devices.masks import masks_of
from koordinator.domain.devices.numa_hints import NumaHint, NumaHintTable
from koordinator.domain.devices.parts import Part
from koordinator.domain.devices.plan import DevicePlan, State
from koordinator.domain.devices.row_kernels import MOST_BITS, device_masks, node_scores
from koordinator.domain.devices.scoring import Scorer
from koordinator.domain.devices.shortage import Shortage
from koordinator.domain.numa.masks import mask_of, zones_of
from koordinator.domain.numa.rows_align import OtherHints
from koordinator.scheduler.contract import Rejections
from koordinator.scheduler.plugins.device_share.claims import Claimed
from koordinator.scheduler.snapshot import BoolArray, IntArray, Snapshot


@dataclass(slots=True, eq=False)
class Verdicts:
    """Reasons by row, collected one after the other; the first of a row counts."""

    codes: IntArray  # (n,)
    unresolvable: BoolArray  # (n,)
    reasons: list[str]

    @staticmethod
    def none(count: int) -> "Verdicts":
        """Return that every row is accepted."""
        return Verdicts(np.zeros(count, np.int64), np.zeros(count, bool), [])

    def add(self, where: IntArray | int, shortage: Shortage) -> None:
        """Reject rows that are not rejected yet."""
        if shortage.reason not in self.reasons:
            self.reasons.append(shortage.reason)
        where = np.atleast_1d(where)
        where = where[self.codes[where] == 0]
        self.codes[where] = 1 << self.reasons.index(shortage.reason)
        self.unresolvable[where] = not shortage.resolvable

    def rejections(self) -> Rejections:
        """Return them as the filter's answer."""
        return Rejections(self.codes, tuple(self.reasons), self.unresolvable)


@dataclass(frozen=True, slots=True)
class ModelRows:
    """The rows of a view whose nodes are of one model."""

    model: int
    where: IntArray  # (k,) places in the view
    rows: IntArray  # (k,) rows of the cluster


def by_model(view: Snapshot) -> list[ModelRows]:
    """Return the rows whose devices are reported, model by model."""
    return view.derived("device models", lambda: list(_by_model(view)))


def _by_model(view: Snapshot) -> Iterator[ModelRows]:
    rows = view.row_numbers
    models = view.devices.model[rows]
    if len(models) and (models == models[0]).all():
        numbers = [int(models[0])]
    else:
        numbers = np.unique(models).tolist()
    for model in numbers:
        if model >= 0:
            where = np.flatnonzero(models == model)
            yield ModelRows(model, where, rows[where])


def states_of(view: Snapshot, claimed: Claimed, group: ModelRows) -> list[State]:
    """Return what is left for the claim on each row."""

    def derive() -> list[State]:
        columns: list[list[int]] = []
        for part in claimed.plan(view, group.model).early:
            columns += _masks(view, claimed, part, group.rows)
        return list(zip(*columns, strict=True))

    return view.derived((claimed, group.model), derive)


def _masks(view: Snapshot, claimed: Claimed, part: Part, rows: IntArray) -> list[list[int]]:
    """Return the devices that fit, and those in use, row by row."""
    columns, amounts = view.devices.columns[part.kind], np.array(part.amounts, np.int64)
    if view.is_large and columns.left.shape[1] <= MOST_BITS:
        fit, used = device_masks.compiled(columns.left, columns.holders, rows, amounts).tolist()
    else:
        # What has enough is there and healthy: something is asked of every device.
        has_enough = columns.left[rows] >= amounts
        fit = masks_of(np.logical_and.reduce(has_enough, axis=2))
        used = masks_of(columns.holders[rows] > 0)
    if part.functions is not None:
        taken = columns.function_sets
        fit = [
            mask & claimed.with_function(part, taken.get(row))
            for mask, row in zip(fit, rows.tolist(), strict=True)
        ]
    return [fit, used]


def add_shortages(verdicts: Verdicts, view: Snapshot, claimed: Claimed) -> None:
    """Reject the rows that have not enough."""
    for group in by_model(view):
        plan = claimed.plan(view, group.model)
        if plan.never is not None:
            verdicts.add(group.where, plan.never)
            continue
        states = states_of(view, claimed, group)
        answers = {state: plan.shortage(state) for state in set(states)}
        if any(answers.values()):
            for place, state in zip(group.where.tolist(), states, strict=True):
                shortage = answers[state]
                if shortage is not None:
                    verdicts.add(place, shortage)


def scores_of(
    view: Snapshot, claimed: Claimed, scorer: Scorer, zones: Callable[[], IntArray]
) -> IntArray:
    """Return ``(n,)``: the raw scores; 0 where devices are not reported.

    ``zones`` are masks of NUMA nodes, 0 for all of them.
    """
    scores = np.zeros(len(view), np.int64)
    for group in by_model(view):
        plan = claimed.plan(view, group.model)
        if plan.never is None:
            scores[group.where] = _scores(view, plan, scorer, (group.rows, zones()[group.where]))
    return scores


def _scores(
    view: Snapshot, plan: DevicePlan, scorer: Scorer, where: tuple[IntArray, IntArray]
) -> IntArray:
    rows, zones = where
    scores = np.zeros(len(rows), np.int64)
    kernel = node_scores.compiled if view.is_large else node_scores.reference
    for mask in set(zones.tolist()):
        chosen = np.flatnonzero(zones == mask)
        numa = zones_of(mask) if mask else None
        for part in plan.early:
            columns = view.devices.columns[part.kind]
            serving = part.candidates(part.group.mask, numa)
            scores[chosen] += kernel(
                columns.total,
                columns.left,
                rows[chosen],
                flags(serving, columns.total.shape[1]),
                np.array(part.amounts, np.int64),
                scorer.weights[part.kind],
                scorer.most_allocated,
            )
    return scores


@lru_cache(maxsize=1024)
def flags(mask: int, width: int) -> IntArray:
    """Return a set as ones and zeros by minor."""
    found = np.array([mask >> minor & 1 for minor in range(width)], np.int64)
    found.flags.writeable = False
    return found


class Opinions:
    """What a claim says of some sets of NUMA nodes, a line per state of the devices of a model."""

    def __init__(self, plan: DevicePlan, table: NumaHintTable, sets: Sequence[int]) -> None:
        self._plan, self._table, self._sets = plan, table, sets
        self._lines: dict[State, int] = {}
        shape = (0, len(sets))
        self._known = OtherHints(
            np.zeros(shape, bool), np.zeros(shape, bool), np.zeros(shape, np.int64)
        )

    def of(self, states: Sequence[State]) -> OtherHints:
        """Return the lines of some states."""
        lines = [self._lines.get(state, -1) for state in states]
        if -1 in lines:
            new = [state for state in dict.fromkeys(states) if state not in self._lines]
            self._add(new)
            lines = [self._lines[state] for state in states]
        known, at = self._known, np.array(lines)
        return OtherHints(known.prefers[at], known.named[at], known.scores[at])

    def _add(self, states: Sequence[State]) -> None:
        more = [self._line(self._table.of(state)) for state in states]
        for state in states:
            self._lines[state] = len(self._lines)
        known = self._known
        self._known = OtherHints(
            np.concatenate([known.prefers, np.array([line[0] for line in more], bool)]),
            np.concatenate([known.named, np.array([line[1] for line in more], bool)]),
            np.concatenate([known.scores, np.array([line[2] for line in more], np.int64)]),
        )

    def _line(
        self, answer: tuple[NumaHint, ...] | Shortage
    ) -> tuple[list[bool], list[bool], list[int]]:
        """Return (preferred, named, score) of each set; every type of device says the same.

        Where there are not enough devices no set is preferred, without opinion all are.
        """
        n = len(self._sets)
        if isinstance(answer, Shortage):
            return [False] * n, [True] * n, [0] * n
        if not answer:
            return [True] * n, [False] * n, [0] * n
        by_mask = {mask_of(hint.nodes): hint for hint in answer}
        found = [by_mask.get(mask) for mask in self._sets]
        kinds = len(self._plan.early)
        return (
            [hint is not None and hint.preferred for hint in found],
            [True] * n,
            [hint.score * kinds if hint is not None else 0 for hint in found],
        )


def hints_of(view: Snapshot, claimed: Claimed, sets: Sequence[int]) -> OtherHints:
    """Return what the claim says of sets of NUMA nodes, by row."""
    shape = (len(view), len(sets))
    prefers, named = np.ones(shape, bool), np.zeros(shape, bool)
    scores = np.zeros(shape, np.int64)
    for group in by_model(view):
        plan = claimed.plan(view, group.model)
        if plan.never is not None:
            prefers[group.where], named[group.where] = False, True
            continue
        key = (group.model, tuple(sets))
        opinions = claimed.memo.get(key)
        if opinions is None:
            opinions = claimed.memo[key] = Opinions(plan, claimed.hints(view, group.model), sets)
        found = opinions.of(states_of(view, claimed, group))
        if len(group.where) == len(view):
            return found
        prefers[group.where], named[group.where] = found.prefers, found.named
        scores[group.where] = found.scores
    return OtherHints(prefers, named, scores)
