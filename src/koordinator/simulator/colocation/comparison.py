"""Tables with the figures of colocation, of one run or of two runs side by side."""

from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from koordinator.simulator.colocation_report import ColocationTotals, YarnQueueTotals, YarnReport
from koordinator.simulator.numerals import UNKNOWN, count, duration, percent
from koordinator.simulator.page import PageTable
from koordinator.simulator.run_report import RunReport

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
    found = [run.colocation for run in runs if run.colocation is not None]
    rows = [[name, *(text(each.totals) for each in found)] for name, text in _FIGURES]
    yarn = [each.yarn for each in found if each.yarn is not None]
    if yarn:
        rows += [[name, *(text(each) for each in yarn)] for name, text in _YARN_FIGURES]
    return rows
