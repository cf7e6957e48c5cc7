"""Repacking of the openb cluster by a solver: the most GPU for pending pods with few moves.

A node's *filling* is its number of pods by class.  Column generation finds fillings that use the
GPUs better (``bound.useful_fillings``).  An integer program then assigns these fillings, or the
fillings of other nodes, to nodes, under three conditions: all running pods have a place, no more
pods of a class are admitted than are pending, and the number of moves stays below a limit.

Assignment of GPUs on nodes whose pods change, with few shifts of the remaining pods.
"""

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

import numpy as np

from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.linear_program import IntegerProgram, LinearProgram
from koordinator.simulator.research.bound import useful_fillings
from koordinator.simulator.research.node_packing import NodeShape
from koordinator.simulator.research.openb import OpenbTrace
from koordinator.simulator.research.openb_departures import DepartureWeek
from koordinator.simulator.research.openb_fleet import FleetPlace

_MOST_CHOICES: Final = 200  # of who leaves a node, or shifts on it
_MOST_STEPS: Final = 5000  # of a search for slots

_ROUNDS: Final = 12  # of column generation
_NEAREST: Final = 3  # fillings that are looked at for a node, and nodes for a filling
_MOST_CHANGES: Final = 800  # that the integer program chooses from
_MOST_NODES: Final = 200  # of the solver's search tree
_GAP_MILLI: Final = 200.0  # what a plan may be worse than the best one
_MOST_TRIES: Final = 5


@dataclass(frozen=True, slots=True)
class GpuLayout:
    """Division of a node's GPUs among pods."""

    leaving: list[tuple[int, int]]  # kind, number of the pod
    vacant: list[tuple[int, FleetPlace]]  # kind, for another pod
    shifted: dict[int, FleetPlace]  # pods that get other GPUs of the node


def places_of(nodes: Iterable[GpuLayout | None]) -> dict[int, FleetPlace] | None:
    """Return who goes where, who waits left out; None if the GPUs of a node can't be given out.

    ``nodes`` take in all that leave one of them.
    """
    leaving: dict[int, list[int]] = {}
    vacant: list[tuple[int, FleetPlace]] = []
    places: dict[int, FleetPlace] = {}
    for laid in nodes:
        if laid is None:
            return None
        for kind, number in laid.leaving:
            leaving.setdefault(kind, []).append(number)
        vacant += laid.vacant
        places |= laid.shifted
    for kind, place in vacant:
        if leaving.get(kind):
            places[leaving[kind].pop()] = place
    return None if any(leaving.values()) else places


def lay_out(
    week: DepartureWeek, row: int, leaves: Mapping[int, int], joins: Mapping[int, int]
) -> GpuLayout | None:
    """Return the layout of a node's GPUs after some pods of each kind leave and join it.

    None if that can't be, or is not found in so many steps.
    """
    mix = week.classes.mix
    running = [
        (week.running[number].kind, number)
        for number in sorted(week.on_row[row])
        if mix.num_gpu[week.running[number].kind]
    ]
    joining = sorted(
        itertools.chain.from_iterable([kind] * count for kind, count in joins.items()),
        key=lambda kind: (-int(mix.num_gpu[kind]), -int(mix.gpu_milli[kind]), kind),
    )
    free = week.fleet.gpu_free[row]
    for leaving in itertools.islice(_choices(running, leaves), _MOST_CHOICES):
        left = free.copy()
        for kind, number in leaving:
            left[list(week.running[number].place.gpus)] += mix.gpu_milli[kind]
        slots = fitted(left, [(int(mix.num_gpu[k]), int(mix.gpu_milli[k])) for k in joining])
        if slots is not None:
            vacant = [
                (kind, FleetPlace(row, gpus)) for kind, gpus in zip(joining, slots, strict=True)
            ]
            return GpuLayout(leaving, vacant, {})
    return _with_others_shifted(week, row, running, leaves, joining)


def _with_others_shifted(
    week: DepartureWeek,
    row: int,
    running: Sequence[tuple[int, int]],
    leaves: Mapping[int, int],
    joining: Sequence[int],
) -> GpuLayout | None:
    """Return a layout that also shifts shares on their node, as few as possible."""
    mix = week.classes.mix
    leaving = next(iter(_choices(running, leaves)))
    staying = [each for each in running if each not in leaving]
    shares = [each for each in staying if mix.gpu_milli[each[0]] < WHOLE_GPU]
    free = week.fleet.gpu_free[row].copy()
    for kind, number in leaving:
        free[list(week.running[number].place.gpus)] += mix.gpu_milli[kind]
    ways = itertools.chain.from_iterable(
        itertools.combinations(shares, count) for count in range(1, len(shares) + 1)
    )
    for shifting in itertools.chain(itertools.islice(ways, _MOST_CHOICES), [tuple(staying)]):
        left = free.copy()
        for kind, number in shifting:
            left[list(week.running[number].place.gpus)] += mix.gpu_milli[kind]
        pods = [*shifting, *((kind, -1) for kind in joining)]
        pods.sort(key=lambda pod: (-int(mix.num_gpu[pod[0]]), -int(mix.gpu_milli[pod[0]]), pod))
        slots = fitted(left, [(int(mix.num_gpu[k]), int(mix.gpu_milli[k])) for k, _ in pods])
        if slots is None:
            continue
        vacant, shifted = [], {}
        for (kind, number), gpus in zip(pods, slots, strict=True):
            place = FleetPlace(row, gpus)
            if number < 0:
                vacant.append((kind, place))
            elif place != week.running[number].place:
                shifted[number] = place
        return GpuLayout(leaving, vacant, shifted)
    return None


def _choices(
    running: Sequence[tuple[int, int]], leaves: Mapping[int, int]
) -> Iterator[list[tuple[int, int]]]:
    """Yield the pods that could leave, by number of each kind."""
    ways = [
        itertools.combinations([pod for pod in running if pod[0] == kind], count)
        for kind, count in sorted(leaves.items())
    ]
    for way in itertools.product(*ways):
        yield [pod for pods in way for pod in pods]


def fitted(free: IntArray, pods: Sequence[tuple[int, int]]) -> list[tuple[int, ...]] | None:
    """Return which GPUs each pod gets, a pod being GPUs and milli of each; None if they can't.

    The pods that are hard to place come first.
    """
    return _Slots(free.tolist(), pods).fit(0)


@dataclass(slots=True)
class _Slots:
    """A search in depth."""

    left: list[int]
    pods: Sequence[tuple[int, int]]
    steps: int = 0

    def fit(self, index: int) -> list[tuple[int, ...]] | None:
        """Return the GPUs of the pods from one on."""
        if index == len(self.pods):
            return []
        self.steps += 1
        if self.steps > _MOST_STEPS:
            return None
        _, milli = self.pods[index]
        for gpus in self._options(*self.pods[index]):
            for slot in gpus:
                self.left[slot] -= milli
            rest = self.fit(index + 1)
            if rest is not None:
                return [gpus, *rest]
            for slot in gpus:
                self.left[slot] += milli
        return None

    def _options(self, number: int, milli: int) -> list[tuple[int, ...]]:
        """Return GPUs for a pod, the tightest first, of equal ones only the last."""
        suitable = [slot for slot, amount in enumerate(self.left) if amount >= milli]
        if len(suitable) < number:
            return []
        if milli == WHOLE_GPU or number > 1:
            return [tuple(sorted(suitable, key=lambda slot: self.left[slot])[:number])]
        by_amount = {self.left[slot]: (slot,) for slot in suitable}
        return [by_amount[amount] for amount in sorted(by_amount)]


@dataclass(frozen=True, slots=True)
class _Changes:
    """Nodes that could get other fillings, ``(n,)`` each."""

    row: IntArray
    column: IntArray
    gain_milli: IntArray
    leaving: IntArray  # pods

    def __len__(self) -> int:
        return len(self.row)

    def __getitem__(self, chosen: IntArray) -> "_Changes":
        return _Changes(
            self.row[chosen], self.column[chosen], self.gain_milli[chosen], self.leaving[chosen]
        )


@dataclass(frozen=True, slots=True)
class _Fillings:
    """Current and possible fillings of nodes; columns are kinds of pods with GPUs."""

    kinds: IntArray  # (n_kinds,) numbers of the classes
    waiting: IntArray  # (n_kinds,) pods
    of_row: IntArray  # (n_rows, n_kinds)
    columns: IntArray  # (n_columns, n_kinds)
    shape_of_row: IntArray  # (n_rows,)
    shape_of_column: IntArray  # (n_columns,)


class Repacking:
    """Plans for one trace's nodes."""

    def __init__(self, trace: OpenbTrace) -> None:
        bits = {model: 1 << bit for bit, model in enumerate(trace.models)}
        self._shapes = [
            NodeShape(node.gpu, node.cpu_milli, bits.get(node.model, 0)) for node in trace.nodes
        ]

    def improve(
        self, week: DepartureWeek, waiting: IntArray, most_moves: int, price_milli: float
    ) -> int:
        """Make moves, admit pending pods, and return the number of moves.

        ``waiting`` is for how many pods of each class ``(n_classes,)`` room is made, at most.  A
        move has to be worth ``price_milli`` of GPU.
        """
        if most_moves < 1 or not (waiting @ week.classes.mix.total_gpu_milli):
            return 0
        fillings = self._fillings(week, waiting)
        changes = _changes(week, fillings)
        if not len(changes):
            return 0
        most = most_moves
        for _ in range(_MOST_TRIES):
            program = _program(fillings, changes, most, price_milli)
            chosen = changes[_chosen(program)]
            if not len(chosen):
                return 0
            places = places_of(_laid_out(week, fillings, chosen))
            if places is not None and len(places) <= most_moves:
                before = week.moves
                week.relocate_all(places)
                week.admit(chosen.row.tolist())
                return week.moves - before
            most -= max(1, 0 if places is None else len(places) - most_moves)
        return 0

    def _fillings(self, week: DepartureWeek, waits: IntArray) -> _Fillings:
        classes = week.classes
        n_rows = len(week.fleet)
        counts = np.zeros((n_rows, len(classes.requests)), np.int64)
        for pod in week.running.values():
            counts[pod.place.row, pod.kind] += 1
        has_gpu = classes.mix.total_gpu_milli > 0
        kinds = np.flatnonzero(has_gpu & (counts.any(axis=0) | (waits > 0)))
        of_row = counts[:, kinds]
        requests = [classes.requests[kind] for kind in kinds.tolist()]
        position = {request: index for index, request in enumerate(requests)}
        nodes = [
            (shape, {requests[i]: int(of_row[row, i]) for i in np.flatnonzero(of_row[row])})
            for row, shape in enumerate(self._shapes)
        ]
        waiting = {
            request: int(waits[kind])
            for request, kind in zip(requests, kinds.tolist(), strict=True)
            if waits[kind]
        }
        shapes = {shape: number for number, shape in enumerate(dict.fromkeys(self._shapes))}
        shape_of_row = np.array([shapes[shape] for shape in self._shapes], np.int64)
        columns = {
            (int(shape_of_row[row]), tuple(of_row[row].tolist())): None for row in range(n_rows)
        }
        for filling in useful_fillings(waiting, nodes, _ROUNDS):
            column = np.zeros(len(kinds), np.int64)
            for request, count in filling.counts.items():
                column[position[request]] = count
            columns[shapes[filling.shape], tuple(column.tolist())] = None
        return _Fillings(
            kinds,
            waits[kinds],
            of_row,
            np.array([counts for _, counts in columns], np.int64),
            shape_of_row,
            np.array([shape for shape, _ in columns], np.int64),
        )


def _changes(week: DepartureWeek, fillings: _Fillings) -> _Changes:
    """Return the changes worth a look: for every node the nearest fillings, and the converse."""
    fleet, mix = week.fleet, week.classes.mix
    gpu, cpu = mix.total_gpu_milli[fillings.kinds], mix.cpu_milli[fillings.kinds]
    memory = week.classes.memory_mib[fillings.kinds]
    changes = []
    for shape in range(int(fillings.shape_of_row.max()) + 1):
        rows = np.flatnonzero(fillings.shape_of_row == shape)
        columns = np.flatnonzero(fillings.shape_of_column == shape)
        have, wanted = fillings.of_row[rows], fillings.columns[columns]
        gains = (wanted @ gpu)[None, :] - (have @ gpu)[:, None]
        leaving = have.sum(axis=1)[:, None] - _in_common(have, wanted)
        cpu_left, memory_left = (
            fleet.cpu_free[rows] + have @ cpu,
            fleet.memory_free[rows] + have @ memory,
        )
        suitable = ((wanted @ cpu)[None, :] <= cpu_left[:, None]) & (
            (wanted @ memory)[None, :] <= memory_left[:, None]
        )
        suitable &= (leaving > 0) | (gains > 0)  # another filling
        keys = np.where(suitable, leaving * 1000.0 - gains / 100.0, np.inf)
        row, column = np.nonzero((_nearest(keys) | _nearest(keys.T).T) & suitable)
        changes.append(
            _Changes(rows[row], columns[column], gains[row, column], leaving[row, column])
        )
    return _Changes(
        np.concatenate([each.row for each in changes]),
        np.concatenate([each.column for each in changes]),
        np.concatenate([each.gain_milli for each in changes]),
        np.concatenate([each.leaving for each in changes]),
    )


def _in_common(have: IntArray, wanted: IntArray) -> IntArray:
    """Return ``(n_rows, n_columns)``: how many pods may stay."""
    common: IntArray = np.zeros((len(have), len(wanted)), np.int64)
    for kind in np.flatnonzero(have.any(axis=0) & wanted.any(axis=0)).tolist():
        some_rows, some_columns = np.flatnonzero(have[:, kind]), np.flatnonzero(wanted[:, kind])
        common[np.ix_(some_rows, some_columns)] += np.minimum(
            have[some_rows, kind][:, None], wanted[some_columns, kind][None, :]
        )
    return common


def _nearest(keys: FloatArray) -> BoolArray:
    """Return which keys are among the lowest of their line."""
    is_near: BoolArray = np.zeros(keys.shape, bool)
    order = np.argsort(keys, axis=1, kind="stable")[:, :_NEAREST]
    np.put_along_axis(is_near, order, np.ones_like(order, bool), axis=1)
    return is_near


@dataclass(frozen=True, slots=True)
class _Program:
    """Integer program of changes: maximize ``values @ x`` with ``lowest <= A @ x <= highest``.

    The rows: each node changes once; the admitted pods of a kind are at most the pending ones, and
    no running pod is lost; the last row has the moves.
    """

    values: FloatArray  # (n_changes,)
    starts: IntArray  # (n_changes,) of the entries below
    rows: IntArray  # (n_entries,)
    coefficients: FloatArray  # (n_entries,)
    lowest: FloatArray  # (n_rows,)
    highest: FloatArray


def _program(
    fillings: _Fillings,
    changes: _Changes,
    most_moves: int,
    price_milli: float,
) -> _Program:
    n_nodes, n_kinds = len(fillings.of_row), len(fillings.kinds)
    difference = fillings.columns[changes.column] - fillings.of_row[changes.row]
    number, kind = np.nonzero(difference)
    every = np.arange(len(changes))
    change = np.concatenate((every, number, every))
    rows = np.concatenate(
        (changes.row, n_nodes + kind, np.full(len(changes), n_nodes + n_kinds, np.int64))
    )
    coefficients = np.concatenate(
        (np.ones(len(changes)), difference[number, kind], changes.leaving)
    ).astype(float)
    order = np.lexsort((rows, change))
    waiting = fillings.waiting.astype(float)
    return _Program(
        changes.gain_milli - price_milli * changes.leaving,
        np.searchsorted(change[order], every),
        rows[order],
        coefficients[order],
        np.concatenate((np.full(n_nodes, -np.inf), np.zeros(n_kinds), [-np.inf])),
        np.concatenate((np.ones(n_nodes), waiting, [float(most_moves)])),
    )


def _chosen(program: _Program) -> IntArray:
    """Return the changes that admit nearly the most GPU, less the price of the moves."""
    few = np.sort(np.argsort(_regrets(program), kind="stable")[:_MOST_CHANGES])
    ends = np.append(program.starts, len(program.rows))
    exact = IntegerProgram()
    rows: dict[int, dict[int, float]] = {}
    for number in few.tolist():
        variable = exact.add_variable(-float(program.values[number]))
        for entry in range(ends[number], ends[number + 1]):
            coefficient = float(program.coefficients[entry])
            rows.setdefault(int(program.rows[entry]), {})[variable] = coefficient
    for row, coefficients in rows.items():
        exact.add_row(float(program.lowest[row]), float(program.highest[row]), coefficients)
    solution = exact.solve(most_nodes=_MOST_NODES, gap=_GAP_MILLI)
    return few[:0] if solution is None else few[solution > 0]


def _regrets(program: _Program) -> FloatArray:
    """Return by how much each change is worse than the best at the prices of the relaxation."""
    is_two_sided = np.isfinite(program.lowest)
    below = len(program.lowest) + np.cumsum(is_two_sided) - 1  # rows that hold -A @ x <= -lowest
    relaxed = LinearProgram(np.concatenate((program.highest, -program.lowest[is_two_sided])))
    change = np.repeat(
        np.arange(len(program.values)), np.diff(np.append(program.starts, len(program.rows)))
    )
    also = np.flatnonzero(is_two_sided[program.rows])
    change = np.concatenate((change, change[also]))
    rows = np.concatenate((program.rows, below[program.rows[also]]))
    coefficients = np.concatenate((program.coefficients, -program.coefficients[also]))
    order = np.lexsort((rows, change))
    starts = np.searchsorted(change[order], np.arange(len(program.values)))
    relaxed.add_columns(program.values, starts, rows[order], coefficients[order])
    prices = relaxed.solve().prices
    costs = np.bincount(change, prices[rows] * coefficients, len(program.values))
    regrets: FloatArray = costs - program.values
    return regrets


def _laid_out(
    week: DepartureWeek, fillings: _Fillings, chosen: _Changes
) -> Iterator[GpuLayout | None]:
    """Yield how the GPUs of each node are given out that gets another filling."""
    for row, column in zip(chosen.row.tolist(), chosen.column.tolist(), strict=True):
        difference = fillings.columns[column] - fillings.of_row[row]
        kinds = fillings.kinds
        leaves = {int(kinds[i]): int(-difference[i]) for i in np.flatnonzero(difference < 0)}
        joins = {int(kinds[i]): int(difference[i]) for i in np.flatnonzero(difference > 0)}
        yield lay_out(week, row, leaves, joins)
