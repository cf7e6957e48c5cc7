"""A process ends when it is asked to, and at once when it is asked twice."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

PATIENCE_S = 60  # real time, never used up if the code is right
Start = Callable[[str], "subprocess.Popen[str]"]

CODE = """
import sys
from koordinator.process.termination import stop_on_signals
stopping = stop_on_signals()
print("ready", flush=True)
stopping.wait()
print("stopping", flush=True)
{then}
"""


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process that runs the code above."""
    processes: list[subprocess.Popen[str]] = []

    def run(then: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", CODE.format(then=then)], stdout=subprocess.PIPE, text=True
        )
        processes.append(process)
        assert line_of(process) == "ready\n"
        return process

    yield run
    for process in processes:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_first_signal_requests_termination(start: Start, number: signal.Signals) -> None:
    """The process decides how to end."""
    process = start("sys.exit(7)")
    os.kill(process.pid, number)

    assert line_of(process) == "stopping\n"
    assert process.wait(PATIENCE_S) == 7


def test_second_signal_ends_the_process_immediately(start: Start) -> None:
    """The second signal works even if the main thread never handles signals."""
    process = start("while True: pass")
    os.kill(process.pid, signal.SIGTERM)
    assert line_of(process) == "stopping\n"
    os.kill(process.pid, signal.SIGTERM)

    assert process.wait(PATIENCE_S) == 1
