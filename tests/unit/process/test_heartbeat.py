"""A process lives while its loop does."""

import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from koordinator.foundation.clock import VirtualClock
from koordinator.process.health import PING, HealthEndpoint, Indicators
from koordinator.process.leadership import COMPUTING_FACTOR, Heartbeat

DEADLINE_S = 60.0


class Loop:
    """A thread with a heartbeat, which does something once and then comes round no more."""

    def __init__(self, does: Callable[[], object]) -> None:
        self.clock = VirtualClock()
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(does,), daemon=True)
        self._thread.start()
        self._began.wait()

    def _run(self, does: Callable[[], object]) -> None:
        self.heartbeat = Heartbeat(self.clock, DEADLINE_S)
        self.heartbeat.beat()
        self._began.set()
        does()

    def settle(self) -> None:
        """Wait until the thread blocks.

        A thread that only waits for its turn on a busy machine uses no CPU either, but is runnable.
        """
        before = None
        while (now := self._state()) != before or now[0] != "S":
            before = now
            threading.Event().wait(0.02)

    def work(self) -> None:
        """Wait until the thread has used CPU."""
        before = self.heartbeat._used_s()
        while self.heartbeat._used_s() == before:
            threading.Event().wait(0.01)

    def _state(self) -> tuple[str, float]:
        """Return the state of the thread in the kernel, and the CPU time that it has used."""
        stat = Path(f"/proc/self/task/{self._thread.native_id}/stat").read_text("ascii")
        return stat.rpartition(")")[2].split()[0], self.heartbeat._used_s()

    def end(self) -> None:
        self._thread.join(5)


@pytest.fixture
def on_a_fifo(tmp_path: Path) -> Iterator[Loop]:
    """Read a FIFO that has no writer."""
    path = tmp_path / "fifo"
    os.mkfifo(path)
    loop = Loop(path.read_bytes)
    yield loop
    os.close(os.open(path, os.O_WRONLY))
    loop.end()


@pytest.fixture
def on_a_lock() -> Iterator[Loop]:
    """Wait for a lock that is never released."""
    lock = threading.Lock()
    lock.acquire()
    loop = Loop(lock.acquire)
    yield loop
    lock.release()
    loop.end()


@pytest.fixture
def computing() -> Iterator[Loop]:
    """Compute for ever."""
    stop = threading.Event()

    def compute() -> None:
        while not stop.is_set():
            sum(range(1000))

    loop = Loop(compute)
    yield loop
    stop.set()
    loop.end()


@pytest.mark.parametrize("name", ["on_a_fifo", "on_a_lock"])
def test_blocked_loop_is_unhealthy(name: str, request: pytest.FixtureRequest) -> None:
    """Livez fails with the reason after the deadline, not before."""
    loop: Loop = request.getfixturevalue(name)
    livez = HealthEndpoint("livez", [PING, loop.heartbeat.check], Indicators())
    loop.settle()
    loop.clock.advance_to(1)
    assert livez.report().healthy
    loop.clock.advance_to(DEADLINE_S)
    assert livez.report().healthy

    loop.clock.advance_to(DEADLINE_S + 2)
    verdict = livez.report()

    assert not verdict.healthy
    assert (
        "[-]loop failed: no heartbeat for 62 s, the loop waits; at most 60 s is allowed"
        in verdict.text
    )


def test_log_shows_the_stack_of_a_hanging_loop(
    on_a_lock: Loop, caplog: pytest.LogCaptureFixture
) -> None:
    """Once, however often the kubelet asks."""
    on_a_lock.settle()
    on_a_lock.clock.advance_to(1)
    assert not on_a_lock.heartbeat.problem()
    on_a_lock.clock.advance_to(DEADLINE_S + 2)
    assert on_a_lock.heartbeat.problem()
    assert on_a_lock.heartbeat.problem()

    (record,) = [each for each in caplog.records if each.getMessage() == "loop hangs"]
    assert "test_heartbeat.py" in vars(record)["at"]


def test_long_computation_is_healthy(computing: Loop) -> None:
    """A list of 5,000 nodes, the plan of a large gang; one without end is found, too."""
    for minutes in range(1, COMPUTING_FACTOR):
        computing.clock.advance_to(minutes * 60.0)
        computing.work()
        assert computing.heartbeat.problem() == ""

    computing.clock.advance_to(DEADLINE_S * COMPUTING_FACTOR + 1)
    computing.work()
    assert "the loop computes; at most 600 s is allowed" in computing.heartbeat.problem()


def test_loop_that_resumes_is_healthy() -> None:
    """A step that took too long is no failure once it has ended."""
    clock = VirtualClock()
    heartbeat = Heartbeat(clock, DEADLINE_S)
    clock.advance_to(DEADLINE_S * COMPUTING_FACTOR + 1)
    assert heartbeat.problem()

    heartbeat.beat()
    assert heartbeat.problem() == ""


def test_thread_that_ends_between_two_probes_has_not_worked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The kernel knows an ended thread for a moment, then its CPU time can't be found out."""
    loop = Loop(lambda: None)
    loop.end()
    used = iter((0.5, 0.0))
    monkeypatch.setattr(Heartbeat, "_used_s", lambda _: next(used))
    loop.heartbeat.problem()
    loop.clock.advance_to(DEADLINE_S + 2)

    assert "the loop waits" in loop.heartbeat.problem()


def test_ended_thread_is_unhealthy() -> None:
    """A thread that has ended sends no heartbeat."""
    loop = Loop(lambda: None)
    loop.end()
    loop.clock.advance_to(1)
    loop.heartbeat.problem()
    loop.clock.advance_to(DEADLINE_S + 2)

    assert "the loop waits" in loop.heartbeat.problem()
