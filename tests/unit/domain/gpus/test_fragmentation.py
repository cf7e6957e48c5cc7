"""FGD's fragmentation measure."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.domain.gpus.mix import GpuClass, PodMix
from koordinator.domain.gpus.options import Fragmentation, GpuNodes, NodeKinds, fgd_score

KINDS = NodeKinds(np.array([0, 1]), np.array([2, 3]), np.array([32_000, 64_000]))


def nodes(*states: tuple[int, tuple[int, ...], int]) -> GpuNodes:
    """Build nodes from (cpu, milli of each GPU, kind)."""
    width = max(len(gpu) for _, gpu, _ in states)
    padded = [[*gpu, *[-1] * (width - len(gpu))] for _, gpu, _ in states]
    cpu, _, kind = zip(*states, strict=True)
    return GpuNodes(np.array(cpu), np.array(padded), np.array(kind))


@pytest.mark.parametrize(
    ("pod", "unusable"),
    [
        (GpuClass(4_000, 1, 500), 300),  # the hole of 300 is too small, the whole GPU is not
        (GpuClass(4_000, 1, 200), 0),
        (GpuClass(4_000, 2, 1_000), 1_300),  # fits nowhere: all that is free
        (GpuClass(40_000, 1, 200), 1_300),  # not enough CPU
        (GpuClass(4_000, 1, 200, models=0b10), 1_300),  # wants another model
        (GpuClass(4_000), 1_300),  # wants no GPU at all
    ],
)
def test_unusable_is_what_the_pod_cannot_use(pod: GpuClass, unusable: int) -> None:
    """A node with one whole GPU and a hole of 300 milli, seen by one class."""
    measure = Fragmentation(PodMix.of({pod: 1.0}), KINDS)

    assert measure.unusable(nodes((32_000, (300, 1_000), 0))).tolist() == [unusable]


pods = st.builds(
    GpuClass,
    cpu_milli=st.sampled_from([0, 4_000, 30_000]),
    num_gpu=st.integers(0, 3),
    gpu_milli=st.sampled_from([100, 250, 500, 1_000]),
    models=st.integers(1, 3),
)
states = st.tuples(
    st.integers(0, 64_000),
    st.tuples(*[st.sampled_from([0, 90, 100, 250, 600, 1_000])] * 3),
    st.integers(0, 1),
)


@settings(max_examples=examples(20))
@given(st.dictionaries(pods, st.integers(1, 9), min_size=1), st.lists(states, min_size=1))
def test_unusable_is_the_expectation_over_the_mix(
    counts: dict[GpuClass, int], worlds: list[tuple[int, tuple[int, ...], int]]
) -> None:
    """Equal to the definition, written out pod by pod and GPU by GPU."""
    total = sum(counts.values())
    mix = PodMix.of({pod: count / total for pod, count in counts.items()})

    measured = Fragmentation(mix, KINDS).unusable(nodes(*worlds))

    expected = [sum(n / total * by_hand(p, *state) for p, n in counts.items()) for state in worlds]
    assert np.allclose(measured, expected)


def by_hand(pod: GpuClass, cpu: int, gpus: tuple[int, ...], kind: int) -> int:
    """Return what one pod can't use of one node."""
    enough = sum(free >= pod.gpu_milli for free in gpus) >= pod.num_gpu > 0
    accepted = pod.models >> int(KINDS.model[kind]) & 1
    if not (enough and accepted and cpu >= pod.cpu_milli):
        return sum(gpus)
    return sum(free for free in gpus if free < pod.gpu_milli)


def test_score_falls_with_growth_and_is_whole() -> None:
    """The reference cuts the sigmoid to a whole number: most placements score 49 or 50."""
    assert fgd_score(np.array([-8_000.0, -1.0, 0.0, 1.0, 1_000.0, 8_000.0])).tolist() == [
        99,
        50,
        50,
        49,
        26,
        0,
    ]
