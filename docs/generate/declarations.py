"""Constants and struct fields with the comments that explain them, read from the source."""

import ast
import inspect
import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import koordinator
from koordinator.api.field_comments import block_above, comments_of, plain

PACKAGE = Path(koordinator.__file__).parent


@dataclass(frozen=True, slots=True)
class Declaration:
    """A module-level constant: its name, its group comment and its own comment."""

    name: str
    group: str
    comment: str


def declarations(module: ModuleType) -> Iterator[Declaration]:
    """Yield the public constants of a module in order.

    A comment block on lines of its own, without ``#:``, opens a group; a ``#:`` block before a
    constant, also right behind such a block, or a comment behind it explains that constant.
    """
    source = inspect.getsource(module)
    comments = comments_of(source)
    lines = source.splitlines()
    group = ""
    for node in ast.parse(source).body:
        name = _constant(node)
        above = block_above(lines, comments, node.lineno)
        opening, marker, explained = above.partition("#:")
        if not marker or opening:
            group = opening or (group if not _is_after_blank(lines, node.lineno) else "")
        if name is not None and not name.startswith("_"):
            behind = comments.get(node.end_lineno or node.lineno, "")
            yield Declaration(name, plain(group), plain(f"{explained} {behind}"))


@cache
def member_comments(enumeration: type) -> Mapping[str, str]:
    """Return the comment of every member of an enumeration that has one."""
    source = textwrap.dedent(inspect.getsource(enumeration))
    comments, lines = comments_of(source), source.splitlines()
    body = ast.parse(source).body[0]
    found: dict[str, str] = {}
    for node in body.body if isinstance(body, ast.ClassDef) else ():
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            above = block_above(lines, comments, node.lineno)
            behind = comments.get(node.end_lineno or node.lineno, "")
            text = plain(f"{above} {behind}")
            if text:
                found[node.targets[0].id] = text
    return found


@cache
def element_comments(module: ModuleType, name: str) -> Mapping[str, str]:
    """Return the comments behind the words in a collection that a constant holds."""
    source = inspect.getsource(module)
    comments = comments_of(source)
    return {
        word.value: plain(comments.get(word.lineno, ""))
        for node in ast.parse(source).body
        if _constant(node) == name
        for word in ast.walk(node)
        if isinstance(word, ast.Constant) and isinstance(word.value, str)
    }


def _constant(node: ast.stmt) -> str | None:
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        return node.target.id if node.target.id.isupper() else None
    if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
        return node.targets[0].id if node.targets[0].id.isupper() else None
    return None


def _is_after_blank(lines: list[str], line: int) -> bool:
    return line > 1 and not lines[line - 2].strip()
