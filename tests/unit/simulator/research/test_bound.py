"""The proven bounds: never below what some placement reaches, and close to it on small worlds."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.domain.gpus.mix import GpuClass
from koordinator.simulator.research.bound import bound_of, conserving_bound
from koordinator.simulator.research.node_packing import NodeShape

BOX = NodeShape(gpus=2, cpu_milli=16_000, model_bit=1)


def test_demand_and_capacity_are_bounds() -> None:
    """The simplest reasons come first."""
    one = GpuClass(1_000, 1, 1_000)

    assert bound_of([one], [BOX]).gpu_milli == 1_000
    assert bound_of([one] * 9, [BOX]).gpu_milli == 2_000
    assert bound_of([], [BOX]).gpu_milli == bound_of([one], []).gpu_milli == 0


def test_shares_that_leave_a_rest_cannot_fill_a_gpu() -> None:
    """One share of 600 per GPU, whatever the order."""
    assert bound_of([GpuClass(0, 1, 600)] * 9, [BOX] * 3).gpu_milli == pytest.approx(3_600)


def test_cpu_limits_what_a_node_takes() -> None:
    """9 of 16 cores: one pod per node, though it has two GPUs and 16 cores hold 1.8 of them."""
    assert bound_of([GpuClass(9_000, 1, 1_000)] * 9, [BOX] * 3).gpu_milli == pytest.approx(3_000)


def test_a_model_that_no_node_has_adds_nothing() -> None:
    """The pod can't be placed."""
    assert bound_of([GpuClass(0, 1, 1_000, models=0b10)], [BOX]).gpu_milli == pytest.approx(0)


def test_pods_too_large_for_every_node_add_nothing() -> None:
    """Four GPUs on nodes of two."""
    assert bound_of([GpuClass(0, 4, 1_000)], [BOX]).gpu_milli == pytest.approx(0)


def test_stopping_early_keeps_the_bound_valid() -> None:
    """More rounds lower it, and the gap is what there was to gain."""
    pods = [GpuClass(4_000, 1, 600)] * 3 + [GpuClass(8_000, 1, 350)] * 4 + [GpuClass(0, 2, 1_000)]

    early, late = bound_of(pods, [BOX] * 3, rounds=1), bound_of(pods, [BOX] * 3)

    assert early.gpu_milli >= late.gpu_milli >= early.gpu_milli - early.gap_milli - 1e-6


def test_a_pod_that_fits_takes_the_place_of_a_larger_one() -> None:
    """Any placement may leave out the share; a work-conserving one must place it.

    The bound is above the 600 that are possible, as its program refuses half of each.
    """
    node = NodeShape(gpus=1, cpu_milli=16_000, model_bit=1)
    arriving = [GpuClass(1_000, 1, 600), GpuClass(1_000, 1, 1_000)]

    assert bound_of(arriving, [node]).gpu_milli == pytest.approx(1_000)
    assert 600 <= conserving_bound(arriving, [node]).gpu_milli <= 801
    assert conserving_bound(arriving[::-1], [node]).gpu_milli == pytest.approx(1_000)


def test_pods_without_gpus_take_cpu() -> None:
    """Pods without GPUs come first; their 15 cores leave 1, too little for the GPU pod."""
    node = NodeShape(gpus=2, cpu_milli=16_000, model_bit=1)
    arriving = [GpuClass(5_000)] * 3 + [GpuClass(5_000, 1, 1_000)]

    assert bound_of(arriving, [node]).gpu_milli == pytest.approx(1_000)
    assert conserving_bound(arriving, [node]).gpu_milli < 900
    assert conserving_bound(arriving, [node] * 2).gpu_milli == pytest.approx(1_000)


def test_order_matters_only_between_comparable_requests() -> None:
    """The share needs more CPU than the pod with a whole GPU, so neither implies the other."""
    node = NodeShape(gpus=1, cpu_milli=16_000, model_bit=1)
    arriving = [GpuClass(9_000, 1, 600), GpuClass(1_000, 1, 1_000)]

    assert conserving_bound(arriving, [node]).gpu_milli == pytest.approx(1_000)


@pytest.mark.parametrize(
    "refused",
    [GpuClass(1_000, 1, 600, memory_mib=9_000), GpuClass(1_000, 1, 600, models=0b10)],
    ids=["memory", "models"],
)
def test_a_rejection_by_memory_or_model_excludes_no_other_pod(refused: GpuClass) -> None:
    """The node has neither that memory nor that model, and takes the pod with a whole GPU."""
    node = NodeShape(gpus=1, cpu_milli=16_000, model_bit=1)

    bound = conserving_bound([refused, GpuClass(1_000, 1, 1_000)], [node])

    assert bound.gpu_milli == pytest.approx(1_000)


pods = st.builds(
    GpuClass,
    cpu_milli=st.integers(0, 120).map(lambda n: 130 * n),
    num_gpu=st.integers(0, 2),
    gpu_milli=st.sampled_from([100, 330, 500, 650, 1_000]),
    models=st.integers(1, 3),
)
shapes = st.builds(
    NodeShape,
    gpus=st.integers(1, 2),
    cpu_milli=st.sampled_from([4_050, 16_000]),
    model_bit=st.sampled_from([1, 2]),
)


@settings(deadline=None)
@given(st.lists(pods, max_size=4), st.lists(shapes, min_size=1, max_size=2))
def test_no_placement_exceeds_the_bound(pods: list[GpuClass], shapes: list[NodeShape]) -> None:
    """Compared with the best of all placements, found by trying every one."""
    bound = bound_of(pods, shapes).gpu_milli

    assert bound >= best_placement(pods, shapes) - 1e-6


sized = st.tuples(shapes, st.sampled_from([1_000, 4_000]))
arriving = st.one_of(
    st.builds(
        GpuClass,
        cpu_milli=st.integers(0, 12).map(lambda n: 1_300 * n),
        num_gpu=st.integers(1, 2),
        gpu_milli=st.sampled_from([100, 330, 500, 650, 1_000]),
        models=st.integers(1, 3),
        memory_mib=st.sampled_from([0, 900, 2_100]),
    ),
    st.builds(
        GpuClass,
        cpu_milli=st.sampled_from([50, 2_000, 3_900, 9_000]),
        memory_mib=st.sampled_from([0, 900, 2_100]),
        models=st.sampled_from([1, 3]),
    ),
)


@settings(deadline=None)
@given(st.lists(arriving, max_size=6), st.lists(sized, min_size=1, max_size=3))
def test_no_work_conserving_placement_exceeds_its_bound(
    pods: list[GpuClass], nodes: list[tuple[NodeShape, int]]
) -> None:
    """Compared with the best of all, found by trying every node for every pod that fits."""
    bound = conserving_bound(pods, [shape for shape, _ in nodes])

    assert bound.gpu_milli >= best_conserving(pods, nodes) - 1e-6
    assert bound.gpu_milli <= bound_of(pods, [shape for shape, _ in nodes]).gpu_milli + 1e-6


@settings(deadline=None, max_examples=examples(20))
@given(st.data())
def test_no_first_fit_of_many_pods_exceeds_its_bound(data: st.DataObject) -> None:
    """With more pods than parts of the arrivals; each goes to a random node that has room."""
    kinds = data.draw(st.lists(arriving, min_size=2, max_size=6, unique=True))
    nodes = data.draw(st.lists(sized, min_size=1, max_size=6))
    rng = np.random.default_rng(data.draw(st.integers(0, 1_000)))
    pods = [kinds[kind] for kind in rng.integers(len(kinds), size=60)]
    shapes = [shape for shape, _ in nodes]
    world = empty(nodes)
    used = 0
    for pod in pods:
        after = list(ways(pod, world, shapes))
        if after:
            world, used = after[rng.integers(len(after))], used + pod.total_gpu_milli

    assert conserving_bound(pods, shapes).gpu_milli >= used - 1e-6


def best_conserving(pods: list[GpuClass], nodes: list[tuple[NodeShape, int]]) -> int:
    """Return the most GPU milli of placements that place every pod that fits."""
    shapes = [shape for shape, _ in nodes]
    worlds = {empty(nodes): 0}
    for pod in pods:
        next_worlds: dict[World, int] = {}
        for world, used in worlds.items():
            after = dict.fromkeys(ways(pod, world, shapes), used + pod.total_gpu_milli)
            for changed, total in (after or {world: used}).items():
                next_worlds[changed] = max(next_worlds.get(changed, 0), total)
        worlds = next_worlds
    return max(worlds.values())


def best_placement(pods: list[GpuClass], shapes: list[NodeShape]) -> int:
    """Return the most GPU milli that any placement gives out."""
    worlds = {empty([(shape, 0) for shape in shapes]): 0}
    for pod in pods:
        for world, used in list(worlds.items()):
            for after in ways(pod, world, shapes):
                worlds[after] = max(worlds.get(after, 0), used + pod.total_gpu_milli)
    return max(worlds.values())


#: Free CPU milli, memory and milli of each GPU, by node.
World = tuple[tuple[int, int, tuple[int, ...]], ...]


def empty(nodes: list[tuple[NodeShape, int]]) -> World:
    """Return nodes of these shapes and memory without pods."""
    return tuple((shape.cpu_milli, memory, (1_000,) * shape.gpus) for shape, memory in nodes)


def ways(pod: GpuClass, world: World, shapes: list[NodeShape]) -> Iterator[World]:
    """Yield the world after every way to place a pod."""
    for number, (cpu, memory, gpus) in enumerate(world):
        if cpu < pod.cpu_milli or memory < pod.memory_mib:
            continue
        if not pod.models & shapes[number].model_bit:
            continue
        for taken in itertools.combinations(range(len(gpus)), pod.num_gpu):
            left = tuple(g - pod.gpu_milli if i in taken else g for i, g in enumerate(gpus))
            if min(left) >= 0:
                after = (cpu - pod.cpu_milli, memory - pod.memory_mib, left)
                yield (*world[:number], after, *world[number + 1 :])
