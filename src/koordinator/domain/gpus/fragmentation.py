"""FGD's fragmentation: the GPU milli of a node that a typical pod could not use.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 3;
kubernetes-scheduler-simulator pkg/utils/frag.go and pkg/simulator/plugin/fgd_score.go.
"""

import numpy as np

from koordinator.domain.gpus.mix import PodMix
from koordinator.domain.gpus.options import GpuNodes, NodeKinds
from koordinator.foundation.arrays import FloatArray, IntArray


class Fragmentation:
    """Measures nodes against a mix whose counts are probabilities (``PodMix.typical``)."""

    def __init__(self, mix: PodMix, kinds: NodeKinds) -> None:
        self._mix = mix
        self._sizes, self._size_of = np.unique(mix.gpu_milli, return_inverse=True)
        #: (n_kinds, n_classes): the pod wants GPUs, and accepts those of the kind
        self._usable = kinds.accept(mix.models) & (mix.num_gpu > 0)

    def unusable(self, nodes: GpuNodes) -> FloatArray:
        """Return the expected unusable GPU milli, ``(k,)``.

        A pod that fits can't use the GPUs with less room than it takes of one; one that doesn't fit
        can't use any.
        """
        free = np.maximum(nodes.gpu_free, 0)
        all_free = free.sum(1)[:, None]
        headroom = nodes.gpu_free[:, :, None] >= self._sizes
        gpus_with_headroom = np.count_nonzero(headroom, axis=1)[:, self._size_of]
        too_small = all_free - np.einsum("kdm,kd->km", headroom, free)[:, self._size_of]
        fits = (
            (gpus_with_headroom >= self._mix.num_gpu)
            & (nodes.cpu_free[:, None] >= self._mix.cpu_milli)
            & self._usable[nodes.kind]
        )
        expected: FloatArray = np.where(fits, too_small, all_free) @ self._mix.counts
        return expected


def fgd_score(growth: FloatArray) -> IntArray:
    """Return FGD's score of a growth of fragmentation in milli: 0..100, no growth is 50."""
    score: IntArray = np.floor(100.0 / (1.0 + np.exp(growth / 1000.0))).astype(np.int64)
    return score
