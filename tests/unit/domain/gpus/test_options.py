"""Ways to put a pod on GPU nodes."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.domain.gpus.mix import ANY_MODEL, GpuClass
from koordinator.domain.gpus.options import (
    GpuNodes,
    NodeKinds,
    best_options,
    distinct,
    options,
)
from koordinator.foundation.arrays import FloatArray, IntArray

ALL = np.array([True, True])


def one(cpu: int, *gpu: int) -> GpuNodes:
    """Build a single node of kind 0."""
    return GpuNodes(np.array([cpu]), np.array([gpu]), np.zeros(1, np.int64))


def test_equal_gpus_are_one_option_for_a_share() -> None:
    """Of the two GPUs with 600 milli only the first is offered; the one with 300 has no room."""
    ways = options(GpuClass(1_000, 1, 500), one(8_000, 600, 300, 600, 1_000), ALL)

    assert ways.slot.tolist() == [0, 3]
    assert ways.after.gpu_free.tolist() == [[100, 300, 600, 1_000], [600, 300, 600, 500]]
    assert ways.after.cpu_free.tolist() == [7_000, 7_000]


def test_whole_gpus_are_taken_from_the_first_free_ones() -> None:
    """A pod of two whole GPUs has one way to go."""
    ways = options(GpuClass(1_000, 2, 1_000), one(8_000, 900, 1_000, 1_000, 1_000), ALL)

    assert ways.slot.tolist() == [-1]
    assert ways.after.gpu_free.tolist() == [[900, 0, 0, 1_000]]


def test_part_of_several_gpus_leaves_the_rest_of_each() -> None:
    """Half of each of two GPUs."""
    ways = options(GpuClass(0, 2, 500), one(0, 400, 500, 1_000, -1), ALL)

    assert ways.after.gpu_free.tolist() == [[400, 0, 500, -1]]


def test_no_option_without_cpu_gpus_or_an_accepted_model() -> None:
    """CPU, GPUs and the model are each necessary."""
    node = one(8_000, 1_000, 1_000)

    assert len(options(GpuClass(8_001, 1, 500), node, ALL).node) == 0
    assert len(options(GpuClass(0, 3, 1_000), node, ALL).node) == 0
    assert len(options(GpuClass(0, 1, 500), node, np.array([False, True])).node) == 0


def test_a_pod_without_gpus_changes_cpu_only() -> None:
    """A node without GPUs follows the same rule."""
    ways = options(GpuClass(1_000), one(8_000, -1, -1), ALL)

    assert (ways.after.cpu_free.tolist(), ways.after.gpu_free.tolist()) == ([7_000], [[-1, -1]])


def test_kinds_differ_by_model_gpus_and_cpu() -> None:
    """Nodes one and three are alike."""
    kinds, kind = NodeKinds.of(
        np.array([1, 0, 1, 1]), np.array([2, 2, 2, 4]), np.array([8_000, 8_000, 8_000, 8_000])
    )

    assert kind[0] == kind[2]
    assert len(kinds.gpus) == 3
    assert kinds.model[kind].tolist() == [1, 0, 1, 1]


def test_any_model_means_every_kind() -> None:
    """Bit 62 is the last model."""
    kinds = NodeKinds(np.array([0, 62]), np.ones(2, np.int64), np.ones(2, np.int64))

    assert kinds.accept(np.array([ANY_MODEL, 1])).tolist() == [[True, True], [True, False]]


def test_the_best_option_of_a_node_is_the_lowest_slot_among_equals() -> None:
    """With a potential that is blind, every slot is as good."""
    best = best_options(
        GpuClass(0, 1, 500), one(0, 300, 600, 1_000), ALL, lambda n: np.zeros(len(n)), negated
    )

    assert (best.slot.tolist(), best.possible.tolist()) == ([1], [True])


def negated(growth: FloatArray) -> IntArray:
    """Score a growth."""
    return -np.round(growth).astype(np.int64)


def lumpy(nodes: GpuNodes) -> FloatArray:
    """Return a potential without meaning that depends on everything in a node's state."""
    out: FloatArray = (nodes.gpu_free % 7 * np.arange(1, 4)).sum(1) + nodes.cpu_free % 11
    return out + 3.0 * nodes.kind * (nodes.gpu_free == 1_000).sum(1)


gpu = st.sampled_from([-1, 0, 250, 600, 1_000])
crowds = st.lists(
    st.tuples(st.sampled_from([0, 500, 4_000]), gpu, gpu, gpu, st.integers(0, 1)),
    min_size=1,
    max_size=12,
)


@settings(deadline=None, max_examples=examples(20))
@given(crowds, st.sampled_from([0, 1, 2]), st.sampled_from([250, 1_000]))
def test_looking_at_equal_nodes_once_changes_nothing(
    crowd: list[tuple[int, ...]], num_gpu: int, gpu_milli: int
) -> None:
    """A crowd of clones gets the answers that each of its members gets alone."""
    table = np.array((crowd * 80)[:80])
    many = GpuNodes(table[:, 0], table[:, 1:4], table[:, 4])
    pod = GpuClass(500, num_gpu, gpu_milli)

    together = best_options(pod, many, ALL, lumpy, negated)

    alone = [
        best_options(pod, many[np.array([row])], ALL, lumpy, negated) for row in range(len(many))
    ]
    assert together.score.tolist() == [int(best.score[0]) for best in alone]
    assert together.slot.tolist() == [int(best.slot[0]) for best in alone]
    assert together.possible.tolist() == [bool(best.possible[0]) for best in alone]


@given(crowds)
def test_distinct_nodes_represent_all_nodes(crowd: list[tuple[int, ...]]) -> None:
    """Every node has the state of its representative."""
    table = np.array(crowd * 70)
    many = GpuNodes(table[:, 0], table[:, 1:4], table[:, 4])

    alike = distinct(many)

    assert alike is not None
    first, same_as = alike
    assert len(first) == len(set(crowd))
    assert np.array_equal(table[first[same_as]], table)
