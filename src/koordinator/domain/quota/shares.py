"""How children of a quota share an amount of one resource: the redistribution of the original.

Each child is given a base: its request, but at most its minimum; a child that does not lend keeps
its whole minimum.  What is left goes to the children that want more, by weight, as often as
somebody was given more than it requests and returns the rest.

All integer arithmetic, exact: shares are rounded down, and the units left over go one each to the
largest remainders, among equal ones to the name that comes first.

Source: koordinator pkg/scheduler/plugins/elasticquota/core/runtime_quota_calculator.go,
``redistribution``, ``computeHamiltonDeltas``; scale_minquota_when_over_root_res.go,
``getScaledMinQuota``, which computes in floating point and so may be one unit off.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from koordinator.foundation.arrays import IntArray
from koordinator.foundation.kernel import Kernel

#: As good as no limit.  Amounts, weights and totals are cut off here, which only shows where some
#: weights are beyond it, and keeps every sum that the compiled loop forms within 64 bits.
UNLIMITED = (1 << 61) - 1


def scaled_down(least: Sequence[int], total: int) -> Sequence[int]:
    """Return minimums that fit into the total: unchanged, or in proportion and rounded down."""
    together = sum(least)
    return least if together <= total else [amount * total // together for amount in least]


def fair_shares(
    total: int,
    request: Sequence[int],
    floor: Sequence[int],
    weight: Sequence[int],
    lends: Sequence[int],
) -> list[int]:
    """Return what each child may use; children are in order of name.

    ``floor`` is what a child has a right to, ``lends`` 1 if others may use what it leaves of that.
    The shares are at most the request or the floor of each, whichever is larger; their sum is at
    most the total, or the sum of the bases if that is larger.
    """
    shares = [
        asked if asked <= right and may_lend else right
        for asked, right, may_lend in zip(request, floor, lends, strict=True)
    ]
    rest = total - sum(shares)
    hungry = [child for child, asked in enumerate(request) if asked > floor[child]]
    while rest > 0 and hungry:
        weights = [weight[child] for child in hungry]
        if not any(weights):
            break
        granted = apportion(rest, weights)
        rest, still_hungry = 0, []
        for child, grant in zip(hungry, granted, strict=True):
            surplus = shares[child] + grant - request[child]
            if surplus < 0:
                shares[child] += grant
                still_hungry.append(child)
            else:
                shares[child] = request[child]
                rest += surplus
        hungry = still_hungry
    return shares


def apportion(amount: int, weights: Sequence[int]) -> list[int]:
    """Return the amount in parts proportional to weights (not all 0), by largest remainder.

    Ties go to the part that comes first.
    """
    together = sum(weights)
    divided = [divmod(weight * amount, together) for weight in weights]
    parts = [part for part, _ in divided]
    left_over = amount - sum(parts)
    if left_over:
        by_remainder = sorted(range(len(divided)), key=lambda index: -divided[index][1])
        for index in by_remainder[:left_over]:
            parts[index] += 1
    return parts


def _wide_shares(
    total: int, request: IntArray, floor: IntArray, weight: IntArray, lends: IntArray
) -> IntArray:
    shares = fair_shares(total, request.tolist(), floor.tolist(), weight.tolist(), lends.tolist())
    return np.array(shares, np.int64)


def _wide_shares_loop(  # noqa: C901, PLR0912, PLR0915 (one loop nest, compiled as a whole)
    total: int, request: IntArray, floor: IntArray, weight: IntArray, lends: IntArray
) -> IntArray:
    n = len(request)
    shares = np.empty(n, np.int64)
    rates = np.zeros(n, np.int64)  # weights of the hungry, 0 of the others
    is_hungry = np.zeros(n, np.bool_)
    part = np.empty(n, np.int64)
    remainder = np.empty(n, np.int64)
    rest = total
    for i in range(n):
        shares[i] = request[i] if request[i] <= floor[i] and lends[i] else floor[i]
        if request[i] > floor[i]:
            is_hungry[i] = True
            rates[i] = weight[i]
        if rest > 0:
            rest -= shares[i]
    while rest > 0:
        together = 0
        for i in range(n):
            together += rates[i]
        if together <= 0:
            break

        # Divide rates * rest by together without a product of more than 64 bits: by long
        # multiplication, with digits of as many bits of rest as there is room for beside together.
        digit_bits, bits = 62, 0
        while together >> (62 - digit_bits) > 0:
            digit_bits -= 1
        while rest >> bits > 0:
            bits += 1
        for i in range(n):
            part[i] = remainder[i] = 0
        while bits > 0:
            step = min(digit_bits, bits)
            bits -= step
            digit = (rest >> bits) & ((1 << step) - 1)
            for i in range(n):
                dividend = (remainder[i] << step) + rates[i] * digit
                quotient = dividend // together
                part[i] = (part[i] << step) + quotient
                remainder[i] = dividend - quotient * together

        # What is left over: a unit for each remainder above a bar, then for those at it, first come
        # first served.  The bar is the highest that as many remainders reach as units are left.
        left_over = rest
        for i in range(n):
            left_over -= part[i]
        bar, too_high = 0, together
        while too_high - bar > 1:
            middle = bar + (too_high - bar) // 2
            reached = 0
            for i in range(n):
                reached += remainder[i] >= middle
            if reached >= left_over:
                bar = middle
            else:
                too_high = middle
        for i in range(n):
            if remainder[i] > bar:
                part[i] += 1
                left_over -= 1
        for i in range(n):
            if remainder[i] == bar and left_over > 0:
                part[i] += 1
                left_over -= 1

        rest = 0
        for i in range(n):
            if is_hungry[i]:
                surplus = shares[i] + part[i] - request[i]
                if surplus < 0:
                    shares[i] += part[i]
                else:
                    shares[i] = request[i]
                    is_hungry[i] = False
                    rates[i] = 0
                    rest += surplus
    return shares


def _vector(types: Any) -> Any:
    return types.Array(types.int64, 1, "C")


#: ``fair_shares`` of many children, ``(n,)``.  Nothing may be above UNLIMITED, not even the sum of
#: the weights.
wide_shares = Kernel(
    _wide_shares,
    _wide_shares_loop,
    lambda t: (t.int64, *[_vector(t)] * 4),
)
