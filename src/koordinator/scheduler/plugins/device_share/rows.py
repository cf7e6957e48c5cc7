"""One claim on many nodes at once: shortages, scores and hints, row by row."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from koordinator.domain.devices.numa_hints import NumaHint
from koordinator.domain.devices.parts import Part
from koordinator.domain.devices.plan import DevicePlan, Rooms
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

    def add(self, where: IntArray, shortage: Shortage) -> None:
        """Reject rows that are not rejected yet."""
        where = where[self.codes[where] == 0]
        if not len(where):
            return
        if shortage.reason not in self.reasons:
            self.reasons.append(shortage.reason)
        self.codes[where] = 1 << self.reasons.index(shortage.reason)
        self.unresolvable[where] = not shortage.resolvable

    def rejections(self) -> Rejections:
        """Return them as the filter's answer."""
        return Rejections(self.codes, tuple(self.reasons), self.unresolvable)


@dataclass(frozen=True, slots=True)
class ModelRows:
    """The rows of a view whose nodes are of one model."""

    view: Snapshot
    model: int
    plan: DevicePlan
    where: IntArray  # (k,) places in the view
    rows: IntArray  # (k,) rows of the cluster

    def rooms(self) -> list[Rooms]:
        """Return what is left for each early part of the claim."""
        return [self._room(part) for part in self.plan.early]

    def _room(self, part: Part) -> Rooms:
        columns = self.view.devices.columns[part.kind]
        total, used = columns.total, columns.used
        fit = np.ones((len(self.rows), total.shape[1]), bool)
        for index, amount in enumerate(part.amounts):
            if amount:  # at least one is: what has enough is there and healthy
                fit &= total[self.rows, :, index] - used[self.rows, :, index] >= amount
        if part.functions is not None:
            fit &= _bits(part.with_function({}), fit.shape[1])
            taken = columns.functions
            for place, row in enumerate(self.rows.tolist()) if taken else ():
                if row in taken:
                    fit[place] &= _bits(part.with_function(taken[row]), fit.shape[1])
        return Rooms(fit, columns.holders[self.rows] > 0)

    def scores(self, scorer: Scorer, zones: IntArray) -> IntArray:
        """Return ``(k,)`` how full the devices would be; ``zones`` as masks, 0 for all."""
        scores = np.zeros(len(self.rows), np.int64)
        for mask in np.unique(zones).tolist():
            chosen = np.flatnonzero(zones == mask)
            rows, numa = self.rows[chosen], zones_of(mask) if mask else None
            for part in self.plan.early:
                columns = self.view.devices.columns[part.kind]
                may = _bits(part.candidates(part.group.mask, numa), columns.total.shape[1])
                total = columns.total[rows][:, may]
                free = np.maximum(total - columns.used[rows][:, may], 0)
                scores[chosen] += scorer.scores(
                    part.kind, part.amounts, total.sum(axis=1), free.sum(axis=1)
                )
        return scores


def by_model(view: Snapshot, claimed: Claimed) -> Iterator[ModelRows]:
    """Yield the rows whose devices are reported, model by model."""
    rows = view.row_numbers
    models = view.devices.model[rows]
    for model in np.unique(models).tolist():
        if model >= 0:
            where = np.flatnonzero(models == model)
            yield ModelRows(view, model, claimed.plan(view, model), where, rows[where])


def add_shortages(verdicts: Verdicts, view: Snapshot, claimed: Claimed) -> None:
    """Reject the rows that have not enough."""
    for group in by_model(view, claimed):
        if group.plan.never is not None:
            verdicts.add(group.where, group.plan.never)
            continue
        answers, which = group.plan.shortages(group.rooms())
        for index, answer in enumerate(answers):
            if answer is not None:
                verdicts.add(group.where[which == index], answer)


def scores_of(
    view: Snapshot, claimed: Claimed, scorer: Scorer, zones: Callable[[], IntArray]
) -> IntArray:
    """Return ``(n,)``: the raw scores; 0 where devices are not reported."""
    scores = np.zeros(len(view), np.int64)
    for group in by_model(view, claimed):
        if group.plan.never is None:
            scores[group.where] = group.scores(scorer, zones()[group.where])
    return scores


def hints_of(view: Snapshot, claimed: Claimed, sets: Sequence[int]) -> OtherHints:
    """Return what the claim says of sets of NUMA nodes, by row.

    A row that has not enough devices prefers no set.
    """
    shape = (len(view), len(sets))
    prefers, named = np.ones(shape, bool), np.zeros(shape, bool)
    scores = np.zeros(shape, np.int64)
    for group in by_model(view, claimed):
        if group.plan.never is not None:
            prefers[group.where], named[group.where] = False, True
            continue
        answers, which = claimed.hints(view, group.model).of(group.rooms())
        for index, answer in enumerate(answers):
            where = group.where[which == index]
            if isinstance(answer, Shortage):
                prefers[where], named[where] = False, True
            elif answer:
                one = _opinion(answer, sets, len(group.plan.early))
                prefers[where], named[where], scores[where] = one
    return OtherHints(prefers, named, scores)


def _opinion(
    hints: Sequence[NumaHint], sets: Sequence[int], kinds: int
) -> tuple[BoolArray, BoolArray, IntArray]:
    """Return (preferred, named, score) of each set; every type of device says the same."""
    by_mask = {mask_of(hint.nodes): hint for hint in hints}
    found = [by_mask.get(mask) for mask in sets]
    return (
        np.array([hint is not None and hint.preferred for hint in found], bool),
        np.ones(len(sets), bool),
        np.array([hint.score * kinds if hint is not None else 0 for hint in found], np.int64),
    )


def _bits(mask: int, width: int) -> BoolArray:
    """Return ``(width,)``: which minors are in the set."""
    return np.array([mask >> minor & 1 for minor in range(width)], bool)
