"""The price policy, seen by what it prefers."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.domain.gpus.mix import GpuClass, PodMix
from koordinator.domain.gpus.options import GpuNodes, NodeKinds, best_options
from koordinator.domain.gpus.price import (
    MAX_PRICE_SCORE,
    PriceModel,
    PriceParameters,
    poisson_tail,
    possible_futures,
    price_score,
)

#: model 0 with two GPUs and few cores; model 1 with two GPUs and many
KINDS = NodeKinds(np.array([0, 1]), np.array([2, 2]), np.array([16_000, 64_000]))
SHARE = GpuClass(2_000, 1, 500)


def nodes(*states: tuple[int, int, int, int]) -> GpuNodes:
    """Build nodes from (cpu, GPU 0, GPU 1, kind)."""
    table = np.array(states)
    return GpuNodes(table[:, 0], table[:, 1:3], table[:, 3])


def preferred(model: PriceModel, pod: GpuClass, candidates: GpuNodes) -> tuple[int, int]:
    """Return node and slot of the best option."""
    accepts = KINDS.accept(np.array([pod.models]))[:, 0]
    best = best_options(pod, candidates, accepts, model.prices.potential, price_score)
    node = int(np.where(best.possible, best.score, -1).argmax())
    return node, int(best.slot[node])


def test_a_share_goes_where_it_leaves_a_hole_that_others_fill() -> None:
    """Shares of 500 and 600 are expected: a share of 500 leaves the hole of 600 to the other."""
    cluster = nodes((64_000, 600, 0, 1), (64_000, 500, 0, 1), (64_000, 1_000, 1_000, 1))
    model = PriceModel(KINDS)
    model.solve(PodMix.of({SHARE: 1.0, GpuClass(2_000, 1, 600): 1.0}), cluster)

    assert preferred(model, SHARE, cluster) == (1, 0)


def test_a_pod_with_much_cpu_goes_where_cores_are_plenty() -> None:
    """Most demand wants 8 cores per GPU, so cores of the small kind are not wasted on a CPU pod."""
    cluster = nodes((16_000, 1_000, 1_000, 0), (64_000, 1_000, 1_000, 1))
    model = PriceModel(KINDS)
    hungry = GpuClass(8_000, 1, 1_000)
    model.solve(PodMix.of({hungry: 1.0}), cluster)

    assert preferred(model, GpuClass(8_000), cluster)[0] == 1


def test_room_for_several_gpus_is_kept_while_it_is_scarce() -> None:
    """Pods of two GPUs are expected, more than there is room for: one GPU goes to a broken pair."""
    cluster = nodes((16_000, 1_000, 1_000, 0), (16_000, 1_000, 0, 0))
    model = PriceModel(KINDS, PriceParameters(opening_milli=0.0))
    single, pair = GpuClass(8_000, 1, 1_000), GpuClass(16_000, 2, 1_000)
    model.solve(PodMix.of({single: 1.0, pair: 10.0}), cluster)

    assert preferred(model, single, cluster)[0] == 1


def test_a_model_that_others_insist_on_is_left_to_them() -> None:
    """All choosy pods name model 0: the pod that takes any opens a node of model 1."""
    cluster = nodes((16_000, 1_000, 0, 0), (64_000, 1_000, 1_000, 1))
    choosy, easy = GpuClass(4_000, 1, 1_000, models=0b01), GpuClass(4_000, 1, 1_000)
    model = PriceModel(KINDS)
    model.solve(PodMix.of({choosy: 50.0, easy: 10.0}), cluster)

    assert preferred(model, easy, cluster)[0] == 1


def test_without_any_arrival_an_opened_node_is_preferred() -> None:
    """Before the first solve only the opening constant speaks."""
    cluster = nodes((16_000, 1_000, 1_000, 0), (16_000, 1_000, 500, 0))

    assert preferred(PriceModel(KINDS), SHARE, cluster) == (1, 0)


def test_a_mix_without_gpu_demand_leaves_the_prices_alone() -> None:
    """CPU pods say nothing about GPUs."""
    model = PriceModel(KINDS)
    before = model.prices

    assert model.solve(PodMix.of({GpuClass(1_000): 5.0}), nodes((1_000, 0, 0, 0))) is before


def test_pods_that_fit_on_no_node_kind_make_no_kind_dear() -> None:
    """Pods without a feasible node kind never compete for capacity."""
    cluster = nodes((16_000, 1_000, 0, 0))
    model = PriceModel(KINDS)
    prices = model.solve(PodMix.of({GpuClass(100_000, 1, 1_000, models=0b01): 1.0}), cluster)

    assert not prices.kind_gpu.any()
    assert not prices.kind_cpu.any()


def test_the_same_arrivals_always_give_the_same_prices() -> None:
    """Futures are not drawn at random."""
    cluster = nodes((64_000, 600, 1_000, 1), (16_000, 1_000, 300, 0))
    mix = PodMix.of({SHARE: 9.0, GpuClass(2_000, 1, 600): 4.0, GpuClass(4_000, 1, 300): 2.0})
    one, other = PriceModel(KINDS), PriceModel(KINDS)
    for _ in range(3):
        one.solve(mix, cluster)
        other.solve(mix, cluster)

    assert one.prices.potential(cluster).tolist() == other.prices.potential(cluster).tolist()


def test_futures_spread_around_the_expected_pods() -> None:
    """Mean and variance over many futures; classes vary on their own."""
    counts = np.array([100.0, 900.0, 400.0])

    futures = np.concatenate(
        [possible_futures(counts, 0.5, start, 8) for start in range(0, 800, 8)]
    )

    assert (futures >= 0).all()
    assert futures.mean(0) == pytest.approx(counts * 0.5, rel=0.01)
    assert futures.var(0) == pytest.approx(counts * 0.5 * 1.5, rel=0.05)
    between = np.corrcoef(futures.T)[~np.eye(3, dtype=bool)]
    assert np.abs(between).max() < 0.3


def test_a_class_that_was_never_seen_is_in_no_future() -> None:
    """With no pods ahead, no class is in the future."""
    assert not possible_futures(np.array([0.0, 3.0]), 2.0, 0, 4)[:, 0].any()
    assert not possible_futures(np.array([5.0, 3.0]), 0.0, 0, 4).any()


def test_prices_are_solved_every_so_often_and_sooner_while_learning() -> None:
    """A known mix has nothing to learn."""
    model = PriceModel(KINDS)

    assert [n for n in range(1, 401) if model.due(n, mix_is_known=True)] == [200, 400]
    assert [n for n in range(1, 401) if model.due(n, mix_is_known=False)] == [20, 50, 100, 200, 400]


def test_score_is_in_range_and_falls_with_growth() -> None:
    """Ten milli make a point."""
    growth = np.array([-1e9, -10.0, 0.0, 4.0, 10.0, 1e9])

    middle = MAX_PRICE_SCORE // 2
    assert price_score(growth).tolist() == [
        MAX_PRICE_SCORE,
        middle + 1,
        middle,
        middle,
        middle - 1,
        0,
    ]


@pytest.mark.parametrize(
    ("mean", "at_least", "chance"),
    [
        (0.0, 0, 1.0),
        (0.0, 1, 0.0),
        (1.0, 1, 0.632),
        (2.0, 3, 0.323),
        (400, 400, 0.507),
        (400, 440, 0.025),
    ],
)
def test_poisson_tail_equals_published_tables(mean: float, at_least: int, chance: float) -> None:
    """Values from tables, also where a normal distribution stands in."""
    assert poisson_tail(mean, at_least) == pytest.approx(chance, abs=5e-3)


states = st.tuples(
    st.integers(0, 64_000),
    st.sampled_from([0, 100, 500, 1_000]),
    st.sampled_from([-1, 0, 400, 1_000]),
    st.integers(0, 1),
)
pods = st.builds(
    GpuClass,
    cpu_milli=st.integers(0, 20_000),
    num_gpu=st.integers(0, 2),
    gpu_milli=st.sampled_from([100, 400, 500, 1_000]),
    models=st.integers(1, 3),
)


@settings(deadline=None, max_examples=examples(15))
@given(
    st.lists(states, min_size=1, max_size=8),
    st.dictionaries(pods, st.integers(0, 100), min_size=1, max_size=6),
)
def test_any_mix_on_any_cluster_gives_finite_prices(
    cluster: list[tuple[int, int, int, int]], counts: dict[GpuClass, int]
) -> None:
    """Full and impossible worlds included; a node's potential doesn't depend on the others."""
    model = PriceModel(KINDS)
    for _ in range(2):
        model.solve(PodMix.of(counts), nodes(*cluster))

    together = model.prices.potential(nodes(*cluster))

    assert np.isfinite(together).all()
    alone = [float(model.prices.potential(nodes(state))[0]) for state in cluster]
    assert together.tolist() == pytest.approx(alone)
