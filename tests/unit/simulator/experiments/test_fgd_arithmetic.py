"""Causes for which FGD differs from its published allocation on five lists of pods.

FGD of kubernetes-scheduler-simulator, with what our ``gpu_fragmentation`` does otherwise:

- accepted models are a text: "V100M16|V100M32|V100M32" is another shape than "V100M16|V100M32",
  and among equally frequent shapes the text decides which are typical;
- a node's fragmentation is summed by cause first, in the order of the typical pods. A sum that
  rounds otherwise changes a score where the growth is zero or next to a whole score.

Source: kubernetes-scheduler-simulator pkg/utils/frag.go, pkg/type/resource.go.
"""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from tests.unit.simulator.experiments.test_published_figures import (
    MARKS,
    OPENB,
    needs_openb,
    published,
)

from koordinator.domain.gpus.mix import ExpectedPods, PodMix, mix_of
from koordinator.domain.gpus.options import GpuNodes, NodeKinds
from koordinator.foundation.arrays import FloatArray
from koordinator.scheduler.plugins import gpu_fragmentation
from koordinator.scheduler.snapshot import Snapshot
from koordinator.scheduler.snapshot.gpu_view import MODEL_LABEL
from koordinator.simulator import simulate
from koordinator.simulator.research.openb import read_trace
from koordinator.simulator.sources.openb import arriving_openb

pytestmark = pytest.mark.integration

BOTH, GPU, CPU, NO_GPU, NO_GPU_NOR_CPU, MODEL = range(6)  # causes, in the order of summation


class TypicalPods(PodMix):
    """A mix that has only typical pods."""

    def typical(self, threshold: float = 0.95) -> PodMix:
        del threshold
        return self


def typical_pods(snapshot: Snapshot, expected: Sequence[ExpectedPods]) -> TypicalPods:
    """Return the most frequent requests that are 95 % of all, by their texts."""
    bits = {name: bit for bit, name in enumerate(snapshot.label(MODEL_LABEL)[1])}
    total, covered = sum(pods.count for pods in expected), 0.0
    typical: list[ExpectedPods] = []
    for pods in sorted(
        expected,
        key=lambda p: (p.count, p.cpu_milli, p.gpu_milli, p.gpus, "|".join(p.models)),
        reverse=True,
    ):
        if covered >= 95 * total / 100:
            break
        typical.append(pods)
        covered += pods.count
    return TypicalPods(
        tuple(mix_of([pods], bits).classes[0] for pods in typical),
        np.array([pods.count / total / (covered / total) for pods in typical]),
    )


class FragmentationByCause:
    """Fragmentation of nodes, summed by cause."""

    def __init__(self, mix: PodMix, kinds: NodeKinds) -> None:
        self._mix, self._accepts = mix, kinds.accept(mix.models)

    def unusable(self, nodes: GpuNodes) -> FloatArray:
        free = np.maximum(nodes.gpu_free, 0)
        room = nodes.gpu_free[:, :, None] >= self._mix.gpu_milli
        gpu = np.count_nonzero(room, axis=1) >= self._mix.num_gpu
        cpu = nodes.cpu_free[:, None] >= self._mix.cpu_milli
        cause = np.select(
            [
                np.broadcast_to(self._mix.num_gpu == 0, cpu.shape) & cpu,
                np.broadcast_to(self._mix.num_gpu == 0, cpu.shape),
                ~self._accepts[nodes.kind],
                gpu & ~cpu,
                ~gpu & ~cpu,
            ],
            [NO_GPU, NO_GPU_NOR_CPU, MODEL, CPU, BOTH],
            GPU,
        )
        fits = (cause == GPU) & gpu
        all_free = free.sum(1)[:, None]
        milli = np.where(fits, all_free - np.einsum("kdm,kd->km", room, free), all_free)
        amounts = milli * self._mix.counts
        total = np.zeros(len(nodes))
        for each in (BOTH, GPU, CPU, NO_GPU, NO_GPU_NOR_CPU, MODEL):
            total += np.where(cause == each, amounts, 0.0).cumsum(1)[:, -1]  # one after the other
        return total


@needs_openb
@pytest.mark.slow
@pytest.mark.parametrize("pods", ["cpu250", "gpuspec33"])
def test_fgd_with_the_arithmetic_of_the_simulator_equals_the_published_allocation(
    pods: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No other cause is left."""
    monkeypatch.setattr(gpu_fragmentation, "expected_mix", typical_pods)
    monkeypatch.setattr(gpu_fragmentation, "Fragmentation", FragmentationByCause)

    result = simulate(arriving_openb(read_trace(OPENB, pods), 1.3, tmp_path), policy="fgd", seed=42)

    assert result.curve is not None
    by_mark = {mark: result.curve.allocation_at(mark) for mark in MARKS}
    assert by_mark == published()[pods, "FGD", 42]
