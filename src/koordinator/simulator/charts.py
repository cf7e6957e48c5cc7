"""Charts over time as HTML with inline SVG: lines, stacked areas, a strip of marks.

Curves are SVG that stretches with the page; texts are HTML beside it, so that they keep their
size.  Every figure carries its data for report.js, which adds read-outs and hides series;
without it the page shows the same curves and their last values.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

import numpy as np

from koordinator.simulator.axes import Axis, FloatArray, kept_rows, time_axis
from koordinator.simulator.markup import Markup, element
from koordinator.simulator.numerals import NumberUnit

#: The curves' own coordinates; the browser stretches them to the room there is.
_SIZE = 1000
_MOST_ROWS = 600


@dataclass(frozen=True, slots=True, kw_only=True)
class ChartSeries:
    """One curve."""

    name: str
    values: FloatArray  # (n,), NaN where there is none
    tone: int  # number of the colour, see report.css


@dataclass(frozen=True, slots=True, kw_only=True)
class Chart:
    """Curves over one time axis."""

    title: str
    note: str  # what is to be seen, in a sentence
    time_s: FloatArray  # (n,), since the start of the run, ascending
    span_s: float  # where the time axis ends
    series: tuple[ChartSeries, ...]
    axis: Axis
    unit: NumberUnit


def line_chart(chart: Chart, *, small: bool = False) -> Markup:
    """Return a figure with a line per series; a single one is filled."""
    drawn = _shortened(chart, np.array([s.values for s in chart.series]))
    x = _time_of(drawn)
    curves = [
        element("path", class_=f"line t{s.tone}", d=_line(x, drawn.axis.place(s.values)))
        for s in drawn.series
    ]
    if len(drawn.series) == 1:
        only = drawn.series[0]
        floor = np.zeros_like(x)
        fill = _area(x, floor, drawn.axis.place(only.values))
        curves.insert(0, element("path", class_=f"wash t{only.tone}", d=fill))
    return _figure(drawn, curves, kind="lines", is_small=small)


def area_chart(chart: Chart) -> Markup:
    """Return a figure with the series stacked, the first at the bottom; no NaN."""
    total = np.sum([s.values for s in chart.series], axis=0)
    drawn = _shortened(chart, total[None])
    x = _time_of(drawn)
    floor = np.zeros_like(x)
    curves = []
    for s in drawn.series:
        ceiling = floor + drawn.axis.place(s.values)
        curves.append(element("path", class_=f"area t{s.tone}", d=_area(x, floor, ceiling)))
        floor = ceiling
    return _figure(drawn, curves, kind="areas")


def strip(
    *, title: str, note: str, span_s: float, strong_s: Sequence[float], weak_s: Sequence[float]
) -> Markup:
    """Return a figure with an upright line per moment; the weak ones are half as tall."""
    axis = time_axis(span_s)
    shapes = [
        element("path", class_="grid", d=f"M0 {_SIZE}H{_SIZE}"),
        element("path", class_="mark", d=_marks(axis, weak_s, top=_SIZE // 2)),
        element("path", class_="mark strong", d=_marks(axis, strong_s, top=0)),
    ]
    return element(
        "figure",
        element(
            "figcaption",
            element("h3", title),
            element("p", note, class_="note"),
            element("output", class_="when"),
        ),
        element(
            "div",
            element("div", class_="y"),
            element("div", _svg(title, note, shapes), _CURSOR, class_="field"),
            _time_ticks(axis),
            class_="plot",
        ),
        _data({"kind": "strip", "span": axis.high, "x": [], "series": []}),
        class_="chart strip",
    )


def empty_chart(title: str, note: str) -> Markup:
    """Return a figure that says why there is nothing to see."""
    return element(
        "figure",
        element("figcaption", element("h3", title)),
        element("p", note, class_="nothing"),
        class_="chart",
    )


_CURSOR = element("i", class_="cursor")


def _shortened(chart: Chart, decisive: FloatArray) -> Chart:
    rows = kept_rows(decisive, _MOST_ROWS)
    return Chart(
        title=chart.title,
        note=chart.note,
        time_s=chart.time_s[rows],
        span_s=chart.span_s,
        series=tuple(
            ChartSeries(name=s.name, values=s.values[rows], tone=s.tone) for s in chart.series
        ),
        axis=chart.axis,
        unit=chart.unit,
    )


def _time_of(chart: Chart) -> FloatArray:
    return time_axis(chart.span_s).place(chart.time_s)


def _figure(chart: Chart, curves: Sequence[Markup], *, kind: str, is_small: bool = False) -> Markup:
    times = time_axis(chart.span_s, most_intervals=3 if is_small else 6)
    x_marks = [element("path", class_="grid", d=_upright(times, at)) for at, _ in times.ticks[1:]]
    y_marks = [
        element("path", class_="grid", d=_level(chart.axis, at)) for at, _ in chart.axis.ticks
    ]
    svg = _svg(chart.title, _description(chart), [*x_marks, *y_marks, *curves])
    label = f"{chart.title}: read values with the arrow keys"
    return element(
        "figure",
        element(
            "figcaption",
            element("h3", chart.title),
            element("p", chart.note, class_="note"),
            element("output", "" if is_small else "at the end", class_="when"),
        ),
        _legend(chart),
        element(
            "div",
            _value_ticks(chart.axis),
            element(
                "div", svg, _CURSOR, class_="field", tabindex=0, role="group", aria_label=label
            ),
            _time_ticks(times),
            class_="plot",
        ),
        _data(
            {
                "kind": kind,
                "unit": chart.unit.value,
                "span": times.high,
                "top": chart.axis.high,
                "x": _numbers(chart.time_s),
                "series": [_numbers(s.values) for s in chart.series],
            }
        ),
        class_="chart small" if is_small else "chart",
    )


def _legend(chart: Chart) -> Markup:
    items = [
        element(
            "li",
            element(
                "button",
                element("i", class_=f"swatch t{s.tone}"),
                element("span", s.name),
                element("b", chart.unit.text(_last_value(s.values))),
                type="button",
                aria_pressed="true",
            ),
        )
        for s in chart.series
    ]
    return element("ul", *items, class_="legend")


def _description(chart: Chart) -> str:
    """Say the curves in words: lowest, highest and last value."""
    parts = []
    for s in chart.series:
        known = s.values[~np.isnan(s.values)]
        if len(known):
            low, high, last = (chart.unit.text(v) for v in (known.min(), known.max(), known[-1]))
            parts.append(f"{s.name}: {low} to {high}, at the end {last}.")
    return " ".join([chart.note, *parts])


def _last_value(values: FloatArray) -> float | None:
    """Return the last entry that is a number."""
    known = values[~np.isnan(values)]
    return float(known[-1]) if len(known) else None


def _svg(title: str, description: str, shapes: Sequence[Markup]) -> Markup:
    return element(
        "svg",
        element("title", title),
        element("desc", description),
        *shapes,
        viewBox=f"0 0 {_SIZE} {_SIZE}",
        preserveAspectRatio="none",
        role="img",
    )


def _value_ticks(axis: Axis) -> Markup:
    return element("div", *_ticks(axis, "bottom"), class_="y", aria_hidden="true")


def _time_ticks(axis: Axis) -> Markup:
    return element("div", *_ticks(axis, "left"), class_="x", aria_hidden="true")


def _ticks(axis: Axis, side: str) -> list[Markup]:
    places = axis.place(np.array([at for at, _ in axis.ticks])).tolist()
    return [
        element("span", text, style=f"{side}:{_number(place * 100)}%")
        for place, (_, text) in zip(places, axis.ticks, strict=True)
    ]


def _upright(axis: Axis, at: float) -> str:
    return f"M{_number(float(axis.place(np.array(at))) * _SIZE)} 0V{_SIZE}"


def _level(axis: Axis, at: float) -> str:
    return f"M0 {_number((1 - float(axis.place(np.array(at)))) * _SIZE)}H{_SIZE}"


def _marks(axis: Axis, times_s: Sequence[float], *, top: int) -> str:
    """Return the path of upright lines; those on one spot are drawn once."""
    x = axis.place(np.array(times_s, float)) * _SIZE
    return "".join(f"M{at} {top}V{_SIZE}" for at in dict.fromkeys(_number(v) for v in x.tolist()))


def _line(x: FloatArray, y: FloatArray) -> str:
    """Return the path of a line that breaks where y is NaN; a lone value is a dot."""
    return "".join(_path(run) + ("h0" if len(run) == 1 else "") for run in _runs(x, y))


def _area(x: FloatArray, floor: FloatArray, ceiling: FloatArray) -> str:
    """Return the path of the areas between two lines, one per stretch without NaN."""
    paths = []
    for rows in _known_stretches(ceiling):
        up = list(zip(x[rows].tolist(), ceiling[rows].tolist(), strict=True))
        down = list(zip(x[rows].tolist(), floor[rows].tolist(), strict=True))
        paths.append(_path(up + down[::-1]) + "Z")
    return "".join(paths)


def _runs(x: FloatArray, y: FloatArray) -> list[list[tuple[float, float]]]:
    return [
        list(zip(x[rows].tolist(), y[rows].tolist(), strict=True)) for rows in _known_stretches(y)
    ]


def _known_stretches(values: FloatArray) -> list[list[int]]:
    known = ~np.isnan(values)
    return [
        list(rows) for is_known, rows in groupby(range(len(values)), known.__getitem__) if is_known
    ]


def _path(points: Sequence[tuple[float, float]]) -> str:
    return "M" + "L".join(f"{_number(x * _SIZE)} {_number((1 - y) * _SIZE)}" for x, y in points)


def _number(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")


def _numbers(values: FloatArray) -> list[float | None]:
    """Return what JSON can hold, to six digits."""
    return [None if np.isnan(v) else float(f"{v:.6g}") for v in values.tolist()]


def _data(data: dict[str, object]) -> Markup:
    """Return data for the script; ``<`` is escaped so that no text in it can end the element."""
    text = json.dumps(data, separators=(",", ":"), allow_nan=False).replace("<", "\\u003c")
    return element("script", Markup(text), type="application/json")
