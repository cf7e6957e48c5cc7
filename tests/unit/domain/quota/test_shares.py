"""Shares of siblings in one resource."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.domain.quota.reference import Child, shared

from koordinator.domain.quota.shares import (
    UNLIMITED,
    WIDE,
    Siblings,
    apportion,
    fair_shares,
    scaled_down,
    wide_shares,
)

Claims = list[tuple[int, int, int, int]]  # request, floor, weight, lends


def share(total: int, claims: Claims) -> list[int]:
    request, floor, weight, lends = zip(*claims, strict=True)
    return fair_shares(total, request, floor, weight, lends)


@pytest.mark.parametrize(
    ("total", "claims", "shares"),
    [
        # blue, gold, green, red: all lend
        (
            120,
            [(12, 20, 30, 1), (60, 15, 50, 1), (34, 25, 50, 1), (90, 10, 70, 1)],
            [12, 35, 34, 39],
        ),
        # blue does not lend; red and gold tie for the odd unit: the first by name gets it
        (
            120,
            [(12, 20, 30, 0), (60, 15, 50, 1), (34, 25, 50, 1), (90, 10, 70, 1)],
            [20, 33, 34, 33],
        ),
        # three units of a donor for four equal borrowers
        (11, [(9, 2, 1, 1)] * 4 + [(0, 3, 1, 1)], [3, 3, 3, 2, 0]),
        # calculator test of the original: one weight is 0, one floor is a guarantee
        (100, [(5, 10, 40, 1), (20, 15, 60, 1), (40, 20, 50, 1), (70, 15, 80, 1)], [5, 20, 35, 40]),
        (100, [(5, 10, 40, 1), (20, 15, 60, 1), (40, 20, 50, 1), (70, 15, 0, 1)], [5, 20, 40, 15]),
        (100, [(5, 10, 40, 1), (20, 15, 60, 1), (40, 20, 50, 1), (70, 45, 0, 1)], [5, 20, 30, 45]),
    ],
)
def test_shares_equal_the_worked_examples(total: int, claims: Claims, shares: list[int]) -> None:
    """Base first, the rest by weight, and again the excess over a request.

    Source: the first three of the behavioural specification, the others of the original's
    runtime_quota_calculator_test.go.
    """
    assert share(total, claims) == shares


def test_nothing_is_lost_to_rounding() -> None:
    """Three GPUs that one child lends reach three of ten borrowers."""
    borrowers = [(100, 8, 1, 1)] * 8 + [(100, 7, 1, 1)] * 2

    assert share(81, [*borrowers, (0, 3, 1, 1)]) == [9, 9, 9, 8, 8, 8, 8, 8, 7, 7, 0]


def test_a_quota_without_weight_gets_its_minimum_only() -> None:
    """The remaining capacity stays unused."""
    assert share(100, [(50, 10, 0, 1), (50, 10, 0, 1)]) == [10, 10]


def test_rights_are_kept_where_they_exceed_the_total() -> None:
    """The sum of the shares is above the total then, unless minimums are scaled."""
    assert share(10, [(50, 10, 1, 1), (50, 10, 1, 1)]) == [10, 10]


def test_minimums_are_scaled_to_a_smaller_total() -> None:
    """Minimums of 5 and 4 cores share 7 cores; rounded down."""
    assert scaled_down([5_000, 4_000], 7_000) == [3_888, 3_111]
    assert scaled_down([5_000, 4_000], 9_000) == [5_000, 4_000]
    assert scaled_down([5, 4], 0) == [0, 0]


amounts = st.one_of(st.integers(0, 12), st.integers(0, 10**6), st.integers(0, UNLIMITED))
claims = st.tuples(amounts, amounts, st.one_of(st.integers(0, 3), amounts), st.integers(0, 1))


@given(amounts, st.lists(amounts, min_size=1).filter(any))
def test_parts_are_the_nearest_integers_that_sum_up(amount: int, weights: list[int]) -> None:
    """No part is off by a unit or more, and nothing is lost."""
    parts = apportion(amount, weights)

    assert sum(parts) == amount
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part * sum(weights) - weight * amount) < sum(weights)


@given(amounts, st.lists(claims, min_size=1, max_size=12))
def test_shares_keep_every_promise(total: int, given_claims: Claims) -> None:
    """Requests within the guarantee are satisfied; none gets more than requested beyond it."""
    shares = share(total, given_claims)

    base = [
        right if wanted > right or not lends else wanted for wanted, right, _, lends in given_claims
    ]
    assert sum(shares) <= max(total, sum(base))
    for got, least, (wanted, right, _, _) in zip(shares, base, given_claims, strict=True):
        assert least <= got <= max(wanted, right)
    if any(
        got < wanted and weight
        for got, (wanted, _, weight, _) in zip(shares, given_claims, strict=True)
    ):
        assert sum(shares) >= total


@given(amounts, st.lists(claims, min_size=1, max_size=12))
def test_shares_equal_those_computed_with_fractions(total: int, given_claims: Claims) -> None:
    """The reference sorts by name and divides exactly."""
    children = [
        Child(f"{index:02}", wanted, right, weight, bool(lends))
        for index, (wanted, right, weight, lends) in enumerate(given_claims)
    ]

    assert share(total, given_claims) == [*shared(children, total, scales=False).values()]


@pytest.mark.slow
@settings(deadline=None)  # the first call compiles
@given(
    amounts,
    st.lists(
        st.tuples(amounts, amounts, st.integers(0, UNLIMITED >> 8), st.integers(0, 1)),
        min_size=1,
        max_size=200,
    ),
)
def test_the_compiled_loop_equals_plain_python(total: int, given_claims: Claims) -> None:
    """Up to the largest numbers that it is used for."""
    columns = [np.array(column, np.int64) for column in zip(*given_claims, strict=True)]

    assert wide_shares.compiled(total, *columns).tolist() == share(total, given_claims)
    assert wide_shares.reference(total, *columns).tolist() == share(total, given_claims)


def siblings(given_claims: Claims, guaranteed: list[int] | None = None) -> Siblings:
    request, least, weight, lends = zip(*given_claims, strict=True)
    return Siblings(
        request=request,
        least=least,
        guaranteed=guaranteed or [],
        weight=weight,
        lends=lends,
        scales=True,
    )


@pytest.mark.slow
@settings(deadline=None)
@given(st.data())
def test_siblings_follow_every_change(data: st.DataObject) -> None:
    """Few of them and many, with or without guarantees: equal to a computation from scratch."""
    count = data.draw(st.sampled_from((1, 3, WIDE + 1)))
    rows = data.draw(st.lists(claims, min_size=count, max_size=count))
    some = st.lists(amounts, min_size=count, max_size=count)
    guaranteed: list[int] = []
    if data.draw(st.booleans()):
        guaranteed = data.draw(some)
    group = siblings(rows, guaranteed)
    for _ in range(data.draw(st.integers(1, 4))):
        place, amount = data.draw(st.integers(0, count - 1)), data.draw(amounts)
        if bool(guaranteed) and data.draw(st.booleans()):
            guaranteed[place] = amount
            group.set_guaranteed(place, amount)
        else:
            rows[place] = (amount, *rows[place][1:])
            group.set_request(place, amount)
        total = data.draw(st.one_of(st.none(), amounts))
        rebuilt = siblings(rows, guaranteed)
        for place in range(count):
            assert group.share(place, total) == rebuilt.share(place, total)
            assert group.scaled_min(place, total) == rebuilt.scaled_min(place, total)


def test_an_unknown_total_leaves_minimums_as_they_are() -> None:
    """A tree of unknown size gives every quota its minimum, and nothing more."""
    group = siblings([(9, 5, 1, 1), (2, 5, 1, 1)])

    assert [group.share(0, None), group.share(1, None), group.scaled_min(0, None)] == [5, 2, 5]
    assert [group.share(0, 0), group.share(1, 0), group.scaled_min(0, 0)] == [0, 0, 0]
