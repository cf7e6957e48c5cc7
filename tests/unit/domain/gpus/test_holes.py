"""Worth of partly used GPUs."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.domain.gpus.price import HoleValue, Knapsack


def test_a_hole_that_no_share_fits_is_worth_nothing() -> None:
    """With shares of 500 only, a hole is worth the number of halves in it."""
    worth = HoleValue().solve({500: 100.0}, {300: 4})

    assert (worth[300], worth[499], worth[500], worth[999], worth[1_000]) == (0, 0, 0.5, 0.5, 1)


def test_shares_that_fill_up_what_others_leave_make_it_worth_something() -> None:
    """After a share of 600 there are 400 left: worth a lot where shares of 400 are to come."""
    assert HoleValue().solve({600: 10.0, 400: 10.0}, {})[400] == pytest.approx(0.4, abs=0.4)
    assert HoleValue().solve({600: 10.0, 400: 1_000.0}, {})[400] == pytest.approx(0.5)
    assert HoleValue().solve({600: 10.0}, {})[400] == 0


def test_nothing_is_worth_anything_where_no_share_is_expected() -> None:
    """An empty demand is fine."""
    assert not HoleValue().solve({500: 0.0}, {300: 4}).any()


def test_a_plenty_of_holes_lowers_their_worth() -> None:
    """If the holes suffice for all expected pods, free GPUs have no value."""
    assert not HoleValue().solve({500: 10.0}, {500: 50}).any()


demands = st.dictionaries(
    st.integers(1, 20).map(lambda n: 50 * n), st.floats(0.5, 200), min_size=1, max_size=6
)
holes = st.dictionaries(st.integers(1, 19).map(lambda n: 50 * n), st.integers(1, 30), max_size=6)


@settings(deadline=None, max_examples=examples(30))
@given(demands, holes, demands)
def test_worth_rises_and_is_the_same_for_a_model_with_a_past(
    demand: dict[int, float], rest: dict[int, int], earlier: dict[int, float]
) -> None:
    """Fillings remembered from an earlier solve change the way, not the cost of the cover."""
    experienced = HoleValue()
    experienced.solve(earlier, {})

    worth, fresh = experienced.solve(demand, rest), HoleValue().solve(demand, rest)

    assert (np.diff(worth) >= 0).all()
    assert worth[0] == 0
    assert worth[1_000] <= 1
    assert cost(worth, demand, rest) == pytest.approx(cost(fresh, demand, rest), abs=1e-4)


def cost(worth: np.ndarray, demand: dict[int, float], rest: dict[int, int]) -> float:
    """Return the whole GPUs that the demand takes, by the prices that the worth implies."""
    return sum(n * worth[size] for size, n in demand.items()) - sum(
        n * worth[hole] for hole, n in rest.items()
    )


@given(
    st.dictionaries(
        st.integers(4, 20).map(lambda n: 50 * n), st.floats(0, 5), min_size=1, max_size=4
    ),
    st.integers(0, 1_000),
)
def test_a_knapsack_is_filled_best(prices: dict[int, float], hole: int) -> None:
    """Equal to trying every combination."""
    sizes = sorted(prices)
    knapsack = Knapsack(np.array(sizes), np.array([prices[size] for size in sizes]))

    best = max(
        sum(prices[size] for size in combination)
        for length in range(6)
        for combination in itertools.combinations_with_replacement(sizes, length)
        if sum(combination) <= hole
    )
    assert knapsack.worth[hole] == pytest.approx(best)
    assert sum(knapsack.filling(hole)) <= hole
    assert sum(prices[size] for size in knapsack.filling(hole)) == pytest.approx(best)
