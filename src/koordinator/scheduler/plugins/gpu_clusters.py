"""Clustering: pods that request equally many GPUs share nodes.

Source: the GpuClustering baseline of Weng et al., "Beware of Fragmentation", USENIX ATC 2023,
section 6.1.
"""

from typing import ClassVar

import numpy as np

from koordinator.domain.gpus.mix import GpuClass
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract import MAX_SCORE, NoArgs, PluginHints, PluginSpec, Reads
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.gpu_view import (
    LARGEST_GPU_MILLI,
    fuller_gpus,
    gpu_class,
    gpu_nodes,
)

BAND = MAX_SCORE // 4


class GpuClustering:
    """Score in four bands; within a band, a fuller node is first.

    From the highest: nodes whose GPU pods are all of the pod's kind, some are, nodes without GPU
    pods, nodes with GPU pods of other kinds only.  Shares of a GPU are one kind, and each number of
    GPUs is one.
    """

    reads: ClassVar = Reads.PLACED
    hints: ClassVar = PluginHints(
        key=lambda pod: pod.demand,
        version=lambda snapshot: snapshot.device_version,  # bytes count as a share of the largest
        scores=lambda snapshot, pod: gpu_class(snapshot, pod).num_gpu > 0,
    )

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)``, 0..100; a pod without GPUs has the score 0 everywhere."""
        own = _kind_bit(gpu_class(snapshot, pod))
        if not own:
            return np.zeros(len(snapshot), np.int64)
        rows = snapshot.row_numbers.tolist()
        kinds = np.array([_kinds_on(snapshot, row) for row in rows], np.int64)
        band = np.select([kinds == own, (kinds & own) > 0, kinds == 0], [3, 2, 1], 0)
        free = np.maximum(gpu_nodes(snapshot).gpu_free, 0).sum(axis=1)
        taken = LARGEST_GPU_MILLI - np.minimum(free, LARGEST_GPU_MILLI)
        score: IntArray = BAND * taken // LARGEST_GPU_MILLI + BAND * band
        return score

    def prefer_devices(self, node: Snapshot, _pod: PodClass) -> IntArray:
        """Return ``(n_minors,)``: a fuller GPU ranks higher."""
        return fuller_gpus(node)


def _kinds_on(snapshot: Snapshot, row: int) -> int:
    """Return the kinds of the GPU pods on a row of the cluster, a bit each."""
    kinds = 0
    for placed in snapshot.pods_on(row):
        kinds |= _kind_bit(gpu_class(snapshot, placed.pod_class))
    return kinds


def _kind_bit(shape: GpuClass) -> int:
    """Return 0 without GPUs, 1 for a share, otherwise bit i for i GPUs."""
    return 0 if not shape.num_gpu else 1 if shape.is_share else 1 << min(shape.num_gpu, 62)


def build(_args: NoArgs, _axis: ResourceAxis) -> GpuClustering:
    return GpuClustering()


PLUGIN = PluginSpec("GPUClustering", NoArgs, build)
