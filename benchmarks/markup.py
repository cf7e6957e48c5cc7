"""HTML and SVG made of nested calls.  Text is escaped unless it is ``Markup`` already."""

from collections.abc import Iterable
from html import escape

_VOID = frozenset({"br", "hr", "link", "meta"})


class Markup(str):
    """Text that may stand in a page as it is."""

    __slots__ = ()


def element(name: str, /, *children: str, **attributes: str | float | None) -> Markup:
    """Return ``<name attribute="…">children</name>``.

    Underscores in attribute names become hyphens, one at the end is dropped (``class_``);
    an attribute that is None is left out.
    """
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(str(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    if name in _VOID:
        return Markup(f"<{name}{written}>")
    return Markup(f"<{name}{written}>{join(children)}</{name}>")


def join(parts: Iterable[str]) -> Markup:
    """Return the parts one after the other."""
    return Markup("".join(p if isinstance(p, Markup) else escape(p, quote=False) for p in parts))
