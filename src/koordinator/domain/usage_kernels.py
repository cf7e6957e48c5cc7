"""The arithmetic of resource usage that every placement repeats.

One NumPy version and one compiled loop each.

Shapes: ``requested`` and ``allocatable`` are ``(n, n_resources)``, ``nonzero`` is ``(n, 2)``;
``columns``, ``amounts`` and ``weights`` have an entry per resource concerned.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from koordinator.domain.rounding import percent_floor
from koordinator.foundation.kernel import Kernel

IntArray = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]
BoolArray = npt.NDArray[np.bool_]

MAX_SCORE = 100


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


#: ``(n,)``: bit i says that ``amounts[i]`` more of ``columns[i]`` is more than there is.
shortfalls = Kernel(
    _shortfalls,
    _shortfalls_loop,
    lambda t: (_matrix(t), _matrix(t), _vector(t), _vector(t)),
)


def _allocation_score(  # noqa: PLR0917 (numba takes no keywords)
    requested: IntArray,
    nonzero: IntArray,
    allocatable: IntArray,
    columns: IntArray,
    amounts: IntArray,
    weights: IntArray,
    most: bool,
) -> IntArray:
    total = np.zeros(len(requested), np.int64)
    weight_sum = np.zeros(len(requested), np.int64)
    for column, amount, weight in zip(
        columns.tolist(), amounts.tolist(), weights.tolist(), strict=True
    ):
        capacity = allocatable[:, column]
        used = (nonzero if column < 2 else requested)[:, column] + amount  # noqa: PLR2004 (cpu, memory)
        part = np.minimum(used, capacity) if most else np.maximum(capacity - used, 0)
        has = capacity > 0
        total += weight * (percent_floor(part, capacity) * has)
        weight_sum += weight * has
    return total // np.maximum(weight_sum, 1)


def _allocation_score_loop(  # noqa: PLR0917 (numba takes no keywords)
    requested: IntArray,
    nonzero: IntArray,
    allocatable: IntArray,
    columns: IntArray,
    amounts: IntArray,
    weights: IntArray,
    most: bool,
) -> IntArray:
    n = requested.shape[0]
    out = np.zeros(n, np.int64)
    for row in range(n):
        total = 0
        weight_sum = 0
        for i in range(len(columns)):
            column = columns[i]
            capacity = allocatable[row, column]
            if capacity > 0:
                held = nonzero[row, column] if column < 2 else requested[row, column]  # noqa: PLR2004 (cpu, memory)
                used = held + amounts[i]
                part = min(used, capacity) if most else max(capacity - used, 0)
                total += weights[i] * (part * 100 // capacity)
                weight_sum += weights[i]
        if weight_sum > 0:
            out[row] = total // weight_sum
    return out


#: ``(n,)``: weighted mean percentage that would be free (or, with ``most``, used), over the
#: resources the node has.  cpu and memory (columns 0 and 1) count with their non-zero amounts.
allocation_score = Kernel(
    _allocation_score,
    _allocation_score_loop,
    lambda t: (
        _matrix(t),
        _matrix(t),
        _matrix(t),
        _vector(t),
        _vector(t),
        _vector(t),
        t.boolean,
    ),
)


def _balance_score(
    requested: IntArray, allocatable: IntArray, columns: IntArray, amounts: IntArray
) -> IntArray:
    fractions = np.zeros((len(columns), len(requested)))
    counted = np.zeros(fractions.shape, bool)
    for i, (column, amount) in enumerate(zip(columns.tolist(), amounts.tolist(), strict=True)):
        capacity = allocatable[:, column]
        used = (requested[:, column] + amount) / np.maximum(capacity, 1)
        fractions[i] = np.minimum(used, 1.0)
        counted[i] = capacity > 0
    deviation = _deviation(fractions, counted)
    return ((1.0 - deviation) * MAX_SCORE).astype(np.int64)


def _deviation(fractions: FloatArray, counted: BoolArray) -> FloatArray:
    """Return the standard deviation over axis 0 of the counted fractions.

    Of two it is half their difference.
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


def _balance_score_loop(
    requested: IntArray, allocatable: IntArray, columns: IntArray, amounts: IntArray
) -> IntArray:
    n, k = requested.shape[0], len(columns)
    out = np.zeros(n, np.int64)
    fractions = np.zeros(k)
    for row in range(n):
        number = 0
        total = 0.0
        for i in range(k):
            capacity = allocatable[row, columns[i]]
            if capacity > 0:
                fraction = (requested[row, columns[i]] + amounts[i]) / capacity
                fractions[number] = min(fraction, 1.0)
                total += fractions[number]
                number += 1
        deviation = 0.0
        if number == 2:  # noqa: PLR2004 (as in the reference)
            deviation = abs(fractions[0] - fractions[1]) / 2
        elif number > 2:  # noqa: PLR2004 (as in the reference)
            mean = total / number
            squares = 0.0
            for i in range(number):
                squares += (fractions[i] - mean) * (fractions[i] - mean)
            deviation = np.sqrt(squares / number)
        out[row] = np.int64((1.0 - deviation) * MAX_SCORE)
    return out


#: ``(n,)``: 100 minus the standard deviation, in percent, of the fractions used of the resources
#: the node has.
balance_score = Kernel(
    _balance_score,
    _balance_score_loop,
    lambda t: (_matrix(t), _matrix(t), _vector(t), _vector(t)),
)
