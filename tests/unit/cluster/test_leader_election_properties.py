"""Never two leaders, whatever happens to requests, processes and clocks; and always one soon.

Each elector runs in a thread that a schedule advances, from one end of a request to the
next: so any interleaving of requests, and a process stopped anywhere, is just a schedule.
"""

import threading
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.api.control_plane import Lease
from koordinator.api.kubescheduler.config import RETRY_JITTER
from koordinator.cluster.leader_election import LeaderElector
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError

ResultT = TypeVar("ResultT")

LEASE_S, DEADLINE_S, RETRY_S = 15, 10, 2
FASTEST, SLOWEST = 1.22, 0.82  # just within the assumption: FASTEST / SLOWEST < LEASE / DEADLINE
ROUNDING_S = 1e-6  # a true time is computed from a process's own so exactly, or better


class OwnClock:
    """Clock of a process, with an offset and a rate of its own."""

    def __init__(self, true: VirtualClock, offset_s: float, rate: float) -> None:
        self._true, self._offset_s, self._rate = true, offset_s, rate

    def now_s(self) -> float:
        return self._offset_s + self._rate * self._true.now_s()

    def true_s(self, own_s: float) -> float:
        return (own_s - self._offset_s) / self._rate


class Process:
    """A process with an elector, and its connection to the cluster."""

    def __init__(self, cluster: MemoryCluster, clock: OwnClock, identity: str) -> None:
        self._cluster = cluster
        self._thread: threading.Thread | None = None
        self._go, self._stopped = threading.Semaphore(0), threading.Semaphore(0)
        self._loses = False
        self.releases = False
        self.clock = clock
        self.elector = elector(self, clock, identity)  # type: ignore[arg-type]  # what it needs

    def step(self, *, loses: bool = False) -> None:
        """Begin an attempt, or bring its request to the server or the answer back, or lose it."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._act)
            self._thread.start()
        else:
            self._loses = loses
            self._go.release()
        self._stopped.acquire()

    @property
    def is_idle(self) -> bool:
        return self._thread is None

    @property
    def is_done(self) -> bool:
        return self.is_idle and (self.elector.lost or self.releases)

    def finish(self) -> None:
        while not self.is_idle:
            self.step(loses=True)

    def get(self, kind: type[Lease], name: str, namespace: str) -> Lease:
        return self._request(lambda: self._cluster.get(kind, name, namespace))

    def create(self, lease: Lease) -> Lease:
        return self._request(lambda: self._cluster.create(lease))

    def update(self, lease: Lease) -> Lease:
        return self._request(lambda: self._cluster.update(lease))

    def report(self, _events: Sequence[object]) -> None:
        """Events are for people."""

    def _act(self) -> None:
        if self.releases:
            self.elector.release()
        else:
            self.elector.attempt()
        self._thread = None
        self._stopped.release()

    def _request(self, carry_out: Callable[[], ResultT]) -> ResultT:
        self._travel()
        try:
            return carry_out()
        finally:
            self._travel()

    def _travel(self) -> None:
        self._stopped.release()
        self._go.acquire()
        if self._loses:
            raise ClusterError("connection reset")


def elector(cluster: MemoryCluster, clock: OwnClock, identity: str) -> LeaderElector:
    return LeaderElector(
        cluster,
        clock,
        np.random.default_rng(len(identity)),
        identity=identity,
        namespace="kube-system",
        name="koord-scheduler",
        lease_duration_s=LEASE_S,
        renew_deadline_s=DEADLINE_S,
        retry_period_s=RETRY_S,
    )


clocks = st.tuples(
    st.floats(-1e6, 1e6), st.one_of(st.sampled_from([SLOWEST, 1, FASTEST]), st.floats(0.82, 1.22))
)
someone = st.integers(0, 2)
moves = st.one_of(
    st.tuples(st.sampled_from(["steps", "steps", "loses"]), someone, st.integers(1, 3)),
    st.tuples(st.just("runs alone"), someone, st.sampled_from([0.1, 3, 6, 12, 20])),  # seconds
    st.tuples(st.just("stands still"), st.just(0), st.sampled_from([0.1, 1, 4, 7])),  # all of them
    st.tuples(st.just("is asked to stop"), someone, st.just(0)),
)


SAME_CLOCKS = [(0.0, 1.0), (0.0, 1.0), (0.0, 1.0)]
SLOW_ANSWER = [  # what counts is when the server got the request
    ("runs alone", 0, 3),
    ("steps", 0, 2),
    ("runs alone", 1, 0.1),
    ("stands still", 0, 7),
    ("steps", 0, 1),
    ("runs alone", 1, 12),
]
BOTH_SEE_IT_FREE = [
    ("runs alone", 2, 0.1),
    ("is asked to stop", 2, 0),
    ("steps", 2, 5),
    ("steps", 0, 3),
    ("steps", 1, 3),
    ("steps", 0, 2),
    ("steps", 1, 2),
]


class Election:
    """Up to three machines on which a process is started again whenever one has ended."""

    def __init__(self, clocks: list[tuple[float, float]]) -> None:
        self.true = VirtualClock()
        self._cluster = MemoryCluster(self.true)
        self._started = 0
        self.processes = [self._start(OwnClock(self.true, *clock)) for clock in clocks]

    def _start(self, clock: OwnClock) -> Process:
        self._started += 1
        return Process(self._cluster, clock, f"p{self._started}")

    def move(self, what: str, i: int, much: float) -> None:
        i %= len(self.processes)
        if what == "runs alone":
            self._run(i, self.true.now_s() + much)
        elif what == "stands still":
            self.true.advance_to(self.true.now_s() + much)
        elif what == "is asked to stop":
            self.processes[i].releases |= self.processes[i].is_idle
        else:
            for _ in range(int(much)):
                self._step(i, loses=what == "loses")
        self.check()

    def check(self) -> None:
        assert sum(process.elector.is_leader() for process in self.processes) <= 1

    def _run(self, i: int, until_s: float) -> None:
        """Run the attempt of one process if it is due; its requests take no time."""
        while True:
            process = self.processes[i]
            if process.is_idle:
                due_s = process.clock.true_s(process.elector.next_attempt_s)
                self.true.advance_to(min(due_s + ROUNDING_S, until_s))
                if due_s > until_s:
                    return
            self._step(i)

    def _step(self, i: int, *, loses: bool = False) -> None:
        process = self.processes[i]
        process.step(loses=loses)
        if process.is_done:
            self.processes[i] = self._start(process.clock)
        self.check()


@pytest.mark.slow
@settings(max_examples=examples(60), deadline=None)
@given(st.lists(clocks, min_size=2, max_size=3), st.lists(moves, min_size=10, max_size=60))
@example(SAME_CLOCKS, SLOW_ANSWER)
@example(SAME_CLOCKS, BOTH_SEE_IT_FREE)
@pytest.mark.integration
def test_never_two_may_act(
    clocks: list[tuple[float, float]], moves: list[tuple[str, int, float]]
) -> None:
    """At no true time do two processes believe that they lead."""
    election = Election(clocks)
    try:
        for move in moves:
            election.move(*move)
    finally:
        for process in election.processes:
            process.finish()


@settings(max_examples=examples(25), deadline=None)
@given(st.lists(clocks, min_size=2, max_size=3), st.floats(0, 100))
def test_the_next_one_leads_soon(clocks: list[tuple[float, float]], death_s: float) -> None:
    """After a leader dies, at most a lease and a retry pass, by the slowest clock."""
    true = VirtualClock()
    cluster = MemoryCluster(true)
    own_clocks = [OwnClock(true, *clock) for clock in clocks]
    alive = [(elector(cluster, clock, f"p{i}"), clock) for i, clock in enumerate(own_clocks)]
    run(alive, true, death_s)
    (dead,) = [each for each, _ in alive if each.is_leader()]

    alive = [(each, clock) for each, clock in alive if each is not dead]
    run(alive, true, death_s + (LEASE_S + RETRY_S * RETRY_JITTER) / SLOWEST + 10 * ROUNDING_S)
    assert [each.is_leader() for each, _ in alive].count(True) == 1


def run(alive: list[tuple[LeaderElector, OwnClock]], true: VirtualClock, until_s: float) -> None:
    """Run the attempts of electors when they are due; requests take no time."""
    while True:
        due_s, i = min(
            (clock.true_s(each.next_attempt_s), i) for i, (each, clock) in enumerate(alive)
        )
        if due_s > until_s:
            true.advance_to(until_s)
            return
        true.advance_to(due_s + ROUNDING_S)
        alive[i][0].attempt()
