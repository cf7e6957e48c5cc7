"""Texts for people: lists of names, numbers with a noun, and texts cut to a length."""

from collections.abc import Sequence


def cut(text: str, longest: int) -> str:
    """Return a text; of a longer one the first ``longest`` characters and an ellipsis."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def one_line(text: str, longest: int) -> str:
    """Return a text with single spaces instead of other white space, cut to a length."""
    return cut(" ".join(text.split()), longest)


def listed(names: Sequence[str], most: int) -> str:
    """Return the first names, separated by commas, and the number of the others."""
    shown = ", ".join(names[:most])
    return f"{shown} and {len(names) - most} more" if len(names) > most else shown


def pluralized(count: int, noun: str) -> str:
    """Return a number with a noun: ``1 pod``, ``2 pods``."""
    return f"{count} {noun}{'' if count == 1 else 's'}"


def pluralized_names(names: Sequence[str], noun: str, most: int) -> str:
    """Return the number of names with a noun, and the first names: ``4 pods (a, b, c, …)``."""
    more = ", …" if len(names) > most else ""
    return f"{pluralized(len(names), noun)} ({', '.join(names[:most])}{more})"
