"""The best of many nodes: compiled loops and the array code that they must agree with."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract import (
    ActivePlugin,
    Spread,
    spread_of,
)
from koordinator.scheduler.cycle.best import best_row, best_spread, spread_onto
from koordinator.scheduler.cycle.evaluation import UNFIT
from koordinator.scheduler.profile import BUILTIN_PLUGINS
from koordinator.scheduler.snapshot import ResourceAxis

NODES = 6
totals = arrays.arrays(np.int64, NODES, elements=st.integers(UNFIT, 300))
raws = arrays.arrays(np.int64, NODES, elements=st.integers(0, 300) | st.integers(0, 2**40))
BUILT = [
    ActivePlugin.of(spec.name, spec.build(spec.args(), ResourceAxis())) for spec in BUILTIN_PLUGINS
]
ranks = st.permutations(range(NODES)).map(lambda order: np.array(order, np.int64))


@pytest.mark.slow
@settings(deadline=None)
@given(total=totals, raw=raws, weight=st.integers(1, 100), reverse=st.booleans())
def test_relative_scores_are_scaled_among_the_nodes_that_take_the_pod(
    total: IntArray, raw: IntArray, weight: int, reverse: bool
) -> None:
    """Also for raw scores beyond those that are scaled beforehand."""
    arguments = (total, raw, weight, reverse)

    assert np.array_equal(spread_onto.compiled(*arguments), spread_onto.reference(*arguments))


@pytest.mark.slow
@settings(deadline=None)
@given(total=totals, rank=ranks)
def test_the_lowest_rank_wins_among_equals(total: IntArray, rank: IntArray) -> None:
    """Nothing if no node takes the pod."""
    want = best_row.reference(total, rank)

    assert best_row.compiled(total, rank) == want
    assert (want == UNFIT) == bool((total == UNFIT).all())


@pytest.mark.slow
@settings(deadline=None)
@given(total=totals, raw=raws, weight=st.integers(1, 100), reverse=st.booleans(), rank=ranks)
def test_both_can_be_done_at_once(
    total: IntArray, raw: IntArray, weight: int, reverse: bool, rank: IntArray
) -> None:
    """The best node by scaled scores, of equal ones that with the lowest rank."""
    arguments = (total, raw, weight, reverse, rank)

    assert best_spread.compiled(*arguments) == best_spread.reference(*arguments)


@pytest.mark.parametrize(
    "plugin",
    [plugin for plugin in BUILT if plugin.hints.spread is not None],
    ids=lambda plugin: plugin.name,
)
@given(raw=arrays.arrays(np.int64, NODES, elements=st.integers(0, 10_000)))
def test_a_plugin_that_names_its_spread_does_nothing_else(
    plugin: ActivePlugin, raw: IntArray
) -> None:
    """``normalize`` is not asked where many nodes are compared at once."""
    reverse = plugin.hints.spread is Spread.LOWEST

    assert np.array_equal(plugin.plugin.normalize(raw), spread_of(raw, reverse=reverse))
