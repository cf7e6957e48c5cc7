"""Report of a simulation run: a result page and a table for the terminal."""

from collections.abc import Callable
from html import escape

from rich.table import Table
from rich.text import Text

from koordinator.simulator.colocation.comparison import comparison_page_table, queue_page_table
from koordinator.simulator.device_bars import BarLanes
from koordinator.simulator.job_metrics import JobMetrics
from koordinator.simulator.numerals import UNKNOWN, NumberUnit, count, duration, percent
from koordinator.simulator.page import (
    PageFigure,
    PageMark,
    PageSection,
    PageTable,
    ResultPage,
)
from koordinator.simulator.run_charts import (
    cluster_charts,
    colocation_charts,
    group_charts,
    has_gpus,
    throughput,
)
from koordinator.simulator.run_report import KindTotals, MoveTotals, RunReport


def run_page(
    report: RunReport, before: RunReport | None = None, devices: BarLanes | None = None
) -> ResultPage:
    """Return the page; ``before`` is the run to compare its colocation with.

    ``devices`` are the GPU bars of the run.
    """
    return ResultPage(
        title=report.title,
        facts=_facts(report),
        figures=tuple(PageFigure(*one) for one in _figures(report)),
        sections=tuple(_sections(report, before, devices)),
    )


def _sections(
    report: RunReport, before: RunReport | None, devices: BarLanes | None
) -> list[PageSection]:
    sections = [_colocation(report, before)] if report.colocation is not None else []
    has_samples = bool(report.samples.time_s)
    if has_samples:
        sections.append(PageSection(title="Over time", charts=cluster_charts(report)))
        if len(report.groups) > 1:
            sections.append(PageSection(title="Node groups", charts=group_charts(report)))
        if devices is not None and devices.lanes:
            sections.append(PageSection(title="GPUs over time", devices=devices))
    sections.append(PageSection(title="Workloads", tables=(_kind_table(report),)))
    marks = tuple(
        PageMark(event.time_s - report.started_s, event.text, event.is_node_failure)
        for event in report.events
    )
    nothing = "" if marks else "No node failed, and no pod was evicted."
    sections.append(PageSection(title="Events", text=nothing, marks=marks))
    if report.parameters:
        rows = tuple((name, value) for name, value in report.parameters.items())
        table = PageTable(label="Parameters", heads=("parameter", "value"), rows=rows)
        sections.append(PageSection(title="Parameters", tables=(table,), is_folded=True))
    if has_samples and report.decision_rate() is not None:
        speed = NumberUnit.RATE.text(report.decision_rate())
        sections.append(
            PageSection(
                title="The simulator",
                text=f"The run took {duration(report.wall_s)}; scheduling decisions: {speed}.",
                charts=(throughput(report),),
                is_folded=True,
            )
        )
    return sections


def summary_table(report: RunReport) -> Table:
    """Return the totals by workload kind, with the cluster's figures as the caption."""
    table = Table(
        title=Text(report.title),
        caption=Text(" · ".join(f"{label}: {value}" for label, value, _ in _figures(report))),
        title_justify="left",
        caption_justify="left",
    )
    for name, _ in _KIND_COLUMNS:
        table.add_column(name, justify="left" if name == _KIND_COLUMNS[0][0] else "right")
    for kind in report.kinds:
        table.add_row(*(Text(text(kind)) for _, text in _KIND_COLUMNS))
    table.add_section()
    table.add_row(*(Text(text(report.total)) for _, text in _KIND_COLUMNS), style="bold")
    return table


def summary_html(report: RunReport) -> str:
    """Return the same table and figures as HTML, for notebooks."""
    table = _kind_table(report)
    rows = [*table.rows, *((table.foot,) if table.foot else ())]
    heads = "".join(f"<th>{escape(head)}</th>" for head in table.heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows
    )
    figures = " · ".join(f"{label}: {value}" for label, value, _ in _figures(report))
    return (
        f"<table><caption>{escape(report.title)}</caption><thead><tr>{heads}</tr></thead>"
        f"<tbody>{body}</tbody></table><p>{escape(figures)}</p>"
    )


def _kind_table(report: RunReport) -> PageTable:
    return PageTable(
        label="Workloads",
        heads=tuple(name for name, _ in _KIND_COLUMNS),
        rows=tuple(tuple(text(kind) for _, text in _KIND_COLUMNS) for kind in report.kinds),
        foot=tuple(text(report.total) for _, text in _KIND_COLUMNS),
        has_figures=True,
    )


def _colocation(report: RunReport, before: RunReport | None) -> PageSection:
    runs = [report] if before is None else [before, report]
    yarn = report.colocation.yarn if report.colocation is not None else None
    return PageSection(
        title="Colocation",
        charts=tuple(chart for run in runs for chart in colocation_charts(run)),
        tables=(
            comparison_page_table(runs),
            *((queue_page_table(yarn),) if yarn is not None else ()),
        ),
    )


def _facts(report: RunReport) -> tuple[str, ...]:
    gpus = sum(group.gpus for group in report.groups)
    return (
        f"{count(sum(g.nodes for g in report.groups))} nodes",
        *((f"{count(gpus)} GPUs",) if gpus else ()),
        f"{count(sum(g.cpu_cores for g in report.groups))} CPU cores",
        f"{duration(report.finished_s - report.started_s)} of virtual time",
        f"seed {report.seed}",
    )


def _figures(report: RunReport) -> list[tuple[str, str, str]]:
    """Return label, value and remark of the key figures."""
    allocated, total, waits = report.allocated(), report.total, report.total.waiting
    gpu_figures = [
        (
            "GPU allocated",
            percent(report.mean_over_time(allocated.gpu)),
            f"mean, peak {percent(max(allocated.gpu, default=None))}",
        ),
        (
            "GPU fragmentation",
            percent(report.mean_over_time(report.samples.gpu_fragmentation)),
            "mean, of the free GPUs",
        ),
    ]
    failures = ("Node failures", count(report.node_failures), f"{count(total.failed)} pods failed")
    return [
        ("Pods scheduled", count(total.scheduled), f"of {count(total.submitted)} submitted"),
        (
            "Median wait",
            duration(waits.p50_s) if waits else UNKNOWN,
            f"p95 {duration(waits.p95_s)}, p99 {duration(waits.p99_s)}" if waits else UNKNOWN,
        ),
        *(gpu_figures if has_gpus(report) else ()),
        (
            "CPU allocated",
            percent(report.mean_over_time(allocated.cpu)),
            f"mean, peak {percent(max(allocated.cpu, default=None))}",
        ),
        *((failures,) if report.node_failures else ()),
        *(_jobs(report.jobs) if report.jobs is not None and report.jobs.finished else ()),
        *(_moves(report.moves) if report.moves is not None else ()),
    ]


def _jobs(jobs: JobMetrics) -> list[tuple[str, str, str]]:
    """Return the figures of jobs; of cost and energy if they are known."""
    done, queued, fair = jobs.completion, jobs.queueing, jobs.fairness
    return [
        (
            "Mean job completion",
            duration(done.mean_s) if done else UNKNOWN,
            f"p50 {duration(done.p50_s)}, p99 {duration(done.p99_s)}" if done else UNKNOWN,
        ),
        (
            "Mean queueing delay",
            duration(queued.mean_s) if queued else UNKNOWN,
            f"{count(jobs.restarts)} restarts",
        ),
        *(
            [
                (
                    "Finish-time fairness",
                    f"{fair.mean:.2f}",
                    f"mean, worst {fair.worst:.3g}; {percent(fair.unfair_share)} above 1",
                )
            ]
            if fair
            else ()
        ),
        *(
            [("Cost", f"{jobs.cost:,.2f}", f"{jobs.cost_per_job or 0.0:,.2f} per finished job")]
            if jobs.cost is not None
            else ()
        ),
        *(
            [("Energy", f"{jobs.energy_kwh:,.1f} kWh", "of all nodes")]
            if jobs.energy_kwh is not None
            else ()
        ),
    ]


def _moves(moves: MoveTotals) -> list[tuple[str, str, str]]:
    return [
        ("Moves", count(moves.moves), f"at most {moves.at_most_per_1000:g} per 1,000 arrivals"),
        ("Moves per 1,000 arrivals", f"{moves.per_1000:.3g}", f"{count(moves.arrivals)} arrivals"),
        ("Evictions in vain", count(moves.in_vain), "back on the node, or waited too long"),
    ]


def _wait_column(name: str) -> Callable[[KindTotals], str]:
    return lambda kind: UNKNOWN if not kind.waiting else duration(getattr(kind.waiting, name))


_KIND_COLUMNS: tuple[tuple[str, Callable[[KindTotals], str]], ...] = (
    ("workload", lambda kind: kind.kind),
    ("submitted", lambda kind: count(kind.submitted)),
    ("scheduled", lambda kind: count(kind.scheduled)),
    ("finished", lambda kind: count(kind.finished)),
    ("failed", lambda kind: count(kind.failed)),
    ("resubmitted", lambda kind: count(kind.resubmitted)),
    ("mean wait", _wait_column("mean_s")),
    ("p50", _wait_column("p50_s")),
    ("p95", _wait_column("p95_s")),
    ("p99", _wait_column("p99_s")),
)
