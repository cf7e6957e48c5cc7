"""Verdict and score of many nodes: one NumPy version and one compiled loop.

``rows`` ``(n,)`` are the rows that are asked about; ``times`` ``(n,)`` says how many more pods each
of them has taken by then, and is empty where none has.  ``pods`` ``(5, r)`` has what each of these
adds, by ``Sum``, and last the estimate of the pod that is asked about.  ``figures``
``(capacity, len(Figure), r)`` and ``facts`` ``(capacity, len(Fact))`` are by row of the whole
cluster.  ``options`` are by ``Option``, ``weights`` ``(r,)``.
"""

from enum import IntEnum
from typing import Any

import numpy as np
import numpy.typing as npt

from koordinator.domain.load.pod_load import Sum
from koordinator.domain.rounding import percent_floor, round_half_away_array
from koordinator.foundation.kernel import Kernel

IntArray = npt.NDArray[np.int64]
ByteArray = npt.NDArray[np.int8]

_DELTA, _PROD_DELTA, _ESTIMATED, _PROD_USAGE = (int(one) for one in Sum)
_INCOMING = len(Sum)


class Figure(IntEnum):
    """Amounts of a node by resource; the first ones are its sums, by ``Sum``."""

    HAS = 4  # not amplified
    LIMITED = 5  # the usage that has limits
    SCORED = 6  # the usage that scores look at
    LIMIT = 7  # percent of HAS
    PROD_LIMIT = 8


class Fact(IntEnum):
    """What else is known of a node."""

    STATUS = 0  # a Status
    KNOWS_LIMITED = 1  # 0: there is no usage over that window, and whole estimates count instead
    KNOWS_SCORED = 2
    IS_AGGREGATED = 3  # the usage that has limits is not the latest


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


FIGURES, FACTS = len(Sum) + len(Figure), len(Fact)

_HAS, _LIMITED, _SCORED, _LIMIT, _PROD_LIMIT = (int(one) for one in Figure)
_STATUS, _KNOWS_LIMITED, _KNOWS_SCORED, _IS_AGGREGATED = (int(one) for one in Fact)
_FRESH, _EXPIRED, _EMPTY = int(Status.FRESH), int(Status.EXPIRED), int(Status.EMPTY)
_REFUSE_EXPIRED, _USE_EXPIRED, _SCORE_BY_PROD, _DOMINANT = (int(one) for one in Option)


def _judged(  # noqa: PLR0917 (numba takes no keywords)
    rows: IntArray,
    times: IntArray,
    pods: IntArray,
    figures: IntArray,
    facts: ByteArray,
    options: IntArray,
    weights: IntArray,
    is_prod: bool,
) -> IntArray:
    now, known = figures[rows], facts[rows]
    if len(times):
        now[:, :_INCOMING] += pods[:_INCOMING] * times[:, None, None]
    by_prod = now[:, _PROD_USAGE] + now[:, _PROD_DELTA]
    limited, scored = (
        np.where(known[:, which, None] != 0, now[:, usage] + now[:, _DELTA], now[:, _ESTIMATED])
        for which, usage in ((_KNOWS_LIMITED, _LIMITED), (_KNOWS_SCORED, _SCORED))
    )
    limit = now[:, _LIMIT]
    aggregated = known[:, _IS_AGGREGATED] != 0
    if is_prod:
        own = (now[:, _PROD_LIMIT] != 0).max(axis=1, keepdims=True)
        limit = np.where(own, now[:, _PROD_LIMIT], limit)
        limited = np.where(own, by_prod, limited)
        aggregated &= ~own[:, 0]
        if options[_SCORE_BY_PROD]:
            scored = by_prod
    out = np.empty((2, len(rows)), np.int64)
    out[0] = _codes(limit, limited + pods[_INCOMING], now, known[:, _STATUS], aggregated, options)
    out[1] = _scores(scored + pods[_INCOMING], now[:, _HAS], weights, int(options[_DOMINANT]))
    out[1] *= known[:, _STATUS] == _FRESH
    return out


def _codes(  # noqa: PLR0917 (a part of the above)
    limit: IntArray,
    load: IntArray,
    now: IntArray,
    status: ByteArray,
    aggregated: npt.NDArray[np.bool_],
    options: IntArray,
) -> IntArray:
    has, width = now[:, _HAS], limit.shape[1]
    share = round_half_away_array(load / np.maximum(has, 1) * 100)
    over = (limit != 0) & (has != 0) & (share > limit)
    over &= ((status == _FRESH) | ((status == _EXPIRED) & (options[_USE_EXPIRED] != 0)))[:, None]
    place = 1 + over.argmax(axis=1) + width * aggregated
    codes = np.where(over.any(axis=1), np.left_shift(1, place), 0)
    expired = ((status == _EXPIRED) | (status == _EMPTY)) & limit.any(axis=1)
    return np.where(expired & (options[_REFUSE_EXPIRED] != 0), 1, codes)


def _scores(load: IntArray, has: IntArray, weights: IntArray, dominant: int) -> IntArray:
    scores = percent_floor(np.maximum(has - load, 0), has) * (has > 0)
    total = scores @ weights + dominant * scores.min(axis=1)
    mean: IntArray = total // max(int(weights.sum()) + dominant, 1)
    return mean


def _judged_loop(  # noqa: C901, PLR0912, PLR0917 (one loop for numba)
    rows: IntArray,
    times: IntArray,
    pods: IntArray,
    figures: IntArray,
    facts: ByteArray,
    options: IntArray,
    weights: IntArray,
    is_prod: bool,
) -> IntArray:
    width = figures.shape[2]
    out = np.zeros((2, len(rows)), np.int64)
    refuse, use = options[_REFUSE_EXPIRED] != 0, options[_USE_EXPIRED] != 0
    dominant = options[_DOMINANT]
    whole = dominant + weights.sum()
    for i in range(len(rows)):
        now, known = figures[rows[i]], facts[rows[i]]
        status = known[_STATUS]
        if status == 0:
            continue
        more = times[i] if len(times) else 0
        own = False
        if is_prod:
            for r in range(width):
                own = own or now[_PROD_LIMIT, r] != 0
        total, lowest, code = 0, 100, 0
        for r in range(width):
            has, estimate = now[_HAS, r], pods[_INCOMING, r]
            delta = now[_DELTA, r] + more * pods[_DELTA, r] + estimate
            estimated = now[_ESTIMATED, r] + more * pods[_ESTIMATED, r] + estimate
            by_prod = now[_PROD_USAGE, r] + now[_PROD_DELTA, r] + estimate
            by_prod += more * (pods[_PROD_USAGE, r] + pods[_PROD_DELTA, r])
            limit = now[_PROD_LIMIT, r] if own else now[_LIMIT, r]
            if limit != 0 and code == 0:
                load = now[_LIMITED, r] + delta if known[_KNOWS_LIMITED] else estimated
                if own:
                    load = by_prod
                if status != _FRESH and refuse:
                    code = 1
                elif has != 0 and (status == _FRESH or (status == _EXPIRED and use)):
                    share = load / has * 100
                    nearest = np.trunc(share)
                    if share - nearest >= 0.5:  # noqa: PLR2004 (half; there are no negative shares)
                        nearest += 1.0
                    if nearest > limit:
                        above = width if known[_IS_AGGREGATED] and not own else 0
                        code = 1 << (1 + r + above)
            load = now[_SCORED, r] + delta if known[_KNOWS_SCORED] else estimated
            if is_prod and options[_SCORE_BY_PROD]:
                load = by_prod
            score = 0
            if has > 0 and load <= has:
                score = (has - load) * 100 // has
            total += score * weights[r]
            lowest = min(lowest, score)
        out[0, i] = code
        if status == _FRESH and whole > 0:
            out[1, i] = (total + lowest * dominant) // whole
    return out


def _signature(types: Any) -> Any:
    vector = types.Array(types.int64, 1, "C", readonly=True)
    table = types.Array(types.int64, 2, "C", readonly=True)
    figures = types.Array(types.int64, 3, "C", readonly=True)
    facts = types.Array(types.int8, 2, "C", readonly=True)
    return vector, vector, table, figures, facts, vector, vector, types.boolean


#: ``(2, n)``.  First the verdict as bits: none where the node takes the pod, bit 0 where its report
#: has expired, bit 1 + i where the i-th resource is the first one above its limit, bit 1 + r + i
#: where that is a limit of aggregated usage.  Then the score in 0..100: the weighted mean of what
#: would be left of each resource, in percent; 0 where there is no fresh report.
judged = Kernel(_judged, _judged_loop, _signature)
