"""A simulation run for people: one HTML file that needs nothing else, a table for the terminal.

report.css has the looks, report.js the read-outs; both are put into the page.
"""

from collections.abc import Callable

from rich.table import Table
from rich.text import Text

from koordinator.domain.run_report import KindTotals, RunEvent, RunReport
from koordinator.simulator.colocation.comparison import comparison_markup, queue_markup
from koordinator.simulator.markup import Markup, element
from koordinator.simulator.numerals import UNKNOWN, NumberUnit, count, duration, percent
from koordinator.simulator.page import asset, html_page, section
from koordinator.simulator.run_charts import (
    cluster_charts,
    colocation_charts,
    event_strip,
    group_charts,
    has_gpus,
)

_MOST_EVENTS = 200


def render_html(report: RunReport, before: RunReport | None = None) -> str:
    """Return the whole page; ``before`` is the run to compare its colocation with."""
    main = element(
        "main",
        _key_figures(report),
        _colocation(report, before),
        section("Over time", _charts(cluster_charts(report), "charts")),
        section("Node groups", _charts(group_charts(report), "charts groups"))
        if report.groups
        else "",
        section("Workloads", _kind_table(report)),
        section("Events", event_strip(report), _event_list(report)),
        section("Parameters", _parameters(report)) if report.parameters else "",
    )
    return html_page(report.title, _header(report), main, element("script", asset("report.js")))


def summary_table(report: RunReport) -> Table:
    """Return the totals per workload kind, with the figures of the cluster below."""
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


def _charts(charts: list[Markup], class_: str) -> Markup:
    return element("div", *charts, class_=class_)


def _colocation(report: RunReport, before: RunReport | None) -> str:
    if report.colocation is None:
        return ""
    runs = [report] if before is None else [before, report]
    charts = [chart for run in runs for chart in colocation_charts(run)]
    yarn = report.colocation.yarn
    queues = queue_markup(yarn) if yarn is not None else ""
    return section("Colocation", comparison_markup(runs), _charts(charts, "charts"), queues)


def _header(report: RunReport) -> Markup:
    facts = [
        f"{count(sum(g.nodes for g in report.groups))} nodes",
        f"{count(sum(g.gpus for g in report.groups))} GPUs",
        f"{count(sum(g.cpu_cores for g in report.groups))} CPU cores",
        f"{duration(report.finished_s - report.started_s)} of virtual time",
        f"simulated in {duration(report.wall_s)}",
        f"seed {report.seed}",
    ]
    return element(
        "header",
        element("h1", report.title),
        element("ul", *(element("li", fact) for fact in facts), class_="facts"),
    )


def _figures(report: RunReport) -> list[tuple[str, str, str]]:
    """Return label, value and remark of what one wants to know first."""
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
    return [
        *(gpu_figures if has_gpus(report) else ()),
        (
            "CPU allocated",
            percent(report.mean_over_time(allocated.cpu)),
            f"mean, peak {percent(max(allocated.cpu, default=None))}",
        ),
        ("Pods scheduled", count(total.scheduled), f"of {count(total.submitted)} submitted"),
        (
            "Median wait",
            duration(waits.p50_s) if waits else UNKNOWN,
            f"p99 {duration(waits.p99_s)}" if waits else UNKNOWN,
        ),
        ("Throughput", NumberUnit.RATE.text(report.decision_rate()), "scheduling decisions"),
        ("Node failures", count(report.node_failures), f"{count(total.failed)} pods failed"),
    ]


def _key_figures(report: RunReport) -> Markup:
    items = (
        element(
            "div",
            element("dt", label),
            element("dd", value),
            element("dd", remark, class_="remark"),
        )
        for label, value, remark in _figures(report)
    )
    return element("dl", *items, class_="figures")


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


def _kind_table(report: RunReport) -> Markup:
    head = element("tr", *(element("th", name, scope="col") for name, _ in _KIND_COLUMNS))
    table = element(
        "table",
        element("thead", head),
        element("tbody", *(_kind_row(kind) for kind in report.kinds)),
        element("tfoot", _kind_row(report.total)),
    )
    return element("div", table, class_="scroll", role="region", aria_label="Workloads", tabindex=0)


def _kind_row(kind: KindTotals) -> Markup:
    name, *figures = (text(kind) for _, text in _KIND_COLUMNS)
    return element(
        "tr", element("th", name, scope="row"), *(element("td", text) for text in figures)
    )


def _event_list(report: RunReport) -> Markup:
    if not report.events:
        return element("p", "Nothing happened.", class_="nothing")
    items = [_event(e, report.started_s) for e in report.events[:_MOST_EVENTS]]
    left_out = len(report.events) - len(items)
    if left_out:
        items.append(element("li", f"and {count(left_out)} more"))
    return element("ol", *items, class_="events")


def _event(event: RunEvent, started_s: float) -> Markup:
    return element(
        "li",
        element("span", duration(event.time_s - started_s), class_="at"),
        element("span", event.text, class_="what"),
        class_="failure" if event.is_node_failure else None,
    )


def _parameters(report: RunReport) -> Markup:
    items = (
        element("div", element("dt", name), element("dd", value))
        for name, value in report.parameters.items()
    )
    return element("dl", *items, class_="parameters")
