"""Which charts a run report has, and what each of them shows."""

from collections.abc import Sequence

import numpy as np

from koordinator.domain.colocation_report import YarnReport
from koordinator.domain.run_report import AllocationColumns, NodeGroup, RunReport
from koordinator.simulator.axes import SHARES, Axis, FloatArray, value_axis
from koordinator.simulator.charts import (
    Chart,
    ChartSeries,
    area_chart,
    empty_chart,
    line_chart,
    strip,
)
from koordinator.simulator.markup import Markup
from koordinator.simulator.numerals import NumberUnit, count, memory

#: Stretches of the run over which the scheduling rate is averaged.
_RATE_STRETCHES = 120

# Numbers of the colours in report.css: a resource has the same one everywhere.
_GPU, _CPU, _MEMORY = 0, 1, 2
_PODS = 4
_LATE = 3
#: Neighbours in the stack differ also for the colour-blind.
_REASON_TONES = (3, 4, 2, 5, 1, 0, 6)


def has_gpus(report: RunReport) -> bool:
    """Tell whether any node group has GPUs."""
    return any(group.gpus for group in report.groups)


def cluster_charts(report: RunReport) -> list[Markup]:
    """Return the charts of the whole cluster."""
    charts = (allocation, fragmentation, pending, running, throughput, waiting)
    return [chart(report) for chart in charts]


def allocation(report: RunReport) -> Markup:
    """Show the allocated shares of the cluster."""
    return line_chart(
        _chart(
            report,
            "Allocation",
            "Share of the cluster that is given to pods",
            _allocation_series(report.allocated(), with_gpu=has_gpus(report)),
            unit=NumberUnit.SHARE,
            axis=SHARES,
        )
    )


def fragmentation(report: RunReport) -> Markup:
    """Show the unusable part of the free GPUs, also as a share of all GPUs."""
    title = "GPU fragmentation"
    of_free = _column(report.samples.gpu_fragmentation)
    if np.isnan(of_free).all():
        return empty_chart(title, "No free GPUs to measure.")
    of_all = of_free * (1 - _column(report.allocated().gpu))
    series = (
        ChartSeries(name="of the free GPUs", values=of_free, tone=_GPU),
        ChartSeries(name="of all GPUs", values=of_all, tone=_LATE),
    )
    note = "Free GPU capacity that a typical pod could not use"
    return line_chart(_chart(report, title, note, series, unit=NumberUnit.SHARE))


def pending(report: RunReport) -> Markup:
    """Show the pending pods, stacked by reason."""
    title = "Pending pods by reason"
    reasons = report.samples.pending_by_reason
    if not reasons:
        return empty_chart(title, "No pod was pending when a sample was taken.")
    series = tuple(
        ChartSeries(name=reason, values=_column(pods), tone=tone)
        for (reason, pods), tone in zip(reasons.items(), _REASON_TONES, strict=False)
    )
    chart = _chart(
        report,
        title,
        "What keeps the waiting pods from a node",
        series,
        unit=NumberUnit.COUNT,
        axis=value_axis(float(np.sum([s.values for s in series], axis=0).max()), NumberUnit.COUNT),
    )
    return area_chart(chart)


def running(report: RunReport) -> Markup:
    """Show how many pods run."""
    series = (ChartSeries(name="running", values=_column(report.samples.pods_running), tone=_PODS),)
    note = "Pods on a node with work left"
    return line_chart(_chart(report, "Running pods", note, series, unit=NumberUnit.COUNT))


def throughput(report: RunReport) -> Markup:
    """Show the decisions per second of scheduling, averaged over stretches of the run."""
    n = len(report.samples.time_s)
    ends = np.unique(np.linspace(0, n - 1, min(n, _RATE_STRETCHES + 1)).astype(int)).tolist()
    rates = _column(report.decision_rates(ends))
    return line_chart(
        _chart(
            report,
            "Scheduling throughput",
            "Decisions per second of wall time spent in the scheduler",
            (ChartSeries(name="decisions", values=rates, tone=_CPU),),
            unit=NumberUnit.RATE,
            rows=ends,
        )
    )


def waiting(report: RunReport) -> Markup:
    """Show how long the pods waited that were scheduled since the sample before."""
    series = (
        ChartSeries(name="median", values=_column(report.samples.waited_p50_s), tone=_CPU),
        ChartSeries(
            name="95th percentile", values=_column(report.samples.waited_p95_s), tone=_LATE
        ),
    )
    note = "Virtual time from submission to a node, by time of scheduling"
    return line_chart(_chart(report, "Waiting time", note, series, unit=NumberUnit.SECONDS))


def colocation_charts(report: RunReport) -> list[Markup]:
    """Return who uses the CPUs and when services are at risk; none where that wasn't measured."""
    found = report.colocation
    if found is None:
        return []
    when = "with colocation" if found.is_on else "without colocation"
    columns = found.samples
    used = (
        ChartSeries(name="services", values=_column(columns.services_cpu), tone=_CPU),
        ChartSeries(name="best effort", values=_column(columns.best_effort_cpu), tone=_PODS),
        *(
            ChartSeries(name=name, values=_column(values), tone=tone)
            for name, values, tone in (
                ("batch-cpu", columns.batch_cpu, _MEMORY),
                ("mid-cpu", columns.mid_cpu, _GPU),
            )
            if any(values)
        ),
    )
    risk = (
        ChartSeries(name="at risk", values=_column(columns.at_risk), tone=_LATE),
        ChartSeries(name="held back", values=_column(columns.suppressed), tone=_PODS),
    )
    note = f"Share of time above {found.safe_percent}% of a node, of the CPU that best effort wants"
    return [
        line_chart(
            _chart(
                report,
                f"CPU in use, {when}",
                "Share of all CPUs, and what is published of them",
                used,
                unit=NumberUnit.SHARE,
                axis=SHARES,
            )
        ),
        line_chart(_chart(report, f"Services at risk, {when}", note, risk, unit=NumberUnit.SHARE)),
        *(_yarn_charts(report, found.yarn) if found.is_on and found.yarn is not None else ()),
    ]


def _yarn_charts(report: RunReport, yarn: YarnReport) -> list[Markup]:
    """Return what YARN may hand out and what its containers use, and how many of them wait."""
    columns = yarn.samples
    shares = (
        ChartSeries(name="may be handed out", values=_column(columns.limit_cpu), tone=_MEMORY),
        ChartSeries(name="in use", values=_column(columns.used_cpu), tone=_PODS),
    )
    waits = (ChartSeries(name="waiting", values=_column(columns.waiting), tone=_LATE),)
    note = "Share of all CPUs: limits of NodeManagers, and what containers use of them"
    return [
        line_chart(_chart(report, "CPU of YARN", note, shares, unit=NumberUnit.SHARE, axis=SHARES)),
        line_chart(
            _chart(
                report,
                "Containers of YARN that wait",
                "Asked for by applications, without a node",
                waits,
                unit=NumberUnit.COUNT,
            )
        ),
    ]


def group_charts(report: RunReport) -> list[Markup]:
    """Return a small chart of the allocated shares per node group."""
    return [
        line_chart(
            _chart(
                report,
                group.name,
                _size_of(group),
                _allocation_series(report.samples.allocated[group.name], with_gpu=group.gpus > 0),
                unit=NumberUnit.SHARE,
                axis=SHARES,
            ),
            small=True,
        )
        for group in report.groups
    ]


def event_strip(report: RunReport) -> Markup:
    """Show when nodes failed and when other things happened."""
    failures = [e.time_s - report.started_s for e in report.events if e.is_node_failure]
    others = [e.time_s - report.started_s for e in report.events if not e.is_node_failure]
    return strip(
        title="Time line",
        note=f"{count(len(failures))} node failures (tall), {count(len(others))} other events",
        span_s=report.finished_s - report.started_s,
        strong_s=failures,
        weak_s=others,
    )


def _chart(
    report: RunReport,
    title: str,
    note: str,
    series: tuple[ChartSeries, ...],
    *,
    unit: NumberUnit,
    axis: Axis | None = None,
    rows: Sequence[int] | None = None,
) -> Chart:
    """Return a chart of the samples in ``rows``, all if None; the axis reaches to the top value."""
    time_s = np.array(report.samples.time_s, float) - report.started_s
    if axis is None:
        axis = value_axis(max((_top(s.values) for s in series), default=0.0), unit)
    return Chart(
        title=title,
        note=note,
        time_s=time_s if rows is None else time_s[list(rows)],
        span_s=report.finished_s - report.started_s,
        series=series,
        axis=axis,
        unit=unit,
    )


def _allocation_series(columns: AllocationColumns, *, with_gpu: bool) -> tuple[ChartSeries, ...]:
    gpu = (ChartSeries(name="GPU", values=_column(columns.gpu), tone=_GPU),) if with_gpu else ()
    return (
        *gpu,
        ChartSeries(name="CPU", values=_column(columns.cpu), tone=_CPU),
        ChartSeries(name="memory", values=_column(columns.memory), tone=_MEMORY),
    )


def _size_of(group: NodeGroup) -> str:
    sizes = [f"{count(group.nodes)} nodes"]
    if group.gpus:
        sizes.append(f"{count(group.gpus)} GPUs")
    sizes += [f"{count(group.cpu_cores)} cores", memory(group.memory_bytes)]
    return " · ".join(size.replace(" ", "\N{NO-BREAK SPACE}") for size in sizes)


def _column(values: Sequence[float | None]) -> FloatArray:
    return np.array([np.nan if v is None else v for v in values], float)


def _top(values: FloatArray) -> float:
    known = values[~np.isnan(values)]
    return float(known.max()) if len(known) else 0.0
