"""The mix of pods that a GPU policy is told to expect, as it stands in a configuration."""

from collections.abc import Mapping, Sequence
from typing import Annotated

from msgspec import Meta

from koordinator.api.kubescheduler import ConfigStruct
from koordinator.domain.gpus.mix import ANY_MODEL, GpuClass, PodMix


class ExpectedPods(ConfigStruct, frozen=True, kw_only=True):
    """``count`` pods of one shape; only the proportions between shapes matter."""

    count: Annotated[float, Meta(gt=0)]
    cpu_milli: Annotated[int, Meta(ge=0)] = 0
    gpus: Annotated[int, Meta(ge=0)] = 0
    gpu_milli: Annotated[int, Meta(ge=0, le=1000)] = 0  # of each GPU; 1000 is whole
    models: tuple[str, ...] = ()  # values of the label node.koordinator.sh/gpu-model; empty: any


def mix_of(expected: Sequence[ExpectedPods], bits: Mapping[str, int]) -> PodMix:
    """Return the mix; ``bits`` numbers the models of the cluster, others match nothing."""
    counts: dict[GpuClass, float] = {}
    for pods in expected:
        models = sum(1 << bits[name] for name in set(pods.models) if name in bits)
        shape = GpuClass(
            pods.cpu_milli, pods.gpus, pods.gpu_milli, models if pods.models else ANY_MODEL
        )
        counts[shape] = counts.get(shape, 0.0) + pods.count
    return PodMix.of(counts)
