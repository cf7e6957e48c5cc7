"""Verdict and score of many nodes: each in one NumPy version and one compiled loop.

What does not depend on the pod that is asked about is worked out once for every change of a node:
``margins`` ``(capacity, MARGINS, r)``.  They follow from ``figures``
``(capacity, FIGURES, r)``, from ``facts`` ``(capacity, FACTS)``, both by row of the whole cluster,
and from what is in use there.  A pod that comes takes of them what ``takes``
``(CASES + 1, MARGINS, r)`` says, by the case of its node; the last of these is what the pod takes
that is asked about.

``rows`` ``(n,)`` are the rows that are asked about; ``times`` ``(n,)`` says how many more pods each
of them has taken by then, and is empty where none has.  ``options`` are by ``Option``, ``weights``
``(r,)``.
"""

from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.kernel import Kernel
from koordinator.scheduler.rules.curves import EXACT_BELOW, percent_floor
from koordinator.scheduler.rules.load.pod_load import Addends, Sum
from koordinator.scheduler.rules.load.rules import Amounts

ByteArray = npt.NDArray[np.int8]

_SUMS = len(Sum)
_DELTA, _PROD_DELTA, _ESTIMATED, _PROD_USAGE = (int(one) for one in Sum)


class UsageColumn(IntEnum):
    """Amounts in use on a node by resource; the first ones are its sums, by ``Sum``."""

    LIMITED = 4  # the usage that has limits, 0 where it is not known
    SCORED = 5  # the usage that scores look at, likewise


class Figure(IntEnum):
    """Other amounts of a node by resource."""

    HAS = 0  # not amplified
    MOST = 1  # the most that usage may be; see ``limits.most_within``
    PROD_MOST = 2  # the most that prod pods may use


class Fact(IntEnum):
    """What else is known of a node."""

    STATUS = 0  # a Status
    CASE = 1  # a Case
    IS_AGGREGATED = 2  # the usage that has limits is not the latest
    HAS_LIMITS = 3


class Case(IntFlag):
    """What decides how much a pod takes of the margins of its node."""

    #: There is a usage over the window that has limits; else whole estimates count instead.
    KNOWS_LIMITED = 1
    KNOWS_SCORED = 2  # the same of the window that is scored
    HAS_PROD_LIMITS = 4  # and so prod pods have those instead


class Margin(IntEnum):
    """What is left of a node by resource, negative where that is less than nothing.

    Those for pods that are not prod come first, and then, in place of a margin, the facts.
    """

    HAS = 0  # all there is
    HEADROOM = 1  # before a limit is exceeded
    FREE = 2  # as scores see it
    PROD_HEADROOM = 4
    PROD_FREE = 5  # the same if only what prod pods use counts


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


USED, FIGURES, FACTS = _SUMS + len(UsageColumn), len(Figure), len(Fact)
MARGINS = 8  # with two resources, two lines of the processor's cache
CASES = 1 << len(Case)
_LINE = 64  # bytes

_LIMITED, _SCORED = (int(one) for one in UsageColumn)
_HAS, _MOST, _PROD_MOST = (int(one) for one in Figure)
_STATUS, _CASE, _IS_AGGREGATED, _HAS_LIMITS = (int(one) for one in Fact)
_KNOWS_LIMITED, _KNOWS_SCORED, _HAS_PROD_LIMITS = (int(one) for one in Case)
_ALL, _HEADROOM, _FREE, _PROD_HEADROOM, _PROD_FREE = (int(one) for one in Margin)
_FRESH, _EXPIRED, _EMPTY = int(Status.FRESH), int(Status.EXPIRED), int(Status.EMPTY)
_REFUSE_EXPIRED, _USE_EXPIRED, _SCORE_BY_PROD, _DOMINANT = (int(one) for one in Option)


def blank(capacity: int, width: int) -> tuple[IntArray, ByteArray]:
    """Return margins and facts of so many rows, all 0; the facts lie among the margins.

    So that what is read of a row lies in one line of the cache, if two resources are tracked: to
    fetch it takes longer than the arithmetic.
    """
    numbers = capacity * MARGINS * width
    memory = np.zeros(numbers + _LINE // 8, np.int64)
    start = -memory.ctypes.data % _LINE // 8
    margins = memory[start : start + numbers].reshape(capacity, MARGINS, width)
    return margins, margins[:, Margin.FREE + 1].view(np.int8)[:, :FACTS]


def taken(addends: Addends, case: int) -> IntArray:
    """Return ``(MARGINS, r)``: what a pod takes of the margins of a node where it adds that."""
    delta, prod_delta, estimated, prod_usage = np.array(addends, np.int64).reshape(_SUMS, -1)
    limited = delta if case & _KNOWS_LIMITED else estimated
    scored = delta if case & _KNOWS_SCORED else estimated
    by_prod = prod_delta + prod_usage
    takes = np.zeros((MARGINS, len(delta)), np.int64)
    takes[_HEADROOM], takes[_FREE] = limited, scored
    takes[_PROD_HEADROOM] = by_prod if case & _HAS_PROD_LIMITS else limited
    takes[_PROD_FREE] = by_prod
    return takes


def takes_of(addends: Addends, estimate: Amounts) -> IntArray:
    """Return ``takes`` of pods: what they add once they are there, and before that the estimate."""
    asked = np.zeros((MARGINS, len(estimate)), np.int64)
    asked[[_HEADROOM, _FREE, _PROD_HEADROOM, _PROD_FREE]] = estimate
    return np.array([*(taken(addends, case) for case in range(CASES)), asked])


def _weigh(
    rows: IntArray, used: IntArray, figures: IntArray, facts: ByteArray, margins: IntArray
) -> None:
    has, most, prod_most = figures[rows].transpose(1, 0, 2)
    case = facts[rows, _CASE, None]
    by_prod = used[:, _PROD_USAGE] + used[:, _PROD_DELTA]
    limited, scored = (
        used[:, usage] + np.where(case & knows, used[:, _DELTA], used[:, _ESTIMATED])
        for knows, usage in ((_KNOWS_LIMITED, _LIMITED), (_KNOWS_SCORED, _SCORED))
    )
    headroom = most - limited
    margins[rows, _ALL] = has
    margins[rows, _HEADROOM] = headroom
    margins[rows, _FREE] = has - scored
    margins[rows, _PROD_HEADROOM] = np.where(case & _HAS_PROD_LIMITS, prod_most - by_prod, headroom)
    margins[rows, _PROD_FREE] = has - by_prod


def _weigh_loop(
    rows: IntArray, used: IntArray, figures: IntArray, facts: ByteArray, margins: IntArray
) -> None:
    for i in range(len(rows)):
        row = rows[i]
        case = facts[row, _CASE]
        for r in range(figures.shape[2]):
            has, delta, estimated = (
                figures[row, _HAS, r],
                used[i, _DELTA, r],
                used[i, _ESTIMATED, r],
            )
            limited = used[i, _LIMITED, r] + (delta if case & _KNOWS_LIMITED else estimated)
            scored = used[i, _SCORED, r] + (delta if case & _KNOWS_SCORED else estimated)
            by_prod = used[i, _PROD_USAGE, r] + used[i, _PROD_DELTA, r]
            headroom = figures[row, _MOST, r] - limited
            own = figures[row, _PROD_MOST, r] - by_prod
            margins[row, _ALL, r] = has
            margins[row, _HEADROOM, r] = headroom
            margins[row, _FREE, r] = has - scored
            margins[row, _PROD_HEADROOM, r] = own if case & _HAS_PROD_LIMITS else headroom
            margins[row, _PROD_FREE, r] = has - by_prod


def _charged(row: int, sign: int, takes: IntArray, margins: IntArray, facts: ByteArray) -> None:
    margins[row] -= sign * takes[facts[row, _CASE]]


def _charged_loop(
    row: int, sign: int, takes: IntArray, margins: IntArray, facts: ByteArray
) -> None:
    case = facts[row, _CASE]
    for which in range(MARGINS):
        for r in range(margins.shape[2]):
            margins[row, which, r] -= sign * takes[case, which, r]


def _judged(  # noqa: PLR0917 (numba takes no keywords)
    rows: IntArray,
    times: IntArray,
    takes: IntArray,
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
    now, known = margins[rows] - takes[CASES], facts[rows]
    if len(times):
        now -= times[:, None, None] * takes[known[:, _CASE]]
    own = (known[:, _CASE] & _HAS_PROD_LIMITS != 0) & is_prod
    verdict = _codes(now[:, _PROD_HEADROOM if is_prod else _HEADROOM], known, own, options)
    free = now[:, _PROD_FREE if is_prod and options[_SCORE_BY_PROD] else _FREE]
    scores = _scores(free, now[:, _ALL], weights, int(options[_DOMINANT]))
    total += weight * scores * (known[:, _STATUS] == _FRESH)
    fits &= verdict == 0
    if len(codes):
        codes[:] = verdict


def _codes(headroom: IntArray, known: ByteArray, own: BoolArray, options: IntArray) -> IntArray:
    status = known[:, _STATUS]
    over = headroom < 0
    over &= ((status == _FRESH) | ((status == _EXPIRED) & (options[_USE_EXPIRED] != 0)))[:, None]
    aggregated = (known[:, _IS_AGGREGATED] != 0) & ~own
    place = 1 + over.argmax(axis=1) + headroom.shape[1] * aggregated
    codes = np.where(over.any(axis=1), np.left_shift(1, place), 0)
    expired = ((status == _EXPIRED) | (status == _EMPTY)) & (own | (known[:, _HAS_LIMITS] != 0))
    return np.where(expired & (options[_REFUSE_EXPIRED] != 0), 1, codes)


def _scores(free: IntArray, has: IntArray, weights: IntArray, dominant: int) -> IntArray:
    scores = percent_floor(np.maximum(free, 0), has) * (has > 0)
    total = scores @ weights + dominant * scores.min(axis=1)
    mean: IntArray = total // max(int(weights.sum()) + dominant, 1)
    return mean


def _judged_loop(  # noqa: C901, PLR0912, PLR0917 (one loop for numba)
    rows: IntArray,
    times: IntArray,
    takes: IntArray,
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
    width, tells, adds = margins.shape[2], len(codes) > 0, len(times) > 0
    refuse, use = options[_REFUSE_EXPIRED] != 0, options[_USE_EXPIRED] != 0
    free_at = _PROD_FREE if is_prod and options[_SCORE_BY_PROD] != 0 else _FREE
    dominant = options[_DOMINANT]
    whole = max(dominant + weights.sum(), 1)
    largest = 0  # looked for first: it fetches all rows, where the long loop would wait for each
    for row in rows:
        for r in range(width):
            largest = max(largest, margins[row, _ALL, r])
    exact = largest < EXACT_BELOW
    for i in range(len(rows)):
        row = rows[i]
        status, case = facts[row, _STATUS], facts[row, _CASE]
        if tells:
            codes[i] = 0
        if status == 0:
            continue
        own = is_prod and case & _HAS_PROD_LIMITS != 0
        headroom_at = (
            _PROD_HEADROOM if own else _HEADROOM
        )  # the same where it has no limits of its own
        points, lowest, code = 0, 100, 0
        if refuse and status != _FRESH and (own or facts[row, _HAS_LIMITS] != 0):
            code = 1
        judges = status == _FRESH or (use and status == _EXPIRED)
        for r in range(width):
            has = margins[row, _ALL, r]
            headroom = margins[row, headroom_at, r] - takes[CASES, headroom_at, r]
            free = margins[row, free_at, r] - takes[CASES, free_at, r]
            if adds:
                headroom -= times[i] * takes[case, headroom_at, r]
                free -= times[i] * takes[case, free_at, r]
            if headroom < 0 and judges and code == 0:
                above = width if facts[row, _IS_AGGREGATED] and not own else 0
                code = 1 << (1 + r + above)
            score = 0
            if free > 0 and exact:
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


def _facts(types: Any) -> Any:
    return types.Array(types.int8, 2, "A", readonly=True)


def _read(types: Any) -> Any:
    return types.Array(types.int64, 3, "C", readonly=True)


def _written(types: Any) -> Any:
    return types.Array(types.int64, 3, "C")


#: Writes the margins of rows, of which ``used`` ``(n, USED, r)`` is in use.
weigh = Kernel(
    _weigh, _weigh_loop, lambda t: (_vector(t), _read(t), _read(t), _facts(t), _written(t))
)
#: Takes one pod off the margins of a row, or puts it back (sign -1).
charged = Kernel(
    _charged, _charged_loop, lambda t: (t.int64, t.int64, _read(t), _written(t), _facts(t))
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
        _read(t),
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
