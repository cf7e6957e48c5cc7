"""A run while it goes on."""

from io import StringIO

import pytest
from rich.console import Console

from koordinator.foundation.clock import VirtualClock
from koordinator.simulator.progress import LiveView
from koordinator.simulator.run_report import (
    AllocatedShares,
    NodeGroup,
    RunRecorder,
    RunSample,
)

GPU_NODES = NodeGroup(name="gpu [red]", nodes=1, cpu_cores=30, memory_bytes=100, gpus=8)
CPU_NODES = NodeGroup(name="cpu", nodes=2, cpu_cores=10, memory_bytes=300)


class Run:
    """A recorder that is watched, and what the watcher wrote."""

    def __init__(self, *, is_terminal: bool) -> None:
        self.recorder = RunRecorder(title="test", seed=1, groups=[GPU_NODES, CPU_NODES])
        self.clock = VirtualClock()
        self.out = StringIO()
        console = Console(
            file=self.out, force_terminal=is_terminal, width=100, _environ={"TERM": "xterm"}
        )
        self.view = LiveView(self.recorder, ends_s=1_000.0, console=console, clock=self.clock)

    def sample(self, time_s: float) -> None:
        self.recorder.sample(
            RunSample(
                time_s=time_s,
                pending=3,
                running=1_200,
                finished=4,
                failed=5,
                decisions=700,
                scheduling_s=0.5,
                allocated={
                    "gpu [red]": AllocatedShares(0.1, 0.2, 0.75),
                    "cpu": AllocatedShares(0.5, 0.6),
                },
            )
        )
        self.view.update()


def test_without_a_terminal_a_line_is_written_every_five_seconds() -> None:
    """A hundred samples in 20 s of wall time are four lines, and one for the end."""
    run = Run(is_terminal=False)
    with run.view:
        for n in range(1, 101):
            run.clock.advance_to(n * 0.21)
            run.sample(n * 10.0)
    lines = run.out.getvalue().splitlines()

    assert len(lines) == 5
    assert lines[-1] == (
        "16 min 40 s of 16 min 40 s · 3 pending · 1,200 running · 4 finished · 5 failed · "
        "1,400/s decisions · gpu [red] 75.0% GPU · cpu 50.0% CPU"
    )


def test_the_last_sample_is_written_once() -> None:
    """The end adds no line for a sample that has one."""
    run = Run(is_terminal=False)
    with run.view:
        run.clock.advance_to(10.0)
        run.sample(10.0)

    assert len(run.out.getvalue().splitlines()) == 1


@pytest.mark.parametrize("is_terminal", [True, False])
def test_a_run_without_samples_shows_nothing_false(*, is_terminal: bool) -> None:
    """No sample, no figures."""
    run = Run(is_terminal=is_terminal)
    with run.view:
        run.view.update()

    assert "pending" not in run.out.getvalue()


def test_a_terminal_shows_the_state_of_all_groups() -> None:
    """GPU groups show their GPUs, others their CPUs; names are no style instructions."""
    run = Run(is_terminal=True)
    with run.view:
        run.clock.advance_to(1.0)
        run.sample(500.0)
    shown = run.out.getvalue()

    assert "8 min 20 s of 16 min 40 s" in shown
    assert "gpu [red]" in shown
    assert "75.0% GPU" in shown
    assert "50.0% CPU" in shown
    assert "1,200 running" in shown


def test_a_terminal_is_redrawn_at_most_ten_times_a_second() -> None:
    """A thousand samples in one second of wall time are not a thousand pictures."""
    run = Run(is_terminal=True)
    with run.view:
        for n in range(1_000):
            run.clock.advance_to(n / 1_000)
            run.sample(float(n))

    assert run.out.getvalue().count("virtual time") <= 12
