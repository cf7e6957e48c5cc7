"""Arithmetic of resource usage that is repeated for every placement.

One NumPy version and one compiled loop each. ``columns``, ``amounts`` and ``weights`` have an entry
per resource.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray, Kernel
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.rules.curves import EXACT_BELOW, percent_floor

MAX_SCORE: Final = 100
HALF: Final = MAX_SCORE // 2


def _shortfalls(
    requested: IntArray, allocatable: IntArray, columns: IntArray, amounts: IntArray
) -> IntArray:
    codes = np.zeros(len(requested), np.int64)
    for bit, (column, amount) in enumerate(zip(columns.tolist(), amounts.tolist(), strict=True)):
        short = requested[:, column] + amount > allocatable[:, column]
        codes |= np.left_shift(short, bit, dtype=np.int64)
    return codes


def _shortfalls_loop(
    requested: IntArray, allocatable: IntArray, columns: IntArray, amounts: IntArray
) -> IntArray:
    n = requested.shape[0]
    codes = np.zeros(n, np.int64)
    for bit in range(len(columns)):
        column, amount, flag = columns[bit], amounts[bit], 1 << bit
        for row in range(n):
            if requested[row, column] + amount > allocatable[row, column]:
                codes[row] |= flag
    return codes


def _matrix(types: Any) -> Any:
    return types.Array(types.int64, 2, "A", readonly=True)


def _vector(types: Any) -> Any:
    return types.Array(types.int64, 1, "C", readonly=True)


#: ``(n,)``: bit i is set if ``amounts[i]`` of ``columns[i]`` exceeds the free amount.
#: ``requested`` and ``allocatable`` are ``(n, n_resources)``.
shortfalls = Kernel(
    _shortfalls,
    _shortfalls_loop,
    lambda t: (_matrix(t), _matrix(t), _vector(t), _vector(t)),
)


# -- many judgements at once -------------------------------------------------------------------


@dataclass(frozen=True, slots=True, eq=False)
class MeanShare:
    """Weighted mean of the free (``most``: used) percentages after placement."""

    columns: IntArray
    amounts: IntArray
    weights: IntArray
    most: bool
    nonzero: bool  # cpu and memory (columns 0 and 1) use non-zero defaults


@dataclass(frozen=True, slots=True, eq=False)
class Balance:
    """100 minus the standard deviation, in percent, of the used fractions.

    With ``change``, the score is 75 plus or minus half a point per point of improvement or
    deterioration.
    """

    columns: IntArray
    amounts: IntArray
    change: bool = False


Formula = MeanShare | Balance


class RowUsage(NamedTuple):
    """Usage of nodes in the format of the loops."""

    requested: IntArray  # (n_resources, capacity)
    nonzero: IntArray  # (2, capacity): cpu and memory with non-zero defaults
    allocatable: IntArray  # (n_resources, capacity)
    rows: IntArray  # (n,); empty: the first n rows
    times: IntArray  # (n,): additional pods on each row; empty if none
    each: IntArray  # (n_resources,): requests of each additional pod
    each_nonzero: IntArray  # (2,)


class Judgements(NamedTuple):
    """Checks and weighted formulas to evaluate on nodes."""

    checks: IntArray  # (n_checks, 2): column, amount that must be free
    formulas: IntArray  # (n_formulas, 4): kind, weight, nonzero flag, end of its terms
    terms: IntArray  # (n_terms, 3): column, amount, weight


class PluginColumns(NamedTuple):
    """Amounts of nodes that a plugin tracks, and the requests of pods of ``k`` classes.

    A class fits where its amount and what is held are within the capacity, in each column that it
    checks.  Its score is the weighted mean of the free percentages after placement, in the columns
    that it scores; a resource without capacity counts as full.
    """

    used: IntArray  # (n, n_columns); beyond ``FAR``: no amount matters
    capacity: IntArray  # (n, n_columns)
    case: IntArray  # (n,): which of the ``added`` amounts a placed pod adds
    added: IntArray  # (k, n_cases, n_columns)
    checked: IntArray  # (k, r): columns
    scored: IntArray  # (k, r): columns
    amounts: IntArray  # (k, r), of a class
    weights: IntArray  # (r,)
    dominant: int  # additional weight of the scarcest resource


FAR: Final = 1 << 53  # in place of an amount without end
FREE, USED, BALANCE, BALANCE_CHANGE = range(4)  # kinds of formulas
#: Kind of the score of ``PluginColumns``, which only batches evaluate, as the last one of a class.
#: The additional weight of the scarcest resource is in place of the nonzero flag.
FREE_OF_ALL = -1


def judgements(
    checks: Sequence[tuple[IntArray, IntArray]], formulas: Sequence[tuple[Formula, int]]
) -> Judgements:
    """Combine (columns, amounts) that must be free, and weighted formulas."""
    pairs = [pair for columns, amounts in checks for pair in zip(columns, amounts, strict=True)]
    heads: list[tuple[int, int, int, int]] = []
    terms: list[tuple[int, int, int]] = []
    for formula, weight in formulas:
        if isinstance(formula, Balance):
            kind = BALANCE_CHANGE if formula.change else BALANCE
            nonzero, weights = False, np.zeros_like(formula.columns)
        else:
            kind, nonzero = USED if formula.most else FREE, formula.nonzero
            weights = formula.weights
        terms += zip(formula.columns, formula.amounts, weights, strict=True)
        heads.append((kind, weight, nonzero, len(terms)))
    return Judgements(
        np.array(pairs, np.int64).reshape(-1, 2),
        np.array(heads, np.int64).reshape(-1, 4),
        np.array(terms, np.int64).reshape(-1, 3),
    )


def _judge(  # noqa: PLR0917 (numba takes no keywords)
    requested: IntArray,
    nonzero: IntArray,
    allocatable: IntArray,
    rows: IntArray,
    times: IntArray,
    each: IntArray,
    each_nonzero: IntArray,
    checks: IntArray,
    formulas: IntArray,
    terms: IntArray,
    fits: BoolArray,
    total: IntArray,
) -> None:
    judged_rows = rows if len(rows) else np.arange(len(fits))
    charged, more, capacity = (
        requested[:, judged_rows],
        nonzero[:, judged_rows],
        allocatable[:, judged_rows],
    )
    if len(times):
        charged += each[:, None] * times
        more += each_nonzero[:, None] * times
    for column, amount in checks.tolist():
        fits &= charged[column] + amount <= capacity[column]
    start = 0
    for kind, weight, counts_nonzero, end in formulas.tolist():
        columns, amounts, weights = terms[start:end].T
        start, used = end, charged[columns]
        if counts_nonzero:
            used = np.where((columns < 2)[:, None], more[np.minimum(columns, 1)], used)  # noqa: PLR2004 (cpu, memory)
        before = used
        used = used + amounts[:, None]
        if kind >= BALANCE:
            score = _balances(used, capacity[columns])
            if kind == BALANCE_CHANGE:
                score = HALF + (HALF + score - _balances(before, capacity[columns])) // 2
        else:
            score = _mean_shares(used, capacity[columns], weights, kind == USED)
        total += weight * score * fits


def _mean_shares(used: IntArray, capacity: IntArray, weights: IntArray, most: bool) -> IntArray:
    part = np.minimum(used, capacity) if most else np.maximum(capacity - used, 0)
    has = weights[:, None] * (capacity > 0)
    total = (percent_floor(part, capacity) * has).sum(axis=0)
    mean: IntArray = total // np.maximum(has.sum(axis=0), 1)
    return mean


def _balances(used: IntArray, capacity: IntArray) -> IntArray:
    fractions = np.minimum(used / np.maximum(capacity, 1), 1.0)
    return ((1.0 - _deviation(fractions, capacity > 0)) * MAX_SCORE).astype(np.int64)


def _deviation(fractions: FloatArray, counted: BoolArray) -> FloatArray:
    """Return the standard deviation over axis 0 of the counted fractions.

    For two fractions it is half their difference.
    """
    if len(fractions) == 2 and counted.all():  # noqa: PLR2004 (cpu and memory, nearly always)
        half: FloatArray = np.abs(fractions[0] - fractions[1]) / 2
        return half
    number = counted.sum(axis=0)
    total = np.zeros(fractions.shape[1])
    for fraction, counts in zip(fractions, counted, strict=True):
        total += np.where(counts, fraction, 0.0)
    mean = total / np.maximum(number, 1)
    squares = np.zeros(fractions.shape[1])
    for fraction, counts in zip(fractions, counted, strict=True):
        squares += np.where(counts, (fraction - mean) * (fraction - mean), 0.0)
    low = np.where(counted, fractions, np.inf).min(axis=0, initial=np.inf)
    high = np.where(counted, fractions, -np.inf).max(axis=0, initial=-np.inf)
    with np.errstate(invalid="ignore"):
        pair = (high - low) / 2
    spread = np.where(number == 2, pair, np.sqrt(squares / np.maximum(number, 1)))  # noqa: PLR2004 (two)
    return np.where(number < 2, 0.0, spread)  # noqa: PLR2004 (one fraction deviates from nothing)


def _judge_loop(  # noqa: C901, PLR0912, PLR0915, PLR0917 (one loop for numba)
    requested: IntArray,
    nonzero: IntArray,
    allocatable: IntArray,
    rows: IntArray,
    times: IntArray,
    each: IntArray,
    each_nonzero: IntArray,
    checks: IntArray,
    formulas: IntArray,
    terms: IntArray,
    fits: BoolArray,
    total: IntArray,
) -> None:
    n, more, some = len(fits), len(times) > 0, len(rows) > 0
    is_plain = not more and not some  # loops over neighbouring rows become vector instructions
    for check in range(len(checks)):
        column, amount = checks[check, 0], checks[check, 1]
        charged, capacity, step = (
            requested[column],
            allocatable[column],
            each[column] if more else 0,
        )
        if is_plain:
            for i in range(n):
                fits[i] &= charged[i] + amount <= capacity[i]
            continue
        for i in range(n):
            row = rows[i] if some else i
            used = charged[row] + amount + (times[i] * step if more else 0)
            fits[i] &= used <= capacity[row]
    points, weights = np.zeros(n, np.int64), np.zeros(n, np.int64)
    shares, counted = np.empty(n), np.empty(n)
    most = 0  # maximum number of terms of a balance without the fast path for pairs
    start = 0
    for formula in range(len(formulas)):
        end = formulas[formula, 3]
        if formulas[formula, 0] >= BALANCE and end - start != 2:  # noqa: PLR2004 (a pair)
            most = max(most, end - start)
        start = end
    fractions, earlier = np.zeros((most, n)), np.zeros((most, n))
    sums, earlier_sums = np.zeros(n if most else 0), np.zeros(n if most else 0)
    start = 0
    for formula in range(len(formulas)):
        kind, times_score, end = formulas[formula, 0], formulas[formula, 1], formulas[formula, 3]
        if kind >= BALANCE and end - start == 2:  # noqa: PLR2004 (cpu and memory, nearly always)
            one, other = terms[start, 0], terms[start + 1, 0]
            amount, other_amount = terms[start, 1], terms[start + 1, 1]
            charged, other_charged = requested[one], requested[other]
            capacity, other_capacity = allocatable[one], allocatable[other]
            step, other_step = (each[one], each[other]) if more else (0, 0)
            start = end
            if is_plain:
                for i in range(n):
                    has, other_has = float(capacity[i]), float(other_capacity[i])
                    whole, other_whole = max(has, 1.0), max(other_has, 1.0)
                    used, other_used = float(charged[i]), float(other_charged[i])
                    fraction = min((used + amount) / whole, 1.0)
                    other_fraction = min((other_used + other_amount) / other_whole, 1.0)
                    deviation = abs(fraction - other_fraction) / 2
                    if has <= 0.0 or other_has <= 0.0:
                        deviation = 0.0
                    shares[i] = np.floor((1.0 - deviation) * MAX_SCORE)
                    deviation = abs(min(used / whole, 1.0) - min(other_used / other_whole, 1.0)) / 2
                    if has <= 0.0 or other_has <= 0.0:
                        deviation = 0.0
                    counted[i] = np.floor((1.0 - deviation) * MAX_SCORE)
                for i in range(n):
                    points[i] = shares[i]
                    if kind == BALANCE_CHANGE:
                        points[i] = HALF + (HALF + points[i] - np.int64(counted[i])) // 2
                    total[i] += times_score * points[i] if fits[i] else 0
                continue
            for i in range(n):
                row = rows[i] if some else i
                if not fits[i]:
                    continue
                score = MAX_SCORE
                before = MAX_SCORE
                if capacity[row] > 0 and other_capacity[row] > 0:
                    used = charged[row] + (times[i] * step if more else 0)
                    other_used = other_charged[row] + (times[i] * other_step if more else 0)
                    fraction = min((used + amount) / capacity[row], 1.0)
                    other_fraction = min((other_used + other_amount) / other_capacity[row], 1.0)
                    deviation = abs(fraction - other_fraction) / 2
                    score = int((1.0 - deviation) * MAX_SCORE)
                    if kind == BALANCE_CHANGE:
                        fraction = min(used / capacity[row], 1.0)
                        other_fraction = min(other_used / other_capacity[row], 1.0)
                        deviation = abs(fraction - other_fraction) / 2
                        before = int((1.0 - deviation) * MAX_SCORE)
                if kind == BALANCE_CHANGE:
                    score = HALF + (HALF + score - before) // 2
                total[i] += times_score * score
            continue
        if is_plain and kind < BALANCE:
            highest = np.int64(0)  # of the capacities
            for term in range(start, end):
                capacity = allocatable[terms[term, 0]]
                for i in range(n):
                    highest = max(highest, capacity[i])
            if highest < EXACT_BELOW:  # as ``percent_floor``
                shares[:], counted[:] = 0.0, 0.0
                for term in range(start, end):
                    column, amount = terms[term, 0], float(terms[term, 1])
                    weight = float(terms[term, 2])
                    charged, capacity = requested[column], allocatable[column]
                    if formulas[formula, 2] and column < 2:  # noqa: PLR2004 (cpu, memory)
                        charged = nonzero[column]
                    for i in range(n):
                        has, used = float(capacity[i]), float(charged[i]) + amount
                        part = min(used, has) if kind == USED else max(has - used, 0.0)
                        counts = weight if has > 0.0 else 0.0
                        shares[i] += counts * np.floor(part * 100.0 / max(has, 1.0))
                        counted[i] += counts
                start = end
                for i in range(n):
                    mean = np.int64(shares[i] / max(counted[i], 1.0))
                    total[i] += times_score * mean if fits[i] else 0
                continue
        points[:], weights[:] = 0, 0
        if kind >= BALANCE:
            sums[:], earlier_sums[:] = 0.0, 0.0
        for term in range(start, end):
            column, amount, weight = terms[term, 0], terms[term, 1], terms[term, 2]
            charged, capacity, step = requested[column], allocatable[column], 0
            if formulas[formula, 2] and column < 2:  # noqa: PLR2004 (cpu, memory)
                charged = nonzero[column]
                step = each_nonzero[column] if more else 0
            elif more:
                step = each[column]
            for i in range(n):
                row = rows[i] if some else i
                has = capacity[row]
                if has <= 0:
                    continue
                used = charged[row] + (times[i] * step if more else 0)
                if kind >= BALANCE:
                    fraction = min(used / has, 1.0)
                    earlier[weights[i], i] = fraction
                    earlier_sums[i] += fraction
                    fraction = min((used + amount) / has, 1.0)
                    fractions[weights[i], i] = fraction
                    sums[i] += fraction
                    weights[i] += 1
                else:
                    used += amount
                    part = min(used, has) if kind == USED else max(has - used, 0)
                    points[i] += weight * (part * 100 // has)
                    weights[i] += weight
        start = end
        for i in range(n):
            if fits[i] and kind >= BALANCE:
                number, deviation, was = weights[i], 0.0, 0.0
                if number == 2:  # noqa: PLR2004 (as in the reference)
                    deviation = abs(fractions[0, i] - fractions[1, i]) / 2
                    was = abs(earlier[0, i] - earlier[1, i]) / 2
                elif number > 2:  # noqa: PLR2004 (as in the reference)
                    mean, earlier_mean = sums[i] / number, earlier_sums[i] / number
                    squares, earlier_squares = 0.0, 0.0
                    for at in range(number):
                        squares += (fractions[at, i] - mean) * (fractions[at, i] - mean)
                        distance = earlier[at, i] - earlier_mean
                        earlier_squares += distance * distance
                    deviation = np.sqrt(squares / number)
                    was = np.sqrt(earlier_squares / number)
                score = int((1.0 - deviation) * MAX_SCORE)
                if kind == BALANCE_CHANGE:
                    score = HALF + (HALF + score - int((1.0 - was) * MAX_SCORE)) // 2
                total[i] += times_score * score
            elif fits[i] and weights[i] > 0:
                total[i] += times_score * (points[i] // weights[i])


def _judge_signature(types: Any) -> Any:
    table = types.Array(types.int64, 2, "C", readonly=True)
    vector = _vector(types)
    fits, total = types.Array(types.boolean, 1, "C"), types.Array(types.int64, 1, "C")
    return table, table, table, vector, vector, vector, vector, table, table, table, fits, total


#: Parameters: the fields of ``RowUsage`` and ``Judgements``, then ``fits`` and ``total``, ``(n,)``.
#: A failed check sets ``fits`` to False; where it stays True, the formulas are added to ``total``.
judge = Kernel(_judge, _judge_loop, _judge_signature)
