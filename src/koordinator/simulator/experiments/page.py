"""HTML report of an experiment: one file that needs no other.

Its tables have the figures of ``FIGURE_LABELS``; ``summary.csv`` has all.
"""

from base64 import b64encode
from collections.abc import Iterator, Sequence
from html import escape
from math import floor, log10
from typing import Final

from koordinator.simulator.experiments.charts import Chart
from koordinator.simulator.experiments.store import RunRecord
from koordinator.simulator.experiments.tables import (
    FIGURE_LABELS,
    Panel,
    SampleStatistics,
    figure_value,
    numeric_figures,
    paired_differences,
    sample_statistics,
)
from koordinator.simulator.numerals import UNKNOWN

_LARGE: Final = 1000  # numbers from here on have no decimals
_SMALL: Final = 0.1  # numbers below have two significant digits
_MOST_DECIMALS: Final = 6  # differences that are rounding errors of floats have no digits
_STYLE: Final = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 72rem; margin: 2rem auto; padding: 0 1rem;
  color: #1d2329; background: #fff }
table { border-collapse: collapse; margin: 1rem 0; display: block; overflow-x: auto }
th, td { padding: .25rem .75rem; border-bottom: 1px solid #d5dbe1; text-align: left }
th { vertical-align: bottom }
td { white-space: nowrap }
td.n, th.n { text-align: right; font-variant-numeric: tabular-nums }
.charts { display: flex; flex-wrap: wrap; gap: 1rem }
.charts img { width: 34rem; max-width: 100%; height: auto }
.note { color: #59636e }
"""


def experiment_page(
    title: str, panels: Sequence[Panel], failures: Sequence[RunRecord], charts: Sequence[Chart]
) -> str:
    """Return the report: failed runs, and tables and charts of each comparison."""
    body = "\n".join(_body(title, panels, failures, charts))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}</style>\n</head>\n"
        f"<body>\n{body}\n</body>\n</html>\n"
    )


def _body(
    title: str, panels: Sequence[Panel], failures: Sequence[RunRecord], charts: Sequence[Chart]
) -> Iterator[str]:
    yield f"<h1>{escape(title)}</h1>"
    finished = sum(len(records) for panel in panels for records in panel.policies.values())
    yield f"<p>{finished} runs finished, {len(failures)} failed.</p>"
    if failures:
        heads = [*failures[0].labels, "error"]
        rows = [[*map(str, record.labels.values()), record.error] for record in failures]
        yield f"<h2>Failed runs</h2>{_table(heads, rows)}"
    yield (
        '<p class="note">Cells have mean ± standard deviation over the seeds. Differences are '
        "paired by seed, with the 95 % confidence interval of Student's t. A difference whose "
        "interval has 0 may be chance. summary.csv has all figures.</p>"
    )
    yield _images([chart for chart in charts if not chart.panel])
    for panel in panels:
        yield f"<h2>{escape(panel.name)}</h2>"
        yield from _tables(panel)
        yield _images([chart for chart in charts if chart.panel == panel.name])


def _images(charts: Sequence[Chart]) -> str:
    images = (
        f'<img src="data:image/svg+xml;base64,{b64encode(chart.svg).decode()}" '
        f'alt="{escape(chart.title)}">'
        for chart in charts
    )
    return f'<div class="charts">{"".join(images)}</div>'


def _tables(panel: Panel) -> Iterator[str]:
    names = [name for name in numeric_figures(panel) if name in FIGURE_LABELS]
    baseline, *others = panel.policies
    heads = ["policy", *(FIGURE_LABELS[name][0] for name in names)]
    yield _table(
        heads,
        [
            [policy, *(_mean(records, name) for name in names)]
            for policy, records in panel.policies.items()
        ],
    )
    if others:
        yield f"<h3>Difference to {escape(baseline)}</h3>"
        rows = [
            [policy, *(_interval(paired_differences(panel, policy, baseline, n), n) for n in names)]
            for policy in others
        ]
        yield _table(heads, rows)


def _mean(records: Sequence[RunRecord], name: str) -> str:
    values = [v for record in records if (v := figure_value(record, name)) is not None]
    statistics = sample_statistics(values)
    if statistics.mean is None:
        return UNKNOWN
    factor = FIGURE_LABELS[name][1]
    mean = _number(factor * statistics.mean)
    if statistics.deviation is None:
        return mean
    return f"{mean} ± {_number(factor * statistics.deviation)}"


def _interval(found: SampleStatistics, name: str) -> str:
    if found.mean is None:
        return UNKNOWN
    factor = FIGURE_LABELS[name][1]
    mean = _number(factor * found.mean, "+")
    if found.low is None or found.high is None:
        return mean
    return f"{mean} [{_number(factor * found.low, '+')}, {_number(factor * found.high, '+')}]"


def _number(value: float, sign: str = "") -> str:
    """Return a number without an exponent, with three or more significant digits.

    Below 0.1 it has two digits and at most six decimals.
    """
    size = abs(value)
    if value.is_integer() or size >= _LARGE:
        decimals = 0
    elif size < _SMALL:
        decimals = min(1 - floor(log10(size)), _MOST_DECIMALS)
    else:
        decimals = 2 if size >= 1 else 3
    return f"{value:{sign},.{decimals}f}"


def _table(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table; all columns but the first have numbers, unless there is an error column."""
    kind = "" if "error" in heads else ' class="n"'
    head = "".join(
        f"<th{kind if number else ''}>{escape(text)}</th>" for number, text in enumerate(heads)
    )
    lines = "".join(
        "<tr>"
        + "".join(
            f"<td{kind if number else ''}>{escape(cell)}</td>" for number, cell in enumerate(row)
        )
        + "</tr>\n"
        for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>\n{lines}</tbody></table>"
