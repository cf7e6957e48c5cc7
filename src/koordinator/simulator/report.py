"""Report of a simulation run: a result page and a table for the terminal.

Tables with the figures of colocation, of one run or of two runs side by side.
"""

from collections.abc import Callable, Sequence
from html import escape

from rich.table import Table
from rich.text import Text

from koordinator.simulator.colocation_report import ColocationTotals, YarnQueueTotals, YarnReport
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

_FIGURES: tuple[tuple[str, Callable[[ColocationTotals], str]], ...] = (
    ("CPU in use", lambda t: percent(t.used_cpu)),
    ("by services", lambda t: percent(t.services_cpu)),
    ("by best-effort pods", lambda t: percent(t.best_effort_cpu)),
    ("best-effort work, core hours", lambda t: count(t.best_effort_core_hours)),
    ("best-effort work lost, core hours", lambda t: count(t.lost_core_hours)),
    ("best-effort pods finished", lambda t: count(t.finished)),
    ("best-effort pods evicted", lambda t: count(t.evicted)),
    ("best-effort CPU suppressed", lambda t: percent(t.suppressed)),
    ("services at risk, share of time", lambda t: percent(t.at_risk)),
    ("services at risk, node hours", lambda t: f"{t.at_risk_hours:.1f}"),
)
_YARN_FIGURES: tuple[tuple[str, Callable[[YarnReport], str]], ...] = (
    ("by containers of YARN", lambda y: percent(y.used_cpu)),
    ("CPU limit of YARN", lambda y: percent(y.limit_cpu)),
    ("work of YARN, core hours", lambda y: count(y.core_hours)),
    ("work of YARN lost, core hours", lambda y: count(y.lost_core_hours)),
)
_QUEUE_COLUMNS: tuple[tuple[str, Callable[[YarnQueueTotals], str]], ...] = (
    ("queue", lambda q: q.queue),
    ("applications", lambda q: count(q.applications)),
    ("finished", lambda q: count(q.applications_finished)),
    ("containers", lambda q: count(q.containers)),
    ("started", lambda q: count(q.started)),
    ("finished", lambda q: count(q.finished)),
    ("preempted", lambda q: count(q.preempted)),
    ("evicted", lambda q: count(q.evicted)),
    ("lost", lambda q: count(q.lost)),
    ("mean wait", lambda q: duration(q.waiting.mean_s) if q.waiting else UNKNOWN),
    ("p50", lambda q: duration(q.waiting.p50_s) if q.waiting else UNKNOWN),
    ("p95", lambda q: duration(q.waiting.p95_s) if q.waiting else UNKNOWN),
)
BEFORE, AFTER = "without colocation", "with colocation"


def comparison_table(before: RunReport, after: RunReport) -> Table:
    """Return the figures of two runs of one workload with measured colocation."""
    table = Table(title=Text("Before and after colocation"), title_justify="left")
    table.add_column("")
    for name in (BEFORE, AFTER):
        table.add_column(name, justify="right")
    for name, *texts in _rows((before, after)):
        table.add_row(Text(name), *map(Text, texts))
    return table


def queue_table(yarn: YarnReport) -> Table:
    """Return the outcomes of YARN's containers by queue."""
    shares = f"{percent(yarn.used_cpu)} of all CPUs in use, limit {percent(yarn.limit_cpu)}"
    work = f"{count(yarn.core_hours)} core hours, {count(yarn.lost_core_hours)} of them lost"
    table = Table(
        title=Text("Queues of YARN"),
        caption=Text(f"{shares} · {work}"),
        title_justify="left",
        caption_justify="left",
    )
    for number, (name, _) in enumerate(_QUEUE_COLUMNS):
        table.add_column(name, justify="right" if number else "left")
    for queue in yarn.queues:
        table.add_row(*(Text(text(queue)) for _, text in _QUEUE_COLUMNS))
    return table


def queue_page_table(yarn: YarnReport) -> PageTable:
    """Return the outcomes of YARN's containers by queue, for a report's page."""
    return PageTable(
        label="Queues of YARN",
        heads=tuple(name for name, _ in _QUEUE_COLUMNS),
        rows=tuple(tuple(text(queue) for _, text in _QUEUE_COLUMNS) for queue in yarn.queues),
        has_figures=True,
    )


def comparison_page_table(runs: Sequence[RunReport]) -> PageTable:
    """Return the figures of one run, or of two (before, after), for a report's page."""
    return PageTable(
        label="Colocation",
        heads=("", *(BEFORE, AFTER)[-len(runs) :]),
        rows=tuple(tuple(row) for row in _rows(runs)),
        has_figures=True,
    )


def _rows(runs: Sequence[RunReport]) -> list[list[str]]:
    colocations = [run.colocation for run in runs if run.colocation is not None]
    rows = [[name, *(text(each.totals) for each in colocations)] for name, text in _FIGURES]
    yarn = [each.yarn for each in colocations if each.yarn is not None]
    if yarn:
        rows += [[name, *(text(each) for each in yarn)] for name, text in _YARN_FIGURES]
    return rows


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
