"""Charts of an experiment as SVG: a line per policy, with the range over the seeds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final

import numpy as np

from koordinator.foundation.arrays import FloatArray
from koordinator.simulator.experiments.definition import as_file_name
from koordinator.simulator.experiments.store import RunRecord
from koordinator.simulator.experiments.tables import Panel
from koordinator.simulator.optional import library

_SIZE: Final = (7.0, 3.6)  # inches
_DASHES: Final = (
    "solid",
    "dashed",
    "dashdot",
    "dotted",
)  # lines that cover each other stay visible
_HOUR_S: Final = 3600.0
_PERCENT: Final = 100.0

RunCurve = tuple[FloatArray, FloatArray]  # x and y of a run


@dataclass(frozen=True, slots=True)
class Chart:
    """Drawn chart; ``kind`` is allocation, fragmentation, waiting or completion."""

    kind: str
    panel: str
    title: str
    svg: bytes

    @property
    def file_name(self) -> str:
        """Name of the file: kind and comparison."""
        return f"{self.kind}-{as_file_name(self.panel)}.svg"


def draw_charts(panels: Sequence[Panel]) -> Iterator[Chart]:
    """Yield the charts of each comparison.  Raises InputError without matplotlib."""
    for panel in panels:
        yield from _panel_charts(panel)


def _panel_charts(panel: Panel) -> Iterator[Chart]:
    hours = "virtual time, h"
    if any(record.allocation for records in panel.policies.values() for record in records):
        demand = "GPU demand arrived, % of the cluster"
        yield from _chart(panel, "allocation", "GPUs allocated, %", demand, _arrivals)
    else:
        yield from _chart(
            panel, "allocation", "GPUs allocated, %", hours, _samples("gpu_allocated")
        )
        title = "Free GPUs that a typical pod cannot use, %"
        yield from _chart(panel, "fragmentation", title, hours, _samples("gpu_fragmentation"))
        title = "Jobs that started within the time, % of started jobs"
        yield from _chart(panel, "waiting", title, "waiting time, h", _shares("queued_s"))
    title = "Jobs completed within the time, % of completed jobs"
    yield from _chart(panel, "completion", title, "completion time, h", _shares("completion_s"))


def _chart(
    panel: Panel, kind: str, title: str, x_label: str, curve: Callable[[RunRecord], RunCurve]
) -> Iterator[Chart]:
    """Yield the chart unless no run has values for it."""
    curves = {
        policy: [own for own in map(curve, records) if len(own[0])]
        for policy, records in panel.policies.items()
    }
    if not any(curves.values()):
        return
    figure = library("matplotlib.figure").Figure(figsize=_SIZE, layout="constrained")
    axes = figure.add_subplot()
    for number, (policy, of_policy) in enumerate(curves.items()):
        if not of_policy:
            continue
        x, middle, low, high = _over_seeds(of_policy)
        style = _DASHES[number % len(_DASHES)]
        (line,) = axes.plot(x, middle, label=policy, color=f"C{number % 10}", linestyle=style)
        if len(of_policy) > 1:
            axes.fill_between(x, low, high, color=line.get_color(), alpha=0.15, linewidth=0)
    axes.set_xlabel(x_label)
    axes.set_ylabel("%")
    axes.set_title(f"{title} – {panel.name}", fontsize="medium")  # noqa: RUF001 -- a dash
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    content = BytesIO()
    with library("matplotlib").rc_context({"svg.hashsalt": "koordinator"}):  # equal ids each time
        figure.savefig(content, format="svg", metadata={"Date": None})
    yield Chart(kind, panel.name, title, content.getvalue())


def _over_seeds(curves: Sequence[RunCurve]) -> tuple[FloatArray, ...]:
    """Return all x of the runs, and mean, lowest and highest y of the runs that reach each."""
    x = np.unique(np.concatenate([own for own, _ in curves]))
    rows = [np.interp(x, *own, left=np.nan, right=np.nan) for own in curves]
    known = np.ma.masked_invalid(np.stack(rows))
    return x, *(part.filled(np.nan) for part in (known.mean(0), known.min(0), known.max(0)))


def _arrivals(record: RunRecord) -> RunCurve:
    return (
        np.array(list(record.allocation), np.float64),
        np.array(list(record.allocation.values()), np.float64),
    )


def _samples(column: str) -> Callable[[RunRecord], RunCurve]:
    """Return the curve of a share over time; a sample without the share is left out."""

    def curve(record: RunRecord) -> RunCurve:
        times = np.array(record.samples.get("time_s", ()), np.float64) / _HOUR_S
        values: Any = record.samples.get(column, ())
        shares = np.array([np.nan if v is None else v for v in values], np.float64) * _PERCENT
        known = ~np.isnan(shares)
        return times[known], shares[known]

    return curve


def _shares(field: str) -> Callable[[RunRecord], RunCurve]:
    """Return the distribution function of the jobs' times."""

    def curve(record: RunRecord) -> RunCurve:
        times, counts = np.unique(getattr(record, field), return_counts=True)
        if not len(times):
            return np.empty(0), np.empty(0)
        return times / _HOUR_S, np.cumsum(counts) / counts.sum() * _PERCENT

    return curve
