"""The figures of colocation, of one run or of two side by side: as a table, and on the page."""

from collections.abc import Callable, Sequence

from rich.table import Table
from rich.text import Text

from koordinator.domain.colocation_report import ColocationTotals
from koordinator.domain.run_report import RunReport
from koordinator.simulator.markup import Markup, element
from koordinator.simulator.numerals import count, percent

_FIGURES: tuple[tuple[str, Callable[[ColocationTotals], str]], ...] = (
    ("CPU in use", lambda t: percent(t.used_cpu)),
    ("by services", lambda t: percent(t.services_cpu)),
    ("by best-effort pods", lambda t: percent(t.best_effort_cpu)),
    ("best-effort work, core hours", lambda t: count(t.best_effort_core_hours)),
    ("of it lost, core hours", lambda t: count(t.lost_core_hours)),
    ("best-effort pods finished", lambda t: count(t.finished)),
    ("best-effort pods evicted", lambda t: count(t.evicted)),
    ("best-effort CPU held back", lambda t: percent(t.suppressed)),
    ("services at risk, share of time", lambda t: percent(t.at_risk)),
    ("services at risk, node hours", lambda t: f"{t.at_risk_hours:.1f}"),
)
BEFORE, AFTER = "without colocation", "with colocation"


def comparison_table(before: RunReport, after: RunReport) -> Table:
    """Return the figures of two runs of one workload; both have measured colocation."""
    table = Table(title=Text("Before and after colocation"), title_justify="left")
    table.add_column("")
    for name in (BEFORE, AFTER):
        table.add_column(name, justify="right")
    for name, *texts in _rows((before, after)):
        table.add_row(Text(name), *map(Text, texts))
    return table


def comparison_markup(runs: Sequence[RunReport]) -> Markup:
    """Return the figures of one run, or of two (before, after), for the page of a report."""
    names = (BEFORE, AFTER)[-len(runs) :]
    head = element("tr", element("th", ""), *(element("th", n, scope="col") for n in names))
    body = (
        element("tr", element("th", name, scope="row"), *(element("td", text) for text in texts))
        for name, *texts in _rows(runs)
    )
    table = element("table", element("thead", head), element("tbody", *body))
    return element(
        "div", table, class_="scroll", role="region", aria_label="Colocation", tabindex=0
    )


def _rows(runs: Sequence[RunReport]) -> list[list[str]]:
    totals = [run.colocation.totals for run in runs if run.colocation is not None]
    return [[name, *(text(each) for each in totals)] for name, text in _FIGURES]
