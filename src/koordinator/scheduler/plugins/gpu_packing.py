"""GPU packing: fill GPUs in use, then nodes in use, before opening another node.

Source: the GpuPacking baseline of Weng et al., "Beware of Fragmentation", USENIX ATC 2023,
section 6.1.
"""

from typing import ClassVar

import numpy as np

from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract import NoArgs, PluginHints, PluginSpec, Reads
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.gpu_view import fuller_gpus, gpu_class, gpu_nodes, node_kinds

FREE_GPU_ON_USED_NODE = 49
FREE_NODE = 33


class GpuPacking:
    """Score in three bands.

    A GPU in use scores 50 or more, a free GPU on a node in use 33..49, and a free node less.
    """

    reads: ClassVar = Reads.PLACED
    hints: ClassVar = PluginHints(
        key=lambda pod: pod.demand,
        version=lambda snapshot: snapshot.device_version,  # bytes count as a share of the largest
        scores=lambda snapshot, pod: gpu_class(snapshot, pod).num_gpu > 0,
    )

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)``, 0..100 by band; then the fuller GPU or smaller free node is first."""
        shape, nodes = gpu_class(snapshot, pod), gpu_nodes(snapshot)
        gpus = node_kinds(snapshot)[0].gpus[nodes.kind]
        whole = (nodes.gpu_free == WHOLE_GPU).sum(axis=1)
        if shape.is_share:
            fits = nodes.gpu_free >= shape.gpu_milli
            tightest = np.where(fits, nodes.gpu_free, WHOLE_GPU + 1).min(axis=1)
            fuller = np.maximum(100 - tightest * 100 // WHOLE_GPU // 10, 50)
            used = np.where(tightest == WHOLE_GPU, FREE_GPU_ON_USED_NODE, fuller)
        else:
            used = np.full(len(snapshot), max(50 - shape.num_gpu, FREE_NODE))
        return np.where(whole == gpus, np.maximum(FREE_NODE - whole, whole), used)

    def prefer_devices(self, node: Snapshot, _pod: PodClass) -> IntArray:
        """Return ``(n_minors,)``: a fuller GPU ranks higher."""
        return fuller_gpus(node)


def build(_args: NoArgs, _axis: ResourceAxis) -> GpuPacking:
    return GpuPacking()


PLUGIN = PluginSpec("GPUPacking", NoArgs, build)
