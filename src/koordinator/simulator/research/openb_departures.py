"""openb with departures: a virtual week in which pods come, wait, run and go.

Protocol.  Pods are drawn from the list, each with its own length, at least ten minutes.  They come
at a rate at which, without limits, ``load`` times the cluster's GPUs would be in use at any time
(Little's law).  The week begins in that state: pods that would be running then are drawn by their
length, each somewhere in its life, and come first, the oldest first.  A pod that finds no place
waits; whenever room is freed, waiting pods are tried in the order in which they came, and those
that fit nowhere are passed over.  Once in a while a ``mover`` may move pods; a move takes no time
and loses no work, and a pod that is moved ends when it would have ended.
"""

import heapq
from collections import deque
from collections.abc import Callable, Collection, Iterable
from dataclasses import field

import numpy as np

from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.simulator.research.openb import OpenbTrace
from koordinator.simulator.research.openb_fleet import FleetClasses, FleetPlace, GpuFleet

WEEK_S = 7 * 86_400.0
SHORTEST_S = 600.0  # of a pod's length
STEADY_LOAD = 1.05
_PERIOD_S = 3_600.0  # between two looks of the mover


@dataclass(frozen=True, slots=True)
class DrawnPods:
    """Drawn arrivals and durations: ``(n,)`` each, ascending by time."""

    pod: IntArray  # position in ``OpenbTrace.pods``
    time_s: FloatArray
    left_s: FloatArray  # how long the pod runs from its start on
    n_there: int  # the first ones would run already when the week begins
    rank: IntArray  # (n_nodes,) the lowest wins among equal nodes


def draw_departing_pods(
    trace: OpenbTrace, seed: int, load: float = STEADY_LOAD, span_s: float = WEEK_S
) -> DrawnPods:
    """Draw a week.  Raises InputError if no pod of the list has a length, or none has GPUs."""
    lengths = np.array([pod.length_s for pod in trace.pods])
    if not lengths.any():
        problem = "no pod has creation_time and deletion_time; with departures they are needed"
        raise InputError(problem, source=f"pod list {trace.name}")
    lengths = np.maximum(lengths, SHORTEST_S)
    gpu = np.array([pod.total_gpu_milli for pod in trace.pods], float)
    if not gpu.any():
        raise InputError("no pod asks for GPUs", source=f"pod list {trace.name}")
    rng = np.random.default_rng(seed)
    rate = load * trace.gpu_milli / float((gpu * lengths).mean())
    count = int(rng.poisson(rate * lengths.mean()))
    kinds = rng.choice(len(lengths), count, p=lengths / lengths.sum())
    age = rng.uniform(0.0, 1.0, count) * lengths[kinds]
    oldest_first = np.argsort(-age)
    kinds, left = kinds[oldest_first], (lengths[kinds] - age)[oldest_first]
    times = np.sort(rng.uniform(0.0, span_s, int(rng.poisson(rate * span_s))))
    came = rng.integers(0, len(lengths), len(times))
    return DrawnPods(
        pod=np.concatenate((kinds, came)),
        time_s=np.concatenate((np.zeros(count), times)),
        left_s=np.concatenate((left, lengths[came])),
        n_there=count,
        rank=rng.permutation(len(trace.nodes)),
    )


@dataclass(frozen=True, slots=True)
class RunningPod:
    """A pod with a place."""

    kind: int  # number of its class
    place: FleetPlace


@dataclass(frozen=True, slots=True)
class HourOfWeek:
    """State of the cluster at the end of an hour."""

    gpu_used_milli: int
    waiting: int
    moves: int  # so far


@dataclass(frozen=True)
class DepartureResult:
    """Result of a simulated week."""

    policy: str
    seed: int
    gpu_used: float  # mean over the week, as a share of the cluster's GPUs
    mean_wait_s: float  # of the pods that came in the week; who still waits counts until its end
    arrivals: int
    waiting: int  # at the end
    moves: int
    hours: tuple[HourOfWeek, ...]

    @property
    def moves_per_1000(self) -> float:
        """Moves per 1,000 arrivals."""
        return 1000.0 * self.moves / max(self.arrivals, 1)


@dataclass(slots=True)
class _Waiting:
    number: int
    since_s: float
    left_s: float


@dataclass
class DepartureWeek:
    """The state of a week under way; pods are known by their number in ``DrawnPods``."""

    fleet: GpuFleet
    drawn: DrawnPods
    running: dict[int, RunningPod] = field(default_factory=dict)
    now_s: float = 0.0
    gpu_used_milli: int = 0
    moves: int = 0
    arrived: int = 0  # in the week

    def __post_init__(self) -> None:
        classes = self.classes
        self.on_row: list[set[int]] = [set() for _ in range(len(self.fleet))]
        #: (n_classes,) how many pods wait
        self.n_waiting: IntArray = np.zeros(len(classes.requests), np.int64)
        self._queues: list[deque[_Waiting]] = [deque() for _ in classes.requests]
        self._ends: list[tuple[float, int]] = []
        self.capacity_milli = int(np.maximum(self.fleet.gpu_free, 0).sum())
        self._used_milli_s = 0.0
        self._waited_s = 0.0

    @property
    def classes(self) -> FleetClasses:
        """The classes of the trace."""
        return self.fleet.classes

    def run(
        self, mover: "Callable[[DepartureWeek], None] | None" = None, span_s: float = WEEK_S
    ) -> tuple[HourOfWeek, ...]:
        """Run the week; call the mover every hour."""
        hours: list[HourOfWeek] = []
        number, n_drawn = 0, len(self.drawn.pod)
        hour_s = _PERIOD_S
        while True:
            comes_s = float(self.drawn.time_s[number]) if number < n_drawn else np.inf
            ends_s = self._ends[0][0] if self._ends else np.inf
            if min(comes_s, ends_s, hour_s) > span_s:
                self._advance(span_s)
                return tuple(hours)
            if hour_s <= comes_s and hour_s <= ends_s:
                self._advance(hour_s)
                if mover is not None:
                    mover(self)
                waiting = int(self.n_waiting.sum())
                hours.append(HourOfWeek(self.gpu_used_milli, waiting, self.moves))
                hour_s += _PERIOD_S
            elif ends_s <= comes_s:
                self._end_next()
            else:
                self._advance(comes_s)
                self._arrive(number)
                number += 1

    def result(self, policy: str, seed: int, hours: tuple[HourOfWeek, ...]) -> DepartureResult:
        """Return the figures so far."""
        wait_s = self._waited_s + sum(
            self.now_s - each.since_s
            for queue in self._queues
            for each in queue
            if each.number >= self.drawn.n_there
        )
        return DepartureResult(
            policy=policy,
            seed=seed,
            gpu_used=self._used_milli_s / (self.capacity_milli * max(self.now_s, 1.0)),
            mean_wait_s=wait_s / max(self.arrived, 1),
            arrivals=self.arrived,
            waiting=int(self.n_waiting.sum()),
            moves=self.moves,
            hours=hours,
        )

    # -- what movers do ----------------------------------------------------------------------

    def move(self, number: int, place: FleetPlace) -> None:
        """Move a pod to a place that has room."""
        self._relocate({number: place})

    def swap(self, one: int, other: int) -> None:
        """Swap two pods with equal GPU requests, as two moves."""
        places = {one: self.running[other].place, other: self.running[one].place}
        self._relocate(places)

    def relocate_all(self, places: dict[int, FleetPlace]) -> None:
        """Move many pods at once; who stays is no move."""
        self._relocate(
            {
                number: place
                for number, place in places.items()
                if place != self.running[number].place
            }
        )

    def admit(self, rows: Collection[int]) -> None:
        """Try waiting pods, in the order in which they came, after room was freed on rows.

        Who waits has no room anywhere else.
        """
        fitting = self._able(rows)
        heads = [(self._queues[kind][0].number, kind) for kind in np.flatnonzero(fitting).tolist()]
        heapq.heapify(heads)
        while heads:
            _, kind = heapq.heappop(heads)
            if not fitting[kind]:
                continue
            queue = self._queues[kind]
            if self._start(queue[0], kind, rows):
                queue.popleft()
                self.n_waiting[kind] -= 1
                if queue:
                    heapq.heappush(heads, (queue[0].number, kind))
                fitting = self._able(rows)

    # -- parts -------------------------------------------------------------------------------

    def _relocate(self, places: dict[int, FleetPlace]) -> None:
        for number in places:
            pod = self.running[number]
            self.fleet.give_back(pod.kind, pod.place)
            self.on_row[pod.place.row].discard(number)
        for number, place in places.items():
            kind = self.running[number].kind
            self.fleet.take(kind, place)
            self.running[number] = RunningPod(kind, place)
            self.on_row[place.row].add(number)
        self.moves += len(places)

    def _able(self, rows: Iterable[int]) -> BoolArray:
        fitting = np.zeros(len(self.n_waiting), bool)
        for row in rows:
            fitting |= self.fleet.fitting(row)
        return fitting & (self.n_waiting > 0)

    def _advance(self, to_s: float) -> None:
        self._used_milli_s += self.gpu_used_milli * (to_s - self.now_s)
        self.now_s = to_s

    def _arrive(self, number: int) -> None:
        kind = int(self.classes.of_pod[self.drawn.pod[number]])
        self.fleet.arrive()
        self.arrived += number >= self.drawn.n_there
        waiting = _Waiting(number, self.now_s, float(self.drawn.left_s[number]))
        if self.n_waiting[kind] or not self._start(waiting, kind):
            self._queues[kind].append(waiting)
            self.n_waiting[kind] += 1

    def _start(self, pod: _Waiting, kind: int, among: Collection[int] = ()) -> bool:
        if len(among) == 1:
            place = self.fleet.choose_on(kind, next(iter(among)))
        else:
            place = self.fleet.choose(kind)
        if place is None:
            return False
        self.fleet.take(kind, place)
        self.running[pod.number] = RunningPod(kind, place)
        self.on_row[place.row].add(pod.number)
        heapq.heappush(self._ends, (self.now_s + pod.left_s, pod.number))
        self.gpu_used_milli += int(self.classes.mix.total_gpu_milli[kind])
        if pod.number >= self.drawn.n_there:
            self._waited_s += self.now_s - pod.since_s
        return True

    def _end_next(self) -> None:
        ends_s, number = heapq.heappop(self._ends)
        self._advance(ends_s)
        pod = self.running.pop(number)
        self.on_row[pod.place.row].discard(number)
        self.fleet.give_back(pod.kind, pod.place)
        self.gpu_used_milli -= int(self.classes.mix.total_gpu_milli[pod.kind])
        self.admit((pod.place.row,))
