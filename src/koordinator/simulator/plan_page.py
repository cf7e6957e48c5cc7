"""Result page of a descheduler plan."""

from collections.abc import Callable, Mapping, Sequence

from koordinator.simulator.move_plan import (
    MoveCost,
    MovePlan,
    NodeForecast,
    PlannedMove,
    StayingPod,
)
from koordinator.simulator.numerals import UNKNOWN, count, percent
from koordinator.simulator.page import PageChange, PageSection, PageTable, ResultPage

_MAX_ROWS = 2000  # of a table
_SHARES = ("requested", "used")

_MOVE_COLUMNS: tuple[tuple[str, Callable[[PlannedMove], str]], ...] = (
    ("", lambda move: str(move.order)),
    ("pod", lambda move: move.pod),
    ("from", lambda move: move.source),
    ("to", lambda move: move.target or "not proven"),
    ("gain", lambda move: move.gain_text),
    ("cost", lambda move: format_cost(move.cost)),
    ("after", lambda move: ", ".join(move.after)),
    ("requested by", lambda move: f"{move.plugin}: {move.reason}" if move.reason else move.plugin),
)
_STAY_COLUMNS: tuple[tuple[str, Callable[[StayingPod], str]], ...] = (
    ("pod", lambda stay: stay.pod),
    ("on", lambda stay: stay.node),
    ("reason", lambda stay: f"{stay.why}: {stay.detail}" if stay.detail else stay.why),
    ("requested by", lambda stay: f"{stay.plugin}: {stay.reason}" if stay.reason else stay.plugin),
)


def plan_page(plan: MovePlan, title: str = "Plan of moves") -> ResultPage:
    """Return the whole page."""
    return ResultPage(
        title=title,
        facts=_facts(plan),
        sections=(
            _section("Moves", _MOVE_COLUMNS, plan.moves, "No pod moves."),
            _section("Skipped moves", _STAY_COLUMNS, plan.stays, "No move was skipped."),
            *((_nodes(plan.nodes),) if plan.nodes else ()),
        ),
    )


def format_cost(cost: MoveCost) -> str:
    """Return the priority and eviction cost of a moved pod, and its disruption budgets."""
    parts = [f"{cost.band or 'priority'} {cost.priority}"]
    if cost.eviction_cost:
        parts.append(f"eviction cost {cost.eviction_cost}")
    parts += (f"budget {each.name}: {each.left} left" for each in cost.budgets)
    return ", ".join(parts)


def _facts(plan: MovePlan) -> tuple[str, ...]:
    by_plugin: dict[str, float] = {}
    for move in plan.moves:
        by_plugin[move.plugin] = by_plugin.get(move.plugin, 0.0) + move.gain
    return (
        f"{count(len(plan.moves))} {'move' if len(plan.moves) == 1 else 'moves'}",
        *((f"skipped moves: {count(len(plan.stays))}",) if plan.stays else ()),
        *(("proven by the scheduler" if plan.is_proven else "not proven",) if plan.moves else ()),
        *(f"gain of {name}: {gain:.2f}" for name, gain in sorted(by_plugin.items())),
        *plan.problems,
    )


def _section(
    title: str,
    columns: Sequence[tuple[str, Callable[..., str]]],
    rows: Sequence[object],
    nothing: str,
) -> PageSection:
    if not rows:
        return PageSection(title=title, text=nothing)
    table = PageTable(
        label=title,
        heads=tuple(name for name, _ in columns),
        rows=tuple(tuple(text(row) for _, text in columns) for row in rows[:_MAX_ROWS]),
        left_out=max(len(rows) - _MAX_ROWS, 0),
    )
    return PageSection(title=title, tables=(table,))


def _nodes(nodes: Sequence[NodeForecast]) -> PageSection:
    title = "Nodes before and after"
    names = list(dict.fromkeys(name for node in nodes for name in (*node.requested, *node.used)))
    table = PageTable(
        label=title,
        heads=("node", "pods", *(f"{name} {share}" for name in names for share in _SHARES)),
        rows=tuple(
            (
                node.node,
                f"{node.pods[0]} → {node.pods[1]}",
                *(
                    PageChange(*shares[name]) if name in shares else UNKNOWN
                    for name in names
                    for shares in (node.requested, node.used)
                ),
            )
            for node in nodes[:_MAX_ROWS]
        ),
        left_out=max(len(nodes) - _MAX_ROWS, 0),
    )
    return PageSection(title=title, tables=(table,))


def share_text(shares: Mapping[str, tuple[float, float]]) -> str:
    """Return shares before and after by name, for a table cell."""
    return ", ".join(
        f"{name} {percent(before)} → {percent(after)}" for name, (before, after) in shares.items()
    )
