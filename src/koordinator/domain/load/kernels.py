"""Verdict and score of many nodes: each in one NumPy version and one compiled loop.

What does not depend on the pod that is asked about is worked out once for every change of a node:
``margins`` ``(capacity, len(Margin), r)``.  They follow from ``figures``
``(capacity, FIGURES, r)`` and ``facts`` ``(capacity, FACTS)``.  All of them are by row of the whole
cluster.

``rows`` ``(n,)`` are the rows that are asked about; ``times`` ``(n,)`` says how many more pods each
of them has taken by then, and is empty where none has.  ``pods`` ``(5, r)`` has what each of these
adds, by ``Sum``, and last the estimate of the pod that is asked about.  ``options`` are by
``Option``, ``weights`` ``(r,)``.
"""

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from koordinator.domain.load.pod_load import Sum
from koordinator.domain.rounding import EXACT_BELOW, percent_floor
from koordinator.foundation.kernel import Kernel

IntArray = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.int8]
BoolArray = npt.NDArray[np.bool_]

_DELTA, _PROD_DELTA, _ESTIMATED, _PROD_USAGE = (int(one) for one in Sum)
_INCOMING = len(Sum)


class Figure(IntEnum):
    """Amounts of a node by resource; the first ones are its sums, by ``Sum``."""

    HAS = 4  # not amplified
    LIMITED = 5  # the usage that has limits
    SCORED = 6  # the usage that scores look at
    MOST = 7  # the most that usage may be; see ``limits.most_within``
    PROD_MOST = 8  # the most that prod pods may use


class Fact(IntEnum):
    """What else is known of a node."""

    STATUS = 0  # a Status
    KNOWS_LIMITED = 1  # 0: there is no usage over that window, and whole estimates count instead
    KNOWS_SCORED = 2
    IS_AGGREGATED = 3  # the usage that has limits is not the latest
    HAS_LIMITS = 4
    HAS_PROD_LIMITS = 5  # and so prod pods have those instead


class Margin(IntEnum):
    """What is left of a node by resource, negative where that is less than nothing.

    Those for pods that are not prod come first: they lie in one line of the processor's cache.
    """

    HAS = 0  # all there is
    ROOM = 1  # before a limit is exceeded
    FREE = 2  # as scores see it
    PROD_ROOM = 3
    PROD_FREE = 4  # the same if only what prod pods use counts


class Status(IntEnum):
    """What is known of a node's usage."""

    UNKNOWN = 0  # no report, or a fresh one without body
    FRESH = 1
    EXPIRED = 2
    EMPTY = 3  # an expired report without body


class Option(IntEnum):
    """What the scheduler is told to do."""

    REFUSE_EXPIRED = 0  # a node whose report has expired takes no pods
    USE_EXPIRED = 1  # for the verdict, a report counts however old it is
    SCORE_BY_PROD = 2  # prod pods are scored by what prod pods use
    DOMINANT = 3  # weight of the scarcest resource, once more


FIGURES, FACTS, MARGINS = len(Sum) + len(Figure), len(Fact), len(Margin)

_HAS, _LIMITED, _SCORED, _MOST, _PROD_MOST = (int(one) for one in Figure)
_STATUS, _KNOWS_LIMITED, _KNOWS_SCORED, _IS_AGGREGATED = (int(one) for one in list(Fact)[:4])
_HAS_LIMITS, _HAS_PROD_LIMITS = int(Fact.HAS_LIMITS), int(Fact.HAS_PROD_LIMITS)
_ALL, _ROOM, _FREE, _PROD_ROOM, _PROD_FREE = (int(one) for one in Margin)
_FRESH, _EXPIRED, _EMPTY = int(Status.FRESH), int(Status.EXPIRED), int(Status.EMPTY)
_REFUSE_EXPIRED, _USE_EXPIRED, _SCORE_BY_PROD, _DOMINANT = (int(one) for one in Option)


def _weigh(rows: IntArray, figures: IntArray, facts: ByteArray, margins: IntArray) -> None:
    now, known = figures[rows], facts[rows]
    by_prod = now[:, _PROD_USAGE] + now[:, _PROD_DELTA]
    limited, scored = (
        np.where(known[:, which, None] != 0, now[:, usage] + now[:, _DELTA], now[:, _ESTIMATED])
        for which, usage in ((_KNOWS_LIMITED, _LIMITED), (_KNOWS_SCORED, _SCORED))
    )
    own = known[:, _HAS_PROD_LIMITS, None] != 0
    room = now[:, _MOST] - limited
    margins[rows, _ALL] = now[:, _HAS]
    margins[rows, _ROOM] = room
    margins[rows, _FREE] = now[:, _HAS] - scored
    margins[rows, _PROD_ROOM] = np.where(own, now[:, _PROD_MOST] - by_prod, room)
    margins[rows, _PROD_FREE] = now[:, _HAS] - by_prod


def _weigh_loop(rows: IntArray, figures: IntArray, facts: ByteArray, margins: IntArray) -> None:
    for row in rows:
        knows_limited, knows_scored = facts[row, _KNOWS_LIMITED], facts[row, _KNOWS_SCORED]
        own = facts[row, _HAS_PROD_LIMITS] != 0
        for r in range(figures.shape[2]):
            has, delta = figures[row, _HAS, r], figures[row, _DELTA, r]
            estimated = figures[row, _ESTIMATED, r]
            limited = figures[row, _LIMITED, r] + delta if knows_limited else estimated
            scored = figures[row, _SCORED, r] + delta if knows_scored else estimated
            by_prod = figures[row, _PROD_USAGE, r] + figures[row, _PROD_DELTA, r]
            room = figures[row, _MOST, r] - limited
            margins[row, _ALL, r] = has
            margins[row, _ROOM, r] = room
            margins[row, _FREE, r] = has - scored
            margins[row, _PROD_ROOM, r] = figures[row, _PROD_MOST, r] - by_prod if own else room
            margins[row, _PROD_FREE, r] = has - by_prod


def _count(  # noqa: PLR0917 (numba takes no keywords)
    rows: IntArray,
    times: IntArray,
    pods: IntArray,
    figures: IntArray,
    facts: ByteArray,
    margins: IntArray,
) -> None:
    figures[rows, :_INCOMING] += times[:, None, None] * pods[:_INCOMING]
    _weigh(rows, figures, facts, margins)


def _count_loop(  # noqa: PLR0917 (numba takes no keywords)
    rows: IntArray,
    times: IntArray,
    pods: IntArray,
    figures: IntArray,
    facts: ByteArray,
    margins: IntArray,
) -> None:
    for i in range(len(rows)):
        row, more = rows[i], times[i]
        knows_limited, knows_scored = facts[row, _KNOWS_LIMITED], facts[row, _KNOWS_SCORED]
        own = facts[row, _HAS_PROD_LIMITS] != 0
        for r in range(figures.shape[2]):
            for which in range(_INCOMING):
                figures[row, which, r] += more * pods[which, r]
            delta, estimated = more * pods[_DELTA, r], more * pods[_ESTIMATED, r]
            by_prod = more * (pods[_PROD_USAGE, r] + pods[_PROD_DELTA, r])
            limited = delta if knows_limited else estimated
            margins[row, _ROOM, r] -= limited
            margins[row, _FREE, r] -= delta if knows_scored else estimated
            margins[row, _PROD_ROOM, r] -= by_prod if own else limited
            margins[row, _PROD_FREE, r] -= by_prod


def _judged(  # noqa: PLR0917 (numba takes no keywords)
    rows: IntArray,
    times: IntArray,
    pods: IntArray,
    margins: IntArray,
    facts: ByteArray,
    options: IntArray,
    weights: IntArray,
    is_prod: bool,
    weight: int,
    codes: IntArray,
    fits: BoolArray,
    total: IntArray,
) -> None:
    now, known = margins[rows], facts[rows]
    own = (known[:, _HAS_PROD_LIMITS] != 0) & is_prod
    score_by_prod = is_prod and options[_SCORE_BY_PROD] != 0
    room = now[:, _PROD_ROOM if is_prod else _ROOM] - pods[_INCOMING]
    free = now[:, _PROD_FREE if score_by_prod else _FREE] - pods[_INCOMING]
    if len(times):
        by_prod = pods[_PROD_USAGE] + pods[_PROD_DELTA]
        limited, scored = (
            np.where(known[:, which, None] != 0, pods[_DELTA], pods[_ESTIMATED])
            for which in (_KNOWS_LIMITED, _KNOWS_SCORED)
        )
        room -= times[:, None] * np.where(own[:, None], by_prod, limited)
        free -= times[:, None] * (by_prod if score_by_prod else scored)
    verdict = _codes(room, known, own, options)
    scores = _scores(free, now[:, _ALL], weights, int(options[_DOMINANT]))
    total += weight * scores * (known[:, _STATUS] == _FRESH)
    fits &= verdict == 0
    if len(codes):
        codes[:] = verdict


def _codes(room: IntArray, known: ByteArray, own: BoolArray, options: IntArray) -> IntArray:
    status = known[:, _STATUS]
    over = room < 0
    over &= ((status == _FRESH) | ((status == _EXPIRED) & (options[_USE_EXPIRED] != 0)))[:, None]
    aggregated = (known[:, _IS_AGGREGATED] != 0) & ~own
    place = 1 + over.argmax(axis=1) + room.shape[1] * aggregated
    codes = np.where(over.any(axis=1), np.left_shift(1, place), 0)
    expired = ((status == _EXPIRED) | (status == _EMPTY)) & (own | (known[:, _HAS_LIMITS] != 0))
    return np.where(expired & (options[_REFUSE_EXPIRED] != 0), 1, codes)


def _scores(free: IntArray, has: IntArray, weights: IntArray, dominant: int) -> IntArray:
    scores = percent_floor(np.maximum(free, 0), has) * (has > 0)
    total = scores @ weights + dominant * scores.min(axis=1)
    mean: IntArray = total // max(int(weights.sum()) + dominant, 1)
    return mean


def _judged_loop(  # noqa: C901, PLR0917 (one loop for numba)
    rows: IntArray,
    times: IntArray,
    pods: IntArray,
    margins: IntArray,
    facts: ByteArray,
    options: IntArray,
    weights: IntArray,
    is_prod: bool,
    weight: int,
    codes: IntArray,
    fits: BoolArray,
    total: IntArray,
) -> None:
    width, tells = margins.shape[2], len(codes) > 0
    refuse, use = options[_REFUSE_EXPIRED] != 0, options[_USE_EXPIRED] != 0
    score_by_prod = is_prod and options[_SCORE_BY_PROD] != 0
    dominant = options[_DOMINANT]
    whole = max(dominant + weights.sum(), 1)
    for i in range(len(rows)):
        row = rows[i]
        status = facts[row, _STATUS]
        if tells:
            codes[i] = 0
        if status == 0:
            continue
        own = is_prod and facts[row, _HAS_PROD_LIMITS] != 0
        points, lowest, code = 0, 100, 0
        if refuse and status != _FRESH and (own or facts[row, _HAS_LIMITS] != 0):
            code = 1
        judges = status == _FRESH or (use and status == _EXPIRED)
        for r in range(width):
            estimate = pods[_INCOMING, r]
            has = margins[row, _ALL, r]
            room = margins[row, _PROD_ROOM if is_prod else _ROOM, r] - estimate
            free = margins[row, _PROD_FREE if score_by_prod else _FREE, r] - estimate
            if len(times):
                by_prod = pods[_PROD_USAGE, r] + pods[_PROD_DELTA, r]
                knows = facts[row, _KNOWS_LIMITED] != 0
                limited = pods[_DELTA, r] if knows else pods[_ESTIMATED, r]
                knows = facts[row, _KNOWS_SCORED] != 0
                scored = pods[_DELTA, r] if knows else pods[_ESTIMATED, r]
                room -= times[i] * (by_prod if own else limited)
                free -= times[i] * (by_prod if score_by_prod else scored)
            if room < 0 and judges and code == 0:
                above = width if facts[row, _IS_AGGREGATED] and not own else 0
                code = 1 << (1 + r + above)
            score = 0
            if free > 0 and has < EXACT_BELOW:
                score = int(free * 100.0 / has)
            elif free > 0:
                score = free * 100 // has
            points += score * weights[r]
            lowest = min(lowest, score)
        if code != 0:
            fits[i] = False
            if tells:
                codes[i] = code
        if status == _FRESH:
            total[i] += weight * ((points + lowest * dominant) // whole)


def _vector(types: Any) -> Any:
    return types.Array(types.int64, 1, "C", readonly=True)


def _pods(types: Any) -> Any:
    return types.Array(types.int64, 2, "C", readonly=True)


def _facts(types: Any) -> Any:
    return types.Array(types.int8, 2, "C", readonly=True)


def _read(types: Any) -> Any:
    return types.Array(types.int64, 3, "C", readonly=True)


def _written(types: Any) -> Any:
    return types.Array(types.int64, 3, "C")


#: Writes the margins of rows: different ones, as for ``count``.
weigh = Kernel(_weigh, _weigh_loop, lambda t: (_vector(t), _read(t), _facts(t), _written(t)))
#: Adds ``times[i]`` pods to the figures of ``rows[i]``, and keeps its margins in step.
count = Kernel(
    _count,
    _count_loop,
    lambda t: (_vector(t), _vector(t), _pods(t), _written(t), _facts(t), _written(t)),
)
#: Adds ``weight`` times the score to ``total``, and makes ``fits`` False where the verdict is no.
#: ``codes``, unless it is empty, becomes the verdict as bits: none where the node takes the pod,
#: bit 0 where its report has expired, bit 1 + i where the i-th resource is the first one above its
#: limit, bit 1 + r + i where that is a limit of aggregated usage.  The score is in 0..100: the
#: weighted mean of what would be left of each resource, in percent; 0 where there is no fresh
#: report.  All three are ``(n,)``.
judged = Kernel(
    _judged,
    _judged_loop,
    lambda t: (
        _vector(t),
        _vector(t),
        _pods(t),
        _read(t),
        _facts(t),
        _vector(t),
        _vector(t),
        t.boolean,
        t.int64,
        t.Array(t.int64, 1, "C"),
        t.Array(t.boolean, 1, "C"),
        t.Array(t.int64, 1, "C"),
    ),
)
