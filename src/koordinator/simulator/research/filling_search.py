"""Search for the best use of fillings of nodes, by column generation.

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
from dataclasses import dataclass, field

import numpy as np

from koordinator.domain.gpus.mix import GpuClass
from koordinator.foundation.arrays import FloatArray, IntArray
from koordinator.foundation.linear_program import LinearProgram
from koordinator.simulator.research.node_packing import CPU_UNIT, NodePacking, NodeShape

#: Rounds of column generation: the openb traces need 40 to 100 until nothing is left to gain.
ROUNDS = 300
#: Share of the best prices so far that is kept in the next prices to try (Wentges smoothing).
_SMOOTHING = 0.5
_VARIED = 8  # times
_CLOSE_ENOUGH = 1e-4


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
