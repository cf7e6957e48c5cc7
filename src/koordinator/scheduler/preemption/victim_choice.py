"""The cheapest victims that make enough room, node by node.

Of every node the *options* are to evict its first pod, its first two and so on, the cheapest ones
first.  The best option of a node is the one whose victims are of the lowest level, and fewest per
member that fits for them; the nodes with the best options are taken.  A gang that is broken makes
room on all nodes of its members at once.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.preemption.victims import (
    NO_LIMIT,
    PreemptionProblem,
    Shape,
    VictimTable,
)


@dataclass(slots=True)
class VictimChoice:
    """Chosen victims, and the nodes of the members."""

    evicted: BoolArray  # (n_victims,)
    free: IntArray  # (n_rows, n_columns) free amounts after the evictions
    places: list[IntArray]  # of each shape: (n_rows,) how many members


def slots(free: IntArray, shape: Shape, used: IntArray | int = 0) -> IntArray:
    """Return ``(n,)``: the number of further such members that fit besides ``used``."""
    columns = np.flatnonzero(shape.amounts)
    headroom = np.maximum(shape.most - used, 0)
    if not len(columns):
        return np.asarray(headroom)
    fits = (free[:, columns] // shape.amounts[columns]).min(axis=1)
    out: IntArray = np.clip(fits, 0, headroom)
    return out


def freed(victims: VictimTable, chosen: BoolArray, n_rows: int) -> IntArray:
    """Return ``(n_rows, n_columns)``: amounts that the chosen victims free."""
    out = np.zeros((n_rows, victims.amounts.shape[1]), np.int64)
    np.add.at(out, victims.row[chosen], victims.amounts[chosen])
    return out


def might_fit(problem: PreemptionProblem, level: int) -> bool:
    """Return whether there could be room without all pods up to a level."""
    victims = problem.victims
    leaving = victims.level <= level
    free = problem.free + freed(victims, leaving, len(problem.rows))
    if any(int(slots(free, shape).sum()) < shape.count for shape in problem.shapes):
        return False
    shortage = problem.shortage
    return shortage is None or bool((shortage.frees[leaving].sum(axis=0) >= shortage.missing).all())


def choose(problem: PreemptionProblem, level: int) -> VictimChoice | None:
    """Choose victims up to a level; None if no room for all members was found."""
    victims, n_rows = problem.victims, len(problem.rows)
    evicted = victims.terminating
    choice = VictimChoice(evicted, problem.free + freed(victims, evicted, n_rows), [])
    for shape in problem.shapes:
        if not _place(problem, shape, level, choice):
            return None
    if problem.shortage is not None and not _fill(problem, level, choice):
        return None
    return choice


def _place(problem: PreemptionProblem, shape: Shape, level: int, choice: VictimChoice) -> bool:
    """Find places for the members of one shape."""
    need = shape.count
    placed = np.zeros(len(problem.rows), np.int64)
    choice.places.append(placed)
    while True:
        need -= _take(shape, choice, placed, need)
        if not need:
            return True
        options = _options(problem.victims, shape, choice, placed, level=level, need=need)
        if options is None:
            return False
        _evict_best(problem, shape, choice, placed, options=options, need=need)


def _take(shape: Shape, choice: VictimChoice, placed: IntArray, need: int) -> int:
    """Put members where there is room, nodes with the least of it first; return how many."""
    headroom = slots(choice.free, shape, placed)
    rows = np.flatnonzero(headroom)
    rows = rows[np.argsort(headroom[rows], kind="stable")]
    before = np.cumsum(headroom[rows]) - headroom[rows]
    taken = np.clip(need - before, 0, headroom[rows])
    placed[rows] += taken
    choice.free[rows] -= taken[:, None] * shape.amounts
    return int(taken.sum())


@dataclass(frozen=True, slots=True)
class _Candidates:
    """Pods that may be evicted, by node, the cheapest first."""

    at: IntArray  # (n,) positions in the table
    level: IntArray  # (n,)
    price: FloatArray  # (n,) pods that go with it
    breaks: BoolArray  # (n,) its job is evicted with it


@dataclass(frozen=True, slots=True)
class _Options:
    """The best option of every node that has one, best first."""

    start: Sequence[int]  # its victims among the candidates: from …
    end: Sequence[int]  # … to, exclusive
    gain: Sequence[int]  # members that fit for them
    candidates: _Candidates


def _candidates(
    victims: VictimTable, choice: VictimChoice, headroom: IntArray, *, level: int, need: int
) -> _Candidates:
    """Return the candidates up to a level; ``headroom`` (by row) is 0 where none helps.

    The first members of a gang on a node go alone as long as it has some to spare.
    """
    at = np.flatnonzero(~choice.evicted & (victims.level <= level) & (headroom[victims.row] > 0))
    own, price = victims.level[at], np.ones(len(at))
    gang = victims.gang[at]
    if not (gang >= 0).any():
        return _Candidates(at, own, price, np.zeros(len(at), bool))
    left = spare_left(victims, choice.evicted)
    number = _numbered(victims.row[at] * (len(left) + 1) + gang)
    breaks = (gang >= 0) & (number >= left[gang])
    own = np.where(breaks, victims.whole_level[at], own)
    price = np.where(breaks, _shared_prices(victims, at, need), price)
    order = np.lexsort((np.arange(len(at)), price, own, victims.row[at]))
    order = order[own[order] <= level]
    return _Candidates(at[order], own[order], price[order], breaks[order])


def spare_left(victims: VictimTable, evicted: BoolArray) -> IntArray:
    """Return ``(n_gangs,)``: number of further members that may be evicted without the others."""
    lost = victims.gang[evicted & (victims.gang >= 0)]
    return victims.spare - np.bincount(lost, minlength=len(victims.spare))


def _numbered(keys: IntArray) -> IntArray:
    """Return how many equal keys come before each."""
    order = np.argsort(keys, kind="stable")
    first = np.flatnonzero(np.diff(keys[order], prepend=-2))  # below every key
    numbers = np.empty(len(keys), np.int64)
    length = np.diff(first, append=len(keys))
    numbers[order] = np.arange(len(keys)) - np.repeat(first, length)
    return numbers


def _shared_prices(victims: VictimTable, at: IntArray, need: int) -> FloatArray:
    """Return the members that go with each, shared among those whose room can be used."""
    of_job = victims.job[at]
    inside = of_job >= 0
    sizes = np.bincount(of_job[inside], minlength=len(victims.jobs))
    price = victims.price[at].copy()
    price[inside] *= np.maximum(sizes / max(need, 1), 1.0)[of_job[inside]]
    return price


def _options(
    victims: VictimTable,
    shape: Shape,
    choice: VictimChoice,
    placed: IntArray,
    *,
    level: int,
    need: int,
) -> _Options | None:
    headroom = np.maximum(shape.most - placed, 0)
    candidates = _candidates(victims, choice, headroom, level=level, need=need)
    at = candidates.at
    if not len(at):
        return None
    row = victims.row[at]
    first = np.flatnonzero(np.diff(row, prepend=-1))
    length = np.diff(first, append=len(row))
    columns = np.flatnonzero(shape.amounts)
    available = (
        _summed(victims.amounts[at][:, columns], first, length) + choice.free[row][:, columns]
    )
    gain = (available // shape.amounts[columns]).min(axis=1, initial=NO_LIMIT)
    gain = np.minimum(np.minimum(gain, headroom[row]), need)
    helps = np.flatnonzero(gain > 0)
    if not len(helps):
        return None
    paid = _summed(candidates.price[:, None], first, length)[helps, 0]
    each = np.round(paid / gain[helps], 9)
    late = -victims.started_s[at[helps]]
    levels, rows = candidates.level[helps], row[helps]
    order = np.lexsort((late, -gain[helps], each, levels, rows))
    best = order[np.flatnonzero(np.diff(rows[order], prepend=-1))]
    ranked = best[np.lexsort((rows[best], late[best], each[best], levels[best]))]
    end = helps[ranked]
    start = np.repeat(first, length)[end]
    return _Options(start.tolist(), (end + 1).tolist(), gain[end].tolist(), candidates)


def _summed(amounts: npt.NDArray[Any], first: IntArray, length: IntArray) -> npt.NDArray[Any]:
    """Return running sums per node."""
    total = np.cumsum(amounts, axis=0)
    before = total[first] - amounts[first]
    return np.asarray(total - np.repeat(before, length, axis=0))


def _evict_best(
    problem: PreemptionProblem,
    shape: Shape,
    choice: VictimChoice,
    placed: IntArray,
    *,
    options: _Options,
    need: int,
) -> None:
    """Evict for the best options until there may be enough room."""
    victims, candidates = problem.victims, options.candidates
    chosen = np.zeros(len(victims.pods), bool)
    left = spare_left(victims, choice.evicted)
    headroom = need
    for start, end, gain in zip(options.start, options.end, options.gain, strict=True):
        those, breaks = candidates.at[start:end], candidates.breaks[start:end]
        if victims.jobs:
            gangs = victims.gang[those[~breaks & ~chosen[those]]]
            gangs, times = np.unique(gangs[gangs >= 0], return_counts=True)
            if (times > left[gangs]).any():
                continue  # the gang has lost members since; the next options take it into account
            left[gangs] -= times
            for job in np.unique(victims.job[those[breaks & ~chosen[those]]]).tolist():
                headroom -= _break(victims, job, chosen, choice, shape=shape, placed=placed)
        headroom -= gain
        chosen[those] = True
        if headroom <= 0:
            break
    chosen &= ~choice.evicted
    choice.evicted = choice.evicted | chosen
    choice.free += freed(victims, chosen, len(choice.free))


def _break(
    victims: VictimTable,
    job: int,
    chosen: BoolArray,
    choice: VictimChoice,
    *,
    shape: Shape,
    placed: IntArray,
) -> int:
    """Evict a whole gang group; return for how many members that makes room by itself, at most."""
    inside = victims.jobs[job].inside
    inside = inside[~choice.evicted[inside] & ~chosen[inside]]
    chosen[inside] = True
    rows = np.unique(victims.row[inside])
    free = choice.free[rows].copy()
    np.add.at(free, np.searchsorted(rows, victims.row[inside]), victims.amounts[inside])
    row_shape = replace(shape, most=shape.most[rows])
    return int(slots(free, row_shape, placed[rows]).sum())


def _fill(problem: PreemptionProblem, level: int, choice: VictimChoice) -> bool:
    """Evict until the quota's shortage is covered: the cheapest first, those that free the most."""
    shortage, victims = problem.shortage, problem.victims
    if shortage is None:
        return True
    left = shortage.missing - shortage.frees[choice.evicted].sum(axis=0)
    everywhere = np.ones(len(problem.rows), np.int64)
    candidates = _candidates(victims, choice, everywhere, level=level, need=len(victims.pods))
    useful = np.minimum(shortage.frees[candidates.at], np.maximum(left, 0)) / shortage.missing
    each = candidates.price / np.maximum(useful.sum(axis=1), 1e-9)
    order = np.lexsort((-victims.started_s[candidates.at], each, candidates.level))
    chosen = np.zeros(len(victims.pods), bool)
    spare = spare_left(victims, choice.evicted)
    for at in candidates.at[order].tolist():
        if (left <= 0).all():
            break
        if chosen[at] or not (shortage.frees[at][left > 0] > 0).any():
            continue
        those = np.array([at])
        gang = victims.gang[at]
        if gang >= 0 and spare[gang] > 0:
            spare[gang] -= 1
        elif gang >= 0:
            if victims.whole_level[at] > level:
                continue
            inside = victims.jobs[victims.job[at]].inside
            those = inside[~chosen[inside] & ~choice.evicted[inside]]
        chosen[those] = True
        left = left - shortage.frees[those].sum(axis=0)
    choice.evicted = choice.evicted | chosen
    choice.free += freed(victims, chosen, len(choice.free))
    return bool((left <= 0).all())
