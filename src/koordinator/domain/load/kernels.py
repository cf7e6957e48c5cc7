"""Verdict and score of many nodes: one NumPy version and one compiled loop each.

Shapes: ``rows`` and ``times`` are ``(n,)``: which rows are asked about, and how many more pods each
has taken by then.  ``step`` is ``(4, r)``, what each of these adds by ``Sum``; ``incoming`` is
``(r,)``, the estimate of the pod that is asked about.  By row of the whole cluster are ``sums``
``(4, r, capacity)``, ``has``, ``usage`` and limits ``(r, capacity)``, and ``known``
``(capacity,)``: False where there is no usage over the window, and whole estimates count instead.
``status`` ``(capacity,)`` is a ``Status``.
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
BoolArray = npt.NDArray[np.bool_]

_DELTA, _PROD_DELTA, _ESTIMATED, _PROD_USAGE = (int(one) for one in Sum)


class Status(IntEnum):
    """What is known of a node's usage."""

    UNKNOWN = 0  # no report, or a fresh one without body
    FRESH = 1
    EXPIRED = 2
    EMPTY = 3  # an expired report without body


_FRESH, _EXPIRED, _EMPTY = int(Status.FRESH), int(Status.EXPIRED), int(Status.EMPTY)


def _load(  # noqa: PLR0917 (numba takes no keywords)
    rows: IntArray,
    times: IntArray,
    step: IntArray,
    sums: IntArray,
    usage: IntArray,
    known: BoolArray,
) -> tuple[IntArray, IntArray]:
    """Return ``(r, n)``: the load of the nodes, and that by prod pods."""
    held = sums[:, :, rows] + step[:, :, None] * times
    node = np.where(known[rows], usage[:, rows] + held[_DELTA], held[_ESTIMATED])
    return node, held[_PROD_USAGE] + held[_PROD_DELTA]


def _exceeded(  # noqa: PLR0917 (numba takes no keywords)
    rows: IntArray,
    times: IntArray,
    step: IntArray,
    incoming: IntArray,
    sums: IntArray,
    usage: IntArray,
    known: BoolArray,
    has: IntArray,
    limits: IntArray,
    prod_limits: IntArray,
    status: ByteArray,
    prod: bool,
    refuse_expired: bool,
    use_expired: bool,
) -> IntArray:
    node, of_prod = _load(rows, times, step, sums, usage, known)
    bound, load = limits[:, rows], node
    if prod:
        own = prod_limits[:, rows]
        by_prod = own.any(axis=0)
        bound, load = np.where(by_prod, own, bound), np.where(by_prod, of_prod, load)
    there = has[:, rows]
    share = (load + incoming[:, None]) / np.maximum(there, 1) * 100
    over = (bound != 0) & (there != 0) & (round_half_away_array(share) > bound)
    found, state = np.zeros(len(rows), np.int64), status[rows]
    checked = (state == _FRESH) | ((state == _EXPIRED) & use_expired)
    first = np.where(checked & over.any(axis=0), over.argmax(axis=0) + 2, 0)
    expired = ((state == _EXPIRED) | (state == _EMPTY)) & bound.any(axis=0)
    found[:] = np.where(expired & refuse_expired, 1, first)
    return found


def _exceeded_loop(  # noqa: C901, PLR0912, PLR0917 (numba takes no keywords, and no small functions)
    rows: IntArray,
    times: IntArray,
    step: IntArray,
    incoming: IntArray,
    sums: IntArray,
    usage: IntArray,
    known: BoolArray,
    has: IntArray,
    limits: IntArray,
    prod_limits: IntArray,
    status: ByteArray,
    prod: bool,
    refuse_expired: bool,
    use_expired: bool,
) -> IntArray:
    n, width = len(rows), has.shape[0]
    found = np.zeros(n, np.int64)
    for i in range(n):
        row, state = rows[i], status[rows[i]]
        if state == 0 or (state == _EMPTY and not refuse_expired):
            continue
        if state == _EXPIRED and not (refuse_expired or use_expired):
            continue
        by_prod = False
        if prod:
            for r in range(width):
                by_prod = by_prod or prod_limits[r, row] != 0
        for r in range(width):
            bound = prod_limits[r, row] if by_prod else limits[r, row]
            if bound == 0:
                continue
            if state != _FRESH and refuse_expired:
                found[i] = 1
                break
            if has[r, row] == 0:
                continue
            load = incoming[r]
            if by_prod:
                load += sums[_PROD_USAGE, r, row] + sums[_PROD_DELTA, r, row]
                load += times[i] * (step[_PROD_USAGE, r] + step[_PROD_DELTA, r])
            elif known[row]:
                load += usage[r, row] + sums[_DELTA, r, row] + times[i] * step[_DELTA, r]
            else:
                load += sums[_ESTIMATED, r, row] + times[i] * step[_ESTIMATED, r]
            share = load / has[r, row] * 100
            whole = np.trunc(share)
            if abs(share - whole) >= 0.5:  # noqa: PLR2004 (half)
                whole += 1.0 if share > 0 else -1.0
            if whole > bound:
                found[i] = r + 2
                break
    return found


def _least_used(  # noqa: PLR0917 (numba takes no keywords)
    rows: IntArray,
    times: IntArray,
    step: IntArray,
    incoming: IntArray,
    sums: IntArray,
    usage: IntArray,
    known: BoolArray,
    has: IntArray,
    status: ByteArray,
    weights: IntArray,
    dominant: int,
    prod: bool,
) -> IntArray:
    node, of_prod = _load(rows, times, step, sums, usage, known)
    load, there = (of_prod if prod else node) + incoming[:, None], has[:, rows]
    scores = percent_floor(np.maximum(there - load, 0), there) * (there > 0)
    total = weights @ scores
    if dominant:
        total = total + dominant * np.minimum(scores.min(axis=0), 100)
    mean: IntArray = total // max(int(weights.sum()) + dominant, 1)
    return np.where(status[rows] == _FRESH, mean, 0)


def _least_used_loop(  # noqa: PLR0917 (numba takes no keywords)
    rows: IntArray,
    times: IntArray,
    step: IntArray,
    incoming: IntArray,
    sums: IntArray,
    usage: IntArray,
    known: BoolArray,
    has: IntArray,
    status: ByteArray,
    weights: IntArray,
    dominant: int,
    prod: bool,
) -> IntArray:
    n, width = len(rows), has.shape[0]
    out = np.zeros(n, np.int64)
    whole = dominant
    for r in range(width):
        whole += weights[r]
    if whole <= 0:
        return out
    for i in range(n):
        row = rows[i]
        if status[row] != _FRESH:
            continue
        total, lowest = 0, 100
        for r in range(width):
            load = incoming[r]
            if prod:
                load += sums[_PROD_USAGE, r, row] + sums[_PROD_DELTA, r, row]
                load += times[i] * (step[_PROD_USAGE, r] + step[_PROD_DELTA, r])
            elif known[row]:
                load += usage[r, row] + sums[_DELTA, r, row] + times[i] * step[_DELTA, r]
            else:
                load += sums[_ESTIMATED, r, row] + times[i] * step[_ESTIMATED, r]
            score = 0
            if has[r, row] > 0 and load <= has[r, row]:
                score = (has[r, row] - load) * 100 // has[r, row]
            total += score * weights[r]
            lowest = min(lowest, score)
        out[i] = (total + lowest * dominant) // whole
    return out


def _vector(types: Any) -> Any:
    return types.Array(types.int64, 1, "C", readonly=True)


def _table(types: Any) -> Any:
    return types.Array(types.int64, 2, "C", readonly=True)


def _asked(types: Any) -> tuple[Any, ...]:
    """Return the types of rows, times, step, incoming, sums, usage, known and has."""
    vector, table = _vector(types), _table(types)
    sums = types.Array(types.int64, 3, "C", readonly=True)
    known = types.Array(types.boolean, 1, "C", readonly=True)
    return vector, vector, table, vector, sums, table, known, table


def _status(types: Any) -> Any:
    return types.Array(types.int8, 1, "C", readonly=True)


#: ``(n,)``: 0 where the node takes the pod, 1 where its report has expired, 2 + r where the r-th
#: resource is the first one above its limit.
exceeded = Kernel(
    _exceeded,
    _exceeded_loop,
    lambda t: (
        *_asked(t),
        _table(t),
        _table(t),
        _status(t),
        t.boolean,
        t.boolean,
        t.boolean,
    ),
)

#: ``(n,)`` in 0..100: the weighted mean of what would be left of each resource, the scarcest one
#: counted once more with weight ``dominant``; 0 where there is no fresh report.
least_used = Kernel(
    _least_used,
    _least_used_loop,
    lambda t: (*_asked(t), _status(t), _vector(t), t.int64, t.boolean),
)
