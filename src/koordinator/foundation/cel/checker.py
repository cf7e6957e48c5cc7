"""Type checker of CEL expressions, and the paths that an expression reads.

Where a value's type is only known at run time (``dyn``), everything is accepted.

Evaluations with equal values at these paths have the same result.

Source: https://github.com/google/cel-spec doc/langdef.md, "Gradual Type Checking".
"""

from collections.abc import Container, Iterator, Mapping

from koordinator.foundation.cel.library import SORTED
from koordinator.foundation.cel.syntax import (
    Bind,
    Call,
    Expression,
    Fold,
    Identifier,
    ListOf,
    Literal,
    MapOf,
    Select,
    UInt,
)
from koordinator.foundation.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DYN,
    INT,
    NULL,
    STRING,
    TYPE,
    UINT,
    CelType,
    Functions,
    NodeVisitor,
    Overload,
    RecordType,
)
from koordinator.foundation.errors import InputError

#: Names of types, which are values themselves.
TYPE_NAMES = (
    "bool int uint double string bytes list map null_type type optional_type dyn".split()  # noqa: SIM905 -- one line
)
_LITERALS = {bool: BOOL, int: INT, UInt: UINT, float: DOUBLE, str: STRING, bytes: BYTES}

_INDEX = ("_[_]", "_[?_]")


class Checker(NodeVisitor[CelType]):
    """Finds the type of an expression in an environment."""

    def __init__(
        self,
        functions: Functions,
        variables: Mapping[str, CelType],
        records: Mapping[str, RecordType],
    ) -> None:
        self._functions, self._records = functions, records
        self._scope = dict(variables)

    def type_of(self, node: Expression) -> CelType:
        """Return the type.  Raises InputError for what no value could make right."""
        return self.visit(node)

    def _of_literal(self, node: Literal) -> CelType:
        return _LITERALS.get(type(node.value), NULL)

    def _of_list(self, node: ListOf) -> CelType:
        return CelType("list", (self._common(self._elements(node)),))

    def _of_identifier(self, node: Identifier) -> CelType:
        name = node.name
        declared = self._scope.get(name)
        if declared is not None:
            return declared
        if name in TYPE_NAMES:
            return TYPE
        raise InputError(f"undeclared reference to '{name}'")

    def _of_select(self, node: Select) -> CelType:
        operand = self.type_of(node.operand)
        inner = operand.params[0] if operand.name == "optional_type" else operand
        record = self._records.get(inner.name)
        if record is not None:
            field = record.fields.get(node.field)
            if field is None:
                raise InputError(f"undefined field '{node.field}'")
        elif inner.name == "map":
            field = inner.params[1]
        elif inner == DYN:
            field = DYN
        else:
            raise InputError(f"type '{operand}' does not support field selection")
        if node.test:
            return BOOL
        if node.optional or operand.name == "optional_type":
            return CelType("optional_type", (field,))
        return field

    def _of_call(self, node: Call) -> CelType:
        target, is_method = node.target, node.target is not None
        qualified = qualified_name(target)
        if qualified and qualified.split(".")[0] not in self._scope:
            name = f"{qualified}.{node.function}"
            candidates = self._functions.named(name, is_method=False)
            if candidates:
                return self._matched(name, candidates, [self.type_of(arg) for arg in node.args])
        candidates = self._functions.named(node.function, is_method=is_method)
        if not candidates:
            raise InputError(f"undeclared reference to '{node.function}'")
        args = [self.type_of(arg) for arg in node.args]
        if target is not None:
            args.insert(0, self.type_of(target))
        return self._matched(node.function, candidates, args)

    def _matched(self, name: str, candidates: list[Overload], args: list[CelType]) -> CelType:
        results = []
        for one in candidates:
            bound: dict[str, CelType] = {}
            if len(one.params) == len(args) and all(
                _unifies(param, arg, bound) for param, arg in zip(one.params, args, strict=True)
            ):
                results.append(_filled_in(one.result, bound))
        if not results:
            argument_types = ", ".join(map(str, args))
            raise InputError(
                f"found no matching overload for '{name}' applied to '({argument_types})'"
            )
        return self._common(results)

    def _elements(self, node: ListOf) -> list[CelType]:
        kinds = []
        for element, optional in node.elements:
            kind = self.type_of(element)
            kinds.append(_inner(kind) if optional else kind)
        return kinds

    def _of_map(self, node: MapOf) -> CelType:
        keys = [self.type_of(key) for key, _, _ in node.entries]
        kinds = [
            _inner(self.type_of(value)) if optional else self.type_of(value)
            for _, value, optional in node.entries
        ]
        return CelType("map", (self._common(keys), self._common(kinds)))

    @staticmethod
    def _common(kinds: list[CelType]) -> CelType:
        return kinds[0] if kinds and all(kind == kinds[0] for kind in kinds) else DYN

    def _of_fold(self, node: Fold) -> CelType:
        operand = self.type_of(node.operand)
        items = _items_of(operand, in_pairs=bool(node.second))
        with_item = dict(zip(node.names, items, strict=True))
        body = self._within(with_item, node.body)
        if node.condition is not None:
            self._require_bool(self._within(with_item, node.condition))
        if node.kind in ("map", "transformList"):
            return CelType("list", (body,))
        if node.kind == "transformMap":
            return CelType("map", (items[0], body))
        if node.kind == "transformMapEntry":
            _require("cel.@mapInsert", body, ("map",))
            return body
        if node.kind == "sortBy":
            _require("@sortByAssociatedKeys", operand, ("list",))
            _require("@sortByAssociatedKeys", body, SORTED)
            return operand
        self._require_bool(body)
        return CelType("list", (items[0],)) if node.kind == "filter" else BOOL

    def _of_bind(self, node: Bind) -> CelType:
        value = self.type_of(node.value)
        if node.kind == "bind":
            return self._within({node.variable: value}, node.body)
        if value.name not in ("optional_type", "dyn"):
            raise InputError(f"found no matching overload for '{node.kind}' applied to '{value}'")
        body = self._within({node.variable: _inner(value)}, node.body)
        return body if node.kind == "optFlatMap" else CelType("optional_type", (body,))

    def _within(self, more: Mapping[str, CelType], body: Expression) -> CelType:
        outer, self._scope = self._scope, {**self._scope, **more}
        try:
            return self.type_of(body)
        finally:
            self._scope = outer

    @staticmethod
    def _require_bool(kind: CelType) -> None:
        if kind not in (BOOL, DYN):
            raise InputError(f"expected type 'bool' but found '{kind}'")


def _items_of(operand: CelType, *, in_pairs: bool) -> tuple[CelType, ...]:
    """Return the types that a macro iterates over: elements, keys, or pairs."""
    if operand == DYN:
        return (DYN, DYN) if in_pairs else (DYN,)
    if operand.name == "list":
        return (INT, *operand.params) if in_pairs else operand.params
    if operand.name == "map":
        return operand.params if in_pairs else operand.params[:1]
    raise InputError(
        f"expression of type '{operand}' cannot be range of a comprehension "
        "(must be list, map, or dynamic)"
    )


def _require(function: str, kind: CelType, accepted: tuple[str, ...]) -> None:
    if kind.name not in (*accepted, "dyn"):
        raise InputError(f"found no matching overload for '{function}' applied to '{kind}'")


def qualified_name(node: Expression | None) -> str:
    """Return ``a.b`` if the node is nothing but names; empty otherwise."""
    if isinstance(node, Identifier):
        return node.name
    if isinstance(node, Select) and not node.optional and not node.test:
        outer = qualified_name(node.operand)
        return f"{outer}.{node.field}" if outer else ""
    return ""


def _inner(kind: CelType) -> CelType:
    return kind.params[0] if kind.name == "optional_type" and kind.params else DYN


def _unifies(param: CelType, arg: CelType, bound: dict[str, CelType]) -> bool:
    """Return whether the argument type fits the parameter type; bind type variables."""
    if param.is_variable:
        known = bound.get(param.name)
        if known is None or known == DYN:
            bound[param.name] = arg
            return True
        return arg == DYN or _unifies(known, arg, bound)
    if DYN in (arg, param):
        return True
    if param.name != arg.name:
        return False
    return all(_unifies(p, a, bound) for p, a in zip(param.params, arg.params, strict=False))


def _filled_in(result: CelType, bound: Mapping[str, CelType]) -> CelType:
    if result.is_variable:
        return bound.get(result.name, DYN)
    return CelType(result.name, tuple(_filled_in(part, bound) for part in result.params))


Path = tuple[str, ...]  # a variable, then the names of fields and keys


def reads_of(tree: Expression, variables: Container[str]) -> frozenset[Path] | None:
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


def _path(node: Expression, variables: Container[str]) -> Path:
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


def _children(node: Expression) -> Iterator[Expression]:
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
