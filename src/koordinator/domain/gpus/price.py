"""Price policy: place a pod where the stranded GPU grows least.

A node has a potential in GPU milli; ``PriceModel`` keeps the underlying prices and recomputes them
as pods arrive.  Terms:

- holes: the free part of partly used GPUs that no expected share will fill (``gpu_holes``);

- CPU stranding: free GPU times the share of GPU demand that needs more CPU per GPU than the node
has left;

- slots: minus the room for pods of two or more GPUs, times the probability that such room runs out;

- kinds: GPU and CPU of a node kind at the dual prices of (class x kind) for the remaining expected
demand, which matters when pods name GPU models;

- a small constant once a node is opened.

The programs for holes and kinds are solved for several futures, and their prices averaged: the
prices of one expected future jump where a row becomes scarce (Talluri and van Ryzin 1999).

Source: our own; measured against FGD on the openb traces.
"""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from koordinator.domain.gpus.mix import WHOLE_GPU, PodMix
from koordinator.domain.gpus.options import GpuNodes, NodeKinds
from koordinator.foundation.arrays import FloatArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass

if TYPE_CHECKING:  # the solver is only loaded where prices are computed
    from koordinator.foundation.linear_program import LinearProgram

#: A filling: the sizes in it, with repetition.
Filling = tuple[int, ...]

_TOLERANCE = 1e-7
_MAX_ROUNDS = 100

#: Maximum of ``price_score``, far above any growth of potential.
MAX_PRICE_SCORE = 10_000

#: Growth of potential per point of score: smaller differences are noise of the prices.
_POINT_MILLI = 10.0

_GRID_STEP = 0.1  # cores per GPU
_GRID = np.arange(641) * _GRID_STEP

#: The golden ratio's fraction: badly approximable, so that no class repeats a position.
_GOLDEN = (math.sqrt(5.0) - 1.0) / 2.0

#: Minimum mean for which the error of the normal approximation is below 0.01.
_NORMAL_FROM = 100.0

#: Value of a served core in GPUs, so that pods without GPUs are served if CPU is abundant.
_CPU_WORTH = 0.05 / 12


class HoleValue:
    """Value of holes; keeps the fillings of the last optimum as a warm start."""

    def __init__(self) -> None:
        self._known: dict[int, set[Filling]] = {}

    def solve(self, demand: Mapping[int, float], holes: Mapping[int, int]) -> FloatArray:
        """Return the value of 0..1000 free milli in whole GPUs, ``(1001,)``, rising, at most 1.

        ``demand`` is the expected number of shares by size, ``holes`` the number of partly used
        GPUs by free milli. All zero if no demand is expected.
        """
        sizes = np.array(sorted(size for size, count in demand.items() if count > 0), np.int64)
        if len(sizes) == 0:
            return np.zeros(WHOLE_GPU + 1)
        program = _Covering(sizes, demand, {h: n for h, n in holes.items() if h >= sizes[0]})
        for size in sizes.tolist():
            program.add(WHOLE_GPU, (size,) * (WHOLE_GPU // size))
        for hole, fillings in self._known.items():
            for filling in fillings:
                program.add(hole, filling)
        worth = program.solve()
        self._known = program.used()
        share: FloatArray = worth / max(worth[WHOLE_GPU], 1.0)
        return share


class _Covering:
    """The covering program: rows are sizes, then holes."""

    def __init__(
        self, sizes: IntArray, demand: Mapping[int, float], holes: Mapping[int, int]
    ) -> None:
        self._sizes, self._holes = sizes, list(holes)
        self._row = {size: row for row, size in enumerate(sizes.tolist())}
        self._hole_row = {hole: len(sizes) + i for i, hole in enumerate(holes)}
        needed = [-demand[size] for size in sizes.tolist()]
        from koordinator.foundation.linear_program import LinearProgram  # noqa: PLC0415

        self._program = LinearProgram(np.array([*needed, *holes.values()], float))
        self._columns: dict[tuple[int, Filling], None] = {}
        self._amounts = np.zeros(0)

    def add(self, hole: int, filling: Filling) -> bool:
        """Add a column; return False for a duplicate or an unknown hole or size."""
        known = (hole, filling) in self._columns
        if known or (hole != WHOLE_GPU and hole not in self._hole_row):
            return False
        if any(size not in self._row for size in filling):
            return False
        counts: dict[int, float] = {}
        for size in filling:
            counts[self._row[size]] = counts.get(self._row[size], 0.0) - 1.0
        if hole != WHOLE_GPU:
            counts[self._hole_row[hole]] = 1.0
        self._columns[hole, filling] = None
        self._program.add_column(
            -1.0 if hole == WHOLE_GPU else 0.0,
            np.array(list(counts), np.int64),
            np.array(list(counts.values())),
        )
        return True

    def solve(self) -> FloatArray:
        """Return the value of a hole by its size at the optimal prices, ``(1001,)``."""
        worth = np.zeros(WHOLE_GPU + 1)
        for _ in range(_MAX_ROUNDS):
            solution = self._program.solve()
            self._amounts = solution.amounts
            knapsack = Knapsack(self._sizes, solution.prices[: len(self._sizes)])
            worth = knapsack.worth
            paid = {hole: float(solution.prices[row]) for hole, row in self._hole_row.items()}
            better = [
                hole
                for hole, price in {WHOLE_GPU: 1.0, **paid}.items()
                if worth[hole] > price + _TOLERANCE
            ]
            added = [self.add(hole, knapsack.filling(hole)) for hole in better]
            if not any(added):
                break
        return worth

    def used(self) -> dict[int, set[Filling]]:
        """Return the fillings in the last optimum by hole."""
        used: dict[int, set[Filling]] = {}
        for (hole, filling), amount in zip(self._columns, self._amounts.tolist(), strict=False):
            if amount > 0:
                used.setdefault(hole, set()).add(filling)
        return used


class Knapsack:
    """The most valuable filling of every hole of 0..1000 milli, with repetition of sizes."""

    def __init__(self, sizes: IntArray, prices: FloatArray) -> None:
        """``sizes`` ascending, in 1..1000; prices >= 0."""
        self._unit = math.gcd(WHOLE_GPU, *sizes.tolist())
        self._sizes = sizes
        steps = sizes // self._unit
        cells = WHOLE_GPU // self._unit
        best = np.zeros(cells + 1)
        self._last = np.full(cells + 1, -1)  # last size added; -1: same as one unit less
        fitting = np.searchsorted(steps, np.arange(cells + 1), side="right")
        for cell in range(1, cells + 1):
            count = int(fitting[cell])
            best[cell] = best[cell - 1]
            if count:
                values = best[cell - steps[:count]] + prices[:count]
                choice = int(values.argmax())
                if values[choice] > best[cell]:
                    best[cell] = values[choice]
                    self._last[cell] = choice
        #: (1001,) value of the best filling
        self.worth: FloatArray = np.repeat(best, self._unit)[: WHOLE_GPU + 1]

    def filling(self, hole: int) -> Filling:
        """Return the best filling of a hole, ascending."""
        cell, chosen = hole // self._unit, []
        while cell > 0:
            if self._last[cell] < 0:
                cell -= 1
            else:
                size = int(self._sizes[self._last[cell]])
                chosen.append(size)
                cell -= size // self._unit
        return tuple(sorted(chosen))


@dataclass(frozen=True, slots=True)
class PriceParameters:
    """Parameters; defaults were tuned on generated arrivals of four openb traces, tested on nine.

    Half as many futures, or damping 0.5, changes the allocation by less than 0.1 points.
    ``cpu_smoothing`` matters more: 3.5 is better for CPU-heavy pods, 4 for GPU-heavy pods.
    """

    solve_every: int = 200  # arrivals
    #: additional solves while the mix is still being learned
    solve_early: tuple[int, ...] = (20, 50, 100)
    futures: int = 8  # number of futures for averaging prices
    damping: float = 0.7  # weight of the old prices
    opening_milli: float = 100.0  # growth for the first pod of a node of eight GPUs
    cpu_smoothing: float = 4.0  # factor of change of a node's CPU per GPU


@dataclass(frozen=True)
class Prices:
    """Terms of a potential."""

    waste: FloatArray  # (1002,) wasted milli of a GPU by free milli; last: no such GPU
    stranding: FloatArray  # (n_grid,) share of GPU demand above the cores per GPU
    slots: "SlotPrices"
    kind_gpu: FloatArray  # (n_kinds,) per milli of free GPU
    kind_cpu: FloatArray  # (n_kinds,) per milli of free CPU
    opening: FloatArray  # (n_kinds,) growth when a node gets its first pod
    gpus: IntArray  # (n_kinds,)

    def potential(self, nodes: GpuNodes) -> FloatArray:
        """Return ``(k,)`` GPU milli; only differences are meaningful."""
        gpu, kind = nodes.gpu_free, nodes.kind
        free = np.maximum(gpu, 0).sum(1)
        whole = np.count_nonzero(gpu == WHOLE_GPU, axis=1)
        # A node without free GPU has no GPU to strand: its ratio doesn't matter.
        cores_per_gpu = nodes.cpu_free / np.maximum(free, 1)
        out: FloatArray = self.waste[gpu].sum(1)
        out += np.interp(cores_per_gpu, _GRID, self.stranding) * free
        out += np.where(whole < self.gpus[kind], self.opening[kind], 0.0)
        out -= self.kind_gpu[kind] * free
        out -= self.kind_cpu[kind] * nodes.cpu_free
        return self.slots.subtract(out, nodes.cpu_free, whole, kind)


@dataclass(frozen=True, slots=True)
class SlotPrices:
    """Value of room for classes of two or more GPUs."""

    num_gpu: IntArray  # (m,)
    cpu_milli: IntArray  # (m,) at least 1
    accepts: FloatArray  # (n_kinds, m) 0 or 1
    milli: FloatArray  # (m,) value per pod that fits

    def headroom(self, cpu_free: IntArray, whole: IntArray, kind: IntArray) -> FloatArray:
        """Return ``(k, m)``: the number of pods of each class that fit on each node."""
        by_gpu, by_cpu = whole[:, None] // self.num_gpu, cpu_free[:, None] // self.cpu_milli
        headroom: FloatArray = np.minimum(by_gpu, by_cpu) * self.accepts[kind]
        return headroom

    def subtract(
        self, out: FloatArray, cpu_free: IntArray, whole: IntArray, kind: IntArray
    ) -> FloatArray:
        """Subtract the value of each node's room."""
        if len(self.milli):
            out -= self.headroom(cpu_free, whole, kind) @ self.milli
        return out

    def scarce(self) -> "SlotPrices":
        """Return only the classes whose room has a price."""
        dear = self.milli > 0
        return SlotPrices(
            self.num_gpu[dear], self.cpu_milli[dear], self.accepts[:, dear], self.milli[dear]
        )


class PriceModel:
    """Prices that follow the cluster, for fixed node kinds."""

    def __init__(self, kinds: NodeKinds, parameters: PriceParameters | None = None) -> None:
        self._kinds = kinds
        self._parameters = parameters or PriceParameters()
        self._holes = HoleValue()
        self._kind_program = _KindProgram(kinds)
        self._solved = 0
        self._waste: FloatArray | None = None
        self._kind_gpu = np.zeros(len(kinds.gpus))
        self._kind_cpu = np.zeros(len(kinds.gpus))
        self.prices = self._before_any_arrival()

    def due(self, arrived: int, *, mix_is_known: bool) -> bool:
        """Return whether to solve on the arrival of the pod with this number (1, 2 …)."""
        if arrived % self._parameters.solve_every == 0:
            return True
        return not mix_is_known and arrived in self._parameters.solve_early

    def solve(self, mix: PodMix, nodes: GpuNodes) -> Prices:
        """Recompute prices, expecting pods as in ``mix`` until the GPUs of ``nodes`` run out."""
        mix = mix.without_memory()
        demand = float(mix.counts @ mix.total_gpu_milli)
        free = np.maximum(nodes.gpu_free, 0)
        if demand <= 0:
            return self.prices
        ahead = free.sum() / demand
        to_come = mix.counts * ahead
        count = self._parameters.futures
        futures = possible_futures(mix.counts, ahead, self._solved * count, count)
        self._solved += 1
        self._solve_holes(mix, futures, free)
        self._solve_kinds(mix, futures, nodes, free)
        self.prices = replace(
            self.prices,
            waste=self.prices.waste if self._waste is None else self._waste,
            stranding=_stranding(mix, self._parameters.cpu_smoothing),
            slots=_slot_prices(mix, to_come, nodes, self._kinds),
            kind_gpu=self._kind_gpu,
            kind_cpu=self._kind_cpu,
        )
        return self.prices

    def _before_any_arrival(self) -> Prices:
        kinds = self._kinds
        nothing = np.zeros(0, np.int64)
        return Prices(
            waste=np.zeros(WHOLE_GPU + 2),
            stranding=np.zeros(len(_GRID)),
            slots=SlotPrices(nothing, nothing, np.zeros((len(kinds.gpus), 0)), np.zeros(0)),
            kind_gpu=self._kind_gpu,
            kind_cpu=self._kind_cpu,
            opening=(self._parameters.opening_milli / 8.0) * kinds.gpus.astype(float),
            gpus=kinds.gpus,
        )

    def _damped(self, old: FloatArray, new: FloatArray) -> FloatArray:
        keep = self._parameters.damping
        return keep * old + (1 - keep) * new

    def _solve_holes(self, mix: PodMix, futures: FloatArray, free: IntArray) -> None:
        by_hole = np.bincount(free.ravel(), minlength=WHOLE_GPU + 1)
        holes = {int(h): int(by_hole[h]) for h in np.flatnonzero(by_hole[1:WHOLE_GPU]) + 1}
        solved = []
        for to_come in futures:
            shares = mix.is_share & (to_come > 0)
            by_size = np.bincount(mix.gpu_milli[shares], to_come[shares])
            demand = {int(size): float(by_size[size]) for size in np.flatnonzero(by_size)}
            worth = self._holes.solve(demand, holes)
            if worth[WHOLE_GPU] > 0:
                solved.append(worth)
        if not solved:
            return
        waste = np.zeros(WHOLE_GPU + 2)
        wasted = np.arange(WHOLE_GPU + 1) - WHOLE_GPU * np.array(solved)
        waste[:-1] = np.maximum(wasted, 0.0).mean(0)
        self._waste = waste if self._waste is None else self._damped(self._waste, waste)

    def _solve_kinds(
        self, mix: PodMix, futures: FloatArray, nodes: GpuNodes, free: IntArray
    ) -> None:
        if self._kinds.accept(mix.models).all():
            return  # every class accepts every kind: no kind is scarcer
        kinds = len(self._kinds.gpus)
        gpu_left = np.bincount(nodes.kind, free.sum(1), kinds) / 1000
        free_cpu = np.maximum(nodes.cpu_free, 0)  # a node may be overcommitted
        cpu_left = np.bincount(nodes.kind, free_cpu, kinds) / 1000
        gpu_prices, cpu_prices = np.zeros(kinds), np.zeros(kinds)
        for to_come in futures:
            gpu, cpu = self._kind_program.solve(mix, to_come, gpu_left, cpu_left)
            if (gpu_left > 0).any():
                gpu = gpu - gpu[gpu_left > 0].min()
            gpu_prices += np.clip(gpu, 0.0, 1.0) / len(futures)
            cpu_prices += np.clip(cpu, 0.0, 0.1) / len(futures)
        self._kind_gpu = self._damped(self._kind_gpu, gpu_prices)
        self._kind_cpu = self._damped(self._kind_cpu, cpu_prices)


def possible_futures(counts: FloatArray, ahead: float, start: int, count: int) -> FloatArray:
    """Return ``(count, n_classes)`` possible numbers of pods around ``counts * ahead``.

    The spread models arrivals at a rate that is estimated from ``counts`` pods: variance ``counts *
    ahead * (1 + ahead)``. The same ``start`` gives the same futures, the next ``count`` differ: an
    additive recurrence, evenly spread for each class and different between classes.
    """
    numbers = np.arange(start + 1, start + count + 1, dtype=np.float64)
    steps = (np.arange(1, len(counts) + 1, dtype=np.float64) ** 2 * _GOLDEN) % 1.0
    places = 2.0 * (np.outer(numbers, steps) % 1.0) - 1.0
    deviation = np.sqrt(3.0 * counts * ahead * (1.0 + ahead))  # 3: a uniform place has variance 1/3
    futures: FloatArray = np.maximum(counts * ahead + deviation * places, 0.0)
    return futures


def price_score(growth: FloatArray) -> IntArray:
    """Return a score, 0..MAX_PRICE_SCORE, of a growth of potential in milli; no growth is half."""
    points = np.round(growth / _POINT_MILLI).astype(np.int64)
    return np.clip(MAX_PRICE_SCORE // 2 - points, 0, MAX_PRICE_SCORE)


def _stranding(mix: PodMix, smoothing: float) -> FloatArray:
    """Return the share of GPU demand that needs more CPU per GPU, ``(n_grid,)``, smoothed."""
    demand = mix.counts * mix.total_gpu_milli
    wants = demand > 0
    cores_per_gpu = mix.cpu_milli[wants] / mix.total_gpu_milli[wants]
    order = np.argsort(cores_per_gpu)
    served = np.concatenate(([0.0], np.cumsum(demand[wants][order]) / demand.sum()))
    factors = np.exp(np.linspace(-math.log(smoothing), math.log(smoothing), 21))
    at_most = np.searchsorted(cores_per_gpu[order], _GRID[:, None] * factors + 1e-12, side="right")
    share: FloatArray = 1.0 - served[at_most].mean(1)
    return share


def _slot_prices(mix: PodMix, to_come: FloatArray, nodes: GpuNodes, kinds: NodeKinds) -> SlotPrices:
    """Price the room for each class of two or more GPUs by the chance that it runs out.

    Classes that need at least as many GPUs and as much CPU compete for the same room.
    """
    wide = (mix.num_gpu >= 2) & (to_come > 0)  # noqa: PLR2004 (one GPU needs no room of its own)
    num_gpu, cpu_milli = mix.num_gpu[wide], np.maximum(mix.cpu_milli[wide], 1)
    slots = SlotPrices(
        num_gpu, cpu_milli, kinds.accept(mix.models[wide]).astype(float), np.zeros(len(num_gpu))
    )
    whole = np.count_nonzero(nodes.gpu_free == WHOLE_GPU, axis=1)
    headroom = slots.headroom(nodes.cpu_free, whole, nodes.kind).sum(0)
    rivals = (num_gpu >= num_gpu[:, None]) & (cpu_milli >= cpu_milli[:, None])
    takes = -(-num_gpu // num_gpu[:, None])
    needed = (rivals * takes) @ to_come[wide]
    chance = [poisson_tail(*pair) for pair in zip(needed.tolist(), headroom.tolist(), strict=True)]
    milli = np.array(chance, np.float64) * (num_gpu * WHOLE_GPU).astype(np.float64)
    return replace(slots, milli=milli).scarce()


def poisson_tail(mean: float, at_least: float) -> float:
    """Return P(N >= at_least) for N ~ Poisson(mean); the normal approximation for a large mean."""
    if at_least <= 0:
        return 1.0
    if mean <= 0:
        return 0.0
    if mean > _NORMAL_FROM:
        return 0.5 * math.erfc((at_least - 0.5 - mean) / math.sqrt(2 * mean))
    term = below = math.exp(-mean)
    for count in range(1, int(at_least)):
        term *= mean / count
        below += term
    return min(1.0, max(0.0, 1.0 - below))


class _KindProgram:
    """Assignment of classes to kinds: maximal GPU within the kinds' free GPU and CPU.

    Built once per set of classes; afterwards only amounts change.
    """

    def __init__(self, kinds: NodeKinds) -> None:
        self._kinds = kinds
        self._mix: tuple[object, ...] = ()
        self._program: LinearProgram | None = None

    def solve(
        self, mix: PodMix, to_come: FloatArray, gpu_left: FloatArray, cpu_left: FloatArray
    ) -> tuple[FloatArray, FloatArray]:
        """Return GPU and CPU prices per kind, from free GPUs and cores per kind ``(n_kinds,)``."""
        limits = np.concatenate((to_come, gpu_left, cpu_left))
        if self._mix != mix.classes:
            self._mix, self._program = mix.classes, self._build(mix, limits)
        if self._program is None:
            return np.zeros(len(gpu_left)), np.zeros(len(cpu_left))
        self._program.set_limits(limits)
        prices = self._program.solve().prices[len(to_come) :]
        return prices[: len(gpu_left)], prices[len(gpu_left) :]

    def _build(self, mix: PodMix, limits: FloatArray) -> "LinearProgram | None":
        """Build the program; return None if no class fits on any kind."""
        from koordinator.foundation.linear_program import LinearProgram  # noqa: PLC0415

        kinds = self._kinds
        fits = (
            kinds.accept(mix.models).T
            & (kinds.gpus >= mix.num_gpu[:, None])
            & (kinds.cpu_milli >= mix.cpu_milli[:, None])
        )
        if not fits.any():
            return None
        pod, kind = np.nonzero(fits)
        gpu, cpu = mix.total_gpu_milli[pod] / 1000, mix.cpu_milli[pod] / 1000
        classes, n_kinds = len(mix.classes), len(kinds.gpus)
        rows = np.stack((pod, classes + kind, classes + n_kinds + kind), 1)
        program = LinearProgram(limits)
        program.add_columns(
            gpu + _CPU_WORTH * cpu,
            np.arange(len(pod)) * rows.shape[1],
            rows.ravel(),
            np.stack((np.ones(len(pod)), gpu, cpu), 1).ravel(),
        )
        return program
