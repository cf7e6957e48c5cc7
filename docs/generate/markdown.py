"""Markdown of generated pages."""

from collections.abc import Iterable, Sequence


def code(text: str) -> str:
    """Return a text in back quotes, fit for a cell of a table; an empty one stays empty."""
    return f"`{text}`".replace("|", "\\|").replace("\n", " ") if text else ""


def cell(text: str) -> str:
    """Return a text fit for a cell of a table."""
    return " ".join(text.split()).replace("``", "`").replace("|", "\\|").replace("<", "&lt;")


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table whose cells are Markdown."""
    lines = [f"| {' | '.join(head)} |", f"|{'---|' * len(head)}"]
    lines += [f"| {' | '.join(row)} |" for row in rows]
    return "\n".join(lines) + "\n"


def first_paragraph(docstring: str | None) -> str:
    """Return the first paragraph of a docstring on one line."""
    return " ".join((docstring or "").strip().split("\n\n")[0].split()).replace("``", "`")


def page(title: str, *parts: str) -> str:
    """Return a page with a title and parts that are set off by empty lines."""
    return "\n\n".join((f"# {title}", *(part.strip() for part in parts if part.strip()))) + "\n"
