"""Stranded GPU: capacity that is expected to remain unused, as measured by the price policy.

Source: ``domain.gpus.price``, whose prices are solved for on the cluster as it is.
"""

from collections.abc import Sequence

import numpy as np

from koordinator.descheduler.moves import MoveGain, Relocation
from koordinator.descheduler.plugins.gpu_defragmentation.gpu_cluster import GpuCluster
from koordinator.descheduler.plugins.gpu_defragmentation.room import RoomLedger, RoomPod
from koordinator.domain.gpus.mix import ExpectedPods, GpuClass, PodMix, mix_of
from koordinator.domain.gpus.options import GpuNodes, NodeKinds
from koordinator.domain.gpus.price import PriceModel
from koordinator.foundation.arrays import FloatArray, IntArray

MODEL_LABEL = "node.koordinator.sh/gpu-model"
_MOST_TRIED = 64  # pods with the largest relief of their nodes


class StrandedGpu:
    """Potential of nodes in GPU milli, and its changes by moves."""

    def __init__(self, cluster: GpuCluster, expected: Sequence[ExpectedPods]) -> None:
        self._cluster, self._room = cluster, cluster.room
        self._ledger = RoomLedger(cluster.room)
        self._cpu = cluster.resources.index("cpu")
        self._rows = {node.metadata.name: row for row, node in enumerate(cluster.nodes)}
        names = [node.metadata.labels.get(MODEL_LABEL, "") for node in cluster.nodes]
        bits = {name: bit for bit, name in enumerate(sorted(set(names))[:62])}
        models = np.array([bits.get(name, 62) for name in names], np.int64)
        gpus = np.count_nonzero(self._room.gpu_free >= 0, axis=1)
        cpu = np.array([int(n.status.allocatable["cpu"].milli()) for n in cluster.nodes], np.int64)
        kinds, self._kind = NodeKinds.of(models, gpus, cpu)
        model = PriceModel(kinds)
        mix = mix_of(expected, bits) if expected else self._mix()
        self._prices = model.solve(mix, self._nodes(np.arange(len(names))))

    def best_moves(self) -> list[tuple[float, int]]:
        """Return the largest decrease of the potential by moving a pod, and the pod; best first."""
        falls = [
            (self.fall(index), index)
            for index, pod in enumerate(self._room.pods)
            if pod.may_move and pod.gpus
        ]
        gains = []
        for fall, index in sorted(falls, reverse=True)[:_MOST_TRIED]:
            growths = [
                self.growth(index, int(row))
                for row in self._ledger.rows_for(self._room.pods[index])
            ]
            if growths:
                gains.append((fall - min(growths), index))
        return sorted(gains, key=lambda gain: (-gain[0], gain[1]))

    def fall(self, index: int) -> float:
        """Return the decrease of the potential of a pod's node by its eviction."""
        pod = self._room.pods[index]
        return -self._change(pod.row, pod, pod.gpus, 1)

    def growth(self, index: int, row: int) -> float:
        """Return the increase of the potential of a row by a pod; infinite without room."""
        pod = self._room.pods[index]
        gpus = self._ledger.gpus_for(pod, row)
        return np.inf if gpus is None else self._change(row, pod, gpus, -1)

    def _change(self, row: int, pod: RoomPod, gpus: tuple[int, ...], sign: int) -> float:
        before = self._nodes(np.array([row]))
        gpu_free = before.gpu_free.copy()
        gpu_free[0, list(gpus)] += sign * pod.gpu_milli
        cpu_free = before.cpu_free + sign * int(pod.requests[self._cpu])
        after = GpuNodes(cpu_free, gpu_free, before.kind)
        change: FloatArray = self._prices.potential(after) - self._prices.potential(before)
        return float(change[0])

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return the decrease of the potential by moves with known targets."""
        position = {pod.key: index for index, pod in enumerate(self._cluster.pods)}
        total = 0.0
        for move in moves:
            index, row = position.get(move.pod.key), self._rows.get(move.target)
            if index is None or row is None:
                return MoveGain(0.0, f"{move.target} is not a node of the plugin")
            total += self.fall(index) - self.growth(index, row)
        text = f"{total:.0f} milli of GPU less are expected to be stranded"
        return MoveGain(total if np.isfinite(total) else 0.0, text)

    def _nodes(self, rows: IntArray) -> GpuNodes:
        room = self._room
        return GpuNodes(room.free[rows, self._cpu], room.gpu_free[rows], self._kind[rows])

    def _mix(self) -> PodMix:
        return PodMix.counted(
            GpuClass(int(pod.requests[self._cpu]), len(pod.gpus), pod.gpu_milli)
            for pod in self._room.pods
            if pod.gpus
        )
