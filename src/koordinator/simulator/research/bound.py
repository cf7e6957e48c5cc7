"""Proven upper bound of the GPU that any placement of given pods on given nodes can allocate.

Proof.  A *filling* is a set of pods that fits one node.  A placement chooses one
filling per node and uses no class more often than it arrived, so the best placement is at most the
optimum of

    maximise   sum of gpu(filling) x used(filling, kind)
    subject to used(., kind) <= nodes of the kind
               pods of a class in all fillings <= arrivals of the class

For *any* prices >= 0 on the classes, ``arrivals @ prices + sum over nodes of the best filling's
(gpu - price)`` is at least that optimum (weak duality), so stopping early or rounding the prices
costs tightness, never truth.  The best filling of a node is found by dynamic programming over GPUs
and CPU.  It keeps whole numbers of pods, single GPUs and the node's CPU, and ignores the following,
which can only raise the bound: memory; CPU finer than ``_CPU_UNIT`` (pods are rounded
down); the number of arrivals of a class within one node; that a pod with shares of several GPUs
needs all of them on one node; the order of arrival; pods without GPUs.

``repacked_bound`` includes running pods, which may move but must keep a place: used(., class) is
also at least their number, with another price >= 0 that each of them pays.
"""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from koordinator.domain.gpus.mix import WHOLE_GPU, GpuClass
from koordinator.foundation.arrays import FloatArray, IntArray
from koordinator.foundation.linear_program import LinearProgram
from koordinator.simulator.research.openb import OpenbTrace

_CPU_UNIT = 100  # milli
#: Rounds of column generation: the openb traces need 40 to 90 until nothing is left to gain.
_ROUNDS = 300
#: Share of the best prices so far that is kept in the next prices to try (Wentges smoothing).
_SMOOTHING = 0.5
_VARIED = 8  # times
_CLOSE_ENOUGH = 1e-4


@dataclass(frozen=True, slots=True)
class AllocationBound:
    """No placement of these pods gives out more than ``gpu_milli``."""

    gpu_milli: float
    method: str
    rounds: int  # of column generation
    gap_milli: float  # how much lower the same program could at most come with more rounds


@dataclass(frozen=True, slots=True)
class NodeShape:
    """Nodes that can take the same pods."""

    gpus: int
    cpu_milli: int
    model_bit: int  # 1 << number of the model


def allocation_bound(trace: OpenbTrace, order: IntArray, rounds: int = _ROUNDS) -> AllocationBound:
    """Return the bound for pods of a trace, given by their positions, on the trace's nodes."""
    pods = [trace.gpu_class(trace.pods[pod]) for pod in order.tolist()]
    bits = {model: 1 << bit for bit, model in enumerate(trace.models)}
    nodes = [NodeShape(n.gpu, n.cpu_milli, bits[n.model]) for n in trace.nodes if n.gpu]
    return bound_of(pods, nodes, rounds)


def bound_of(
    pods: Sequence[GpuClass], nodes: Sequence[NodeShape], rounds: int = _ROUNDS
) -> AllocationBound:
    """Return the bound for pods and nodes."""
    arrived = Counter(_without_memory(pods))
    shapes = Counter(nodes)
    demand = sum(pod.total_gpu_milli * count for pod, count in arrived.items())
    capacity = sum(WHOLE_GPU * shape.gpus * count for shape, count in shapes.items())
    trivial = float(min(demand, capacity))
    if not arrived or not shapes:
        return AllocationBound(trivial, "nothing to place", 0, 0.0)
    search = _Search(list(arrived), list(shapes), list(arrived.values()), list(shapes.values()))
    return _searched(search, trivial, rounds, "demand" if demand < capacity else "capacity")


def repacked_bound(
    waiting: Iterable[GpuClass],
    nodes: Sequence[tuple[NodeShape, Sequence[GpuClass]]],
    rounds: int = _ROUNDS,
) -> AllocationBound:
    """Return the bound for nodes with the pods that run on each, when others wait.

    Memory is not looked at, and the requests of waiting and running pods may differ in it.
    """
    fillings = [(shape, Counter(_without_memory(pods))) for shape, pods in nodes]
    running = Counter[GpuClass]()
    for _, filling in fillings:
        running.update(filling)
    total = running + Counter(_without_memory(waiting))
    shapes = Counter(shape for shape, _ in fillings)
    demand = sum(pod.total_gpu_milli * count for pod, count in total.items())
    capacity = sum(WHOLE_GPU * shape.gpus * count for shape, count in shapes.items())
    trivial = float(min(demand, capacity))
    if not total or not shapes:
        return AllocationBound(trivial, "nothing to place", 0, 0.0)
    search = _Search(
        list(total),
        list(shapes),
        list(total.values()),
        list(shapes.values()),
        [running[pod] for pod in total],
    )
    for shape, filling in fillings:
        search.add_filling(shape, filling)
    return _searched(search, trivial, rounds, "demand" if demand < capacity else "capacity")


@dataclass(frozen=True, slots=True)
class NodeFilling:
    """Pods that a node of a shape can take, memory aside: counts by class."""

    shape: NodeShape
    counts: Mapping[GpuClass, int]


def useful_fillings(
    waiting: Mapping[GpuClass, int],
    nodes: Sequence[tuple[NodeShape, Mapping[GpuClass, int]]],
    rounds: int = _ROUNDS,
) -> list[NodeFilling]:
    """Return fillings by which pods that run and pods that wait would use nodes better.

    They are the columns that ``repacked_bound`` would generate, and some at prices near by, as the
    relaxation needs fewer than whole numbers do; but with CPU rounded up, so that nodes have it.
    Classes are distinct requests, memory included, which is the caller's to check.
    """
    running = Counter[GpuClass]()
    for _, filling in nodes:
        running.update(filling)
    total = running + Counter(waiting)
    shapes = Counter(shape for shape, _ in nodes)
    classes = list(total)
    search = _Search(
        classes,
        list(shapes),
        list(total.values()),
        list(shapes.values()),
        [running[pod] for pod in classes],
        round_up=True,
    )
    for shape, filling in nodes:
        search.add_filling(shape, filling)
    given = len(search.columns)
    search.run(rounds)
    search.vary(np.random.default_rng(0))
    return [
        NodeFilling(
            search.shapes[number], {classes[pod]: round(count) for pod, count in counts.items()}
        )
        for number, counts in search.columns[given:]
        if all(count.is_integer() for count in counts.values())
    ]


def _without_memory(pods: Iterable[GpuClass]) -> Iterable[GpuClass]:
    return (
        GpuClass(p.cpu_milli, p.num_gpu, p.gpu_milli, p.models) for p in pods if p.total_gpu_milli
    )


def _searched(search: "_Search", trivial: float, rounds: int, method: str) -> AllocationBound:
    done = search.run(rounds)
    if search.bound < trivial:
        method = "fillings of nodes (Lagrangian bound of column generation)"
    bound = min(search.bound, trivial)
    return AllocationBound(bound, method, done, max(0.0, bound - search.reached))


class _Search:
    """Column generation; the bound is the best Lagrangian value seen."""

    def __init__(
        self,
        classes: list[GpuClass],
        shapes: list[NodeShape],
        arrived: list[int],
        nodes: list[int],
        at_least: Sequence[int] = (),
        *,
        round_up: bool = False,
    ) -> None:
        self._classes, self.shapes, self._round_up = classes, shapes, round_up
        #: number of the shape, and pods by number of the class
        self.columns: list[tuple[int, Mapping[int, float]]] = []
        self._gpu = np.array([pod.total_gpu_milli for pod in classes], float)
        #: rows: how often a class may be used, how often it must be (negative), nodes of a shape
        self._at_least = np.array(at_least or [0] * len(classes), float)
        self._limits = np.concatenate((np.array(arrived), -self._at_least, np.array(nodes)))
        self._program = LinearProgram(self._limits)
        self._packings = self._group()
        self.bound = math.inf
        self.reached = 0.0

    def run(self, rounds: int) -> int:
        """Improve the bound; return the number of rounds used."""
        n_classes = len(self._classes)
        best_prices = np.concatenate((self._gpu, np.zeros(n_classes)))  # the bound is the demand
        self._evaluate(best_prices)
        for done in range(1, rounds + 1):
            solution = self._program.solve()
            self.reached = solution.value
            if self.bound - solution.value <= _CLOSE_ENOUGH * self.bound:
                return done
            wanted = solution.prices[: 2 * n_classes]
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
        n_classes = len(self._classes)
        prices = self._program.solve().prices[: 2 * n_classes]
        for _ in range(_VARIED):
            self._evaluate(prices * rng.uniform(0.8, 1.2, len(prices)))

    def _group(self) -> "list[tuple[_Packing, list[int]]]":
        """Share the dynamic program between shapes whose model is accepted by the same classes."""
        cells = max(shape.cpu_milli for shape in self.shapes) // _CPU_UNIT
        gpus = max(shape.gpus for shape in self.shapes)
        groups: dict[tuple[int, ...], list[int]] = {}
        for number, shape in enumerate(self.shapes):
            accepted = (i for i, p in enumerate(self._classes) if p.models & shape.model_bit)
            groups.setdefault(tuple(accepted), []).append(number)
        return [
            (_Packing(self._classes, accepted, gpus, cells, self._round_up), members)
            for accepted, members in groups.items()
        ]

    def add_filling(self, shape: NodeShape, filling: Mapping[GpuClass, float]) -> None:
        """Add the column of a filling for a node shape."""
        number = {pod: index for index, pod in enumerate(self._classes)}
        counts = {number[pod]: float(count) for pod, count in filling.items()}
        self._add_column(self.shapes.index(shape), counts)

    def _evaluate(self, prices: FloatArray) -> None:
        """Lower the bound if these prices can, and add the best fillings at these prices."""
        n_classes = len(self._classes)
        total = float(self._limits[: 2 * n_classes] @ prices)
        for packing, members in self._packings:
            packing.solve(self._gpu - prices[:n_classes] + prices[n_classes:])
            for number in members:
                shape = self.shapes[number]
                total += float(self._limits[2 * n_classes + number]) * packing.best(shape)
                self._add_column(number, packing.filling(shape))
        self.bound = min(self.bound, total)

    def _add_column(self, number: int, counts: Mapping[int, float]) -> None:
        n_classes = len(self._classes)
        self.columns.append((number, counts))
        used = np.array(list(counts), np.int64)
        amounts = np.array(list(counts.values()), float)
        must = self._at_least[used] > 0
        self._program.add_column(
            float(self._gpu[used] @ amounts),
            np.concatenate((used, n_classes + used[must], [2 * n_classes + number])),
            np.concatenate((amounts, -amounts[must], [1.0])),
        )


@dataclass(frozen=True, slots=True)
class _Item:
    """A class, or a part of it, as the dynamic program sees it."""

    pod: int  # number of the class
    part: float  # of a pod: 1 unless the pod is split
    gpus: int  # whole ones; 0: a share
    milli: int
    cells: int  # of CPU


class _Packing:
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
        return float(self._node_best[shape.gpus, shape.cpu_milli // _CPU_UNIT])

    def solve(self, values: FloatArray) -> None:
        """Compute the best fillings for a value per class ``(n_classes,)``."""
        items = [item for item in self._items if values[item.pod] > 0]
        self._fill_one_gpu([i for i in items if i.gpus == 0], values)
        self._fill_nodes([i for i in items if i.gpus > 0], values)

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
        gpus, cells = shape.gpus, shape.cpu_milli // _CPU_UNIT
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
    if pod.gpu_milli == WHOLE_GPU:
        cells = sign * (sign * pod.cpu_milli // _CPU_UNIT)
        return _Item(number, 1.0, pod.num_gpu, WHOLE_GPU, cells)
    cells = sign * (sign * pod.cpu_milli // (_CPU_UNIT * pod.num_gpu))
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
