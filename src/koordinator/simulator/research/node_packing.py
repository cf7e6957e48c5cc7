"""Most valuable filling of a node: the pods that it can take, by dynamic programming.

It keeps whole numbers of pods, single GPUs and the node's CPU, and ignores the following, which can
only raise the value: memory; CPU finer than ``CPU_UNIT`` (pods are rounded down); the number of
arrivals of a class within one node; that a pod with shares of several GPUs needs all of them on one
node.

Search for the best use of fillings of nodes, by column generation.

A *filling* is a set of pods that fits one node.  A placement chooses one filling per node, so the
best placement is at most the optimum of

    maximise   sum of gpu(filling) x used(filling, shape)
    subject to used(., shape) <= nodes of the shape
               pods of a class in all fillings <= arrivals of the class, >= those that must be there

For *any* prices >= 0 on the classes' rows, the rows' limits at these prices plus, over nodes, the
value of the best filling at them is at least that optimum (weak duality), so stopping early or
rounding the prices costs tightness, never truth.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import field

import numpy as np

from koordinator.domain.gpus.mix import WHOLE_GPU, GpuClass
from koordinator.foundation.arrays import FloatArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.linear_program import LinearProgram

CPU_UNIT = 100  # milli

#: Rounds of column generation: the openb traces need 40 to 100 until nothing is left to gain.
ROUNDS = 300
#: Share of the best prices so far that is kept in the next prices to try (Wentges smoothing).
_SMOOTHING = 0.5
_VARIED = 8  # times
_CLOSE_ENOUGH = 1e-4


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
                candidate = best[left, : len(row) - item.cells] + values[item.pod] * item.part
                better = candidate > row[item.cells :]
                row[item.cells :][better] = candidate[better]
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
                candidate = best[gpus - taken, : len(row) - cells] + value
                better = candidate > row[cells:]
                row[cells:][better] = candidate[better]
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


@dataclass(slots=True)
class Switches:
    """Numbers in 0..1 on which depends how many pods of the classes are placed.

    ``most[s]`` and ``least[s]`` map a class to the pods that switch ``s`` adds to the most and to
    the least that are placed.  In each pair of ``order``, the first switch is at most the second.
    """

    most: list[dict[int, float]] = field(default_factory=list)
    least: list[dict[int, float]] = field(default_factory=list)
    order: list[tuple[int, int]] = field(default_factory=list)


class FillingSearch:
    """Column generation; the bound is the best Lagrangian value seen.

    ``most`` and ``least`` are the pods of each class that may and that must be placed, in addition
    to the pods of ``switches``.
    """

    def __init__(
        self,
        classes: list[GpuClass],
        shapes: list[NodeShape],
        most: Sequence[int],
        nodes: Sequence[int],
        least: Sequence[int] = (),
        *,
        switches: Switches | None = None,
        round_up: bool = False,
    ) -> None:
        self._classes, self.shapes, self._round_up = classes, shapes, round_up
        switches = switches or Switches()
        #: number of the shape, and pods by number of the class
        self.columns: list[tuple[int, Mapping[int, float]]] = []
        self._gpu = np.array([pod.total_gpu_milli for pod in classes], float)
        self._nodes = np.array(nodes, float)
        least = least or [0] * len(classes)
        #: classes some of whose pods must be placed
        self._must = np.array(least) > 0
        self._must[[pod for pods in switches.least for pod in pods]] = True
        #: rows: how often a class may be used, how often it must be (negative), switches in order,
        #: and nodes of a shape
        self._limits = np.concatenate(
            (np.array(most), -np.array(least), np.zeros(len(switches.order))), dtype=float
        )
        self._program = LinearProgram(np.concatenate((self._limits, self._nodes)))
        #: entries of the switches: row, number of the switch, coefficient
        self._entries = self._add_switches(switches)
        self._n_switches = len(switches.most)
        self._packings = self._group()
        self.bound = math.inf
        self.reached = 0.0

    def run(self, rounds: int) -> int:
        """Improve the bound; return the number of rounds used."""
        n_rows = len(self._limits)
        best_prices = np.zeros(n_rows)
        best_prices[: len(self._classes)] = self._gpu  # the bound is the demand
        self._evaluate(best_prices)
        for done in range(1, rounds + 1):
            solution = self._program.solve()
            self.reached = solution.value
            if self.bound - solution.value <= _CLOSE_ENOUGH * self.bound:
                return done
            wanted = solution.prices[:n_rows]
            before = self.bound
            tried = _SMOOTHING * best_prices + (1 - _SMOOTHING) * wanted
            self._evaluate(tried)
            if self.bound < before:
                best_prices = tried
            before = self.bound
            self._evaluate(wanted)
            if self.bound < before:
                best_prices = wanted
        return rounds

    def vary(self, rng: np.random.Generator) -> None:
        """Add the best fillings at prices near the optimal ones."""
        prices = self._program.solve().prices[: len(self._limits)]
        for _ in range(_VARIED):
            self._evaluate(prices * rng.uniform(0.8, 1.2, len(prices)))

    def _group(self) -> list[tuple[NodePacking, list[int]]]:
        """Share the dynamic program between shapes whose model is accepted by the same classes."""
        cells = max(shape.cpu_milli for shape in self.shapes) // CPU_UNIT
        gpus = max(shape.gpus for shape in self.shapes)
        groups: dict[tuple[int, ...], list[int]] = {}
        for number, shape in enumerate(self.shapes):
            accepted = (i for i, p in enumerate(self._classes) if p.models & shape.model_bit)
            groups.setdefault(tuple(accepted), []).append(number)
        return [
            (NodePacking(self._classes, accepted, gpus, cells, self._round_up), members)
            for accepted, members in groups.items()
        ]

    def add_filling(self, shape: NodeShape, filling: Mapping[GpuClass, float]) -> None:
        """Add the column of a filling for a node shape."""
        number = {pod: index for index, pod in enumerate(self._classes)}
        counts = {number[pod]: float(count) for pod, count in filling.items()}
        self.add_column(self.shapes.index(shape), counts)

    def _evaluate(self, prices: FloatArray) -> None:
        """Lower the bound if these prices can, and add the best fillings at these prices."""
        n_classes = len(self._classes)
        rows, numbers, coefficients = self._entries
        gains = -np.bincount(numbers, coefficients * prices[rows], self._n_switches)
        total = float(self._limits @ prices) + float(np.maximum(gains, 0.0).sum())
        for packing, members in self._packings:
            packing.solve(self._gpu - prices[:n_classes] + prices[n_classes : 2 * n_classes])
            for number in members:
                shape = self.shapes[number]
                total += float(self._nodes[number]) * packing.best(shape)
                self.add_column(number, packing.filling(shape))
        self.bound = min(self.bound, total)

    def add_column(self, number: int, counts: Mapping[int, float]) -> None:
        """Add the column of a filling, by the numbers of shape and classes."""
        self.columns.append((number, counts))
        used = np.array(list(counts), np.int64)
        amounts = np.array(list(counts.values()), float)
        must = self._must[used]
        n_classes, shape_row = len(self._classes), len(self._limits) + number
        self._program.add_column(
            float(self._gpu[used] @ amounts),
            np.concatenate((used, n_classes + used[must], [shape_row])),
            np.concatenate((amounts, -amounts[must], [1.0])),
        )

    def _add_switches(self, switches: Switches) -> tuple[IntArray, IntArray, FloatArray]:
        """Add the columns of switches; return their rows, numbers and coefficients."""
        n_classes = len(self._classes)
        columns: list[dict[int, float]] = [
            {pod: -count for pod, count in most.items()}
            | {n_classes + pod: count for pod, count in least.items()}
            for most, least in zip(switches.most, switches.least, strict=True)
        ]
        for row, (lower, higher) in enumerate(switches.order, 2 * n_classes):
            columns[lower][row], columns[higher][row] = 1.0, -1.0
        rows = np.array([row for column in columns for row in column], np.int64)
        coefficients = np.array([value for column in columns for value in column.values()], float)
        sizes = np.array([len(column) for column in columns], np.int64)
        if columns:
            starts = np.cumsum(sizes) - sizes
            self._program.add_columns(
                np.zeros(len(columns)), starts, rows, coefficients, highest=1.0
            )
        return rows, np.repeat(np.arange(len(columns)), sizes), coefficients
