"""Fair shares of sibling quotas.

The base of each child is its request, capped at its minimum; a child that does not lend keeps its
whole minimum. The rest is distributed by weight to the children that request more. When a grant
exceeds a child's request, the surplus is distributed again.

The arithmetic is exact: shares are rounded down, and the remaining units go one each to the largest
remainders; ties are broken by name.

Structure of arrays: one index per child, in order of name.

Source: koordinator pkg/scheduler/plugins/elasticquota/core/runtime_quota_calculator.go,
``redistribution``, ``computeHamiltonDeltas``; scale_minquota_when_over_root_res.go,
``getScaledMinQuota``, which computes in floating point and may differ by one unit.
"""

from array import array
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from koordinator.foundation.arrays import IntArray, Kernel

#: Effectively unlimited.  Amounts, weights and totals are capped here so that every sum in the
#: compiled loop fits into 64 bits.  The cap changes results only if a weight exceeds it.
UNLIMITED = (1 << 61) - 1

#: Minimum number of children for which the compiled loop is faster.
WIDE = 32


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
    """Return the share of each child; children are in order of name.

    ``floor`` is the guaranteed amount of a child. ``lends`` is 1 if other children may use the
    unused part of it. A share is at most the larger of request and floor. The sum of the shares is
    at most the larger of the total and the sum of the bases.
    """
    shares = [
        requested if requested <= right and may_lend else right
        for requested, right, may_lend in zip(request, floor, lends, strict=True)
    ]
    rest = total - sum(shares)
    hungry = [child for child, requested in enumerate(request) if requested > floor[child]]
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
    """Divide the amount in proportion to weights (not all 0) by largest remainder.

    Ties go to the lower index.
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
    rates = np.zeros(n, np.int64)  # weights of children with an unmet request, else 0
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

        # Compute rates * rest / together without a product of more than 64 bits: long
        # multiplication whose digits have the bits that together leaves free.
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

        # Distribute the remaining units: one for each remainder above a threshold, then one for
        # each remainder at it, by index.  The threshold is the highest value that at least
        # left_over remainders reach; it is found by bisection.
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


#: ``fair_shares`` for many children, arrays of shape ``(n,)``.  No value, and no sum of weights,
#: may exceed UNLIMITED.
wide_shares = Kernel(
    _wide_shares,
    _wide_shares_loop,
    lambda t: (t.int64, *[_vector(t)] * 4),
)


class Siblings:
    """Requests, minimums and weights of all children of a quota, and their shares."""

    __slots__ = (
        "_fits_loop",
        "_guaranteed",
        "_least",
        "_lends",
        "_request",
        "_scaled",
        "_scales",
        "_shares",
        "_total",
        "_weight",
    )

    def __init__(
        self,
        *,
        request: Iterable[int],
        least: Iterable[int],
        guaranteed: Iterable[int],
        weight: Iterable[int],
        lends: Iterable[int],
        scales: bool,
    ) -> None:
        """Create the group from one entry per child; ``guaranteed`` may be empty.

        With ``scales``, minimums (``least``) are scaled down to a total that they exceed.
        """
        self._request = _cut_off(request)
        self._least = _cut_off(least)
        self._guaranteed = _cut_off(guaranteed)
        self._weight = _cut_off(weight)
        self._lends = array("q", lends)
        self._scales = scales
        self._fits_loop = len(self._request) >= WIDE and sum(self._weight) <= UNLIMITED
        self._total: int | None = None
        self._scaled: Sequence[int] = self._least  # minimums scaled to ``_total``
        self._shares: Sequence[int] = ()  # shares of ``_total``; empty: not computed yet

    def set_request(self, place: int, amount: int) -> None:
        """Set the request of a child, capped at its maximum."""
        self._set(self._request, place, amount)

    def set_guaranteed(self, place: int, amount: int) -> None:
        """Set the guaranteed amount of a child; it may exceed the minimum."""
        self._set(self._guaranteed, place, amount)

    def share(self, place: int, total: int | None) -> int:
        """Return the share of a child in the total.

        If the total is unknown (None), the share of every child is its minimum.
        """
        self._set_total(total)
        if not self._shares:
            self._shares = self._compute()
        return self._shares[place]

    def scaled_min(self, place: int, total: int | None) -> int:
        """Return the minimum of a child, scaled to the total."""
        self._set_total(total)
        return self._scaled[place]

    def _set(self, amounts: "array[int]", place: int, amount: int) -> None:
        amount = min(amount, UNLIMITED)
        if amounts[place] != amount:
            amounts[place] = amount
            self._shares = ()

    def _set_total(self, total: int | None) -> None:
        if total == self._total:
            return
        self._total = total
        self._shares = ()
        if total is None or not self._scales:
            self._scaled = self._least
        else:
            self._scaled = scaled_down(self._least, total)

    def _compute(self) -> Sequence[int]:
        total, floor = min(self._total or 0, UNLIMITED), self._scaled
        if self._guaranteed:
            floor = [*map(max, floor, self._guaranteed)]
        if not self._fits_loop:
            return fair_shares(total, self._request, floor, self._weight, self._lends)
        arrays = map(_view, (self._request, floor, self._weight, self._lends))
        shares: list[int] = wide_shares.compiled(total, *arrays).tolist()
        return shares


def _cut_off(amounts: Iterable[int]) -> "array[int]":
    return array("q", [min(amount, UNLIMITED) for amount in amounts])


def _view(amounts: Sequence[int]) -> IntArray:
    return np.asarray(amounts, np.int64)
