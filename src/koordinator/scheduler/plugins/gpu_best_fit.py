"""Best fit: the node with the least CPU and GPU left after placing the pod.

Source: the BestFit baseline of Weng et al., "Beware of Fragmentation", USENIX ATC 2023,
section 6.1.
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


class GpuBestFit:
    """Best-fit score; a share of a GPU goes to the fullest GPU that has room."""

    reads: ClassVar = Reads.PLACED
    hints: ClassVar = PluginHints(
        key=lambda pod: pod.demand,
        version=lambda snapshot: snapshot.device_version,  # bytes count as a share of the largest
    )

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return 0..100: the share of the largest machine that is not left.

        CPU and GPU count alike.
        """
        shape, nodes = gpu_class(snapshot, pod), gpu_nodes(snapshot)
        gpu_left = np.maximum(nodes.gpu_free, 0).sum(axis=1) - shape.total_gpu_milli
        cpu_left = nodes.cpu_free - shape.cpu_milli
        left = cpu_left / LARGEST_CPU_MILLI / 2 + gpu_left / LARGEST_GPU_MILLI / 2
        score: IntArray = np.clip(np.trunc((1.0 - left) * MAX_SCORE), 0, MAX_SCORE).astype(np.int64)
        return score

    def prefer_devices(self, node: Snapshot, _pod: PodClass) -> IntArray:
        """Return ``(n_minors,)``: a fuller GPU ranks higher."""
        return fuller_gpus(node)


def build(_args: NoArgs, _axis: ResourceAxis) -> GpuBestFit:
    return GpuBestFit()


PLUGIN = PluginSpec("GPUBestFit", NoArgs, build)
