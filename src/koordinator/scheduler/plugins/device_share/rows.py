"""Verdicts, scores and NUMA hints of one device request on many rows."""

from collections.abc import Callable, Sequence

import numpy as np

from koordinator.domain.devices.allocation import DeviceShortage
from koordinator.domain.devices.scorer import Scorer
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import Rejections
from koordinator.scheduler.plugins.device_share.requests import RequestEntry
from koordinator.scheduler.rules.numa.rows_align import OtherHints
from koordinator.scheduler.snapshot import Snapshot


@dataclass(slots=True, eq=False)
class RejectionCodes:
    """Reasons by row; the first one added to a row counts."""

    codes: IntArray  # (n,)
    unresolvable: BoolArray  # (n,)
    reasons: list[str]

    @staticmethod
    def none(count: int) -> "RejectionCodes":
        """Return verdicts that accept every row."""
        return RejectionCodes(np.zeros(count, np.int64), np.zeros(count, bool), [])

    def add(self, rows: IntArray | int, shortage: DeviceShortage) -> None:
        """Reject rows that are not rejected yet."""
        if shortage.reason not in self.reasons:
            self.reasons.append(shortage.reason)
        rows = np.atleast_1d(rows)
        rows = rows[self.codes[rows] == 0]
        self.codes[rows] = 1 << self.reasons.index(shortage.reason)
        self.unresolvable[rows] = not shortage.resolvable

    def rejections(self) -> Rejections:
        """Return the verdicts as the result of a filter."""
        return Rejections(self.codes, tuple(self.reasons), self.unresolvable)


@dataclass(frozen=True, slots=True)
class ModelRows:
    """Rows of a view whose nodes are of one model."""

    model: int
    places: IntArray | slice  # (k,) places in the view
    rows: IntArray  # (k,) rows of the cluster


_MODELS: Memo[list[ModelRows]] = Memo()
_JUDGED: Memo[dict[tuple[RequestEntry, int], tuple[list[int], IntArray]]] = Memo()


def by_model(view: Snapshot) -> list[ModelRows]:
    """Return the rows with a Device object, grouped by model."""
    return _MODELS.as_of(view, view.usage_version, _split_by_model, view)


def _split_by_model(view: Snapshot) -> list[ModelRows]:
    rows = view.row_numbers
    models = view.devices.model[rows]
    first = int(models[0]) if len(models) else -1
    if np.logical_and.reduce(models == first):
        return [ModelRows(first, slice(None), rows)] if first >= 0 else []
    by_model = ((model, np.flatnonzero(models == model)) for model in np.unique(models).tolist())
    return [ModelRows(model, places, rows[places]) for model, places in by_model if model >= 0]


def judged_of(
    view: Snapshot, entry: RequestEntry, scorer: Scorer, group: ModelRows
) -> tuple[list[int], IntArray]:
    """Return the state of each row for the request, and the raw scores of all its devices."""
    known = _JUDGED.as_of(view, view.usage_version, dict)
    key = (entry, group.model)
    if key not in known:
        known[key] = entry.on(view.devices, group.model).judged(
            view.devices, group.rows, scorer, compiled=view.uses_kernels
        )
    return known[key]


def add_shortages(
    verdicts: RejectionCodes, view: Snapshot, entry: RequestEntry, scorer: Scorer
) -> None:
    """Reject the rows with too few devices."""
    for group in by_model(view):
        on_model = entry.on(view.devices, group.model)
        if on_model.never:
            shortages = [on_model.never] * len(group.rows)
        else:
            shortages = on_model.shortages(judged_of(view, entry, scorer, group)[0])
        if any(shortages):
            numbers = np.zeros(len(view), np.int64)
            numbers[group.places] = shortages
            _add_numbered(verdicts, entry, numbers)


def add_unplaced(
    verdicts: RejectionCodes,
    view: Snapshot,
    entry: RequestEntry,
    scorer: Scorer,
    zones: Callable[[], IntArray],
) -> None:
    """Reject rows where the pod is bound to NUMA nodes and its devices are on none.

    Such devices give no NUMA hints, so the alignment has not checked their number; devices on no
    particular NUMA node still serve.  ``zones`` returns masks as for ``scores_of``.
    """
    for group in by_model(view):
        on_model = entry.on(view.devices, group.model)
        if on_model.never or on_model.plan.model.numa_sets:
            continue
        shortages = on_model.shortages_anywhere(judged_of(view, entry, scorer, group)[0])
        if any(shortages):
            numbers = np.zeros(len(view), np.int64)
            numbers[group.places] = shortages
            numbers[zones() == 0] = 0
            _add_numbered(verdicts, entry, numbers)


def _add_numbered(verdicts: RejectionCodes, entry: RequestEntry, numbers: IntArray) -> None:
    """Reject the rows with a shortage, ``(n,)`` by number."""
    for number in sorted(set(numbers.tolist()) - {0}):
        shortage = entry.shortages[number]
        assert shortage is not None  # noqa: S101 (only number 0 has no shortage)
        verdicts.add(np.flatnonzero(numbers == number), shortage)


def scores_of(
    view: Snapshot, entry: RequestEntry, scorer: Scorer, zones: IntArray | None
) -> IntArray:
    """Return ``(n,)``: raw scores; 0 without a Device object.

    ``zones`` are masks of NUMA nodes, 0 for all of them; None means all of them on every row.
    """
    scores = np.zeros(len(view), np.int64)
    for group in by_model(view):
        on_model = entry.on(view.devices, group.model)
        if not on_model.never:
            if zones is None:
                of_group = judged_of(view, entry, scorer, group)[1]
            else:
                of_group = on_model.scores(
                    view.devices,
                    group.rows,
                    zones[group.places],
                    scorer,
                    compiled=view.uses_kernels,
                )
            if isinstance(group.places, slice):
                return of_group
            scores[group.places] = of_group
    return scores


def rate_rows(
    view: Snapshot,
    entry: RequestEntry,
    scorer: Scorer,
    zones: IntArray | None,
    fits: BoolArray,
    *,
    aligns: bool,
) -> IntArray:
    """Set ``fits``, ``(n,)``, to False on rows with too few devices; return the raw scores.

    ``zones`` as for ``scores_of``.  ``aligns``: devices come from these NUMA nodes; if they are on
    none, rows are rejected as by ``add_unplaced``.
    """
    scores: IntArray = np.zeros(len(view), np.int64)
    for group in by_model(view):
        on_model, places = entry.on(view.devices, group.model), group.places
        if on_model.never:
            fits[places] = False
            continue
        states, of_group = judged_of(view, entry, scorer, group)
        short = on_model.shortages(states)
        if any(short):
            fits[places] &= np.array(short, np.int64) == 0
        if zones is not None:
            if aligns and not on_model.plan.model.numa_sets:
                anywhere = np.array(on_model.shortages_anywhere(states), np.int64)
                fits[places] &= (anywhere == 0) | (zones[places] == 0)
            of_group = on_model.scores(
                view.devices, group.rows, zones[places], scorer, compiled=view.uses_kernels
            )
        if isinstance(places, slice):
            return of_group
        scores[places] = of_group
    return scores


def hints_of(
    view: Snapshot, entry: RequestEntry, scorer: Scorer, sets: Sequence[int]
) -> OtherHints:
    """Return the hints of the request for sets of NUMA nodes, by row."""
    groups = by_model(view)
    if len(groups) == 1 and isinstance(groups[0].places, slice):
        on_model = entry.on(view.devices, groups[0].model)
        if not on_model.never:
            return on_model.hint_rows(judged_of(view, entry, scorer, groups[0])[0], sets)
    shape = (len(view), len(sets))
    prefers, named = np.ones(shape, bool), np.zeros(shape, bool)
    scores = np.zeros(shape, np.int64)
    for group in groups:
        on_model = entry.on(view.devices, group.model)
        if on_model.never:
            prefers[group.places], named[group.places] = False, True
            continue
        hints = on_model.hint_rows(judged_of(view, entry, scorer, group)[0], sets)
        prefers[group.places], named[group.places] = hints.prefers, hints.named
        scores[group.places] = hints.scores
    return OtherHints(prefers, named, scores)
