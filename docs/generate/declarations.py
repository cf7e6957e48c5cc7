"""Constants and struct fields with the comments that explain them, read from the source."""

import ast
import inspect
import io
import re
import textwrap
import tokenize
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from types import ModuleType

import koordinator

PACKAGE = Path(koordinator.__file__).parent
_WAIVER = re.compile(r"#\s*(?:noqa|type: ignore)\b[^#]*")


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
    comments = _comments(source)
    lines = source.splitlines()
    group = ""
    for node in ast.parse(source).body:
        name = _constant(node)
        above = _block_above(lines, comments, node.lineno)
        opening, marker, explained = above.partition("#:")
        if not marker or opening:
            group = opening or (group if not _is_after_blank(lines, node.lineno) else "")
        if name is not None and not name.startswith("_"):
            behind = comments.get(node.end_lineno or node.lineno, "")
            yield Declaration(name, _plain(group), _plain(f"{explained} {behind}"))


@cache
def field_comments(struct: type) -> Mapping[str, str]:
    """Return the comment of every attribute of a class that has one, its bases included."""
    found: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if each.__module__.startswith("koordinator."):
            source = textwrap.dedent(inspect.getsource(each))
            comments, lines = _comments(source), source.splitlines()
            body = ast.parse(source).body[0]
            for node in body.body if isinstance(body, ast.ClassDef) else ():
                if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                    above = _block_above(lines, comments, node.lineno)
                    behind = comments.get(node.end_lineno or node.lineno, "")
                    text = _plain(f"{above} {behind}")
                    if text:
                        found[node.target.id] = text
    return found


@cache
def member_comments(enumeration: type) -> Mapping[str, str]:
    """Return the comment of every member of an enumeration that has one."""
    source = textwrap.dedent(inspect.getsource(enumeration))
    comments, lines = _comments(source), source.splitlines()
    body = ast.parse(source).body[0]
    found: dict[str, str] = {}
    for node in body.body if isinstance(body, ast.ClassDef) else ():
        if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name):
            above = _block_above(lines, comments, node.lineno)
            behind = comments.get(node.end_lineno or node.lineno, "")
            text = _plain(f"{above} {behind}")
            if text:
                found[node.targets[0].id] = text
    return found


@cache
def element_comments(module: ModuleType, name: str) -> Mapping[str, str]:
    """Return the comments behind the words in a collection that a constant holds."""
    source = inspect.getsource(module)
    comments = _comments(source)
    return {
        word.value: _plain(comments.get(word.lineno, ""))
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


def _comments(source: str) -> dict[int, str]:
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


def _block_above(lines: list[str], comments: Mapping[int, str], line: int) -> str:
    block: list[str] = []
    above = line - 1
    while above in comments and lines[above - 1].lstrip().startswith("#"):
        block.insert(0, comments[above])
        above -= 1
    return " ".join(block)


def _is_after_blank(lines: list[str], line: int) -> bool:
    return line > 1 and not lines[line - 2].strip()


def _plain(text: str) -> str:
    """Return the words of comments; waivers of linters and of the type checker are none."""
    comments = _WAIVER.sub("", text).replace("#:", " ").replace("#", " ")
    return " ".join(comments.split())
