"""Movers on the openb cluster: few moves that admit pending pods, and a full repacking to compare.

With pending pods, the free GPUs are parts that are too small, or on nodes without CPU.  The solver
plans moves for the pending pods (``openb_repack``).  Where it finds none, a *swap* of two pods with
equal GPUs and different CPU may help: a pending pod lacks only CPU (or memory) on a node, and
elsewhere a pod with less of it runs beside unusable CPU.  Without pods pending for GPUs, a pod
moves to a node where the policy's potential grows less than it falls on the old node, which
lowers the expected unusable GPU.
"""

from typing import Final

import numpy as np

from koordinator.domain.gpus.options import GpuNodes
from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.simulator.research.openb import OpenbTrace
from koordinator.simulator.research.openb_departures import DepartureWeek
from koordinator.simulator.research.openb_fleet import FleetPlace, GpuFleet
from koordinator.simulator.research.openb_repack import Repacking
from koordinator.simulator.stages import moves_allowed

#: Minimum GPU gain of a swap, which takes two moves.
LEAST_GAIN_MILLI: Final = 100
#: Minimum GPU gain per move of the solver's plan: a whole GPU justifies twenty moves.
MOVE_MILLI: Final = 50.0
#: A move by price that lowers the potential by less is not worth one.
LEAST_FALL_MILLI: Final = 30.0
#: Share of the GPUs that stays free, parts of GPUs included, when room is made for large pods.
HEADROOM: Final = 0.0285
_MOST_TRIED: Final = 200  # moves by price that are looked at in a round
_SWAP: Final = 2  # moves
_NO_LIMIT: Final = 1 << 20


@dataclass(slots=True)
class MoveBudget:
    """Limit of moves per 1,000 arrivals; None is no limit."""

    per_1000: float | None

    def left(self, week: DepartureWeek) -> int:
        """Return how many moves are allowed now."""
        if self.per_1000 is None:
            return _NO_LIMIT
        return moves_allowed(self.per_1000, week.arrived) - week.moves


class LimitedMoves:
    """Mover within a budget: moves that admit pending pods; without any, moves by price."""

    def __init__(self, trace: OpenbTrace, budget: MoveBudget) -> None:
        self._repacking, self._budget = Repacking(trace), budget

    def __call__(self, week: DepartureWeek) -> None:
        """Move pods of a week as it stands."""
        if week.n_waiting @ week.classes.mix.total_gpu_milli:
            waiting = _next_in_turn(week)
            if not self._repacking.improve(week, waiting, self._budget.left(week), MOVE_MILLI):
                while self._budget.left(week) >= _SWAP and _swap_round(week, self._budget, waiting):
                    pass
            return
        while self._budget.left(week) > 0 and _price_round(week, self._budget):
            pass


class RepackedWeek:
    """Mover without a limit, which makes all moves of the solver's plans."""

    def __init__(self, trace: OpenbTrace) -> None:
        self._repacking = Repacking(trace)

    def __call__(self, week: DepartureWeek) -> None:
        """Move pods of a week as it stands."""
        self._repacking.improve(week, week.n_waiting, _NO_LIMIT, 1.0)


def _next_in_turn(week: DepartureWeek) -> IntArray:
    """Return the number of pods of each class to make room for.

    Pods of several GPUs count only while no smaller pod is pending and enough GPUs are free for the
    next arrivals: large pods are few and run long, and delay many others.
    """
    mix = week.classes.mix
    waiting = np.where(mix.total_gpu_milli > 0, week.n_waiting, 0)
    small = np.where(mix.num_gpu == 1, waiting, 0)
    is_tight = week.gpu_used_milli > (1.0 - HEADROOM) * week.capacity_milli
    return small if small.any() or is_tight else waiting


@dataclass(frozen=True, slots=True)
class _Pods:
    """Pods that run, ``(n,)`` each."""

    number: IntArray
    kind: IntArray
    row: IntArray

    @classmethod
    def of(cls, week: DepartureWeek) -> "_Pods":
        pods = list(week.running.values())
        return cls(
            np.fromiter(week.running, np.int64, len(pods)),
            np.array([pod.kind for pod in pods], np.int64),
            np.array([pod.place.row for pod in pods], np.int64),
        )


# -- swaps -----------------------------------------------------------------------------------------


def _swap_round(week: DepartureWeek, budget: MoveBudget, waiting: IntArray) -> int:
    """Make swaps on nodes that are touched once; return how many."""
    fleet, mix = week.fleet, week.classes.mix
    pods, done = _Pods.of(week), 0
    is_fresh: BoolArray = np.ones(len(fleet), bool)
    gain = mix.total_gpu_milli
    wanted = np.flatnonzero((waiting > 0) & (gain >= LEAST_GAIN_MILLI))
    for kind in wanted[np.lexsort((mix.cpu_milli[wanted], -gain[wanted]))].tolist():
        for row in _rows_short_of_cpu(fleet, kind).tolist():
            if budget.left(week) < _SWAP or not week.n_waiting[kind]:
                break
            if not is_fresh[row]:
                continue
            swap = _best_swap(week, pods, is_fresh, kind, row)
            if swap is None:
                continue
            one, other = swap
            rows = (row, week.running[other].place.row)
            week.swap(one, other)
            week.admit(rows)
            is_fresh[list(rows)] = False
            done += 1
    return done


def _rows_short_of_cpu(fleet: GpuFleet, kind: int) -> IntArray:
    """Return rows on which a pod of a class lacks nothing but CPU, the least lack first."""
    mix = fleet.classes.mix
    with_room = np.count_nonzero(fleet.gpu_free >= max(int(mix.gpu_milli[kind]), 1), axis=1)
    rows = np.flatnonzero(
        (with_room >= mix.num_gpu[kind])
        & fleet.accepts[kind]
        & (fleet.memory_free >= fleet.classes.memory_mib[kind])
        & (fleet.cpu_free < mix.cpu_milli[kind])
    )
    return rows[np.argsort(-fleet.cpu_free[rows], kind="stable")]


def _best_swap(
    week: DepartureWeek, pods: _Pods, is_fresh: BoolArray, kind: int, row: int
) -> tuple[int, int] | None:
    """Return a pod of a row and one elsewhere whose swap makes room for a class, if there are."""
    fleet, classes = week.fleet, week.classes
    mix, memory = classes.mix, classes.memory_mib
    missing_milli = int(mix.cpu_milli[kind] - fleet.cpu_free[row])
    spare_memory = fleet.memory_free[row] - memory[kind]
    best: tuple[float, int, int] | None = None
    for number in sorted(week.on_row[row]):
        mine = week.running[number].kind
        if not mix.num_gpu[mine] or mix.cpu_milli[mine] < missing_milli:
            continue
        more_cpu = mix.cpu_milli[mine] - mix.cpu_milli[pods.kind]
        more_memory = memory[mine] - memory[pods.kind]
        suitable = (
            (mix.num_gpu[pods.kind] == mix.num_gpu[mine])
            & (mix.gpu_milli[pods.kind] == mix.gpu_milli[mine])
            & (more_cpu >= missing_milli)
            & (more_cpu <= fleet.cpu_free[pods.row])
            & (more_memory <= fleet.memory_free[pods.row])
            & (-more_memory <= spare_memory)
            & (pods.row != row)
            & is_fresh[pods.row]
            & fleet.accepts[mine][pods.row]
            & fleet.accepts[pods.kind, row]
        )
        rows = np.flatnonzero(suitable)
        if not len(rows):
            continue
        # As little CPU as suffices, from where least of it is left over.
        costs = more_cpu[rows] + 1e-6 * (fleet.cpu_free[pods.row[rows]] - more_cpu[rows])
        least = int(np.argmin(costs))
        if best is None or costs[least] < best[0]:
            best = float(costs[least]), number, int(pods.number[rows[least]])
    return None if best is None else best[1:]


# -- moves by price --------------------------------------------------------------------------------


def _price_round(week: DepartureWeek, budget: MoveBudget) -> int:
    """Make moves that lower the potential most, on nodes that are touched once."""
    fleet, done = week.fleet, 0
    pods = _Pods.of(week)
    falls = _falls(week, pods)
    touched: set[int] = set()
    tried = 0
    for position in np.argsort(-falls, kind="stable").tolist():
        if falls[position] < LEAST_FALL_MILLI or tried >= _MOST_TRIED:
            break
        if budget.left(week) <= 0:
            break
        number = int(pods.number[position])
        pod = week.running[number]
        if pod.place.row in touched:
            continue
        tried += 1
        target = fleet.choose(pod.kind, but=pod.place.row)
        if target is None or target.row in touched:
            continue
        if falls[position] - _growth(fleet, pod.kind, target) < LEAST_FALL_MILLI:
            continue
        rows = (pod.place.row, target.row)
        week.move(number, target)
        week.admit(rows)
        touched.update(rows)
        done += 1
    return done


def _falls(week: DepartureWeek, pods: _Pods) -> FloatArray:
    """Return how much the potential of its node falls when each pod goes, ``(n,)`` milli."""
    fleet, mix = week.fleet, week.classes.mix
    nodes = fleet.nodes[pods.row]
    gpu_free = nodes.gpu_free.copy()
    places = [week.running[number].place for number in pods.number.tolist()]
    position = np.repeat(np.arange(len(places)), [len(place.gpus) for place in places])
    slots = np.array([slot for place in places for slot in place.gpus], np.int64)
    gpu_free[position, slots] += mix.gpu_milli[pods.kind[position]]
    without = GpuNodes(nodes.cpu_free + mix.cpu_milli[pods.kind], gpu_free, nodes.kind)
    potential = fleet.policy.potential
    falls: FloatArray = potential(nodes) - potential(without)
    return falls


def _growth(fleet: GpuFleet, kind: int, place: FleetPlace) -> float:
    """Return how much the potential of a node grows with a pod of a class."""
    request = fleet.classes.requests[kind]
    before = fleet.nodes[np.array([place.row])]
    gpu_free = before.gpu_free.copy()
    gpu_free[0, list(place.gpus)] -= request.gpu_milli
    after = GpuNodes(before.cpu_free - request.cpu_milli, gpu_free, before.kind)
    potential = fleet.policy.potential
    return float((potential(after) - potential(before))[0])
