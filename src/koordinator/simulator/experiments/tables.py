"""Tables of an experiment: runs, samples over time, arrivals, and statistics over seeds.

All depend on the records only, in the order of the grid, so that equal records give equal bytes.
"""

import csv
from collections.abc import Mapping, Sequence
from functools import cache
from io import StringIO
from itertools import groupby
from math import atan, cos, isfinite, pi, sin, sqrt, tan
from pathlib import Path
from statistics import fmean, stdev
from typing import Any, Final

from koordinator.foundation.errors import InputError, library
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.simulator.experiments.definition import ExperimentRun
from koordinator.simulator.experiments.store import RunRecord

CONFIDENCE: Final = 0.95
_LEAST = 2  # values that have a deviation
_HALVINGS: Final = 200  # more than the bits of a float

_HOURS: Final = 1 / 3600  # per second
#: Labels of the main figures by name, and the factors that give their units.
FIGURE_LABELS: Final[Mapping[str, tuple[str, float]]] = {
    "pods_scheduled": ("pods scheduled", 1),
    "completion_mean_s": ("completion time of jobs, mean, h", _HOURS),
    "completion_p99_s": ("completion time of jobs, p99, h", _HOURS),
    "queueing_mean_s": ("queueing time of jobs, mean, h", _HOURS),
    "fairness_mean": ("finish-time fairness", 1),
    "gpu_utilization": ("GPUs allocated, mean, %", 100),
    "cpu_utilization": ("CPUs allocated, mean, %", 100),
    "gpu_fragmentation": ("fragmented, of free GPUs, mean, %", 100),
    "pools_per_gang": ("node pools per gang, mean", 1),
    "colocation_used_cpu": ("CPUs used, mean, %", 100),
    "colocation_at_risk": ("node time above the safe load, %", 100),
    "gpu_allocated_at_100": ("GPUs allocated at 100 % demand, %", 1),
    "gpu_allocated_at_130": ("GPUs allocated at 130 % demand, %", 1),
    "gpu_fragmented": ("GPUs fragmented at the end, %", 100),
    "cost": ("cost", 1),
    "energy_kwh": ("energy, kWh", 1),
    "moves": ("moves", 1),
}


@dataclass(frozen=True, slots=True)
class SampleStatistics:
    """Mean of ``count`` values, their standard deviation, and the interval of the mean.

    Without at least two values there is neither deviation nor interval.
    """

    count: int
    mean: float | None = None
    deviation: float | None = None
    low: float | None = None
    high: float | None = None


def sample_statistics(values: Sequence[float]) -> SampleStatistics:
    """Return the statistics of independent values, with a 95 % confidence interval."""
    count = len(values)
    if not count:
        return SampleStatistics(0)
    mean = fmean(values)
    if count < _LEAST:
        return SampleStatistics(count, mean)
    deviation = stdev(values)
    half = t_quantile(count - 1) * deviation / sqrt(count)
    return SampleStatistics(count, mean, deviation, mean - half, mean + half)


@cache
def t_quantile(freedom: int, confidence: float = CONFIDENCE) -> float:
    """Return the t with P(|T| < t) = confidence, for a whole number of degrees of freedom."""
    low, high = 0.0, pi / 2
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if _central_probability(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return sqrt(freedom) * tan((low + high) / 2)


def t_probability(t: float, freedom: int) -> float:
    """Return P(|T| < t) of Student's distribution."""
    return _central_probability(atan(t / sqrt(freedom)), freedom)


def _central_probability(angle: float, freedom: int) -> float:
    """Return P(|T| < sqrt(freedom) tan(angle)).

    The series is finite.  Source: Abramowitz and Stegun, Handbook of Mathematical Functions,
    26.7.3 and 26.7.4.
    """
    is_odd = freedom % 2 == 1
    power = cos(angle) if is_odd else 1.0
    term, total = power, power if freedom > 1 else 0.0
    for factor in range(2 if is_odd else 1, freedom - 2, 2):
        term *= factor / (factor + 1) * cos(angle) ** 2
        total += term
    if is_odd:
        return 2 / pi * (angle + sin(angle) * total)
    return sin(angle) * total


TableColumns = dict[str, list[Any]]


@dataclass(frozen=True, slots=True)
class Panel:
    """Runs that differ in policy and seed only: one comparison, one set of charts.

    ``policies`` are in the order of the definition; the first one is the baseline.
    """

    source: str
    parameters: Mapping[str, Any]
    policies: Mapping[str, Sequence[RunRecord]]  # without failed runs

    @property
    def name(self) -> str:
        """Source and parameters, for titles."""
        parameters = (f"{name} {_cell(value)}" for name, value in self.parameters.items())
        return ", ".join([self.source, *parameters])


def panels(runs: Sequence[ExperimentRun], records: Mapping[str, RunRecord]) -> list[Panel]:
    """Return the comparisons of a grid."""

    def same(run: ExperimentRun) -> tuple[str, list[Any]]:
        return run.source.name, list(run.parameters.items())

    result = []
    for (source, parameters), group in groupby(runs, same):
        policies: dict[str, list[RunRecord]] = {}
        for run in group:
            own = policies.setdefault(run.policy.name, [])
            record = records.get(run.key)
            if record is not None and not record.error:
                own.append(record)
        result.append(Panel(source, dict(parameters), policies))
    return result


def runs_table(records: Sequence[RunRecord]) -> TableColumns:
    """Return a row per run: key, labels, figures, error."""
    rows = [
        {"run": record.key, **record.labels, "error": record.error, **record.figures}
        for record in records
    ]
    return _columns(rows)


def samples_table(records: Sequence[RunRecord]) -> TableColumns:
    """Return a row per run and sampled time."""
    rows = [
        {"run": record.key, **record.labels, **dict(zip(record.samples, values, strict=True))}
        for record in records
        for values in zip(*record.samples.values(), strict=True)
    ]
    return _columns(rows)


def arrivals_table(records: Sequence[RunRecord]) -> TableColumns:
    """Return a row per run and percent of GPU demand that has arrived; empty without arrivals."""
    rows = [
        {
            "run": record.key,
            **record.labels,
            "gpu_arrived_percent": percent,
            "gpu_allocated_percent": allocated,
            "gpu_fragmented_percent": record.fragmented.get(percent),
            "gpu_fragmented_of_free_percent": record.fragmented_of_free.get(percent),
        }
        for record in records
        for percent, allocated in record.allocation.items()
    ]
    return _columns(rows)


def summary_table(panels: Sequence[Panel]) -> TableColumns:
    """Return a row per comparison, policy and figure, with statistics over the seeds.

    ``difference`` columns are of policy minus baseline, paired by seed.
    """
    return _columns(
        [
            {
                "source": panel.source,
                **panel.parameters,
                "policy": policy,
                "figure": figure,
                **_statistics(panel.policies[policy], figure),
                "baseline": baseline,
                **_differences(panel, policy, baseline, figure),
            }
            for panel in panels
            for baseline in (next(iter(panel.policies)),)
            for policy in panel.policies
            for figure in numeric_figures(panel)
        ]
    )


def numeric_figures(panel: Panel) -> list[str]:
    """Return the names of the figures of a comparison, in order of appearance."""
    names = dict.fromkeys(
        name
        for records in panel.policies.values()
        for record in records
        for name in record.figures
        if figure_value(record, name) is not None
    )
    return list(names)


def figure_value(record: RunRecord, name: str) -> float | None:
    """Return a figure of a run; None if the run has none, or no finite number."""
    value = record.figures.get(name)
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and value is not None and isfinite(value) else None


def paired_differences(panel: Panel, policy: str, baseline: str, figure: str) -> SampleStatistics:
    """Return the statistics of policy minus baseline over the seeds that both have."""
    base = {record.labels["seed"]: record for record in panel.policies[baseline]}
    pairs = (
        (figure_value(record, figure), figure_value(base[record.labels["seed"]], figure))
        for record in panel.policies[policy]
        if record.labels["seed"] in base
    )
    return sample_statistics(
        [own - other for own, other in pairs if own is not None and other is not None]
    )


def _statistics(records: Sequence[RunRecord], figure: str) -> dict[str, Any]:
    values = (figure_value(record, figure) for record in records)
    statistics = sample_statistics([value for value in values if value is not None])
    return {
        "runs": statistics.count,
        "mean": statistics.mean,
        "standard_deviation": statistics.deviation,
        "mean_low_95": statistics.low,
        "mean_high_95": statistics.high,
    }


def _differences(panel: Panel, policy: str, baseline: str, figure: str) -> dict[str, Any]:
    ends = ("", "_deviation", "_low_95", "_high_95")
    names = ("pairs", *(f"difference{end}" for end in ends))
    if policy == baseline:
        return dict.fromkeys(names)
    differences = paired_differences(panel, policy, baseline, figure)
    values = (
        differences.count,
        differences.mean,
        differences.deviation,
        differences.low,
        differences.high,
    )
    return dict(zip(names, values, strict=True))


def _columns(rows: Sequence[Mapping[str, Any]]) -> TableColumns:
    names = list(dict.fromkeys(name for row in rows for name in row))
    return {name: [row.get(name) for row in rows] for name in names}


# -- files -----------------------------------------------------------------------------------


def write_table(columns: TableColumns, path: Path, *, parquet: bool = False) -> list[Path]:
    """Write ``path.csv``, and ``path.parquet`` if wanted and pyarrow is installed; return both."""
    text = StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    for row in zip(*columns.values(), strict=True):
        writer.writerow([_cell(value) for value in row])
    file = path.with_suffix(".csv")
    file.write_text(text.getvalue(), "utf-8")
    if not parquet:
        return [file]
    try:
        arrow, writer_module = library("pyarrow"), library("pyarrow.parquet")
    except InputError:
        return [file]
    packed = path.with_suffix(".parquet")
    writer_module.write_table(arrow.table(columns), packed)
    return [file, packed]


def _cell(value: object) -> object:
    if isinstance(value, bool):
        return "true" if value else "false"
    return "" if value is None else value
