"""Verdict and score of many nodes: one NumPy version and one compiled loop each.

Everything that is independent of the pod in question is computed once per change of a node:
``margins`` ``(capacity, MARGINS, r)``.  They are derived from ``figures`` ``(capacity, FIGURES,
r)``, from ``facts`` ``(capacity, FACTS)``, both by row of the whole cluster, and from the usage.  A
placed pod reduces the margins by ``takes`` ``(CASES + 1, MARGINS, r)``, indexed by the case of its
node; the last entry is the reduction by the pod in question.

``rows`` ``(n,)`` are the rows to evaluate; ``times`` ``(n,)`` is the number of additional pods on
each of them, empty if there are none.  ``options`` are indexed by ``Option``, ``weights`` are
``(r,)``.
"""

from enum import IntEnum, IntFlag
from typing import Any

import numpy as np
import numpy.typing as npt

from koordinator.foundation.arrays import BoolArray, IntArray, Kernel
from koordinator.scheduler.rules.curves import EXACT_BELOW, percent_floor
from koordinator.scheduler.rules.load.pod_load import Addends, Sum
from koordinator.scheduler.rules.load.rules import LoadAmounts

ByteArray = npt.NDArray[np.int8]

_SUMS = len(Sum)
_DELTA, _PROD_DELTA, _ESTIMATED, _PROD_USAGE = (int(one) for one in Sum)


class UsageColumn(IntEnum):
    """Usage of a node by resource; the first columns are its sums, by ``Sum``."""

    LIMITED = 4  # usage compared with limits, 0 if unknown
    SCORED = 5  # usage for the score, 0 if unknown


class Figure(IntEnum):
    """Other amounts of a node by resource."""

    HAS = 0  # capacity, not amplified
    MOST = 1  # maximum usage; see ``limits.most_within``
    PROD_MOST = 2  # maximum usage of prod pods


class StateColumn(IntEnum):
    """Other state of a node."""

    STATUS = 0  # a Status
    CASE = 1  # a Case
    IS_AGGREGATED = 2  # limits apply to aggregated usage
    HAS_LIMITS = 3


class Case(IntFlag):
    """Conditions that determine a pod's reduction of its node's margins."""

    #: The usage over the limits' window is known; otherwise whole estimates count instead.
    KNOWS_LIMITED = 1
    KNOWS_SCORED = 2  # the same for the window of the score
    HAS_PROD_LIMITS = 4  # limits of their own for prod pods


class Margin(IntEnum):
    """Remaining amounts of a node by resource, negative if exceeded.

    The margins of non-prod pods come first; the facts occupy the space of one margin after them.
    """

    HAS = 0  # capacity
    HEADROOM = 1  # up to the limit
    FREE = 2  # for the score
    PROD_HEADROOM = 4
    PROD_FREE = 5  # for the score by prod usage


class ReportStatus(IntEnum):
    """Availability of a node's usage report."""

    UNKNOWN = 0  # no report, or a fresh one without usage
    FRESH = 1
    EXPIRED = 2
    EMPTY = 3  # an expired report without usage


class Option(IntEnum):
    """Settings from the plugin's arguments."""

    REFUSE_EXPIRED = 0  # reject nodes with an expired report
    USE_EXPIRED = 1  # the verdict uses expired reports
    SCORE_BY_PROD = 2  # score prod pods by prod usage
    DOMINANT = 3  # additional weight of the scarcest resource


USED, FIGURES, FACTS = _SUMS + len(UsageColumn), len(Figure), len(StateColumn)
MARGINS = 8  # with two resources, two cache lines
CASES = 1 << len(Case)
_LINE = 64  # bytes

_LIMITED, _SCORED = (int(one) for one in UsageColumn)
_HAS, _MOST, _PROD_MOST = (int(one) for one in Figure)
_STATUS, _CASE, _IS_AGGREGATED, _HAS_LIMITS = (int(one) for one in StateColumn)
_KNOWS_LIMITED, _KNOWS_SCORED, _HAS_PROD_LIMITS = (int(one) for one in Case)
_ALL, _HEADROOM, _FREE, _PROD_HEADROOM, _PROD_FREE = (int(one) for one in Margin)
_FRESH, _EXPIRED, _EMPTY = (
    int(ReportStatus.FRESH),
    int(ReportStatus.EXPIRED),
    int(ReportStatus.EMPTY),
)
_REFUSE_EXPIRED, _USE_EXPIRED, _SCORE_BY_PROD, _DOMINANT = (int(one) for one in Option)


def blank(capacity: int, width: int) -> tuple[IntArray, ByteArray]:
    """Return zeroed margins and facts of ``capacity`` rows; the facts are a view into the margins.

    With two resources the data read per row lies in one cache line: fetching it takes longer than
    the arithmetic.
    """
    numbers = capacity * MARGINS * width
    memory = np.zeros(numbers + _LINE // 8, np.int64)
    start = -memory.ctypes.data % _LINE // 8
    margins = memory[start : start + numbers].reshape(capacity, MARGINS, width)
    return margins, margins[:, Margin.FREE + 1].view(np.int8)[:, :FACTS]


def taken(addends: Addends, case: int) -> IntArray:
    """Return ``(MARGINS, r)``: the reduction of a node's margins by a pod with these addends."""
    delta, prod_delta, estimated, prod_usage = np.array(addends, np.int64).reshape(_SUMS, -1)
    limited = delta if case & _KNOWS_LIMITED else estimated
    scored = delta if case & _KNOWS_SCORED else estimated
    by_prod = prod_delta + prod_usage
    takes = np.zeros((MARGINS, len(delta)), np.int64)
    takes[_HEADROOM], takes[_FREE] = limited, scored
    takes[_PROD_HEADROOM] = by_prod if case & _HAS_PROD_LIMITS else limited
    takes[_PROD_FREE] = by_prod
    return takes


def takes_of(addends: Addends, estimate: LoadAmounts) -> IntArray:
    """Return ``takes`` of a pod: the reduction by case once placed, then by its estimate."""
    by_estimate = np.zeros((MARGINS, len(estimate)), np.int64)
    by_estimate[[_HEADROOM, _FREE, _PROD_HEADROOM, _PROD_FREE]] = estimate
    return np.array([*(taken(addends, case) for case in range(CASES)), by_estimate])


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
    for margin in range(MARGINS):
        for r in range(margins.shape[2]):
            margins[row, margin, r] -= sign * takes[case, margin, r]


def _charged_all(
    rows: IntArray, kind: IntArray, takes: IntArray, margins: IntArray, facts: ByteArray
) -> None:
    np.subtract.at(margins, rows, takes[kind, facts[rows, _CASE]])


def _charged_all_loop(
    rows: IntArray, kind: IntArray, takes: IntArray, margins: IntArray, facts: ByteArray
) -> None:
    for i in range(len(rows)):
        row, kind_of_row = rows[i], kind[i]
        case = facts[row, _CASE]
        for margin in range(MARGINS):
            for r in range(margins.shape[2]):
                margins[row, margin, r] -= takes[kind_of_row, case, margin, r]


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
    width, explains, adds = margins.shape[2], len(codes) > 0, len(times) > 0
    refuse, use = options[_REFUSE_EXPIRED] != 0, options[_USE_EXPIRED] != 0
    free_at = _PROD_FREE if is_prod and options[_SCORE_BY_PROD] != 0 else _FREE
    dominant = options[_DOMINANT]
    whole = max(dominant + weights.sum(), 1)
    largest = 0  # a separate pass: it prefetches all rows for the main loop
    for row in rows:
        for r in range(width):
            largest = max(largest, margins[row, _ALL, r])
    exact = largest < EXACT_BELOW
    for i in range(len(rows)):
        row = rows[i]
        status, case = facts[row, _STATUS], facts[row, _CASE]
        if explains:
            codes[i] = 0
        if status == 0:
            continue
        own = is_prod and case & _HAS_PROD_LIMITS != 0
        headroom_at = _PROD_HEADROOM if own else _HEADROOM  # equal if there are no prod limits
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
            if explains:
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


#: Writes the margins of rows with the usage ``used`` ``(n, USED, r)``.
weigh = Kernel(
    _weigh, _weigh_loop, lambda t: (_vector(t), _read(t), _read(t), _facts(t), _written(t))
)
#: Subtracts one pod from the margins of a row, or adds it back (sign -1).
charged = Kernel(
    _charged, _charged_loop, lambda t: (t.int64, t.int64, _read(t), _written(t), _facts(t))
)
#: Subtracts one pod from the margins of each of ``rows``, which may repeat; ``kind`` is the index
#: of what it takes in ``takes``, here ``(k, CASES + 1, MARGINS, r)``.
charged_all = Kernel(
    _charged_all,
    _charged_all_loop,
    lambda t: (
        _vector(t),
        _vector(t),
        t.Array(t.int64, 4, "C", readonly=True),
        _written(t),
        _facts(t),
    ),
)
#: Adds ``weight`` times the score to ``total``, and sets ``fits`` to False where the pod is
#: rejected.  ``codes``, unless it is empty, receives the verdict as bits: 0 if accepted, bit 0 for
#: an expired report, bit 1 + i if the i-th resource is the first one above its limit, bit 1 + r + i
#: for a limit of aggregated usage.  The score is in 0..100: the weighted mean of the free
#: percentages after placement; 0 without a fresh report.  All three are ``(n,)``.
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
