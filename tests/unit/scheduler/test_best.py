"""Choice of the best of many nodes: compiled kernels equal the array code."""

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
from koordinator.scheduler.cycle.score_table import UNFIT, best_row, best_spread, spread_onto
from koordinator.scheduler.profile import builtin_plugins
from koordinator.scheduler.snapshot import ResourceAxis

NODES = 6
totals = arrays.arrays(np.int64, NODES, elements=st.integers(UNFIT, 300))
raws = arrays.arrays(np.int64, NODES, elements=st.integers(0, 300) | st.integers(0, 2**40))
BUILT = [
    ActivePlugin.of(spec.name, spec.build(spec.args(), ResourceAxis()))
    for spec in builtin_plugins()
]
ranks = st.permutations(range(NODES)).map(lambda order: np.array(order, np.int64))


@pytest.mark.slow
@settings(deadline=None)
@given(total=totals, raw=raws, weight=st.integers(1, 100), reverse=st.booleans())
def test_relative_scores_are_scaled_among_feasible_nodes(
    total: IntArray, raw: IntArray, weight: int, reverse: bool
) -> None:
    """Raw scores outside the precomputed range are scaled, too."""
    arguments = (total, raw, weight, reverse)

    assert np.array_equal(spread_onto.compiled(*arguments), spread_onto.reference(*arguments))


@pytest.mark.slow
@settings(deadline=None)
@given(total=totals, rank=ranks)
def test_the_lowest_rank_wins_among_equals(total: IntArray, rank: IntArray) -> None:
    """There is no result without a feasible node."""
    want = best_row.reference(total, rank)

    assert best_row.compiled(total, rank) == want
    assert (want == UNFIT) == bool((total == UNFIT).all())


@pytest.mark.slow
@settings(deadline=None)
@given(total=totals, raw=raws, weight=st.integers(1, 100), reverse=st.booleans(), rank=ranks)
def test_scaled_scores_and_ranks_combine(
    total: IntArray, raw: IntArray, weight: int, reverse: bool, rank: IntArray
) -> None:
    """The best node by scaled scores is chosen, and the lowest rank among ties."""
    arguments = (total, raw, weight, reverse, rank)

    assert best_spread.compiled(*arguments) == best_spread.reference(*arguments)


@pytest.mark.parametrize(
    "plugin",
    [plugin for plugin in BUILT if plugin.hints.spread is not None],
    ids=lambda plugin: plugin.name,
)
@given(raw=arrays.arrays(np.int64, NODES, elements=st.integers(0, 10_000)))
def test_plugin_with_spread_is_not_normalized(plugin: ActivePlugin, raw: IntArray) -> None:
    """``normalize`` is not called when many nodes are compared in one step."""
    reverse = plugin.hints.spread is Spread.LOWEST

    assert np.array_equal(plugin.plugin.normalize(raw), spread_of(raw, reverse=reverse))
