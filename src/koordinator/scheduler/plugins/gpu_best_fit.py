"""Best fit: the node with the least CPU and GPU left after placing the pod.

Source: the BestFit baseline of Weng et al., "Beware of Fragmentation", USENIX ATC 2023,
section 6.1.
"""

from typing import ClassVar

import numpy as np

from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract import MAX_SCORE, NoArgs, PluginHints, PluginSpec, Reads
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.gpu_view import gpu_class, gpu_nodes

CPU_SCALE, GPU_SCALE = 128_000.0, 8_000.0  # milli of the largest machine; more counts as that much


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
        left = (nodes.cpu_free - shape.cpu_milli) / CPU_SCALE / 2 + gpu_left / GPU_SCALE / 2
        score: IntArray = np.clip(np.trunc((1.0 - left) * MAX_SCORE), 0, MAX_SCORE).astype(np.int64)
        return score

    def prefer_devices(self, node: Snapshot, _pod: PodClass) -> IntArray:
        """Return ``(n_minors,)``: a fuller GPU ranks higher."""
        fullness: IntArray = -gpu_nodes(node).gpu_free[0]
        return fullness


def build(_args: NoArgs, _axis: ResourceAxis) -> GpuBestFit:
    return GpuBestFit()


PLUGIN = PluginSpec("GPUBestFit", NoArgs, build)
