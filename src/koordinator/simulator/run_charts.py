"""Charts of a run report; charts without data are left out."""

import math
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from koordinator.foundation.arrays import FloatArray
from koordinator.scheduler.explanations.sentences import sentence
from koordinator.simulator.colocation_report import YarnReport
from koordinator.simulator.numerals import NumberUnit, count, memory
from koordinator.simulator.page import PageChart, PageSeries
from koordinator.simulator.run_report import AllocationColumns, NodeGroup, RunReport

#: Intervals of the run over which the scheduling rate is averaged.
_RATE_STRETCHES = 120
_MAX_ROWS = 600

# Indices of colours: a resource has one colour everywhere, also in the dashboard's charts.
_CPU, _MEMORY, _GPU = 0, 1, 2
_LATE = 3
_PODS = 4


def has_gpus(report: RunReport) -> bool:
    """Return whether any node group has GPUs."""
    return any(group.gpus for group in report.groups)


def cluster_charts(report: RunReport) -> tuple[PageChart, ...]:
    """Return the charts of the whole cluster."""
    charts = (pending(report), waiting(report), allocation(report), fragmentation(report))
    return tuple(chart for chart in (*charts, running(report)) if chart is not None)


def allocation(report: RunReport) -> PageChart:
    """Return the chart of the cluster's allocated shares."""
    return _chart(
        report,
        "Allocation",
        "Share of the cluster that is allocated to pods",
        _allocation_series(report.allocated(), with_gpu=has_gpus(report)),
        unit=NumberUnit.SHARE,
    )


def fragmentation(report: RunReport) -> PageChart | None:
    """Return the chart of the unusable share of free and of all GPUs; None without free GPUs."""
    of_free = _column(report.samples.gpu_fragmentation)
    if not has_gpus(report) or np.isnan(of_free).all():
        return None
    of_all = of_free * (1 - _column(report.allocated().gpu))
    series = (("of the free GPUs", of_free, _GPU), ("of all GPUs", of_all, _LATE))
    note = "Free GPU capacity that a typical pod could not use"
    return _chart(report, "GPU fragmentation", note, series, unit=NumberUnit.SHARE)


def pending(report: RunReport) -> PageChart | None:
    """Return the chart of pending pods, stacked by reason; None if no sample has any."""
    reasons = report.samples.pending_by_reason
    if not any(map(any, reasons.values())):
        return None
    series = [
        (sentence(reason), _column(pods), tone)
        for tone, (reason, pods) in enumerate(reasons.items())
    ]
    note = "Pending pods by the reason of their last scheduling attempt"
    return _chart(
        report, "Pending pods by cause", note, series, unit=NumberUnit.COUNT, is_stacked=True
    )


def running(report: RunReport) -> PageChart:
    """Return the chart of the number of running pods."""
    series = (("running", _column(report.samples.pods_running), _PODS),)
    note = "Pods on a node with work left"
    return _chart(report, "Running pods", note, series, unit=NumberUnit.COUNT)


def throughput(report: RunReport) -> PageChart:
    """Return the chart of decisions per second of scheduling, averaged over intervals."""
    n = len(report.samples.time_s)
    ends = np.unique(np.linspace(0, n - 1, min(n, _RATE_STRETCHES + 1)).astype(int)).tolist()
    rates = _column(report.decision_rates(ends))
    return _chart(
        report,
        "Speed of the scheduler",
        "Decisions per second of wall time in the scheduler",
        (("decisions", rates, _CPU),),
        unit=NumberUnit.RATE,
        rows=ends,
    )


def waiting(report: RunReport) -> PageChart | None:
    """Return the chart of waiting times of newly scheduled pods; None without any."""
    median, late = (
        _column(values) for values in (report.samples.waited_p50_s, report.samples.waited_p95_s)
    )
    if np.isnan(median).all():
        return None
    note = "Virtual time from submission to a node, by time of scheduling"
    series = (("median", median, _CPU), ("95th percentile", late, _LATE))
    return _chart(report, "Waiting time", note, series, unit=NumberUnit.SECONDS)


def colocation_charts(report: RunReport) -> tuple[PageChart, ...]:
    """Return the charts of CPU usage and of services at risk; none without colocation."""
    colocation = report.colocation
    if colocation is None:
        return ()
    when = "with colocation" if colocation.is_on else "without colocation"
    columns = colocation.samples
    published = (("batch-cpu", columns.batch_cpu, 1), ("mid-cpu", columns.mid_cpu, 2))
    used = (
        ("services", _column(columns.services_cpu), 0),
        ("best effort", _column(columns.best_effort_cpu), _PODS),
        *((name, _column(values), tone) for name, values, tone in published if any(values)),
    )
    risk = (
        ("at risk", _column(columns.at_risk), _LATE),
        ("suppressed", _column(columns.suppressed), _PODS),
    )
    share = NumberUnit.SHARE
    safe = f"{colocation.safe_percent}%"
    note = f"Share of time above {safe} of a node, and of the best-effort CPU demand"
    use = "Share of all CPUs in use and published"
    return (
        _chart(report, f"CPU in use, {when}", use, used, unit=share),
        _chart(report, f"Services at risk, {when}", note, risk, unit=share),
        *(
            _yarn_charts(report, colocation.yarn)
            if colocation.is_on and colocation.yarn is not None
            else ()
        ),
    )


def _yarn_charts(report: RunReport, yarn: YarnReport) -> tuple[PageChart, ...]:
    """Return the charts of YARN's CPU limit and usage, and of its pending containers."""
    columns = yarn.samples
    shares = (
        ("limit", _column(columns.limit_cpu), 1),
        ("in use", _column(columns.used_cpu), _PODS),
    )
    waits = (("pending", _column(columns.waiting), _LATE),)
    use = "Share of all CPUs: limits of NodeManagers, and usage of containers"
    note = "Requested by applications, without a node"
    return (
        _chart(report, "CPU of YARN", use, shares, unit=NumberUnit.SHARE),
        _chart(report, "Pending containers of YARN", note, waits, unit=NumberUnit.COUNT),
    )


def group_charts(report: RunReport) -> tuple[PageChart, ...]:
    """Return a small chart of the allocated shares for each node group."""
    return tuple(
        _chart(
            report,
            group.name,
            _size_of(group),
            _allocation_series(report.samples.allocated[group.name], with_gpu=group.gpus > 0),
            unit=NumberUnit.SHARE,
            is_small=True,
        )
        for group in report.groups
    )


_Curve = tuple[str, FloatArray, int]  # name, values, tone


def _chart(
    report: RunReport,
    title: str,
    note: str,
    curves: Sequence[_Curve],
    *,
    unit: NumberUnit,
    rows: Sequence[int] | None = None,
    is_stacked: bool = False,
    is_small: bool = False,
) -> PageChart:
    """Return a chart of the samples in ``rows`` (None: all), thinned without losing peaks."""
    time_s = np.array(report.samples.time_s, float) - report.started_s
    if rows is not None:
        time_s = time_s[list(rows)]
    values = np.array([each for _, each, _ in curves])
    decisive = np.sum(values, axis=0)[None] if is_stacked else values
    kept = kept_rows(decisive, _MAX_ROWS)
    return PageChart(
        title=title,
        note=note,
        unit=unit,
        at_s=tuple(round(float(at), 3) for at in time_s[kept]),
        series=tuple(PageSeries(name, _entries(each[kept]), tone) for name, each, tone in curves),
        is_stacked=is_stacked,
        is_small=is_small,
    )


def _allocation_series(columns: AllocationColumns, *, with_gpu: bool) -> tuple[_Curve, ...]:
    gpu = (("GPU", _column(columns.gpu), _GPU),) if with_gpu else ()
    return (*gpu, ("CPU", _column(columns.cpu), _CPU), ("memory", _column(columns.memory), _MEMORY))


def _size_of(group: NodeGroup) -> str:
    sizes = [f"{count(group.nodes)} nodes"]
    if group.gpus:
        sizes.append(f"{count(group.gpus)} GPUs")
    sizes += [f"{count(group.cpu_cores)} cores", memory(group.memory_bytes)]
    return " \N{MIDDLE DOT} ".join(size.replace(" ", "\N{NO-BREAK SPACE}") for size in sizes)


def _column(values: Sequence[float | None]) -> FloatArray:
    return np.array([np.nan if v is None else v for v in values], float)


def _entries(values: FloatArray) -> tuple[float | None, ...]:
    """Return the values with six significant digits, None for NaN."""
    return tuple(None if math.isnan(value) else float(f"{value:.6g}") for value in values.tolist())


RowArray = NDArray[np.int64]


def kept_rows(series: FloatArray, limit: int = 600) -> RowArray:
    """Return the rows to draw of ``series[n_series, n]``, ascending, at most ``limit``.

    Keeps the first and last row, and the minimum and maximum of each series in every stretch of
    rows.  Ignores NaN.  ``limit`` is at least 2 + 2 * n_series.
    """
    n_series, n = series.shape
    if n <= limit:
        return np.arange(n)
    n_stretches = (limit - 2) // (2 * n_series)
    kept = {0, n - 1}
    for rows in np.array_split(np.arange(n), n_stretches):
        for values in series[:, rows]:
            if not np.isnan(values).all():
                kept.update((int(rows[np.nanargmin(values)]), int(rows[np.nanargmax(values)])))
    return np.array(sorted(kept))
