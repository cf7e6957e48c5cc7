"""HTML report of an experiment: one file that needs no other."""

from base64 import b64encode
from collections.abc import Iterator, Mapping, Sequence
from html import escape
from typing import Final

from koordinator.simulator.experiments.charts import Chart
from koordinator.simulator.experiments.statistics import SampleStatistics, sample_statistics
from koordinator.simulator.experiments.store import RunRecord
from koordinator.simulator.experiments.tables import (
    Panel,
    figure_value,
    numeric_figures,
    paired_differences,
)
from koordinator.simulator.numerals import UNKNOWN

_HOURS: Final = 1 / 3600  # per second
_LARGE: Final = 1000  # numbers from here on have no decimals
#: Labels and factors of the page's figures by name; ``summary.csv`` has all.
_SHOWN: Final[Mapping[str, tuple[str, float]]] = {
    "pods_scheduled": ("pods scheduled", 1),
    "completion_mean_s": ("completion, mean, h", _HOURS),
    "completion_p99_s": ("completion, p99, h", _HOURS),
    "queueing_mean_s": ("queueing, mean, h", _HOURS),
    "fairness_mean": ("finish-time fairness", 1),
    "gpu_utilization": ("GPUs allocated, mean, %", 100),
    "cpu_utilization": ("CPUs allocated, mean, %", 100),
    "gpu_fragmentation": ("fragmented, of free GPUs, mean, %", 100),
    "pools_per_gang": ("node pools per gang", 1),
    "colocation_used_cpu": ("CPUs used, mean, %", 100),
    "colocation_at_risk": ("node time above the safe load, %", 100),
    "gpu_allocated_at_100": ("GPUs allocated at 100 % demand, %", 1),
    "gpu_allocated_at_130": ("GPUs allocated at 130 % demand, %", 1),
    "gpu_fragmented": ("GPUs fragmented at the end, %", 100),
    "cost": ("cost", 1),
    "energy_kwh": ("energy, kWh", 1),
    "moves": ("moves", 1),
}
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
    names = [name for name in numeric_figures(panel) if name in _SHOWN]
    baseline, *others = panel.policies
    heads = ["policy", *(_SHOWN[name][0] for name in names)]
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
    factor = _SHOWN[name][1]
    mean = _number(factor * statistics.mean)
    if statistics.deviation is None:
        return mean
    return f"{mean} ± {_number(factor * statistics.deviation)}"


def _interval(found: SampleStatistics, name: str) -> str:
    if found.mean is None:
        return UNKNOWN
    factor = _SHOWN[name][1]
    mean = _number(factor * found.mean, "+")
    if found.low is None or found.high is None:
        return mean
    return f"{mean} [{_number(factor * found.low, '+')}, {_number(factor * found.high, '+')}]"


def _number(value: float, sign: str = "") -> str:
    """Return a number with three or more significant digits and without an exponent."""
    if value.is_integer() or abs(value) >= _LARGE:
        return f"{value:{sign},.0f}"
    return f"{value:{sign},.2f}" if abs(value) >= 1 else f"{value:{sign},.3f}"


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
