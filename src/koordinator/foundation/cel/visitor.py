"""Abstract visitor of syntax trees, with one method per kind of node."""

from abc import ABC, abstractmethod
from typing import Generic, TypeVar, assert_never

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

ResultT = TypeVar("ResultT")


class NodeVisitor(ABC, Generic[ResultT]):
    """Makes something of each node, usually of what it makes of the nodes in it."""

    def visit(self, node: Node) -> ResultT:  # noqa: PLR0911 -- one for each kind of node
        """Return what the node comes to."""
        match node:
            case Literal():
                return self._of_literal(node)
            case Identifier():
                return self._of_identifier(node)
            case Select():
                return self._of_select(node)
            case Call():
                return self._of_call(node)
            case ListOf():
                return self._of_list(node)
            case MapOf():
                return self._of_map(node)
            case Fold():
                return self._of_fold(node)
            case Bind():
                return self._of_bind(node)
            case _:
                assert_never(node)

    @abstractmethod
    def _of_literal(self, node: Literal) -> ResultT: ...

    @abstractmethod
    def _of_identifier(self, node: Identifier) -> ResultT: ...

    @abstractmethod
    def _of_select(self, node: Select) -> ResultT: ...

    @abstractmethod
    def _of_call(self, node: Call) -> ResultT: ...

    @abstractmethod
    def _of_list(self, node: ListOf) -> ResultT: ...

    @abstractmethod
    def _of_map(self, node: MapOf) -> ResultT: ...

    @abstractmethod
    def _of_fold(self, node: Fold) -> ResultT: ...

    @abstractmethod
    def _of_bind(self, node: Bind) -> ResultT: ...
