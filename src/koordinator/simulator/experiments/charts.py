"""Charts of an experiment as SVG: lines over time or demand, and bars by source.

A line or a bar is the mean of a policy over the seeds; the band or the whisker is the range of the
seeds for lines, and the standard deviation for bars.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from io import BytesIO
from typing import Any, Final

import numpy as np

from koordinator.foundation.arrays import FloatArray
from koordinator.foundation.errors import library
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.simulator.experiments.definition import as_file_name
from koordinator.simulator.experiments.store import RunRecord
from koordinator.simulator.experiments.tables import FIGURE_LABELS, Panel, figure_value
from koordinator.simulator.results import DEMAND_AXIS, blank_chart

_DASHES: Final = (
    "solid",
    "dashed",
    "dashdot",
    "dotted",
)  # lines that cover each other stay visible
#: Okabe and Ito's colors, which also differ for color-blind readers, and gray.
_COLORS: Final = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#e69f00",
    "#56b4e9",
    "#000000",
    "#8c8c8c",
)
_IDEAL: Final = "#bbbbbb"  # of the line that no policy has
_WIDEST: Final = 3.0  # points of the first line, so that it is visible below the others
_FEW: Final = 3  # policies
_HOUR_S: Final = 3600.0
_PERCENT: Final = 100.0
_BUSY: Final = 75  # percent of demand from which the unallocated part has a chart of its own
_HOURS: Final = "virtual time, h"

RunCurve = tuple[FloatArray, FloatArray]  # x and y of a run
#: Labels and factors of figures that are drawn as bars; others have their names.
_BAR_LABELS: Final[Mapping[str, tuple[str, float]]] = {
    **FIGURE_LABELS,
    "gpu_unallocated_at_100": ("GPUs not allocated at 100 % demand, %", 1),
    "gpu_unallocated_at_130": ("GPUs not allocated at 130 % demand, %", 1),
    "colocation_suppressed": ("batch CPU demand not granted, %", _PERCENT),
}


@dataclass(frozen=True, slots=True)
class Chart:
    """Drawn chart; ``panel`` is empty for bars, which compare all panels."""

    kind: str
    panel: str
    title: str
    svg: bytes

    @property
    def file_name(self) -> str:
        """Name of the file: kind and comparison."""
        return f"{'-'.join(filter(None, (self.kind, as_file_name(self.panel))))}.svg"


@dataclass(frozen=True, slots=True)
class _Lines:
    """A chart with a line per policy; the part left of ``from_x`` is cut off."""

    kind: str
    title: str
    y_label: str
    x_label: str
    curve: Callable[[RunRecord], RunCurve]
    from_x: float = 0.0
    ideal: bool = False  # with the line of a cluster that allocates all it can
    outside: tuple[float, float] = (np.nan, np.nan)  # y before and after the x of a run


def draw_charts(panels: Sequence[Panel], bars: Sequence[str] = ()) -> Iterator[Chart]:
    """Yield the bars of these figures, then the charts of each comparison.

    Raises InputError without matplotlib.
    """
    for name in bars:
        yield from _bars(panels, name)
    for panel in panels:
        records = [record for own in panel.policies.values() for record in own]
        arrives = any(record.allocation for record in records)
        for lines in (*(_OVER_DEMAND if arrives else _OVER_TIME), _COMPLETION):
            yield from _lines(panel, lines)


def missing_bars(panels: Sequence[Panel], bars: Sequence[str]) -> list[str]:
    """Return the figures that no run has."""
    records = [r for panel in panels for own in panel.policies.values() for r in own]
    return [name for name in bars if all(figure_value(record, name) is None for record in records)]


def _lines(panel: Panel, lines: _Lines) -> Iterator[Chart]:
    """Yield the chart unless no run has values for it."""
    curves = {
        policy: [own for own in map(lines.curve, records) if len(own[0])]
        for policy, records in panel.policies.items()
    }
    reached = [own[0].max() for of_policy in curves.values() for own in of_policy]
    if not reached or max(reached) <= lines.from_x:
        return
    figure, axes = _figure(f"{lines.title}: {panel.name}", lines.x_label, lines.y_label)
    top = 0.0
    for number, (policy, of_policy) in enumerate(curves.items()):
        if not of_policy:
            continue
        x, middle, low, high = _over_seeds(of_policy, lines.outside)
        shown = x >= lines.from_x
        top = max(top, float(np.nanmax(high[shown], initial=0.0)))
        style = _DASHES[number % len(_DASHES)]
        color = _COLORS[number % len(_COLORS)]
        width = _WIDEST - number * (_WIDEST - 1.0) / len(curves)
        axes.plot(
            x[shown], middle[shown], label=policy, color=color, linestyle=style, linewidth=width
        )
        if len(of_policy) > 1:
            axes.fill_between(
                x[shown],
                low[shown],
                high[shown],
                color=color,
                alpha=0.15 if len(curves) <= _FEW else 0.06,
                linewidth=0,
            )
    if lines.ideal:
        ends = [lines.from_x, _PERCENT, max(reached)]
        axes.plot(ends, [_PERCENT - lines.from_x, 0, 0], color=_IDEAL, lw=1, ls=":", label="ideal")
    axes.set_ylim(0, top * 1.05 if top else None)
    axes.set_xlim(lines.from_x, max(reached))
    _place_legend(axes)
    yield Chart(lines.kind, panel.name, f"{lines.title}: {panel.name}", _svg(figure))


def _bars(panels: Sequence[Panel], name: str) -> Iterator[Chart]:
    """Yield the bars of a figure: a group per panel, a bar per policy."""
    label, factor = _BAR_LABELS.get(name, (name, 1))
    policies = list(dict.fromkeys(policy for panel in panels for policy in panel.policies))
    values = {
        (panel.name, policy): factor
        * np.array([v for r in records if (v := figure_value(r, name)) is not None])
        for panel in panels
        for policy, records in panel.policies.items()
    }
    if not any(len(series) for series in values.values()):
        return
    figure, axes = _figure("", "", label)
    width = 0.8 / len(policies)
    for number, policy in enumerate(policies):
        series = [values.get((panel.name, policy), np.empty(0)) for panel in panels]
        heights = [float(each.mean()) if len(each) else np.nan for each in series]
        spread = [float(each.std(ddof=1)) if len(each) > 1 else 0.0 for each in series]
        at = np.arange(len(panels)) + (number - (len(policies) - 1) / 2) * width
        axes.bar(
            at,
            heights,
            width * 0.92,
            label=policy,
            color=_COLORS[number % len(_COLORS)],
            yerr=spread if any(spread) else None,
            error_kw={"elinewidth": 1, "ecolor": "#444444"},
        )
    axes.set_xticks(range(len(panels)), _group_names(panels))
    axes.set_ylim(bottom=0)
    axes.grid(visible=False, axis="x")
    _place_legend(axes)
    yield Chart(as_file_name(name), "", label, _svg(figure))


def _group_names(panels: Sequence[Panel]) -> list[str]:
    """Return the names below the bars: sources, and parameters if they differ."""
    first = panels[0]
    if all(panel.parameters == first.parameters for panel in panels):
        return [panel.source for panel in panels]
    if all(panel.source == first.source for panel in panels):
        return [panel.name.removeprefix(f"{panel.source}, ") for panel in panels]
    return [panel.name.replace(", ", "\n") for panel in panels]


def _figure(title: str, x_label: str, y_label: str) -> tuple[Any, Any]:
    figure, axes = blank_chart(x_label, y_label)
    axes.set_title(title, fontsize="medium")
    axes.set_axisbelow(True)
    axes.grid(alpha=0.3)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    return figure, axes


def _place_legend(axes: Any) -> None:
    """Put the legend beside the axes, where it covers nothing."""
    axes.legend(loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False)


def _svg(figure: Any) -> bytes:
    content = BytesIO()
    with library("matplotlib").rc_context({"svg.hashsalt": "koordinator"}):  # equal ids each time
        figure.savefig(content, format="svg", metadata={"Date": None})
    return content.getvalue()


def _over_seeds(
    curves: Sequence[RunCurve], outside: tuple[float, float] = (np.nan, np.nan)
) -> tuple[FloatArray, ...]:
    """Return all x of the runs, and mean, lowest and highest y of the runs that reach each."""
    x = np.unique(np.concatenate([own for own, _ in curves]))
    rows = [np.interp(x, *own, left=outside[0], right=outside[1]) for own in curves]
    known = np.ma.masked_invalid(np.stack(rows))
    return x, *(part.filled(np.nan) for part in (known.mean(0), known.min(0), known.max(0)))


def _by_demand(name: str, *, of_rest: bool = False) -> Callable[[RunRecord], RunCurve]:
    """Return the curve of a record's percentages over demand; ``of_rest``: 100 minus them."""

    def curve(record: RunRecord) -> RunCurve:
        values = getattr(record, name)
        y = np.array(list(values.values()), np.float64)
        return np.array(list(values), np.float64), _PERCENT - y if of_rest else y

    return curve


def _samples(column: str) -> Callable[[RunRecord], RunCurve]:
    """Return the curve of a share over time; a sample without the share is left out."""

    def curve(record: RunRecord) -> RunCurve:
        times = np.array(record.samples.get("time_s", ()), np.float64) / _HOUR_S
        values: Any = record.samples.get(column, ())
        shares = np.array([np.nan if v is None else v for v in values], np.float64) * _PERCENT
        known = ~np.isnan(shares)
        return times[known], shares[known]

    return curve


def _gpu_allocation(record: RunRecord) -> RunCurve:
    """Return the curve of the allocated GPUs; empty for a cluster without GPUs."""
    if "gpu_utilization" not in record.figures:
        return np.empty(0), np.empty(0)
    return _samples("gpu_allocated")(record)


def _shares(field: str) -> Callable[[RunRecord], RunCurve]:
    """Return the distribution function of the jobs' times."""

    def curve(record: RunRecord) -> RunCurve:
        times, counts = np.unique(getattr(record, field), return_counts=True)
        if not len(times):
            return np.empty(0), np.empty(0)
        return times / _HOUR_S, np.cumsum(counts) / counts.sum() * _PERCENT

    return curve


_COMPLETION: Final = _Lines(
    "completion",
    "Jobs completed within a time",
    "completed jobs, %",
    "completion time, h",
    _shares("completion_s"),
    outside=(0.0, _PERCENT),
)
_OVER_TIME: Final = (
    _Lines("allocation", "GPUs allocated", "of all GPUs, %", _HOURS, _gpu_allocation),
    _Lines("cpu-allocation", "CPUs allocated", "of all CPUs, %", _HOURS, _samples("cpu_allocated")),
    _Lines(
        "fragmentation",
        "Free GPUs that a typical pod cannot use",
        "of the free GPUs, %",
        _HOURS,
        _samples("gpu_fragmentation"),
    ),
    _Lines(
        "waiting",
        "Jobs started within a time",
        "started jobs, %",
        "waiting time, h",
        _shares("queued_s"),
        outside=(0.0, _PERCENT),
    ),
)
_OVER_DEMAND: Final = (
    _Lines("allocation", "GPUs allocated", "of all GPUs, %", DEMAND_AXIS, _by_demand("allocation")),
    _Lines(
        "unallocated",
        "GPUs not allocated",
        "of all GPUs, %",
        DEMAND_AXIS,
        _by_demand("allocation", of_rest=True),
        from_x=_BUSY,
        ideal=True,
    ),
    _Lines(
        "fragmented",
        "Free GPUs that a typical pod cannot use",
        "of all GPUs, %",
        DEMAND_AXIS,
        _by_demand("fragmented"),
    ),
    _Lines(
        "fragmented-of-free",
        "Free GPUs that a typical pod cannot use",
        "of the free GPUs, %",
        DEMAND_AXIS,
        _by_demand("fragmented_of_free"),
    ),
)
