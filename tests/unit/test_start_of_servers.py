"""End-to-end tests wait for a server by the CPU time that it gets, on a busy machine as well."""

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlaneError, endpoint
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.controlplane.processes import ProcessGroup, Program
from tests.e2e.waiting import eventually

SERVER = Endpoint(9)  # the port discard: nothing listens
MINUTES_LATE = 10
WORK_S = 0.2

Start = Callable[[list[str]], Program]


@pytest.fixture
def _slow_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a minute pass from each look at the clock to the next one."""
    minutes = itertools.count()
    clock = SimpleNamespace(monotonic=lambda: 60.0 * next(minutes), sleep=lambda _: None)
    monkeypatch.setattr(endpoint, "time", clock)


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start programs, which end with the test."""
    group, started = ProcessGroup(), list[Program]()

    def begin(command: list[str]) -> Program:
        started.append(Program("worker", command, tmp_path / "log", group))
        started[-1].start()
        return started[-1]

    yield begin
    group.kill()
    for each in started:
        each.stop()


def answer_after(monkeypatch: pytest.MonkeyPatch, refusals: int) -> None:
    """Make the server refuse so many requests, and answer the next ones."""
    left = iter(range(refusals))

    def request(*_: Any, **__: Any) -> str:
        if next(left, None) is not None:
            raise ConnectionRefusedError("refused")
        return "ok"

    monkeypatch.setattr(Endpoint, "request", request)


def readings(*cpu_s: float) -> Callable[[], float]:
    """Return a function that returns one value after the other, and the last one for ever."""
    left = itertools.chain(cpu_s, itertools.repeat(cpu_s[-1]))
    return lambda: next(left)


@pytest.mark.usefixtures("_slow_machine")
def test_a_server_may_take_minutes_on_a_busy_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has had hardly any CPU time."""
    answer_after(monkeypatch, refusals=MINUTES_LATE)

    SERVER.wait_until_ready("/readyz", readings(0.5, 1.0, 2.0))


@pytest.mark.parametrize("cpu_s", [(1.0, 200.0), (1.0,)], ids=["busy", "idle"])
@pytest.mark.usefixtures("_slow_machine")
def test_a_server_that_never_becomes_ready_is_an_error(
    monkeypatch: pytest.MonkeyPatch, cpu_s: Sequence[float]
) -> None:
    """A server that works in vain is given up by its CPU time, an idle one at the deadline."""
    answer_after(monkeypatch, refusals=1000)

    with pytest.raises(ControlPlaneError, match=r"not ready after \d+ s of CPU time: refused"):
        SERVER.wait_until_ready("/readyz", readings(*cpu_s))


def test_cpu_time_of_a_program_is_read_while_it_runs(start: Start) -> None:
    """The time of all its threads since its start."""
    work = "import signal, time\nwhile time.process_time() < 0.21:\n    pass\nsignal.pause()"
    program = start([sys.executable, "-c", work])

    eventually(lambda: program.read_cpu_s() >= WORK_S, timeout_s=60)


def test_a_program_that_has_ended_is_not_waited_for(start: Start) -> None:
    """The error has the exit status of the program."""
    program = start(["sh", "-c", "exit 3"])
    os.waitid(os.P_PID, program.pid, os.WEXITED | os.WNOWAIT)

    with pytest.raises(ControlPlaneError, match="it ended with status 3"):
        SERVER.wait_until_ready("/readyz", program.read_cpu_s)
