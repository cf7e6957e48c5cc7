"""One claim on many nodes at once: shortages, scores and hints, row by row."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from koordinator.domain.devices.scorer import Scorer
from koordinator.domain.devices.shortage import DeviceShortage
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import Rejections
from koordinator.scheduler.plugins.device_share.claims import ClaimEntry
from koordinator.scheduler.rules.numa.rows_align import OtherHints
from koordinator.scheduler.snapshot import Snapshot


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

    def add(self, where: IntArray | int, shortage: DeviceShortage) -> None:
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
    where: IntArray | slice  # (k,) places in the view
    rows: IntArray  # (k,) rows of the cluster


_MODELS: Memo[list[ModelRows]] = Memo()
_JUDGED: Memo[dict[tuple[ClaimEntry, int], tuple[list[int], IntArray]]] = Memo()


def by_model(view: Snapshot) -> list[ModelRows]:
    """Return the rows whose devices are reported, model by model."""
    return _MODELS.as_of(view, view.usage_version, _split_by_model, view)


def _split_by_model(view: Snapshot) -> list[ModelRows]:
    rows = view.row_numbers
    models = view.devices.model[rows]
    first = int(models[0]) if len(models) else -1
    if np.logical_and.reduce(models == first):
        return [ModelRows(first, slice(None), rows)] if first >= 0 else []
    by_model = ((model, np.flatnonzero(models == model)) for model in np.unique(models).tolist())
    return [ModelRows(model, where, rows[where]) for model, where in by_model if model >= 0]


def judged_of(
    view: Snapshot, claimed: ClaimEntry, scorer: Scorer, group: ModelRows
) -> tuple[list[int], IntArray]:
    """Return the state of each row for the claim, and the raw score of all its devices."""
    known = _JUDGED.as_of(view, view.usage_version, dict)
    key = (claimed, group.model)
    if key not in known:
        known[key] = claimed.on(view, group.model).judged(view, group.rows, scorer)
    return known[key]


def add_shortages(verdicts: Verdicts, view: Snapshot, claimed: ClaimEntry, scorer: Scorer) -> None:
    """Reject the rows that have not enough."""
    for group in by_model(view):
        on_model = claimed.on(view, group.model)
        if on_model.never:
            found = [on_model.never] * len(group.rows)
        else:
            found = on_model.lacks(judged_of(view, claimed, scorer, group)[0])
        if any(found):
            lacks = np.zeros(len(view), np.int64)
            lacks[group.where] = found
            _add_numbered(verdicts, claimed, lacks)


def add_unplaced(
    verdicts: Verdicts,
    view: Snapshot,
    claimed: ClaimEntry,
    scorer: Scorer,
    zones: Callable[[], IntArray],
) -> None:
    """Reject rows where the pod is kept to NUMA nodes, and none of the devices is known to be on.

    Such devices have no opinion of NUMA nodes, so that nobody has looked whether there are enough;
    those on none in particular serve all the same.  ``zones`` returns masks as for ``scores_of``.
    """
    for group in by_model(view):
        on_model = claimed.on(view, group.model)
        if on_model.never or on_model.plan.model.numa_sets:
            continue
        found = on_model.lacks_anywhere(judged_of(view, claimed, scorer, group)[0])
        if any(found):
            lacks = np.zeros(len(view), np.int64)
            lacks[group.where] = found
            lacks[zones() == 0] = 0
            _add_numbered(verdicts, claimed, lacks)


def _add_numbered(verdicts: Verdicts, claimed: ClaimEntry, lacks: IntArray) -> None:
    """Reject the rows that lack something, ``(n,)`` by number."""
    for number in sorted(set(lacks.tolist()) - {0}):
        shortage = claimed.shortages[number]
        assert shortage is not None  # noqa: S101 (0 alone stands for nothing)
        verdicts.add(np.flatnonzero(lacks == number), shortage)


def scores_of(
    view: Snapshot, claimed: ClaimEntry, scorer: Scorer, zones: IntArray | None
) -> IntArray:
    """Return ``(n,)``: the raw scores; 0 where devices are not reported.

    ``zones`` are masks of NUMA nodes, 0 for all of them; None: for all of them on every row.
    """
    scores = np.zeros(len(view), np.int64)
    for group in by_model(view):
        on_model = claimed.on(view, group.model)
        if not on_model.never:
            if zones is None:
                found = judged_of(view, claimed, scorer, group)[1]
            else:
                found = on_model.scores(view, group.rows, zones[group.where], scorer)
            if isinstance(group.where, slice):
                return found
            scores[group.where] = found
    return scores


def hints_of(
    view: Snapshot, claimed: ClaimEntry, scorer: Scorer, sets: Sequence[int]
) -> OtherHints:
    """Return what the claim says of sets of NUMA nodes, by row."""
    groups = by_model(view)
    if len(groups) == 1 and isinstance(groups[0].where, slice):
        on_model = claimed.on(view, groups[0].model)
        if not on_model.never:
            return on_model.opinions(judged_of(view, claimed, scorer, groups[0])[0], sets)
    shape = (len(view), len(sets))
    prefers, named = np.ones(shape, bool), np.zeros(shape, bool)
    scores = np.zeros(shape, np.int64)
    for group in groups:
        on_model = claimed.on(view, group.model)
        if on_model.never:
            prefers[group.where], named[group.where] = False, True
            continue
        found = on_model.opinions(judged_of(view, claimed, scorer, group)[0], sets)
        prefers[group.where], named[group.where] = found.prefers, found.named
        scores[group.where] = found.scores
    return OtherHints(prefers, named, scores)
