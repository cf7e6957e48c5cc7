"""Compiled expressions that are evaluated many times.

The syntax tree is compiled to closures, so that evaluation does not inspect it again.  A number of
steps bounds time and memory: a call costs one step and the size of its operands and result; a round
of a macro costs one and the nodes of its body; a list or map costs its elements.  The number of
steps does not depend on the machine, so evaluation is deterministic.  A limit on processor time,
which no known expression reaches, guards against unknown cases.

Source: https://github.com/google/cel-spec doc/langdef.md, "Evaluation".
"""

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from typing import Any, Final

from koordinator.foundation.cel.checker import TYPE_NAMES, Checker, Path, qualified_name, reads_of
from koordinator.foundation.cel.library import (
    STANDARD,
    TEXT_PER_STEP,
    pattern_of,
    sorted_values,
)
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
    parse,
)
from koordinator.foundation.cel.types import (
    ABSENT,
    ADDRESSES,
    CelCostError,
    CelError,
    CelType,
    Functions,
    NodeVisitor,
    OptionalValue,
    Overload,
    RecordType,
    kind_of,
)
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

COST_LIMIT_EXCEEDED: Final = "operation cancelled: actual cost limit exceeded"
LONGEST_S: Final = 5.0  # of processor time, for one evaluation
_STEPS_PER_LOOK = 4096  # at the time
_NODES_PER_STEP = 8  # of the body of a macro, in each round
_SIZED = frozenset((str, bytes, list, tuple))

_MISSING = object()
_MATCHING = ("matches", "find", "findAll")

_LONGEST_SHOWN = 200  # characters


class Activation:
    """The variables of one evaluation, and how many steps it may still take."""

    __slots__ = ("_longest_s", "_look_at", "_until_s", "steps", "variables")

    def __init__(self, variables: dict[str, Any], steps: int, longest_s: float = LONGEST_S) -> None:
        self.variables = variables
        self.steps = steps
        self._look_at = steps - _STEPS_PER_LOOK if steps > _STEPS_PER_LOOK else 0
        self._longest_s, self._until_s = longest_s, 0.0  # unknown until the first look

    def spend(self, steps: int) -> None:
        """Take off steps.  Raises CelCostError when there are none left."""
        self.steps -= steps
        if self.steps < self._look_at:
            self._check_limits()

    def _check_limits(self) -> None:
        if self.steps < 0:
            raise CelCostError(COST_LIMIT_EXCEEDED)
        now_s = time.thread_time()
        self._until_s = self._until_s or now_s + self._longest_s
        if now_s > self._until_s:
            self.steps = -1  # later steps fail with the same error
            raise CelCostError(COST_LIMIT_EXCEEDED)
        self._look_at = max(self.steps - _STEPS_PER_LOOK, 0)


_Code = Callable[[Activation], Any]


@dataclass(frozen=True, slots=True)
class CelProgram:
    """An expression in an environment."""

    text: str
    result: CelType
    code: _Code = field(repr=False)
    reads: frozenset[Path] | None = None  # what of the variables it depends on; None: all

    def evaluate(self, variables: Mapping[str, Any], steps: int) -> Any:
        """Return the value.  Raises CelError."""
        try:
            return self.code(Activation(dict(variables), steps))
        except RecursionError:
            raise CelError("the value is nested too deep") from None
        except (ArithmeticError, UnicodeError) as error:
            raise CelError(f"{type(error).__name__}: {error}") from None


@dataclass(frozen=True)
class CelEnvironment:
    """Variables and functions that expressions may use."""

    variables: Mapping[str, CelType]
    records: Mapping[str, RecordType] = field(default_factory=dict)
    overloads: Sequence[Overload] = ()

    def compile(self, text: str) -> CelProgram:
        """Return the program.  Raises InputError for errors of syntax and of types."""
        tree = parse(text)
        functions = Functions((*STANDARD, *ADDRESSES, *self.overloads))
        result = Checker(functions, self.variables, self.records).type_of(tree)
        code = _Compiler(functions, self.variables).visit(tree)
        return CelProgram(text, result, code, reads_of(tree, self.variables))


class _Compiler(NodeVisitor[_Code]):
    """Makes functions of nodes."""

    def __init__(self, functions: Functions, variables: Mapping[str, CelType]) -> None:
        self._functions = functions
        self._names = set(variables)

    def _of_literal(self, node: Literal) -> _Code:
        value = node.value
        return lambda _: value

    def _of_identifier(self, node: Identifier) -> _Code:
        name = node.name
        if name in TYPE_NAMES and name not in self._names:
            value = CelType(name)
            return lambda _: value
        return lambda activation: activation.variables[name]

    def _of_select(self, node: Select) -> _Code:
        operand, key = self.visit(node.operand), node.field

        def select(activation: Activation) -> Any:
            base = operand(activation)
            if isinstance(base, OptionalValue):
                return _maybe(base.value, key) if base.is_present else ABSENT
            return _field(base, key)

        def select_maybe(activation: Activation) -> Any:
            base = operand(activation)
            if isinstance(base, OptionalValue):
                return _maybe(base.value, key) if base.is_present else ABSENT
            return _maybe(base, key)

        def test(activation: Activation) -> bool:
            base = operand(activation)
            if isinstance(base, OptionalValue):
                return base.is_present and _has(base.value, key)
            return _has(base, key)

        return test if node.test else select_maybe if node.optional else select

    def _of_call(self, node: Call) -> _Code:
        if node.function in _MATCHING and node.args and isinstance(node.args[-1], Literal):
            _check_pattern(node.args[-1].value)
        special = _SPECIAL.get(node.function)
        if special is not None and node.target is None:
            return special(*[self.visit(arg) for arg in node.args])
        qualified = qualified_name(node.target)
        name, targets = node.function, [] if node.target is None else [node.target]
        if qualified and qualified.split(".")[0] not in self._names:
            candidates = self._functions.named(f"{qualified}.{name}", is_method=False)
            if candidates:
                return _dispatched(candidates, [self.visit(arg) for arg in node.args])
        candidates = self._functions.named(name, is_method=bool(targets))
        return _dispatched(candidates, [self.visit(arg) for arg in (*targets, *node.args)])

    def _of_list(self, node: ListOf) -> _Code:
        elements = [(self.visit(element), optional) for element, optional in node.elements]

        def make(activation: Activation) -> list[Any]:
            activation.spend(1 + len(elements))
            made = []
            for element, optional in elements:
                value = element(activation)
                if not optional:
                    made.append(value)
                elif _optional(value).is_present:
                    made.append(value.value)
            return made

        return make

    def _of_map(self, node: MapOf) -> _Code:
        entries = [(self.visit(key), self.visit(value), opt) for key, value, opt in node.entries]

        def make(activation: Activation) -> dict[Any, Any]:
            activation.spend(1 + 2 * len(entries))
            made: dict[Any, Any] = {}
            for key_of, value_of, optional in entries:
                key, value = key_of(activation), value_of(activation)
                if kind_of(key) not in ("bool", "int", "uint", "string"):
                    raise CelError("unsupported key type")
                if not optional:
                    made[key] = value
                elif _optional(value).is_present:
                    made[key] = value.value
            return made

        return make

    def _of_fold(self, node: Fold) -> _Code:
        operand, names, end = self.visit(node.operand), node.names, _ENDS[node.kind]
        body = self._scoped(names, node.body)
        condition = None
        if node.condition is not None:
            condition = self._scoped(names, node.condition)
        nodes = _size_of(node.body) + (_size_of(node.condition) if node.condition else 0)
        cost = 1 + nodes // _NODES_PER_STEP

        def fold(activation: Activation) -> Any:
            rounds = _rounds(operand, names, condition, activation, cost)
            return end(rounds, body, activation)

        return fold

    def _of_bind(self, node: Bind) -> _Code:
        value, variable, kind = self.visit(node.value), node.variable, node.kind
        body = self._scoped((variable,), node.body)

        def bind(activation: Activation) -> Any:
            bound = value(activation)
            if kind != "bind":
                if not _optional(bound).is_present:
                    return ABSENT
                bound = bound.value
            before = activation.variables.get(variable, _MISSING)
            activation.variables[variable] = bound
            try:
                result = body(activation)
            finally:
                if before is _MISSING:
                    del activation.variables[variable]
                else:
                    activation.variables[variable] = before
            return OptionalValue(result, is_present=True) if kind == "optMap" else result

        return bind

    def _scoped(self, names: Iterable[str], body: Expression) -> _Code:
        outer, self._names = self._names, {*self._names, *names}
        try:
            return self.visit(body)
        finally:
            self._names = outer


def _check_pattern(text: object) -> None:
    """Raise InputError for a regular expression that will never do."""
    if isinstance(text, str):
        try:
            pattern_of(text)
        except CelError as error:
            raise InputError(str(error)) from None


def _dispatched(candidates: list[Overload], args: Sequence[_Code]) -> _Code:
    """Return a call that finds the overload by the types of the arguments, and remembers it."""
    known: dict[tuple[str, ...], Overload] = {}

    def call(activation: Activation) -> Any:
        values = [arg(activation) for arg in args]
        cost = 1
        for value in values:
            if type(value) in _SIZED:
                cost += len(value) // TEXT_PER_STEP
        activation.spend(cost)
        kinds = tuple(map(kind_of, values))
        overload = known.get(kinds)
        if overload is None:
            overload = known[kinds] = _overload_for(candidates, kinds)
        made = (
            overload.run(activation.spend, *values)
            if overload.is_metered
            else overload.run(*values)
        )
        if type(made) in _SIZED:
            activation.spend(len(made) // TEXT_PER_STEP)
        return made

    return call


def _overload_for(candidates: Sequence[Overload], kinds: tuple[str, ...]) -> Overload:
    for one in candidates:
        if len(one.params) == len(kinds) and all(
            param.is_variable or param.name in (kind, "dyn")
            for param, kind in zip(one.params, kinds, strict=True)
        ):
            return one
    raise CelError("no such overload")


def _bool(value: object) -> bool:
    if not isinstance(value, bool):
        raise CelError("no such overload")
    return value


def _optional(value: object) -> OptionalValue:
    if not isinstance(value, OptionalValue):
        raise CelError("no such overload")
    return value


_Rounds = Iterator[tuple[Any, Activation]]  # the item, with the variables set to it


def _rounds(
    operand: _Code,
    names: Sequence[str],
    condition: _Code | None,
    activation: Activation,
    cost: int,
) -> _Rounds:
    """Set the variables to one item after the other for which the condition holds.

    Each costs ``cost`` steps.
    """
    items = operand(activation)
    if not isinstance(items, list | tuple | dict):
        raise CelError("no such overload")
    before = {name: activation.variables.get(name, _MISSING) for name in names}
    try:
        for given in ((item,) for item in items) if len(names) == 1 else _pairs(items):
            activation.spend(cost)
            activation.variables.update(zip(names, given, strict=True))
            if condition is None or _bool(condition(activation)):
                yield given[0], activation
    finally:
        for name, value in before.items():
            if value is _MISSING:
                activation.variables.pop(name, None)
            else:
                activation.variables[name] = value


def _pairs(items: Any) -> Iterable[tuple[Any, ...]]:
    return items.items() if isinstance(items, dict) else enumerate(items)


def _merged(parts: Iterable[Any], activation: Activation) -> dict[Any, Any]:
    made: dict[Any, Any] = {}
    for part in parts:
        if not isinstance(part, dict):
            raise CelError("no such overload")
        activation.spend(len(part))
        for key, value in part.items():
            if key in made:
                raise CelError(f"insert failed: key {key} already exists")
            made[key] = value
    return made


def _sorted_by(rounds: _Rounds, key: _Code, activation: Activation) -> list[Any]:
    keyed = [(key(each), item) for item, each in rounds]
    return [item for _, item in sorted_values(activation.spend, keyed, key=lambda pair: pair[0])]


def _quantified(values: Any, body: _Code, *, is_any: bool) -> bool:
    """Return all or any; an element that decides it makes up for others' errors."""
    error: CelError | None = None
    for _, activation in values:
        try:
            if _bool(body(activation)) is is_any:
                return is_any
        except CelCostError:
            raise
        except CelError as raised:
            error = raised
    if error is not None:
        try:
            raise error
        finally:
            del error  # the traceback refers to this frame
    return not is_any


#: What becomes of the rounds of a macro, by its kind.
_ENDS: Mapping[str, Callable[[_Rounds, _Code, Activation], Any]] = {
    "map": lambda rounds, body, _: [body(each) for _, each in rounds],
    "transformList": lambda rounds, body, _: [body(each) for _, each in rounds],
    "transformMap": lambda rounds, body, _: {key: body(each) for key, each in rounds},
    "transformMapEntry": lambda rounds, body, a: _merged((body(each) for _, each in rounds), a),
    "sortBy": _sorted_by,
    "filter": lambda rounds, body, _: [item for item, each in rounds if _bool(body(each))],
    "exists_one": lambda rounds, body, _: sum(_bool(body(each)) for _, each in rounds) == 1,
    "exists": lambda rounds, body, _: _quantified(rounds, body, is_any=True),
    "all": lambda rounds, body, _: _quantified(rounds, body, is_any=False),
}


def _size_of(node: Expression) -> int:
    """Return how many nodes an evaluation visits, without bodies of macros: they pay themselves."""
    size, left = 0, [node]
    while left:
        size += 1
        match left.pop():
            case Select(operand=operand):
                left.append(operand)
            case Call(args=args, target=target):
                left += args if target is None else (target, *args)
            case ListOf(elements=elements):
                left += [element for element, _ in elements]
            case MapOf(entries=entries):
                left += [each for key, value, _ in entries for each in (key, value)]
            case Fold(operand=operand):
                left.append(operand)
            case Bind(value=value, body=body):
                left += (value, body)
            case _:
                pass
    return size


def _either(left: _Code, right: _Code, decisive: bool) -> _Code:
    """Return ``||`` (True decides) or ``&&``: what decides makes up for the other's error."""

    def either(activation: Activation) -> bool:
        try:
            if _bool(left(activation)) is decisive:
                return decisive
        except CelError as error:
            if isinstance(error, CelCostError) or _bool(right(activation)) is not decisive:
                raise
            return decisive
        return _bool(right(activation))

    return either


def _conditional(condition: _Code, then: _Code, otherwise: _Code) -> _Code:
    return lambda a: then(a) if _bool(condition(a)) else otherwise(a)


def _index_of(operand: _Code, index: _Code) -> _Code:
    def indexed(activation: Activation) -> Any:
        base, key = operand(activation), index(activation)
        if isinstance(base, OptionalValue):
            return _maybe(base.value, key) if base.is_present else ABSENT
        return _field(base, key)

    return indexed


def _maybe_index_of(operand: _Code, index: _Code) -> _Code:
    def indexed(activation: Activation) -> OptionalValue:
        base, key = operand(activation), index(activation)
        if isinstance(base, OptionalValue):
            return _maybe(base.value, key) if base.is_present else ABSENT
        return _maybe(base, key)

    return indexed


_SPECIAL: Mapping[str, Callable[..., _Code]] = {
    "_&&_": lambda left, right: _either(left, right, decisive=False),
    "_||_": lambda left, right: _either(left, right, decisive=True),
    "_?_:_": _conditional,
    "_[_]": _index_of,
    "_[?_]": _maybe_index_of,
}


def _field(base: Any, key: Any) -> Any:
    if isinstance(base, dict):
        try:
            return base[key]
        except (KeyError, TypeError):
            raise CelError(f"no such key: {_shown(key)}") from None
    if isinstance(base, list | tuple):
        if isinstance(key, bool) or not isinstance(key, int | float) or key != int(key):
            raise CelError("no such overload")
        if not 0 <= key < len(base):
            raise CelError(f"index out of bounds: {_shown(key)}")
        return base[int(key)]
    raise CelError("no such overload")


def _shown(key: Any) -> str:
    """Return a key for a message: what holds other values might be without end as text."""
    return str(key)[:_LONGEST_SHOWN] if isinstance(key, str | int | float) else kind_of(key)


def _has(base: Any, key: Any) -> bool:
    if not isinstance(base, dict):
        raise CelError("no such overload")
    return key in base or hasattr(base, "__missing__")  # then there is a default


def _maybe(base: Any, key: Any) -> OptionalValue:
    if isinstance(base, dict):
        try:
            return OptionalValue(base[key], is_present=True)
        except (KeyError, TypeError):
            return ABSENT
    if isinstance(base, list | tuple):
        inside = isinstance(key, int) and 0 <= key < len(base)
        return OptionalValue(base[key], is_present=True) if inside else ABSENT
    raise CelError("no such overload")
