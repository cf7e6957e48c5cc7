"""Comments that explain the fields of structs, read from the source.

For users they name the values of an enumeration in place of its name.
"""

import ast
import inspect
import io
import pkgutil
import re
import sys
import tokenize
from collections.abc import Iterator, Mapping
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import Final

from koordinator import api

_WAIVER = re.compile(r"#\s*(?:noqa|type: ignore)\b[^#]*")
_ENUMERATION: Final = re.compile(r"\ban? ([A-Z]\w+)\b")


@cache
def field_comments(struct: type) -> Mapping[str, str]:
    """Return the comment of every attribute of a class that has one, its bases included."""
    comments: dict[str, str] = {}
    for each in reversed(struct.__mro__):
        if each.__module__.startswith("koordinator."):
            comments |= _of_classes(each.__module__).get(each.__qualname__, {})
    return comments


@cache
def _of_classes(module: str) -> Mapping[str, Mapping[str, str]]:
    """Return the comments of attributes by class, of the classes on the top level of a module."""
    source = inspect.getsource(sys.modules[module])
    comments, lines = comments_of(source), source.splitlines()
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    return {each.name: dict(_of_class(each, lines, comments)) for each in classes}


def _of_class(
    declared: ast.ClassDef, lines: list[str], comments: Mapping[int, str]
) -> Iterator[tuple[str, str]]:
    for node in declared.body:
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            above = block_above(lines, comments, node.lineno)
            behind = comments.get(node.end_lineno or node.lineno, "")
            if text := plain(f"{above} {behind}"):
                yield node.target.id, text


def comments_of(source: str) -> dict[int, str]:
    """Return the comments of a source text by line."""
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    return {token.start[0]: token.string for token in tokens if token.type == tokenize.COMMENT}


def block_above(lines: list[str], comments: Mapping[int, str], line: int) -> str:
    """Return the comments on the lines directly above a line."""
    block: list[str] = []
    above = line - 1
    while above in comments and lines[above - 1].lstrip().startswith("#"):
        block.insert(0, comments[above])
        above -= 1
    return " ".join(block)


def plain(text: str) -> str:
    """Return the words of comments; waivers of linters and of the type checker are none."""
    comments = _WAIVER.sub("", text).replace("#:", " ").replace("#", " ")
    return " ".join(comments.split())


def with_values(comment: str) -> str:
    """Return a comment with the values, in back quotes, of each enumeration that it names."""
    return _ENUMERATION.sub(_values_of, comment)


def _values_of(named: re.Match[str]) -> str:
    members = _enumerations().get(named[1])
    if members is None:
        return named[0]
    *most, last = (f"`{each}`" if each else '`""`' for each in members)
    return f"{', '.join(most)} or {last}" if most else last


@cache
def _enumerations() -> Mapping[str, type[StrEnum]]:
    return {
        name: each
        for info in pkgutil.walk_packages(api.__path__, f"{api.__name__}.")
        for name, each in vars(import_module(info.name)).items()
        if isinstance(each, type) and issubclass(each, StrEnum)
    }
