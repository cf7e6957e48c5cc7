"""A plan of moves for people: one HTML file that needs nothing else."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from koordinator.domain.move_plan import MoveCost, MovePlan, NodeOutlook, PlannedMove, StayingPod
from koordinator.simulator.markup import Markup, element, join
from koordinator.simulator.numerals import count, percent
from koordinator.simulator.page import html_page, section

_MOST_ROWS = 2000  # of a table

_MOVE_COLUMNS: tuple[tuple[str, Callable[[PlannedMove], str]], ...] = (
    ("", lambda move: str(move.order)),
    ("pod", lambda move: move.pod),
    ("from", lambda move: move.source),
    ("to", lambda move: move.target or "not proven"),
    ("gain", lambda move: move.gain_text),
    ("cost", lambda move: spoken_cost(move.cost)),
    ("after", lambda move: ", ".join(move.after)),
    ("wanted by", lambda move: f"{move.plugin}: {move.reason}" if move.reason else move.plugin),
)
_STAY_COLUMNS: tuple[tuple[str, Callable[[StayingPod], str]], ...] = (
    ("pod", lambda stay: stay.pod),
    ("on", lambda stay: stay.node),
    ("why it stays", lambda stay: f"{stay.why}: {stay.detail}" if stay.detail else stay.why),
    ("wanted by", lambda stay: f"{stay.plugin}: {stay.reason}" if stay.reason else stay.plugin),
)


def render_plan(plan: MovePlan, title: str = "Plan of moves") -> str:
    """Return the whole page."""
    return html_page(
        title,
        element("header", element("h1", title), _facts(plan)),
        element(
            "main",
            section("Moves", _table(_MOVE_COLUMNS, plan.moves, "Nothing moves.")),
            section("What stays, and why", _table(_STAY_COLUMNS, plan.stays, "Nothing else.")),
            section("Nodes before and after", _nodes(plan.nodes)) if plan.nodes else "",
        ),
    )


def spoken_cost(cost: MoveCost) -> str:
    """Return whose restart a move costs, and which disruption budgets are left."""
    parts = [f"{cost.band or 'priority'} {cost.priority}"]
    if cost.eviction_cost:
        parts.append(f"eviction cost {cost.eviction_cost}")
    parts += (f"budget {each.name}: {each.left} left" for each in cost.budgets)
    return ", ".join(parts)


def _facts(plan: MovePlan) -> Markup:
    by_plugin: dict[str, float] = {}
    for move in plan.moves:
        by_plugin[move.plugin] = by_plugin.get(move.plugin, 0.0) + move.gain
    facts = [
        f"{count(len(plan.moves))} moves",
        f"{count(len(plan.stays))} pods that stay although a plugin wants them to go",
        "each move proven by the scheduler" if plan.is_proven else "moves not proven",
        *(f"gain of {name}: {gain:.2f}" for name, gain in sorted(by_plugin.items())),
        *plan.problems,
    ]
    return element("ul", *(element("li", fact) for fact in facts), class_="facts")


def _table(
    columns: Sequence[tuple[str, Callable[..., str]]], rows: Sequence[object], nothing: str
) -> Markup:
    if not rows:
        return element("p", nothing, class_="nothing")
    head = element("tr", *(element("th", name, scope="col") for name, _ in columns))
    shown = (
        element("tr", *(element("td", text(row), class_="text") for _, text in columns))
        for row in rows[:_MOST_ROWS]
    )
    table = element("table", element("thead", head), element("tbody", *shown))
    left_out = len(rows) - _MOST_ROWS
    more = element("p", f"and {count(left_out)} more") if left_out > 0 else ""
    return element("div", table, more, class_="scroll", tabindex=0)


def _nodes(nodes: Sequence[NodeOutlook]) -> Markup:
    names = list(dict.fromkeys(name for node in nodes for name in (*node.requested, *node.used)))
    head = element(
        "tr",
        element("th", "node", scope="col"),
        element("th", "pods", scope="col"),
        *(
            element("th", f"{name} {what}", scope="col")
            for name in names
            for what in ("requested", "used")
        ),
    )
    rows = (
        element(
            "tr",
            element("th", node.node, scope="row"),
            element("td", f"{node.pods[0]} → {node.pods[1]}"),
            *(
                element("td", _change(shares.get(name)))
                for name in names
                for shares in (node.requested, node.used)
            ),
        )
        for node in nodes[:_MOST_ROWS]
    )
    table = element("table", element("thead", head), element("tbody", *rows))
    return element("div", table, class_="scroll", tabindex=0)


def _change(shares: tuple[float, float] | None) -> Markup:
    if shares is None:
        return Markup("")
    return join(_bars(shares))


def _bars(shares: tuple[float, float]) -> Iterable[str]:
    yield f"{percent(shares[0])} → {percent(shares[1])}"
    for share in shares:
        yield element("br")
        yield element("meter", min=0, max=1, value=min(max(share, 0.0), 1.0))


def share_text(shares: Mapping[str, tuple[float, float]]) -> str:
    """Return shares before and after by name, for a line of a table."""
    return ", ".join(
        f"{name} {percent(before)} → {percent(after)}" for name, (before, after) in shares.items()
    )
