"""Progress of a run: a live display on a terminal, a line at intervals elsewhere.

Reads the recorder's latest sample and writes to the console, only when ``update`` is called.
"""

from types import TracebackType
from typing import Self

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from koordinator.foundation.clock import Clock, SystemClock
from koordinator.simulator.numerals import UNKNOWN, NumberUnit, count, duration, percent
from koordinator.simulator.run_report import NodeGroup, RunRecorder, RunSample

_REDRAW_EVERY_S = 0.1
_LINE_EVERY_S = 5.0
_BAR_COLUMNS = 40


class LiveView:
    """Context manager that shows the progress of a recorder's run.

    ``ends_s`` is the virtual time of the run's end.  The default console is standard error, which
    keeps results on standard output clean.
    """

    def __init__(
        self,
        recorder: RunRecorder,
        *,
        ends_s: float,
        console: Console | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._recorder = recorder
        self._ends_s = ends_s
        self._console = console or Console(stderr=True)
        self._clock = clock or SystemClock()
        self._drawn_at_s = self._clock.now_s()
        self._drawn: RunSample | None = None
        is_animated = self._console.is_terminal and not self._console.is_dumb_terminal
        self._live = Live(console=self._console, auto_refresh=False) if is_animated else None

    def __enter__(self) -> Self:
        if self._live:
            self._live.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Show the last state, also after an error."""
        self._draw()
        if self._live:
            self._live.stop()

    def update(self) -> None:
        """Show the latest sample if the redraw interval has passed; cheap to call often."""
        every_s = _REDRAW_EVERY_S if self._live else _LINE_EVERY_S
        if self._clock.now_s() - self._drawn_at_s >= every_s:
            self._draw()

    def _draw(self) -> None:
        sample = self._recorder.latest
        self._drawn_at_s = self._clock.now_s()
        if sample is None or sample is self._drawn:
            return
        self._drawn = sample
        if self._live:
            self._live.update(self._snapshot(sample), refresh=True)
        else:
            self._console.print(self._line(sample), soft_wrap=True)

    def _snapshot(self, sample: RunSample) -> RenderableType:
        bars = Table.grid(padding=(0, 2))
        bars.add_column(no_wrap=True)
        bars.add_column(width=_BAR_COLUMNS)
        bars.add_column(justify="right", no_wrap=True)
        bars.add_row(
            Text("virtual time", "bold"), _bar(self._done(sample), "cyan"), self._time(sample)
        )
        for group in self._recorder.groups:
            share, resource = _main_share(group, sample)
            bars.add_row(Text(group.name), _bar(share, "green"), f"{percent(share)} {resource}")
        return Group(Text(self._recorder.title, "bold"), bars, Text(" · ".join(_facts(sample))))

    def _line(self, sample: RunSample) -> Text:
        shares = (
            f"{group.name} {percent(share)} {resource}"
            for group in self._recorder.groups
            for share, resource in (_main_share(group, sample),)
        )
        return Text(" · ".join([self._time(sample), *_facts(sample), *shares]))

    def _time(self, sample: RunSample) -> str:
        started_s = self._recorder.started_s
        return f"{duration(sample.time_s - started_s)} of {duration(self._ends_s - started_s)}"

    def _done(self, sample: RunSample) -> float:
        span_s = self._ends_s - self._recorder.started_s
        return (sample.time_s - self._recorder.started_s) / span_s if span_s > 0 else 1.0


def _bar(share: float, colour: str) -> ProgressBar:
    return ProgressBar(
        total=1.0,
        completed=min(max(share, 0.0), 1.0),
        width=_BAR_COLUMNS,
        complete_style=colour,
        finished_style=colour,
    )


def _main_share(group: NodeGroup, sample: RunSample) -> tuple[float, str]:
    """Return the allocated share of the group's main resource, GPU or CPU."""
    allocation = sample.allocated[group.name]
    return (allocation.gpu, "GPU") if group.gpus else (allocation.cpu, "CPU")


def _facts(sample: RunSample) -> list[str]:
    is_rated = sample.scheduling_s > 0
    rate = NumberUnit.RATE.text(sample.decisions / sample.scheduling_s) if is_rated else UNKNOWN
    return [
        f"{count(sample.pending)} pending",
        f"{count(sample.running)} running",
        f"{count(sample.finished)} finished",
        f"{count(sample.failed)} failed",
        f"{rate} decisions",
    ]
