"""Choice of nodes for pods of several classes, one after the other, in one call.

Placing a pod changes the amounts of one row only, so a class of pods is brought up to date by
evaluating the rows that changed since its last pod, as the change log of the state does between
calls.

======== ============================================================================
pods     ``kinds`` ``(p,)``: the class of each pod; ``rows`` ``(p,)``: results
classes  ``demand`` ``(k, n_columns)``, ``demand_nonzero`` ``(k, 2)``: what a pod adds;
         ``added`` ``(k, n_cases, n_more)``: the same for the last columns, by the case
         of the row; ``scored`` ``(k,)``: the evaluation of the class
scores   by evaluation: ``slots`` in ``best`` ``(slots, n)``; ``whose``: the row of ``fixed``
         ``(u, n)`` with its ``node_totals``; ``since``: the position in the log up to which
         ``best`` is current; the ends of the entries in ``checks`` and ``formulas`` (see
         ``Judgements``)
rows     ``requested``, ``capacity`` ``(n, n_columns)``, ``nonzero`` ``(n, 2)``, ``case`` and
         ``rank`` ``(n,)``
log      ``log``: the rows changed before, ``filled`` of them, with space for one per pod
states   ``state`` ``(n,)``: as of ``NodeStates``; ``states_before`` ``(p,)``: the state of the row
         before the pod; ``ratings``, ``following``: of ``NodeStates``; by evaluation: the column
         in them (``columns_of``, -1: none), the weight of the raw scores, and where its
         ``raws`` are ``(d, n)`` (``shown``)
between  the first pod to decide (``first``) and what the calls for one batch keep for each
calls    other: ``totals`` ``(d, n)``: ``best`` with the raw scores scaled as ``spread_of``
         does; ``peaks`` ``(d, 2)``: the highest raw score where such a pod fits (-1: not
         known) and on how many rows; ``tops``, ``top_values``, ``requested_then``,
         ``capacity_then``: see there
======== ============================================================================

A call ends where a rating or a following state is not known; ``asks`` ``(2,)`` has the column, and
the state whose following one is missing.
"""

from math import sqrt
from typing import Any

import numpy as np

from koordinator.foundation.arrays import FloatArray, IntArray, Kernel
from koordinator.scheduler.contract import UNKNOWN, UNRATED
from koordinator.scheduler.cycle.score_table import UNFIT, best_row, best_spread
from koordinator.scheduler.rules.curves import percent_floor
from koordinator.scheduler.rules.usage_kernels import (
    BALANCE,
    BALANCE_CHANGE,
    FREE_OF_ALL,
    HALF,
    MAX_SCORE,
    USED,
    judge,
)

_NONE: IntArray = np.zeros(0, np.int64)
DIRTY = -2  # in place of the best row of a block: rows of the block have changed


def _choose(  # noqa: PLR0917 (numba takes no keywords)
    kinds: IntArray,
    rows: IntArray,
    demand: IntArray,
    demand_nonzero: IntArray,
    added: IntArray,
    scored: IntArray,
    slots: IntArray,
    since: IntArray,
    checks: IntArray,
    check_ends: IntArray,
    formulas: IntArray,
    formula_ends: IntArray,
    terms: IntArray,
    best: IntArray,
    whose: IntArray,
    fixed: IntArray,
    requested: IntArray,
    nonzero: IntArray,
    capacity: IntArray,
    case: IntArray,
    rank: IntArray,
    log: IntArray,
    filled: int,
    first: int,
    state: IntArray,
    states_before: IntArray,
    columns_of: IntArray,
    shown: IntArray,
    weights_of: IntArray,
    ratings: IntArray,
    following: IntArray,
    raws: IntArray,
    totals: IntArray,
    peaks: IntArray,
    tops: IntArray,
    top_values: IntArray,
    requested_then: FloatArray,
    capacity_then: FloatArray,
    asks: IntArray,
) -> int:
    del totals, peaks, tops, top_values, requested_then, capacity_then  # of the loop alone
    asks[:] = UNFIT
    for at, kind in enumerate(kinds.tolist()[first:], first):
        evaluation = scored[kind]
        slot, column = slots[evaluation], columns_of[evaluation]
        changed = np.array(sorted({*log[since[evaluation] : filled].tolist()}), np.int64)
        if column >= 0 and (ratings[state[changed], column] == UNRATED).any():
            asks[0] = column
            return at
        since[evaluation] = filled
        if len(changed):
            total = fixed[whose[evaluation], changed]
            fits = total != UNFIT
            own, own_terms = _formulas_of(int(evaluation), formulas, formula_ends, terms)
            last = own[-1] if len(own) and own[-1, 0] == FREE_OF_ALL else None
            judge.reference(
                *(requested.T, nonzero.T, capacity.T, changed, _NONE, _NONE, _NONE),
                checks[check_ends[evaluation - 1] if evaluation else 0 : check_ends[evaluation]],
                *(own if last is None else own[:-1], own_terms, fits, total),
            )
            if last is not None:
                last_terms = own_terms[own[-2, 3] if len(own) > 1 else 0 : last[3]]
                total += last[1] * _free_of_all(
                    requested[changed], capacity[changed], last_terms, last[2]
                )
            if column >= 0:
                rating = ratings[state[changed], column]
                fits &= rating >= 0
                raws[shown[evaluation], changed] = np.where(rating >= 0, rating, -1 - rating)
            best[slot, changed] = np.where(fits, total, UNFIT)
        if column >= 0:
            row = best_spread.reference(
                best[slot], raws[shown[evaluation]], int(weights_of[evaluation]), False, rank
            )
        else:
            row = best_row.reference(best[slot], rank)
        if row == UNFIT:
            return at
        if column >= 0:
            after = following[state[row], column]
            if after < 0:
                asks[:] = (column, state[row]) if after == UNKNOWN else UNFIT
                return at
            states_before[at], state[row] = state[row], after
        rows[at] = log[filled] = row
        filled += 1
        requested[row] += demand[kind]
        requested[row, requested.shape[1] - added.shape[2] :] += added[kind, case[row]]
        nonzero[row] += demand_nonzero[kind]
    return len(kinds)


def _free_of_all(
    requested: IntArray, capacity: IntArray, terms: IntArray, dominant: int
) -> IntArray:
    """Return ``(n,)``: the score of ``PluginColumns`` by its terms."""
    columns, amounts, weights = terms.T
    has = capacity[:, columns]
    scores = percent_floor(np.maximum(has - requested[:, columns] - amounts, 0), has) * (has > 0)
    points = scores @ weights + dominant * scores.min(axis=1, initial=MAX_SCORE)
    mean: IntArray = points // max(int(weights.sum()) + dominant, 1)
    return mean


def _formulas_of(
    evaluation: int, formulas: IntArray, formula_ends: IntArray, terms: IntArray
) -> tuple[IntArray, IntArray]:
    """Return the formulas of one evaluation, with their terms."""
    first = formula_ends[evaluation - 1] if evaluation else 0
    own = formulas[first : formula_ends[evaluation]].copy()
    start = formulas[first - 1, 3] if first else 0
    own[:, 3] -= start
    return own, terms[start:]


def _choose_loop(  # noqa: C901, PLR0912, PLR0915, PLR0917 (one loop for numba)
    kinds: IntArray,
    rows: IntArray,
    demand: IntArray,
    demand_nonzero: IntArray,
    added: IntArray,
    scored: IntArray,
    slots: IntArray,
    since: IntArray,
    checks: IntArray,
    check_ends: IntArray,
    formulas: IntArray,
    formula_ends: IntArray,
    terms: IntArray,
    best: IntArray,
    whose: IntArray,
    fixed: IntArray,
    requested: IntArray,
    nonzero: IntArray,
    capacity: IntArray,
    case: IntArray,
    rank: IntArray,
    log: IntArray,
    filled: int,
    first: int,
    state: IntArray,
    states_before: IntArray,
    columns_of: IntArray,
    shown: IntArray,
    weights_of: IntArray,
    ratings: IntArray,
    following: IntArray,
    raws: IntArray,
    totals: IntArray,
    peaks: IntArray,
    tops: IntArray,
    top_values: IntArray,
    requested_then: FloatArray,
    capacity_then: FloatArray,
    asks: IntArray,
) -> int:
    n, columns = requested.shape
    beside = added.shape[2]
    size = max(int(sqrt(n)), 1)
    blocks = (n + size - 1) // size
    # ``tops``: best row of each block of ``size`` rows by evaluation, so that one changed row costs
    # the scan of a block and not of all rows; UNFIT if no row of the block takes such a pod.  The
    # values of these rows lie side by side: to gather them would miss the processor's caches.
    # ``requested_then``: amounts of a row after each change, in the order of the log: what a class
    # reads is contiguous.  A row that changed twice is evaluated twice, the second time with the
    # amounts that count.  They are exact as floating point numbers, see ``EXACT_BELOW``.
    for position in range(filled if first == 0 else 0):
        row = log[position]
        for column in range(columns):
            requested_then[column, position] = requested[row, column]
            capacity_then[column, position] = capacity[row, column]
        for column in range(2):
            requested_then[columns + column, position] = nonzero[row, column]
            capacity_then[columns + column, position] = capacity[row, column]
    sums, points, weights = np.empty(len(log)), np.empty(len(log)), np.empty(len(log))
    is_fit = np.empty(len(log), np.bool_)
    asks[:] = UNFIT
    for at in range(first, len(kinds)):
        kind = kinds[at]
        evaluation = scored[kind]
        own_best, own_fixed = best[slots[evaluation]], fixed[whose[evaluation]]
        own_tops, own_values = tops[evaluation], top_values[evaluation]
        begin = since[evaluation]
        changed = log[begin:filled]
        count = len(changed)
        total, fits = sums[:count], is_fit[:count]
        request = columns_of[evaluation]
        for i in range(count if request >= 0 else 0):
            if ratings[state[changed[i]], request] == UNRATED:
                asks[0] = request
                return at
        for i in range(count):
            total[i] = own_fixed[changed[i]]
            fits[i] = total[i] != UNFIT
        start = check_ends[evaluation - 1] if evaluation > 0 else 0
        for check in range(start, check_ends[evaluation]):
            used = requested_then[checks[check, 0], begin:filled]
            has = capacity_then[checks[check, 0], begin:filled]
            amount = float(checks[check, 1])
            for i in range(count):
                fits[i] &= used[i] + amount <= has[i]
        start_formula = formula_ends[evaluation - 1] if evaluation > 0 else 0
        start = formulas[start_formula - 1, 3] if start_formula > 0 else 0
        for formula in range(start_formula, formula_ends[evaluation]):
            mode, end = formulas[formula, 0], formulas[formula, 3]
            times = float(formulas[formula, 1])
            if mode >= BALANCE and end - start == 2:  # noqa: PLR2004 (cpu, memory)
                used = requested_then[terms[start, 0], begin:filled]
                has = capacity_then[terms[start, 0], begin:filled]
                other_used = requested_then[terms[start + 1, 0], begin:filled]
                other_has = capacity_then[terms[start + 1, 0], begin:filled]
                amount, other_amount = float(terms[start, 1]), float(terms[start + 1, 1])
                for i in range(count):
                    whole, other_whole = max(has[i], 1.0), max(other_has[i], 1.0)
                    fraction = min((used[i] + amount) / whole, 1.0)
                    other = min((other_used[i] + other_amount) / other_whole, 1.0)
                    deviation = abs(fraction - other) / 2
                    before = abs(min(used[i] / whole, 1.0) - min(other_used[i] / other_whole, 1.0))
                    before /= 2
                    if has[i] <= 0.0 or other_has[i] <= 0.0:
                        deviation, before = 0.0, 0.0
                    score = np.floor((1.0 - deviation) * MAX_SCORE)
                    if mode == BALANCE_CHANGE:
                        earlier_score = np.floor((1.0 - before) * MAX_SCORE)
                        score = HALF + np.floor((HALF + score - earlier_score) / 2)
                    total[i] += times * score
            elif mode == FREE_OF_ALL and end - start == 2:  # noqa: PLR2004 (cpu, memory)
                used = requested_then[terms[start, 0], begin:filled]
                has = capacity_then[terms[start, 0], begin:filled]
                other_used = requested_then[terms[start + 1, 0], begin:filled]
                other_has = capacity_then[terms[start + 1, 0], begin:filled]
                amount, other_amount = float(terms[start, 1]), float(terms[start + 1, 1])
                each, other_each = float(terms[start, 2]), float(terms[start + 1, 2])
                dominant = float(formulas[formula, 2])
                whole = max(dominant + each + other_each, 1.0)
                for i in range(count):
                    part = max(has[i] - (used[i] + amount), 0.0)
                    share = np.floor(part * 100.0 / max(has[i], 1.0))
                    part = max(other_has[i] - (other_used[i] + other_amount), 0.0)
                    other = np.floor(part * 100.0 / max(other_has[i], 1.0))
                    mean = each * share + other_each * other + dominant * min(share, other)
                    total[i] += times * np.floor(mean / whole)
            elif mode == FREE_OF_ALL:
                point, lowest = points[:count], weights[:count]
                point[:], lowest[:] = 0.0, 100.0
                dominant = float(formulas[formula, 2])
                whole = dominant
                for term in range(start, end):
                    used = requested_then[terms[term, 0], begin:filled]
                    has = capacity_then[terms[term, 0], begin:filled]
                    amount, each = float(terms[term, 1]), float(terms[term, 2])
                    whole += each
                    for i in range(count):
                        part = max(has[i] - (used[i] + amount), 0.0)
                        share = np.floor(part * 100.0 / max(has[i], 1.0))
                        point[i] += each * share
                        lowest[i] = min(lowest[i], share)
                whole = max(whole, 1.0)
                for i in range(count):
                    total[i] += times * np.floor((point[i] + dominant * lowest[i]) / whole)
            elif mode >= BALANCE:
                for i in range(count):
                    position = begin + i
                    counted = 0
                    sum_now, sum_before = 0.0, 0.0
                    one_now, one_before, two_now, two_before = 0.0, 0.0, 0.0, 0.0
                    for term in range(start, end):
                        limit = capacity_then[terms[term, 0], position]
                        if limit > 0:
                            before = requested_then[terms[term, 0], position]
                            now = min((before + terms[term, 1]) / limit, 1.0)
                            before = min(before / limit, 1.0)
                            one_now, two_now = two_now, now
                            one_before, two_before = two_before, before
                            sum_now += now
                            sum_before += before
                            counted += 1
                    deviation, earlier = 0.0, 0.0
                    if counted == 2:  # noqa: PLR2004 (half the difference, as in the reference)
                        deviation = abs(one_now - two_now) / 2
                        earlier = abs(one_before - two_before) / 2
                    elif counted > 2:  # noqa: PLR2004 (as above)
                        mean_now, mean_before = sum_now / counted, sum_before / counted
                        squares_now, squares_before = 0.0, 0.0
                        for term in range(start, end):
                            limit = capacity_then[terms[term, 0], position]
                            if limit > 0:
                                before = requested_then[terms[term, 0], position]
                                now = min((before + terms[term, 1]) / limit, 1.0) - mean_now
                                before = min(before / limit, 1.0) - mean_before
                                squares_now += now * now
                                squares_before += before * before
                        deviation = sqrt(squares_now / counted)
                        earlier = sqrt(squares_before / counted)
                    score = int((1.0 - deviation) * MAX_SCORE)
                    if mode == BALANCE_CHANGE:
                        score = HALF + (HALF + score - int((1.0 - earlier) * MAX_SCORE)) // 2
                    total[i] += times * score
            elif end - start == 2:  # noqa: PLR2004 (cpu, memory)
                column, other_column = terms[start, 0], terms[start + 1, 0]
                if formulas[formula, 2] != 0:
                    column += columns if column < 2 else 0  # noqa: PLR2004 (cpu, memory)
                    other_column += columns if other_column < 2 else 0  # noqa: PLR2004
                used = requested_then[column, begin:filled]
                has = capacity_then[column, begin:filled]
                other_used = requested_then[other_column, begin:filled]
                other_has = capacity_then[other_column, begin:filled]
                amount, other_amount = float(terms[start, 1]), float(terms[start + 1, 1])
                each, other_each = float(terms[start, 2]), float(terms[start + 1, 2])
                for i in range(count):
                    now = used[i] + amount
                    part = min(now, has[i]) if mode == USED else max(has[i] - now, 0.0)
                    share = np.floor(part * 100.0 / max(has[i], 1.0))
                    now = other_used[i] + other_amount
                    part = min(now, other_has[i]) if mode == USED else max(other_has[i] - now, 0.0)
                    other = np.floor(part * 100.0 / max(other_has[i], 1.0))
                    counts = each if has[i] > 0.0 else 0.0
                    other_counts = other_each if other_has[i] > 0.0 else 0.0
                    mean = counts * share + other_counts * other
                    total[i] += times * np.floor(mean / max(counts + other_counts, 1.0))
            else:
                point, weight = points[:count], weights[:count]
                point[:], weight[:] = 0.0, 0.0
                for term in range(start, end):
                    column = terms[term, 0]
                    if formulas[formula, 2] != 0 and column < 2:  # noqa: PLR2004 (cpu, memory)
                        column += columns
                    used = requested_then[column, begin:filled]
                    has = capacity_then[column, begin:filled]
                    amount, each = float(terms[term, 1]), float(terms[term, 2])
                    for i in range(count):
                        more = used[i] + amount
                        part = min(more, has[i]) if mode == USED else max(has[i] - more, 0.0)
                        counts = each if has[i] > 0.0 else 0.0
                        point[i] += counts * np.floor(part * 100.0 / max(has[i], 1.0))
                        weight[i] += counts
                for i in range(count):
                    total[i] += times * np.floor(point[i] / max(weight[i], 1.0))
            start = end
        place = max(shown[evaluation], 0)
        own_raws, own_totals = own_best, own_best
        peak, at_peak, weight = np.int64(0), np.int64(0), weights_of[evaluation]
        is_stale = False  # the totals of all rows
        if request >= 0:
            own_raws, own_totals = raws[place], totals[place]
            peak, at_peak = peaks[place, 0], peaks[place, 1]
            is_stale = peak < 0
        for i in range(count):
            row = changed[i]
            value = np.int64(total[i]) if fits[i] else UNFIT
            if request >= 0:
                raw = ratings[state[row], request]
                if raw < 0:
                    raw, value = -1 - raw, UNFIT
                if own_best[row] != UNFIT and own_raws[row] == peak:
                    at_peak -= 1
                if value != UNFIT and raw == peak:
                    at_peak += 1
                elif value != UNFIT and raw > peak:
                    peak, at_peak, is_stale = raw, np.int64(1), True
                own_best[row], own_raws[row] = value, raw
                if is_stale:
                    continue
                if value != UNFIT and peak > 0:
                    value += weight * (raw * MAX_SCORE // peak)
            earlier_value = own_totals[row]
            if value == earlier_value:
                continue
            own_totals[row] = value
            block = row // size
            top = own_tops[block]
            if top == DIRTY:
                continue
            if top == row:
                if value < earlier_value:
                    own_tops[block] = DIRTY
                else:
                    own_values[block] = value
            elif value != UNFIT and (
                value > own_values[block] or (value == own_values[block] and rank[row] < rank[top])
            ):
                own_tops[block], own_values[block] = row, value
        if request >= 0:
            if is_stale or at_peak == 0:
                peak, at_peak = np.int64(0), np.int64(0)
                for row in range(n):
                    if own_best[row] != UNFIT:
                        peak = max(peak, own_raws[row])
                for row in range(n):
                    value = own_best[row]
                    if value != UNFIT:
                        at_peak += own_raws[row] == peak
                        if peak > 0:
                            value += weight * (own_raws[row] * MAX_SCORE // peak)
                    own_totals[row] = value
                own_tops[:] = DIRTY
            peaks[place, 0], peaks[place, 1] = peak, at_peak
        since[evaluation] = filled
        highest = UNFIT
        for block in range(blocks):
            if own_tops[block] == DIRTY:
                begin, end = block * size, min((block + 1) * size, n)
                value = UNFIT
                for row in range(begin, end):
                    value = max(value, own_totals[row])
                top = UNFIT
                for row in range(begin, end if value != UNFIT else begin):
                    if own_totals[row] == value and (top == UNFIT or rank[row] < rank[top]):
                        top = row
                own_tops[block], own_values[block] = top, value
            highest = max(highest, own_values[block])
        chosen = UNFIT
        for block in range(blocks):
            if own_values[block] == highest and (
                chosen == UNFIT or rank[own_tops[block]] < rank[chosen]
            ):
                chosen = own_tops[block]
        if chosen == UNFIT:
            return at
        if request >= 0:
            after = following[state[chosen], request]
            if after < 0:
                if after == UNKNOWN:
                    asks[0], asks[1] = request, state[chosen]
                return at
            states_before[at], state[chosen] = state[chosen], after
        rows[at] = chosen
        log[filled] = chosen
        for column in range(beside):
            requested[chosen, columns - beside + column] += added[kind, case[chosen], column]
        for column in range(columns):
            requested[chosen, column] += demand[kind, column]
            requested_then[column, filled] = requested[chosen, column]
            capacity_then[column, filled] = capacity[chosen, column]
        for column in range(2):
            nonzero[chosen, column] += demand_nonzero[kind, column]
            requested_then[columns + column, filled] = nonzero[chosen, column]
            capacity_then[columns + column, filled] = capacity[chosen, column]
        filled += 1
    return len(kinds)


def _signature(types: Any) -> Any:
    vector = types.Array(types.int64, 1, "C", readonly=True)
    table = types.Array(types.int64, 2, "C", readonly=True)
    written, matrix = types.Array(types.int64, 1, "C"), types.Array(types.int64, 2, "C")
    added = types.Array(types.int64, 3, "C", readonly=True)
    amounts = types.Array(types.float64, 2, "C")
    return (
        *(vector, written, table, table, added, vector, vector, written),
        *(table, vector, table, vector, table),
        *(matrix, vector, table, matrix, matrix, table, vector, vector, written, types.int64),
        *(types.int64, written, written, vector, vector, vector, table, table),
        *(matrix, matrix, matrix, matrix, matrix, amounts, amounts, written),
    )


#: Writes the rows to ``rows``, in order, and returns for how many pods; the next one fits nowhere.
#: Updates ``best``, ``since``, ``log``, ``requested``, ``nonzero``, ``state`` and ``raws``.
choose_rows = Kernel(_choose, _choose_loop, _signature)
