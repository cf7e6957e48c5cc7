"""The cheapest victims that make enough room, node by node.

Of every node the *options* are to evict its first pod, its first two and so on, the cheapest ones
first.  The best option of a node is the one whose victims are of the lowest level, and fewest per
member that fits for them; the nodes with the best options are taken.  A gang that is broken makes
room on all nodes of its members at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from koordinator.scheduler.job_preemption.problem import Problem, Shape
from koordinator.scheduler.job_preemption.victims import FloatArray, VictimTable
from koordinator.scheduler.snapshot import BoolArray, IntArray


@dataclass(slots=True)
class Choice:
    """Who goes and where members go."""

    evicted: BoolArray  # (n_victims,)
    free: IntArray  # (n_rows, n_columns) what is left then
    places: list[IntArray]  # of each shape: (n_rows,) how many members


def slots(free: IntArray, shape: Shape, used: IntArray | int = 0) -> IntArray:
    """Return ``(n,)``: how many more such members fit, of which ``used`` are there already."""
    asked = np.flatnonzero(shape.amounts)
    room = np.maximum(shape.most - used, 0)
    if not len(asked):
        return np.asarray(room)
    fits = (free[:, asked] // shape.amounts[asked]).min(axis=1)
    out: IntArray = np.clip(fits, 0, room)
    return out


def freed(victims: VictimTable, chosen: BoolArray, n_rows: int) -> IntArray:
    """Return ``(n_rows, n_columns)``: what the chosen victims free."""
    out = np.zeros((n_rows, victims.amounts.shape[1]), np.int64)
    np.add.at(out, victims.row[chosen], victims.amounts[chosen])
    return out


def might_fit(problem: Problem, level: int) -> bool:
    """Return whether there could be room if everybody up to a level went."""
    victims = problem.victims
    gone = victims.level <= level
    free = problem.free + freed(victims, gone, len(problem.rows))
    if any(int(slots(free, shape).sum()) < shape.count for shape in problem.shapes):
        return False
    lack = problem.shortage
    return lack is None or bool((lack.frees[gone].sum(axis=0) >= lack.missing).all())


def choose(problem: Problem, level: int) -> Choice | None:
    """Choose victims up to a level; None if no room for all members was found."""
    victims, n_rows = problem.victims, len(problem.rows)
    evicted = victims.gone
    choice = Choice(evicted, problem.free + freed(victims, evicted, n_rows), [])
    for shape in problem.shapes:
        if not _place(problem, shape, level, choice):
            return None
    if problem.shortage is not None and not _fill(problem, level, choice):
        return None
    return choice


def _place(problem: Problem, shape: Shape, level: int, choice: Choice) -> bool:
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


def _take(shape: Shape, choice: Choice, placed: IntArray, need: int) -> int:
    """Put members where there is room, nodes with the least of it first; return how many."""
    room = slots(choice.free, shape, placed)
    rows = np.flatnonzero(room)
    rows = rows[np.argsort(room[rows], kind="stable")]
    before = np.cumsum(room[rows]) - room[rows]
    taken = np.clip(need - before, 0, room[rows])
    placed[rows] += taken
    choice.free[rows] -= taken[:, None] * shape.amounts
    return int(taken.sum())


@dataclass(frozen=True, slots=True)
class _Options:
    """The best option of every node that has one, best first."""

    start: Sequence[int]  # positions of its victims in ``candidates``: from …
    end: Sequence[int]  # … to, exclusive
    gain: Sequence[int]  # members that fit for them
    candidates: IntArray  # positions in the table


def _options(
    victims: VictimTable, shape: Shape, choice: Choice, placed: IntArray, *, level: int, need: int
) -> _Options | None:
    candidates = np.flatnonzero(~choice.evicted & (victims.level <= level))
    row = victims.row[candidates]
    room = np.maximum(shape.most - placed, 0)[row]
    candidates, row, room = (part[room > 0] for part in (candidates, row, room))
    if not len(candidates):
        return None
    first = np.flatnonzero(np.diff(row, prepend=-1))
    length = np.diff(first, append=len(row))
    asked = np.flatnonzero(shape.amounts)
    total = np.cumsum(victims.amounts[candidates][:, asked], axis=0)
    before = total[first] - victims.amounts[candidates[first]][:, asked]
    there = total - np.repeat(before, length, axis=0) + choice.free[row][:, asked]
    gain = np.minimum((there // shape.amounts[asked]).min(axis=1), room)
    gain = np.minimum(gain, need)
    price = np.cumsum(_prices(victims, candidates, need))
    paid = price - np.repeat(price[first] - _prices(victims, candidates, need)[first], length)
    helps = np.flatnonzero(gain > 0)
    if not len(helps):
        return None
    levels = victims.level[candidates[helps]]
    each = np.round(paid[helps] / gain[helps], 9)
    late = -victims.started_s[candidates[helps]]
    order = np.lexsort((late, -gain[helps], each, levels, row[helps]))
    best = order[np.flatnonzero(np.diff(row[helps][order], prepend=-1))]
    ranked = best[np.lexsort((row[helps][best], late[best], each[best], levels[best]))]
    at = helps[ranked]
    start = np.repeat(first, length)[at]
    return _Options(start.tolist(), (at + 1).tolist(), gain[at].tolist(), candidates)


def _prices(victims: VictimTable, candidates: IntArray, need: int) -> FloatArray:
    """Return what the candidates cost; a gang is worth breaking if all its room is needed."""
    price = victims.price[candidates]
    of_job = victims.job[candidates]
    inside = np.flatnonzero(of_job >= 0)
    if len(inside):
        sizes = np.bincount(of_job[inside], minlength=len(victims.jobs))
        used = np.minimum(sizes, max(need, 1))
        price = price.copy()
        price[inside] *= (sizes / np.maximum(used, 1))[of_job[inside]]
    return price


def _evict_best(
    problem: Problem,
    shape: Shape,
    choice: Choice,
    placed: IntArray,
    *,
    options: _Options,
    need: int,
) -> None:
    """Evict for the best options until there may be enough room."""
    victims = problem.victims
    chosen = np.zeros(len(victims.pods), bool)
    jobs, candidates = victims.job, options.candidates
    has_jobs = bool(victims.jobs)
    room = need
    broken: set[int] = set()
    for start, end, gain in zip(options.start, options.end, options.gain, strict=True):
        those = candidates[start:end]
        room -= gain
        if has_jobs:
            new = [job for job in set(jobs[those].tolist()) if job >= 0 and job not in broken]
            for job in new:
                broken.add(job)
                room -= _break(victims, job, chosen, choice, shape=shape, placed=placed)
        chosen[those] = True
        if room <= 0:
            break
    chosen &= ~choice.evicted
    choice.evicted = choice.evicted | chosen
    choice.free += freed(victims, chosen, len(choice.free))


def _break(
    victims: VictimTable,
    job: int,
    chosen: BoolArray,
    choice: Choice,
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
    there = replace(shape, most=shape.most[rows])
    return int(slots(free, there, placed[rows]).sum())


def _fill(problem: Problem, level: int, choice: Choice) -> bool:
    """Evict until what the quota lacks is free; the cheapest first, those that free the most."""
    lack, victims = problem.shortage, problem.victims
    if lack is None:
        return True
    left = lack.missing - lack.frees[choice.evicted].sum(axis=0)
    helpful = (lack.frees > 0) & (left > 0)
    candidates = np.flatnonzero(~choice.evicted & (victims.level <= level) & helpful.any(axis=1))
    share = (np.minimum(lack.frees[candidates], left) / lack.missing).clip(0).sum(axis=1)
    each = victims.price[candidates] / np.maximum(share, 1e-9)
    order = np.lexsort((-victims.started_s[candidates], each, victims.level[candidates]))
    chosen = np.zeros(len(victims.pods), bool)
    for at in candidates[order].tolist():
        if (left <= 0).all():
            break
        if chosen[at] or not (lack.frees[at][left > 0] > 0).any():
            continue
        those = np.array([at])
        if victims.job[at] >= 0:
            inside = victims.jobs[victims.job[at]].inside
            those = inside[~chosen[inside] & ~choice.evicted[inside]]
        chosen[those] = True
        left = left - lack.frees[those].sum(axis=0)
    choice.evicted = choice.evicted | chosen
    choice.free += freed(victims, chosen, len(choice.free))
    return bool((left <= 0).all())
