"""Text of the Common Expression Language as a tree.

What is special here is left to the names of functions: ``a + b`` is a call of ``_+_``, an index one
of ``_[_]``.  Macros (``has``, ``all``, ``cel.bind`` …) become nodes of their own, so that nothing
that follows has to know them.

Source: https://github.com/google/cel-spec doc/langdef.md, "Syntax" and "Macros".
"""

import re
from functools import cache
from typing import Any, Final

from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

MAX_DEPTH: Final = 200  # of the tree; bounds recursion

_MAX_NESTING = 40  # of brackets; each costs a dozen calls
_FOLDS = ("all", "exists", "exists_one", "map", "filter", "sortBy")
_QUANTIFIERS = ("all", "exists", "exists_one", "existsOne")
_TRANSFORMS = ("transformList", "transformMap", "transformMapEntry")
_RESERVED = frozenset(
    [
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
        "in",
    ]
)

_SIMPLE = {"a": "\a", "b": "\b", "f": "\f", "n": "\n", "r": "\r", "t": "\t", "v": "\v"}
_RELATIONS = ("<", "<=", ">=", ">", "==", "!=", "in")

_LAST_CODE, _SURROGATES = 0x10FFFF, range(0xD800, 0xE000)
_LONGEST, _TOO_LARGE = 30, 2**64  # digits that can't be meant are not read


@dataclass(frozen=True, slots=True)
class Literal:
    """A constant."""

    value: Any


@dataclass(frozen=True, slots=True)
class Identifier:
    """A variable."""

    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """``operand.field``; of an optional access ``operand.?field``; a test is ``has()``."""

    operand: "Expression"
    field: str
    optional: bool = False
    test: bool = False


@dataclass(frozen=True, slots=True)
class Call:
    """A function, or a method of ``target``."""

    function: str
    args: "tuple[Expression, ...]"
    target: "Expression | None" = None


@dataclass(frozen=True, slots=True)
class ListOf:
    """``[a, ?b]``; the second of a pair is true for an optional element."""

    elements: "tuple[tuple[Expression, bool], ...]"


@dataclass(frozen=True, slots=True)
class MapOf:
    """``{k: v, ?k: o}``."""

    entries: "tuple[tuple[Expression, Expression, bool], ...]"


@dataclass(frozen=True, slots=True)
class Fold:
    """A macro over a list, or over the keys of a map.

    ``kind`` is all, exists, exists_one, map, filter or sortBy; ``body`` is its last argument.  With
    a ``second`` variable it is over the indices and elements of a list, or the keys and values of a
    map, and may be transformList, transformMap or transformMapEntry.
    """

    kind: str
    operand: "Expression"
    variable: str
    body: "Expression"
    condition: "Expression | None" = None  # of a map with three arguments
    second: str = ""

    @property
    def names(self) -> tuple[str, ...]:
        """The variables of the body."""
        return (self.variable, self.second) if self.second else (self.variable,)


@dataclass(frozen=True, slots=True)
class Bind:
    """``cel.bind(variable, value, body)``, and ``optMap``, whose value is an optional."""

    variable: str
    value: "Expression"
    body: "Expression"
    kind: str = "bind"  # or optMap, optFlatMap


Expression = Literal | Identifier | Select | Call | ListOf | MapOf | Fold | Bind


@cache
def _token() -> re.Pattern[str]:
    return re.compile(
        r"""(?P<space>[ \t\n\f\r]+|//[^\n]*)
    |(?P<string>(?:[bB][rR]?|[rR][bB]?)?(?:\"{3}(?:[^\\]|\\.)*?\"{3}|'{3}(?:[^\\]|\\.)*?'{3}
        |"(?:[^"\\\n\r]|\\.)*"|'(?:[^'\\\n\r]|\\.)*'))
    |(?P<number>0x[0-9a-fA-F]+[uU]?
        |(?:[0-9]+\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+|\.[0-9]+(?:[eE][+-]?[0-9]+)?)
        |[0-9]+[uU]?)
    |(?P<name>[_a-zA-Z][_a-zA-Z0-9]*)
    |(?P<quoted>`[a-zA-Z0-9_.\-/ ]+`)
    |(?P<sign>&&|\|\||==|!=|<=|>=|[-+*/%!<>?:.,()\[\]{}])""",
        re.VERBOSE | re.DOTALL,
    )


@cache
def _raw_token() -> re.Pattern[str]:
    return re.compile(
        r"""(?P<prefix>[bB]?[rR][bB]?)(?:\"{3}.*?\"{3}|'{3}.*?'{3}|"[^"\n\r]*"|'[^'\n\r]*')""",
        re.DOTALL,
    )


@cache
def _escape() -> re.Pattern[str]:
    return re.compile(
        r"\\(?:([abfnrtv\\?\"'`])|x([0-9a-fA-F]{2})|X([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})"
        r"|U([0-9a-fA-F]{8})|([0-3][0-7]{2})|(.)?)",
        re.DOTALL,
    )


class UInt(int):
    """An unsigned integer, which is another type than a signed one."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str  # string, number, name, quoted, sign or end
    text: str
    at: int


def parse(text: str) -> Expression:
    """Return the tree of an expression.  Raises InputError with the position of the error."""
    return _Parser(text).whole()


def _tokens(text: str) -> list[_Token]:
    tokens, at = [], 0
    while at < len(text):
        raw = _raw_token().match(text, at)
        match = raw or _token().match(text, at)
        if match is None:
            raise _broken(text, at, f"token recognition error at {text[at]!r}")
        kind = "string" if raw else str(match.lastgroup)
        if kind != "space":
            tokens.append(_Token(kind, match.group(), at))
        at = match.end()
    return [*tokens, _Token("end", "<EOF>", len(text))]


def _broken(text: str, at: int, problem: str) -> InputError:
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return InputError(f"line {line}, column {column}: {problem}")


def _balanced(function: str, terms: list[Expression]) -> Expression:
    """Return a tree of an associative operator that is no deeper than it has to be."""
    while len(terms) > 1:
        pairs = [terms[i : i + 2] for i in range(0, len(terms), 2)]
        terms = [Call(function, tuple(pair)) if len(pair) > 1 else pair[0] for pair in pairs]
    return terms[0]


def _children(node: Expression) -> list[Expression]:  # noqa: PLR0911 -- one for each kind of node
    match node:
        case Select():
            return [node.operand]
        case Call():
            return [*node.args, *([node.target] if node.target is not None else ())]
        case ListOf():
            return [element for element, _ in node.elements]
        case MapOf():
            return [part for key, value, _ in node.entries for part in (key, value)]
        case Fold():
            condition = [node.condition] if node.condition is not None else []
            return [node.operand, node.body, *condition]
        case Bind():
            return [node.value, node.body]
        case _:
            return []


def _is_deep(tree: Expression) -> bool:
    """Return whether the tree is deeper than ``MAX_DEPTH``; level by level, without recursion."""
    level = [tree]
    for _ in range(MAX_DEPTH):
        level = [child for node in level for child in _children(node)]
        if not level:
            return False
    return True


class _Parser:
    """Recursive descent over the tokens of one expression."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = _tokens(text)
        self._next = 0
        self._depth = 0

    def whole(self) -> Expression:
        tree = self._expression()
        if self._token.kind != "end":
            raise self._unexpected()
        if _is_deep(tree):
            raise _broken(self._text, 0, f"more than {MAX_DEPTH} nested parts")
        return tree

    @property
    def _token(self) -> _Token:
        return self._tokens[self._next]

    def _unexpected(self, wanted: str = "") -> InputError:
        token = self._token
        problem = f"mismatched input {token.text!r}" + (f", expecting {wanted}" if wanted else "")
        return _broken(self._text, token.at, problem)

    def _take(self, *signs: str) -> str:
        """Return and pass the next token if it is one of these signs; else an empty text."""
        token = self._token
        if token.kind in ("sign", "name") and token.text in signs:
            self._next += 1
            return token.text
        return ""

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._unexpected(repr(sign))

    def _identifier(self) -> str:
        token = self._token
        if token.kind != "name" or token.text in ("true", "false", "null", "in"):
            raise self._unexpected("an identifier")
        self._next += 1
        return token.text

    # -- operators, from the weakest -------------------------------------------------------------

    def _expression(self) -> Expression:
        self._depth += 1
        if self._depth > _MAX_NESTING:
            raise _broken(self._text, self._token.at, f"more than {_MAX_NESTING} nested parts")
        condition = self._disjunction()
        if self._take("?"):
            first = self._disjunction()
            self._expect(":")
            condition = Call("_?_:_", (condition, first, self._expression()))
        self._depth -= 1
        return condition

    def _disjunction(self) -> Expression:
        terms = [self._conjunction()]
        while self._take("||"):
            terms.append(self._conjunction())
        return _balanced("_||_", terms)

    def _conjunction(self) -> Expression:
        terms = [self._relation()]
        while self._take("&&"):
            terms.append(self._relation())
        return _balanced("_&&_", terms)

    def _relation(self) -> Expression:
        left = self._sum()
        while sign := self._take(*_RELATIONS):
            name = "@in" if sign == "in" else f"_{sign}_"
            left = Call(name, (left, self._sum()))
        return left

    def _sum(self) -> Expression:
        left = self._product()
        while sign := self._take("+", "-"):
            left = Call(f"_{sign}_", (left, self._product()))
        return left

    def _product(self) -> Expression:
        left = self._unary()
        while sign := self._take("*", "/", "%"):
            left = Call(f"_{sign}_", (left, self._unary()))
        return left

    def _unary(self) -> Expression:
        signs = 0
        if self._token.text == "!" and self._token.kind == "sign":
            while self._take("!"):
                signs += 1
            operand = self._member()
            return operand if signs % 2 == 0 else Call("!_", (operand,))
        if self._token.text == "-" and self._token.kind == "sign":
            while self._take("-"):
                signs += 1
            negative = signs % 2 == 1
            if negative and self._token.kind == "number":
                return self._member_of(self._number(negative=True))
            operand = self._member()
            return Call("-_", (operand,)) if negative else operand
        return self._member()

    # -- operands ----------------------------------------------------------------------------

    def _member(self) -> Expression:
        return self._member_of(self._primary())

    def _member_of(self, operand: Expression) -> Expression:
        while True:
            if self._take("."):
                operand = self._selected(operand)
            elif self._take("["):
                optional = bool(self._take("?"))
                index = self._expression()
                self._expect("]")
                operand = Call("_[?_]" if optional else "_[_]", (operand, index))
            else:
                return operand

    def _selected(self, operand: Expression) -> Expression:
        optional = bool(self._take("?"))
        if self._token.kind == "quoted":
            field = self._token.text[1:-1]
            self._next += 1
            return Select(operand, field, optional)
        field = self._identifier()
        if optional or not self._take("("):
            return Select(operand, field, optional)
        at = self._tokens[self._next - 1].at
        return self._macro(field, operand, self._arguments(), at)

    def _arguments(self) -> tuple[Expression, ...]:
        args: list[Expression] = []
        while not self._take(")"):
            if args:
                self._expect(",")
            args.append(self._expression())
        return tuple(args)

    def _macro(
        self, function: str, target: Expression, args: tuple[Expression, ...], at: int
    ) -> Expression:
        if function in _FOLDS and len(args) in ((2, 3) if function == "map" else (2,)):
            variable = self._variable(args[0], at)
            condition = args[1] if len(args) == 3 else None  # noqa: PLR2004 -- map(x, if, what)
            return Fold(function, target, variable, args[-1], condition)
        if (function in _QUANTIFIERS and len(args) == 3) or (  # noqa: PLR2004 -- index, item, body
            function in _TRANSFORMS and len(args) in (3, 4)
        ):
            return self._fold_of_pairs(function, target, args, at)
        if function in ("optMap", "optFlatMap") and len(args) == 2:  # noqa: PLR2004 -- name, body
            return Bind(self._variable(args[0], at), target, args[1], function)
        if function == "bind" and target == Identifier("cel") and len(args) == 3:  # noqa: PLR2004 -- the arity of bind
            return Bind(self._variable(args[0], at), args[1], args[2])
        return Call(function, args, target)

    def _fold_of_pairs(
        self, function: str, target: Expression, args: tuple[Expression, ...], at: int
    ) -> Expression:
        first, second = self._variable(args[0], at), self._variable(args[1], at)
        if first == second:
            raise _broken(self._text, at, f"duplicate variable name: {first}")
        condition = args[2] if len(args) == 4 else None  # noqa: PLR2004 -- (k, v, if, what)
        kind = "exists_one" if function == "existsOne" else function
        return Fold(kind, target, first, args[-1], condition, second)

    def _variable(self, node: Expression, at: int) -> str:
        if not isinstance(node, Identifier):
            raise _broken(self._text, at, "argument must be a simple name")
        return node.name

    def _primary(self) -> Expression:  # noqa: C901, PLR0911 -- one for each kind of operand
        token = self._token
        if token.kind == "number":
            return self._number(negative=False)
        if token.kind == "string":
            self._next += 1
            return Literal(self._string(token))
        if self._take("("):
            inner = self._expression()
            self._expect(")")
            return inner
        if self._take("["):
            return self._list()
        if self._take("{"):
            return self._map()
        for word, value in (("true", True), ("false", False), ("null", None)):
            if self._take(word):
                return Literal(value)
        self._take(".")  # a leading dot means the outermost scope, and there is no other
        name = self._identifier()
        if name in _RESERVED:
            raise _broken(self._text, token.at, f"reserved identifier: {name}")
        if not self._take("("):
            return Identifier(name)
        args = self._arguments()
        if name == "has":
            return self._has(args, token.at)
        return Call(name, args)

    def _has(self, args: tuple[Expression, ...], at: int) -> Expression:
        if len(args) != 1 or not isinstance(args[0], Select) or args[0].optional:
            raise _broken(self._text, at, "invalid argument to has() macro")
        return Select(args[0].operand, args[0].field, test=True)

    def _list(self) -> Expression:
        elements: list[tuple[Expression, bool]] = []
        while not self._take("]"):
            optional = bool(self._take("?"))
            elements.append((self._expression(), optional))
            if not self._take(","):
                self._expect("]")
                break
        return ListOf(tuple(elements))

    def _map(self) -> Expression:
        entries: list[tuple[Expression, Expression, bool]] = []
        while not self._take("}"):
            optional = bool(self._take("?"))
            key = self._expression()
            self._expect(":")
            entries.append((key, self._expression(), optional))
            if not self._take(","):
                self._expect("}")
                break
        return MapOf(tuple(entries))

    def _number(self, *, negative: bool) -> Expression:
        token = self._token
        self._next += 1
        text = token.text.lower()
        if text.startswith("0x"):
            number = int(text.rstrip("u"), 16)
        elif any(sign in text for sign in ".e"):
            return Literal(-float(text) if negative else float(text))
        else:
            number = int(text.rstrip("u")) if len(text) < _LONGEST else _TOO_LARGE
        if text.endswith("u"):
            if negative or number >= 2**64:
                raise _broken(self._text, token.at, "invalid uint literal")
            return Literal(UInt(number))
        number = -number if negative else number
        if not -(2**63) <= number < 2**63:
            raise _broken(self._text, token.at, "invalid int literal")
        return Literal(number)

    def _string(self, token: _Token) -> str | bytes:
        start = min(i for i, char in enumerate(token.text) if char in "\"'")
        prefix, quoted = token.text[:start].lower(), token.text[start:]
        quotes = 3 if quoted[:3] in ('"""', "'''") and len(quoted) >= 6 else 1  # noqa: PLR2004 -- both ends
        inner = quoted[quotes:-quotes]
        if "r" in prefix:
            return inner.encode() if "b" in prefix else inner
        if "b" in prefix:
            return self._unescaped_bytes(inner, token)
        return "".join(
            part if isinstance(part, str) else chr(part) for part in self._parts(inner, token)
        )

    def _unescaped_bytes(self, inner: str, token: _Token) -> bytes:
        return b"".join(
            part.encode() if isinstance(part, str) else bytes((part,))
            for part in self._parts(inner, token, of_bytes=True)
        )

    def _parts(self, inner: str, token: _Token, *, of_bytes: bool = False) -> list[str | int]:
        """Return literal text, and the numbers of numeric escapes."""
        parts: list[str | int] = []
        at = 0
        for escape in _escape().finditer(inner):
            parts.append(inner[at : escape.start()])
            at = escape.end()
            simple, *numbers, octal, unknown = escape.groups()
            if simple:
                parts.append(_SIMPLE.get(simple, simple))
                continue
            code = next((int(digits, 16) for digits in numbers if digits), None)
            is_unicode = bool(numbers[2] or numbers[3])
            if octal:
                code = int(octal, 8)
            if code is None or (of_bytes and is_unicode) or unknown:
                raise _broken(self._text, token.at, f"unable to unescape {escape.group()!r}")
            if code > _LAST_CODE or code in _SURROGATES:
                raise _broken(self._text, token.at, f"invalid code point {escape.group()!r}")
            parts.append(code)
        parts.append(inner[at:])
        return parts
