"""Shares of one resource among the children of a quota, computed on demand and cached.

Structure of arrays: one index per child, in order of name.
"""

from array import array
from collections.abc import Iterable, Sequence

import numpy as np

from koordinator.domain.quota.shares import UNLIMITED, fair_shares, scaled_down, wide_shares
from koordinator.foundation.arrays import IntArray

#: Minimum number of children for which the compiled loop is faster.
WIDE = 32


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
