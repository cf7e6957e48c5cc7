"""Most valuable filling of a node: the pods that it can take, by dynamic programming.

It keeps whole numbers of pods, single GPUs and the node's CPU, and ignores the following, which can
only raise the value: memory; CPU finer than ``CPU_UNIT`` (pods are rounded down); the number of
arrivals of a class within one node; that a pod with shares of several GPUs needs all of them on one
node.
"""

import math
from dataclasses import dataclass

import numpy as np

from koordinator.domain.gpus.mix import WHOLE_GPU, GpuClass
from koordinator.foundation.arrays import FloatArray

CPU_UNIT = 100  # milli


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Nodes that can take the same pods."""

    gpus: int
    cpu_milli: int
    model_bit: int  # 1 << number of the model


@dataclass(frozen=True, slots=True)
class _Item:
    """A class, or a part of it, as the dynamic program sees it."""

    pod: int  # number of the class
    part: float  # of a pod: 1 unless the pod is split
    gpus: int  # whole ones; 0: a share, or none
    milli: int  # of one GPU
    cells: int  # of CPU


class NodePacking:
    """The best filling of nodes of any size up to a largest one, by dynamic programming."""

    def __init__(
        self,
        classes: list[GpuClass],
        accepted: tuple[int, ...],
        gpus: int,
        cells: int,
        round_up: bool,
    ) -> None:
        self._items = [_item(number, classes[number], round_up) for number in accepted]
        self._gpus, self._cells = gpus, cells
        self._unit = math.gcd(WHOLE_GPU, *(item.milli for item in self._items))
        levels = WHOLE_GPU // self._unit
        #: value and last item by free level of one GPU and CPU cells; by GPUs and CPU cells
        self._share_best = np.zeros((levels + 1, cells + 1))
        self._share_last = np.full((levels + 1, cells + 1), -1, np.int32)
        self._node_best = np.zeros((gpus + 1, cells + 1))
        self._node_last = np.full((gpus + 1, cells + 1), -1, np.int32)
        #: the steps of one GPU's value by CPU: cells where it grows
        self._steps = np.zeros(0, np.int64)

    def best(self, shape: NodeShape) -> float:
        """Return the value of the best filling."""
        return float(self._node_best[shape.gpus, shape.cpu_milli // CPU_UNIT])

    def solve(self, values: FloatArray) -> None:
        """Compute the best fillings for a value per class ``(n_classes,)``."""
        items = [item for item in self._items if values[item.pod] > 0]
        self._fill_cpu([i for i in items if i.gpus == i.milli == 0], values)
        self._fill_one_gpu([i for i in items if i.gpus == 0 < i.milli], values)
        self._fill_nodes([i for i in items if i.gpus > 0], values)

    def _fill_cpu(self, items: list[_Item], values: FloatArray) -> None:
        """Fill a node without GPUs by pods without GPUs."""
        row, chosen = self._node_best[0], self._node_last[0]
        row[:] = 0.0
        chosen[:] = -1
        useful = [(i.cells, float(values[i.pod]), i.pod) for i in _undominated(items, values)]
        for cell in range(1, len(row) if useful else 0):
            row[cell] = row[cell - 1]
            for cells, value, code in useful:
                if cells <= cell and row[cell - cells] + value > row[cell]:
                    row[cell], chosen[cell] = row[cell - cells] + value, code

    def _fill_one_gpu(self, items: list[_Item], values: FloatArray) -> None:
        best, last = self._share_best, self._share_last
        useful = _undominated(items, values)
        for level in range(1, len(best)):
            row, chosen = best[level], last[level]
            row[:] = best[level - 1]
            chosen[:] = -1
            for item in useful:
                left = level - item.milli // self._unit
                if left < 0 or item.cells > self._cells:
                    continue
                found = best[left, : len(row) - item.cells] + values[item.pod] * item.part
                better = found > row[item.cells :]
                row[item.cells :][better] = found[better]
                chosen[item.cells :][better] = item.pod
        self._steps = np.flatnonzero(np.diff(best[-1], prepend=0.0) > 0)

    def _fill_nodes(self, items: list[_Item], values: FloatArray) -> None:
        """Fill GPU by GPU: with shares (coded as -2 - CPU cells), or by a pod of whole GPUs."""
        shares = [
            (1, int(cell), float(self._share_best[-1, cell]), -2 - int(cell))
            for cell in self._steps
        ]
        moves = [
            (i.gpus, i.cells, float(values[i.pod]), i.pod) for i in _undominated(items, values)
        ]
        best, last = self._node_best, self._node_last
        for gpus in range(1, len(best)):
            row, chosen = best[gpus], last[gpus]
            row[:] = best[gpus - 1]
            chosen[:] = -1
            for taken, cells, value, code in [*shares, *moves]:
                if taken > gpus or cells > self._cells:
                    continue
                found = best[gpus - taken, : len(row) - cells] + value
                better = found > row[cells:]
                row[cells:][better] = found[better]
                chosen[cells:][better] = code

    def filling(self, shape: NodeShape) -> dict[int, float]:
        """Return the pods of the best filling by class."""
        by_number = {item.pod: item for item in self._items}
        counts: dict[int, float] = {}
        gpus, cells = shape.gpus, shape.cpu_milli // CPU_UNIT
        while gpus > 0:
            code = int(self._node_last[gpus, cells])
            if code == -1:
                gpus -= 1
            elif code >= 0:
                counts[code] = counts.get(code, 0.0) + 1.0
                gpus, cells = gpus - by_number[code].gpus, cells - by_number[code].cells
            else:
                used = -2 - code
                gpus, cells = gpus - 1, cells - used
                self._unfold_shares(used, by_number, counts)
        while cells > 0:
            code = int(self._node_last[0, cells])
            if code == -1:
                cells -= 1
            else:
                counts[code] = counts.get(code, 0.0) + 1.0
                cells -= by_number[code].cells
        return counts

    def _unfold_shares(
        self, cells: int, by_number: dict[int, _Item], counts: dict[int, float]
    ) -> None:
        level = len(self._share_best) - 1
        while level > 0:
            pod = int(self._share_last[level, cells])
            if pod < 0:
                level -= 1
                continue
            item = by_number[pod]
            counts[pod] = counts.get(pod, 0.0) + item.part
            level, cells = level - item.milli // self._unit, cells - item.cells


def _item(number: int, pod: GpuClass, round_up: bool) -> _Item:
    sign = -1 if round_up else 1  # -(-a // b) rounds up
    if pod.gpu_milli == WHOLE_GPU or not pod.num_gpu:
        cells = sign * (sign * pod.cpu_milli // CPU_UNIT)
        return _Item(number, 1.0, pod.num_gpu, pod.gpu_milli if pod.num_gpu else 0, cells)
    cells = sign * (sign * pod.cpu_milli // (CPU_UNIT * pod.num_gpu))
    return _Item(number, 1.0 / pod.num_gpu, 0, pod.gpu_milli, cells)


def _undominated(items: list[_Item], values: FloatArray) -> list[_Item]:
    """Drop every item that another of the same GPUs beats in value for no more CPU."""
    kept: list[_Item] = []
    best: dict[tuple[int, int], float] = {}
    for item in sorted(items, key=lambda i: (i.cells, -values[i.pod] * i.part)):
        value = float(values[item.pod]) * item.part
        if value > best.get((item.gpus, item.milli), 0.0):
            best[item.gpus, item.milli] = value
            kept.append(item)
    return kept
