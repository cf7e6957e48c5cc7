"""Dot product: the node whose free CPU and GPU are least aligned with the pod's request.

Source: the DotProd baseline of Weng et al., "Beware of Fragmentation", USENIX ATC 2023,
section 6.1: of equally shaped nodes the fuller one is first.
"""

from typing import ClassVar

import numpy as np

from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract import MAX_SCORE, NoArgs, PluginHints, PluginSpec, Reads
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.gpu_view import (
    LARGEST_CPU_MILLI,
    LARGEST_GPU_MILLI,
    fuller_gpus,
    gpu_class,
    gpu_nodes,
)

_RESOURCES = 2  # CPU and GPU


class GpuDotProduct:
    """Dot-product score; a share of a GPU goes to the fullest GPU that has room."""

    reads: ClassVar = Reads.PLACED
    hints: ClassVar = PluginHints(
        key=lambda pod: pod.demand,
        version=lambda snapshot: snapshot.device_version,  # bytes count as a share of the largest
    )

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)``, 0..100: lower where the node has more of the requested amounts.

        All amounts are ratios of the largest machine's.
        """
        shape, nodes = gpu_class(snapshot, pod), gpu_nodes(snapshot)
        gpu_free = np.maximum(nodes.gpu_free, 0).sum(axis=1)
        by_cpu = nodes.cpu_free / LARGEST_CPU_MILLI * (shape.cpu_milli / LARGEST_CPU_MILLI)
        by_gpu = gpu_free / LARGEST_GPU_MILLI * (shape.total_gpu_milli / LARGEST_GPU_MILLI)
        score = np.trunc((1.0 - (by_cpu + by_gpu) / _RESOURCES) * MAX_SCORE)
        scores: IntArray = np.clip(score, 0, MAX_SCORE).astype(np.int64)
        return scores

    def prefer_devices(self, node: Snapshot, _pod: PodClass) -> IntArray:
        """Return ``(n_minors,)``: a fuller GPU ranks higher."""
        return fuller_gpus(node)


def build(_args: NoArgs, _axis: ResourceAxis) -> GpuDotProduct:
    return GpuDotProduct()


PLUGIN = PluginSpec("GPUDotProduct", NoArgs, build)
