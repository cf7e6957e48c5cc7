"""The proven bound: never below what some placement reaches, and close to it on small worlds."""

import itertools
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from koordinator.domain.gpus.mix import GpuClass
from koordinator.simulator.research.bound import NodeShape, bound_of

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


def best_placement(pods: list[GpuClass], shapes: list[NodeShape]) -> int:
    """Return the most GPU milli that any placement gives out."""
    start = tuple((shape.cpu_milli, (1_000,) * shape.gpus) for shape in shapes)
    worlds = {start: 0}
    for pod in pods:
        for world, used in list(worlds.items()):
            for after in ways(pod, world, shapes):
                worlds[after] = max(worlds.get(after, 0), used + pod.total_gpu_milli)
    return max(worlds.values())


World = tuple[tuple[int, tuple[int, ...]], ...]


def ways(pod: GpuClass, world: World, shapes: list[NodeShape]) -> Iterator[World]:
    """Yield the world after every way to place a pod."""
    for number, (cpu, gpus) in enumerate(world):
        if cpu < pod.cpu_milli or not pod.models & shapes[number].model_bit:
            continue
        for taken in itertools.combinations(range(len(gpus)), pod.num_gpu):
            left = tuple(g - pod.gpu_milli if i in taken else g for i, g in enumerate(gpus))
            if min(left) >= 0:
                yield (*world[:number], (cpu - pod.cpu_milli, left), *world[number + 1 :])
