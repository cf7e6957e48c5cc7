"""Classes of pods and their mix."""

import numpy as np

from koordinator.domain.gpus.mix import GpuClass, PodMix

SHARE = GpuClass(cpu_milli=4_000, num_gpu=1, gpu_milli=500)
WHOLE = GpuClass(cpu_milli=12_000, num_gpu=1, gpu_milli=1_000)
EIGHT = GpuClass(cpu_milli=96_000, num_gpu=8, gpu_milli=1_000)


def test_only_part_of_one_gpu_is_a_share() -> None:
    """A whole GPU, several GPUs and none leave no choice of the GPU."""
    assert [pod.is_share for pod in (SHARE, WHOLE, EIGHT, GpuClass(1_000))] == [
        True,
        False,
        False,
        False,
    ]


def test_typical_pods_are_the_most_frequent_that_cover_the_threshold() -> None:
    """The class that crosses the threshold still counts; what is left sums to 1."""
    typical = PodMix.of({EIGHT: 4, SHARE: 60, WHOLE: 36}).typical(threshold=0.95)

    assert typical.classes == (SHARE, WHOLE)
    assert np.allclose(typical.counts, (0.625, 0.375))


def test_typical_pods_have_no_memory() -> None:
    """Pods that differ in memory only are one typical pod."""
    small = GpuClass(4_000, 1, 500, memory_mib=1_024)
    large = GpuClass(4_000, 1, 500, memory_mib=65_536)

    assert PodMix.counted([small, large, large]).typical().classes == (SHARE,)


def test_equally_frequent_typical_pods_are_taken_from_the_largest_cpu_down() -> None:
    """The order of the input decides nothing."""
    one, other = PodMix.counted([SHARE, WHOLE]), PodMix.counted([WHOLE, SHARE])

    assert one.typical(0.5).classes == other.typical(0.5).classes == (WHOLE,)
