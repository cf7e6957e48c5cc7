"""Paths of variables that an expression reads.

Evaluations with equal values at these paths have the same result.
"""

from collections.abc import Container, Iterator

from koordinator.foundation.cel.syntax import (
    Bind,
    Call,
    Fold,
    Identifier,
    ListOf,
    Literal,
    MapOf,
    Node,
    Select,
)

Path = tuple[str, ...]  # a variable, then the names of fields and keys
_INDEX = ("_[_]", "_[?_]")


def reads_of(tree: Node, variables: Container[str]) -> frozenset[Path] | None:
    """Return the longest paths that an expression reads; None if they are unknown."""
    paths: set[Path] = set()
    open_nodes = [tree]
    while open_nodes:
        node = open_nodes.pop()
        path = _path(node, variables)
        if path:
            paths.add(path)
            continue
        if isinstance(node, Bind) and node.variable in variables:
            return None  # the name means something else in there
        if isinstance(node, Fold) and any(name in variables for name in node.names):
            return None  # the name means something else in there
        open_nodes += _children(node)
    return frozenset(paths)


def _path(node: Node, variables: Container[str]) -> Path:
    """Return the path that a node denotes; empty if it is no path."""
    if isinstance(node, Identifier):
        return (node.name,) if node.name in variables else ()
    if isinstance(node, Select):
        outer = _path(node.operand, variables)
        return (*outer, node.field) if outer else ()
    if isinstance(node, Call) and node.function in _INDEX and node.target is None:
        operand, key = node.args
        outer = _path(operand, variables)
        if outer and isinstance(key, Literal) and isinstance(key.value, str):
            return (*outer, key.value)
    return ()


def _children(node: Node) -> Iterator[Node]:
    match node:
        case Select():
            yield node.operand
        case Call():
            yield from node.args
            if node.target is not None:
                yield node.target
        case ListOf():
            yield from (element for element, _ in node.elements)
        case MapOf():
            yield from (part for key, value, _ in node.entries for part in (key, value))
        case Fold():
            yield from (node.operand, node.body)
            if node.condition is not None:
                yield node.condition
        case Bind():
            yield from (node.value, node.body)
        case Literal() | Identifier():
            pass
