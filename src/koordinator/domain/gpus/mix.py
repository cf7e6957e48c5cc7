"""Expected requests for GPU nodes: classes of equal requests and their frequencies.

A GPU has 1000 milli.  A class takes ``gpu_milli`` of each of ``num_gpu`` GPUs of one node; models
are bits.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Annotated

import numpy as np
from msgspec import Meta

from koordinator.api.kubescheduler import ConfigStruct
from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass

#: Milli of one whole GPU.
WHOLE_GPU = 1000
#: Accepts every GPU model: bit i is model i, 0 <= i < 63.
ANY_MODEL = (1 << 63) - 1


@dataclass(frozen=True, slots=True, order=True)
class GpuClass:
    """Pods with the same requests."""

    cpu_milli: int
    num_gpu: int = 0  # 0: CPU only
    gpu_milli: int = 0  # per GPU; 1000: whole
    models: int = ANY_MODEL
    memory_mib: int = 0

    @property
    def is_share(self) -> bool:
        """Whether it is part of one GPU, so that the choice of the GPU matters."""
        return self.num_gpu == 1 and self.gpu_milli < WHOLE_GPU

    @property
    def total_gpu_milli(self) -> int:
        """Sum over all its GPUs."""
        return self.num_gpu * self.gpu_milli


@dataclass(frozen=True)
class PodMix:
    """Expected number of pods of each class; only the proportions matter to policies.

    Columns of ``classes`` are attributes of shape ``(n_classes,)``.
    """

    classes: tuple[GpuClass, ...]
    counts: FloatArray

    @classmethod
    def of(cls, counts: Mapping[GpuClass, float]) -> "PodMix":
        """Create a mix from counts per class, in the mapping's order."""
        return cls(tuple(counts), np.array(list(counts.values()), float))

    @classmethod
    def counted(cls, pods: Iterable[GpuClass]) -> "PodMix":
        """Create a mix by counting pods."""
        return cls.of(Counter(pods))

    @cached_property
    def cpu_milli(self) -> IntArray:
        """CPU per pod."""
        return self._column(lambda pod: pod.cpu_milli)

    @cached_property
    def num_gpu(self) -> IntArray:
        """Number of GPUs per pod."""
        return self._column(lambda pod: pod.num_gpu)

    @cached_property
    def gpu_milli(self) -> IntArray:
        """GPU milli per GPU of a pod."""
        return self._column(lambda pod: pod.gpu_milli)

    @cached_property
    def total_gpu_milli(self) -> IntArray:
        """GPU milli per pod."""
        return self.num_gpu * self.gpu_milli

    @cached_property
    def models(self) -> IntArray:
        """Bits of accepted models."""
        return self._column(lambda pod: pod.models)

    @cached_property
    def is_share(self) -> BoolArray:
        """Whether the class takes part of one GPU."""
        share: BoolArray = (self.num_gpu == 1) & (self.gpu_milli < WHOLE_GPU)
        return share

    def without_memory(self) -> "PodMix":
        """Merge classes that differ in memory only."""
        counts: dict[GpuClass, float] = {}
        for pod, count in zip(self.classes, self.counts.tolist(), strict=True):
            shape = replace(pod, memory_mib=0)
            counts[shape] = counts.get(shape, 0.0) + count
        return PodMix.of(counts)

    def typical(self, threshold: float = 0.95) -> "PodMix":
        """Return the most frequent shapes that cover a share of all pods; counts sum to 1.

        Memory is ignored.  Equal counts are ordered by cpu, milli, GPUs, models, descending.
        Source: kubernetes-scheduler-simulator pkg/utils ``GetTypicalPods``.
        """
        mix = self.without_memory()
        frequent = sorted(
            (
                (count, (pod.cpu_milli, pod.gpu_milli, pod.num_gpu, pod.models), pod)
                for pod, count in zip(mix.classes, mix.counts.tolist(), strict=True)
                if count > 0
            ),
            reverse=True,
        )
        enough, covered = threshold * float(mix.counts.sum()), 0.0
        chosen: dict[GpuClass, float] = {}
        for count, _, pod in frequent:
            if covered >= enough:
                break
            chosen[pod] = count
            covered += count
        return PodMix.of({pod: count / covered for pod, count in chosen.items()})

    def _column(self, read: Callable[[GpuClass], int]) -> IntArray:
        return np.array([read(pod) for pod in self.classes], np.int64)


class ExpectedPods(ConfigStruct, frozen=True, kw_only=True):
    """``count`` pods of one shape; only the proportions between shapes matter."""

    count: Annotated[float, Meta(gt=0)]  # number of such pods
    cpu_milli: Annotated[int, Meta(ge=0)] = 0  # requested CPU in thousandths
    gpus: Annotated[int, Meta(ge=0)] = 0  # requested GPUs
    gpu_milli: Annotated[int, Meta(ge=0, le=1000)] = 0  # of each GPU; 1000 is whole
    models: tuple[str, ...] = ()  # values of the label node.koordinator.sh/gpu-model; empty: any


def mix_of(expected: Sequence[ExpectedPods], bits: Mapping[str, int]) -> PodMix:
    """Return the mix; ``bits`` numbers the models of the cluster, other models match nothing."""
    counts: dict[GpuClass, float] = {}
    for pods in expected:
        models = sum(1 << bits[name] for name in set(pods.models) if name in bits)
        shape = GpuClass(
            pods.cpu_milli, pods.gpus, pods.gpu_milli, models if pods.models else ANY_MODEL
        )
        counts[shape] = counts.get(shape, 0.0) + pods.count
    return PodMix.of(counts)
