"""Functions that every environment has: operators, conversions, text, lists, sets, optionals.

Left out of what Kubernetes offers, and so an undeclared reference: times and durations, URLs,
``format`` and the authorizer.  A regular expression is matched in linear time.

A function whose work its arguments' sizes don't bound takes ``spend`` first and pays for what it
touches and makes before it does so: elements one step each, text a step for ``TEXT_PER_STEP``.

Source: https://github.com/google/cel-spec doc/langdef.md, "List of Standard Definitions";
https://pkg.go.dev/github.com/google/cel-go/ext; k8s.io/apiserver pkg/cel/library.
"""

import math
import re
from collections.abc import Callable, Mapping, Sequence
from decimal import Decimal
from functools import lru_cache
from typing import Any

import re2

from koordinator.foundation.cel.syntax import UInt
from koordinator.foundation.cel.types import (
    ABSENT,
    CelError,
    CelType,
    OptionalValue,
    Overload,
    Spend,
    kind_of,
    metered,
    overload,
)

_NUMBERS = ("int", "uint", "double")
_TEXTS = ("string", "bytes")
_MAX_PATTERN = 1 << 12  # characters
TEXT_PER_STEP = 10  # characters

_DECIMAL = re.compile(r"[+-]?[0-9]{1,40}")

_FLOATING = re.compile(r"[+-]?[0-9a-zA-Z.][0-9a-zA-Z.+_-]{0,400}")

_TRUE, _FALSE = ("1", "t", "true", "TRUE", "True"), ("0", "f", "false", "FALSE", "False")

_FIXED = (-4, 6)  # powers of ten without an exponent

_OPTIONS = re2.Options()

_INSTRUCTIONS_PER_STEP = 4  # of a program that is compiled
_INSTRUCTIONS_PER_PASS = 64  # of a program that a character runs through in the time of a step
_FAILURE = 2000  # steps: a pattern that is too large is compiled for long
_FAILURE_PER_CHARACTER = 20

_PAIRS_PER_STEP = 1000  # of characters that are compared

#: Of Unicode; Python's own strip() takes separators of files and groups, too.
_SPACES = "\t\n\v\f\r \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000" + "".join(
    map(chr, range(0x2000, 0x200B))
)

#: Types whose values have an order that sort() and sortBy() know.
SORTED = ("int", "uint", "double", "bool", "string", "bytes")

_QUOTED = {"\a": "\\a", "\b": "\\b", "\f": "\\f", "\n": "\\n", "\r": "\\r", "\t": "\\t"} | {
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


def _int(number: int) -> int:
    if not -(2**63) <= number < 2**63:
        raise CelError("integer overflow")
    return number


def _uint(number: int) -> UInt:
    if not 0 <= number < 2**64:
        raise CelError("unsigned integer overflow")
    return UInt(number)


def _quotient(a: int, b: int) -> int:
    if b == 0:
        raise CelError("division by zero")
    whole = abs(a) // abs(b)
    return _int(whole if (a < 0) == (b < 0) else -whole)


def _remainder(a: int, b: int) -> int:
    if b == 0:
        raise CelError("modulus by zero")
    rest = abs(a) % abs(b)
    return -rest if a < 0 else rest


def _divided(a: float, b: float) -> float:
    if b:
        return a / b
    return float("nan") if not a or a != a else float("inf") if a > 0 else float("-inf")  # noqa: PLR0124 -- NaN


def equal(spend: Spend, a: Any, b: Any) -> bool:
    """Return whether two values are the same; values of different types are not.

    Costs a step for each value that is inside of another, and what that costs.
    """
    kind, other = kind_of(a), kind_of(b)
    if kind != other:
        return kind in _NUMBERS and other in _NUMBERS and a == b
    if kind in ("list", "map"):
        if len(a) != len(b):
            return False
        spend(len(a))
        if kind == "list":
            return all(equal(spend, *pair) for pair in zip(a, b, strict=True))
        return all(key in b and equal(spend, a[key], b[key]) for key in a)
    if kind == "optional_type":
        spend(1)
        return a.is_present == b.is_present and (not a.is_present or equal(spend, a.value, b.value))
    if kind in _TEXTS and len(a) > TEXT_PER_STEP:
        spend(min(len(a), len(b)) // TEXT_PER_STEP)
    return bool(a == b)


def _is_in(spend: Spend, item: Any, container: Any) -> bool:
    if isinstance(container, dict):
        try:
            return item in container
        except TypeError:
            return False
    for other in container:
        spend(1)
        if equal(spend, item, other):
            return True
    return False


def _text_cost(values: Sequence[Any]) -> int:
    """Return the cost of reading each value once, to its last character."""
    return len(values) + sum(len(one) for one in values if kind_of(one) in _TEXTS) // TEXT_PER_STEP


def _orders() -> list[Overload]:
    compare: Mapping[str, Callable[[Any, Any], bool]] = {
        "<": lambda a, b: bool(a < b),
        "<=": lambda a, b: bool(a <= b),
        ">": lambda a, b: bool(a > b),
        ">=": lambda a, b: bool(a >= b),
    }
    pairs = [(a, b) for a in _NUMBERS for b in _NUMBERS]
    pairs += [(kind, kind) for kind in ("bool", "string", "bytes")]
    return [
        overload(f"_{sign}_({a}, {b}) -> bool", run)
        for sign, run in compare.items()
        for a, b in pairs
    ]


def _only_checked(*_: Any) -> Any:
    raise CelError("no such overload")


# -- conversions ---------------------------------------------------------------------------------


def _to_int(value: Any) -> int:
    if isinstance(value, str):
        if not _DECIMAL.fullmatch(value):
            raise CelError("type conversion error from 'string' to 'int'")
        return _int(int(value))
    try:
        return _int(int(value))
    except (ValueError, OverflowError):  # of a double: not a number, infinite
        raise CelError("integer overflow") from None


def _to_uint(value: Any) -> UInt:
    return _uint(_to_int(value) if not isinstance(value, UInt) else value)


def _to_double(value: Any) -> float:
    number = _parsed(value) if isinstance(value, str) else float(value)
    if number is None:
        raise CelError("type conversion error from 'string' to 'double'")
    return number


def _parsed(text: str) -> float | None:
    """Return a number as Go's strconv.ParseFloat reads it; None if it is none, or too large."""
    if not _FLOATING.fullmatch(text):
        return None
    try:
        number = float.fromhex(text) if "x" in text.lower() else float(text)
    except (ValueError, OverflowError):
        return None
    return None if math.isinf(number) and any(map(str.isdigit, text)) else number


def _to_bool(text: str) -> bool:
    if text in _TRUE:
        return True
    if text in _FALSE:
        return False
    raise CelError("type conversion error from 'string' to 'bool'")


def _to_string(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _shortest(value)
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise CelError("invalid UTF-8 in bytes, cannot convert to string") from None
    return str(int(value)) if isinstance(value, int) else str(value)


def _shortest(value: float) -> str:
    """Return a number as Go's strconv.FormatFloat(value, 'g', -1, 64) does."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    power = len(digits) - 1 + int(exponent) if value else 0
    if not _FIXED[0] <= power < _FIXED[1]:
        first, *rest = map(str, digits)
        mantissa = first + ("." + "".join(rest) if rest else "")
        return f"{'-' * sign}{mantissa}e{'-' if power < 0 else '+'}{abs(power):02}"
    return f"{Decimal(repr(value)).normalize():f}"


# -- text ----------------------------------------------------------------------------------------


_OPTIONS.log_errors = False
_OPTIONS.max_mem = 1 << 18  # bytes of a program and of its automaton; for 10,000 instructions


@lru_cache(maxsize=64)
def pattern_of(text: str) -> Any:
    """Return a regular expression, compiled.  Raises CelError."""
    if len(text) > _MAX_PATTERN:
        raise CelError("regular expression is too long")
    try:
        return re2.compile(text, _OPTIONS)
    except re2.error as error:
        reason = error.args[0].decode() if isinstance(error.args[0], bytes) else error
        raise CelError(f"error parsing regexp: {reason}") from None


def _bought_pattern(spend: Spend, text: str) -> Any:
    """Return a regular expression; costs as if it were compiled each time."""
    try:
        pattern = pattern_of(text)
    except CelError:
        spend(_FAILURE + len(text) * _FAILURE_PER_CHARACTER)
        raise
    spend(pattern.programsize // _INSTRUCTIONS_PER_STEP)
    return pattern


def _charge_search(spend: Spend, pattern: Any, length: int) -> None:
    passes = 1 + pattern.programsize // _INSTRUCTIONS_PER_PASS
    spend((1 + length // TEXT_PER_STEP) * passes)


def _is_match(spend: Spend, text: str, pattern: str) -> bool:
    bought = _bought_pattern(spend, pattern)
    _charge_search(spend, bought, len(text))
    return bool(bought.search(text))


def _find_all(spend: Spend, text: str, pattern: str, most: int = -1) -> list[str]:
    bought = _bought_pattern(spend, pattern)
    matches: list[str] = []
    _charge_search(spend, bought, len(text))
    for match in bought.finditer(text):
        if len(matches) == most:
            break
        matches.append(match.group())
        spend(len(matches[-1]) // TEXT_PER_STEP)
        _charge_search(spend, bought, len(text) - match.end())
    return matches


def _find(spend: Spend, text: str, pattern: str) -> str:
    bought = _bought_pattern(spend, pattern)
    _charge_search(spend, bought, len(text))
    match = bought.search(text)
    return match.group() if match else ""


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise CelError(f"index out of range: {index}")
    return text[index : index + 1]


def _index_of(text: str, part: str, start: int = 0) -> int:
    if not part:
        return start
    if start < 0:
        raise CelError(f"index out of range: {start}")
    return text.find(part, start)


def _last_index_of(spend: Spend, text: str, part: str, last: int | None = None) -> int:
    spend(len(text) * len(part) // _PAIRS_PER_STEP)  # unlike forward, that is not linear
    if last is None:
        return text.rfind(part)
    if not part:
        return last
    if last < 0:
        raise CelError(f"index out of range: {last}")
    return text.rfind(part, 0, last + len(part)) if last < len(text) else -1


def _substring(text: str, start: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= start <= len(text) or not 0 <= end <= len(text):
        raise CelError(f"index out of range: {end if 0 <= start <= len(text) else start}")
    if start > end:
        raise CelError(f"invalid substring range. start: {start}, end: {end}")
    return text[start:end]


def _replaced(spend: Spend, text: str, old: str, new: str, most: int = -1) -> str:
    places = text.count(old)
    places = places if most < 0 else min(places, most)
    spend(places + places * len(new) // TEXT_PER_STEP)
    return text.replace(old, new, most)


def _split(spend: Spend, text: str, by: str, most: int = -1) -> list[str]:
    if most == 0:
        return []
    spend(text.count(by) + 1)
    if by:
        return text.split(by, most - 1 if most > 0 else -1)
    parts = list(text)
    if 0 < most < len(parts):
        parts[most - 1 :] = ["".join(parts[most - 1 :])]
    return parts


def _joined(spend: Spend, parts: Sequence[Any], by: str = "") -> str:
    if not all(isinstance(part, str) for part in parts):
        raise CelError("no such overload")
    spend(_text_cost(parts) + len(by) * len(parts) // TEXT_PER_STEP)
    return by.join(parts)


def _lower_ascii(text: str) -> str:
    return "".join(char.lower() if char.isascii() else char for char in text)


def _upper_ascii(text: str) -> str:
    return "".join(char.upper() if char.isascii() else char for char in text)


# -- lists and sets ------------------------------------------------------------------------------


def _extreme(spend: Spend, items: Sequence[Any], choose: Callable[..., Any], name: str) -> Any:
    if not items:
        raise CelError(f"{name} called on empty list")
    _require_order(spend, items)
    return _ordered(lambda: choose(items))


def _ordered(run: Callable[[], Any]) -> Any:
    try:
        return run()
    except TypeError:
        raise CelError("no such overload") from None


def _require_order(spend: Spend, items: Sequence[Any]) -> None:
    """Charge the comparison of each item.  Raises CelError for lists, which CEL does not order."""
    spend(_text_cost(items))
    if any(kind_of(item) == "list" for item in items):
        raise CelError("no such overload")


def _is_sorted(spend: Spend, items: Sequence[Any]) -> bool:
    _require_order(spend, items)
    return bool(_ordered(lambda: all(items[i] <= items[i + 1] for i in range(len(items) - 1))))


def _place(spend: Spend, items: Sequence[Any], item: Any, *, last: bool = False) -> int:
    spend(len(items))
    places = [index for index, other in enumerate(items) if equal(spend, item, other)]
    return (places[-1] if last else places[0]) if places else -1


def _includes(spend: Spend, values: Any, item: Any) -> bool:
    """Return whether a list has an item, or another value is equal to it."""
    if kind_of(values) != "list":
        return equal(spend, values, item)
    spend(len(values))
    return any(equal(spend, value, item) for value in values)


def sorted_values(
    spend: Spend, items: Sequence[Any], key: Callable[[Any], Any] = lambda item: item
) -> list[Any]:
    """Return items in the order of their keys, which are of one type.  Raises CelError."""
    keys = [key(item) for item in items]
    kinds = set(map(kind_of, keys))
    if not kinds.issubset(SORTED):
        raise CelError("list elements must be comparable")
    if len(kinds) > 1:
        raise CelError("list elements must have the same type")
    comparisons = len(keys).bit_length()  # of each
    spend(_text_cost(keys) * comparisons // 4)
    return sorted(items, key=key)


def _optional_at(items: Sequence[Any], place: int) -> OptionalValue:
    return OptionalValue(items[place], is_present=True) if items else ABSENT


def _slice(items: Sequence[Any], start: int, end: int) -> list[Any]:
    if start < 0 or end < 0:
        raise CelError(f"cannot slice({start}, {end}), negative indexes not supported")
    if start > end:
        raise CelError(
            f"cannot slice({start}, {end}), start index must be less than or equal to end index"
        )
    if len(items) < end:
        raise CelError(f"cannot slice({start}, {end}), list is length {len(items)}")
    return list(items[start:end])


def _flatten(spend: Spend, items: Sequence[Any], depth: int = 1) -> list[Any]:
    if depth < 0:
        raise CelError("level must be non-negative")
    spend(len(items))
    flat: list[Any] = []
    for item in items:
        flat += _flatten(spend, item, depth - 1) if depth and kind_of(item) == "list" else [item]
    return flat


def _counted(spend: Spend, number: int) -> list[int]:
    spend(max(number, 0))
    return list(range(number))


def _distinct(spend: Spend, items: Sequence[Any]) -> list[Any]:
    """Return items without those that are equal to an earlier one."""
    spend(_text_cost(items))
    distinct: list[Any] = []
    known: set[tuple[str, Any]] = set()
    others: list[Any] = []
    for item in items:
        kind = kind_of(item)
        if kind in SORTED:
            key = "number" if kind in _NUMBERS else kind, item
            is_new = key not in known
            known.add(key)
        else:
            is_new = not _is_in(spend, item, others)
            if is_new:
                others.append(item)
        if is_new:
            distinct.append(item)
    return distinct


def _quoted(text: str) -> str:
    return '"' + "".join(_QUOTED.get(char, char) for char in text) + '"'


def _contains_all(spend: Spend, items: Sequence[Any], others: Sequence[Any]) -> bool:
    return all(_is_in(spend, other, items) for other in others)


def _or_value(maybe: OptionalValue, otherwise: Any) -> Any:
    return maybe.value if maybe.is_present else otherwise


def _value(maybe: OptionalValue) -> Any:
    if not maybe.is_present:
        raise CelError("optional.none() dereference")
    return maybe.value


def _of_non_zero(value: Any) -> OptionalValue:
    return OptionalValue(value, is_present=True) if value else ABSENT


def _sized(kind: str) -> list[Overload]:
    return [overload(f"size({kind}) -> int", len), overload(f"{kind}.size() -> int", len)]


STANDARD: tuple[Overload, ...] = (
    overload("_&&_(bool, bool) -> bool", _only_checked),
    overload("_||_(bool, bool) -> bool", _only_checked),
    overload("_?_:_(bool, A, A) -> A", _only_checked),
    overload("_[_](list(A), int) -> A", _only_checked),
    overload("_[_](map(A, B), A) -> B", _only_checked),
    overload("_[_](optional_type(list(A)), int) -> optional_type(A)", _only_checked),
    overload("_[_](optional_type(map(A, B)), A) -> optional_type(B)", _only_checked),
    overload("_[?_](list(A), int) -> optional_type(A)", _only_checked),
    overload("_[?_](map(A, B), A) -> optional_type(B)", _only_checked),
    overload("_[?_](optional_type(list(A)), int) -> optional_type(A)", _only_checked),
    overload("_[?_](optional_type(map(A, B)), A) -> optional_type(B)", _only_checked),
    overload("!_(bool) -> bool", lambda a: not a),
    overload("-_(int) -> int", lambda a: _int(-a)),
    overload("-_(double) -> double", lambda a: -a),
    metered("_==_(A, A) -> bool", equal),
    metered("_!=_(A, A) -> bool", lambda spend, a, b: not equal(spend, a, b)),
    metered("@in(A, list(A)) -> bool", _is_in),
    metered("@in(A, map(A, B)) -> bool", _is_in),
    *_orders(),
    overload("_+_(int, int) -> int", lambda a, b: _int(a + b)),
    overload("_+_(uint, uint) -> uint", lambda a, b: _uint(int(a) + int(b))),
    overload("_+_(double, double) -> double", lambda a, b: a + b),
    overload("_+_(string, string) -> string", lambda a, b: a + b),
    overload("_+_(bytes, bytes) -> bytes", lambda a, b: a + b),
    overload("_+_(list(A), list(A)) -> list(A)", lambda a, b: [*a, *b]),
    overload("_-_(int, int) -> int", lambda a, b: _int(a - b)),
    overload("_-_(uint, uint) -> uint", lambda a, b: _uint(int(a) - int(b))),
    overload("_-_(double, double) -> double", lambda a, b: a - b),
    overload("_*_(int, int) -> int", lambda a, b: _int(a * b)),
    overload("_*_(uint, uint) -> uint", lambda a, b: _uint(int(a) * int(b))),
    overload("_*_(double, double) -> double", lambda a, b: a * b),
    overload("_/_(int, int) -> int", _quotient),
    overload("_/_(uint, uint) -> uint", lambda a, b: _uint(_quotient(int(a), int(b)))),
    overload("_/_(double, double) -> double", _divided),
    overload("_%_(int, int) -> int", _remainder),
    overload("_%_(uint, uint) -> uint", lambda a, b: _uint(_remainder(int(a), int(b)))),
    *(one for kind in ("string", "bytes", "list(A)", "map(A, B)") for one in _sized(kind)),
    *(overload(f"int({kind}) -> int", _to_int) for kind in (*_NUMBERS, "string")),
    *(overload(f"uint({kind}) -> uint", _to_uint) for kind in (*_NUMBERS, "string")),
    *(overload(f"double({kind}) -> double", _to_double) for kind in (*_NUMBERS, "string")),
    *(
        overload(f"string({kind}) -> string", _to_string)
        for kind in (*_NUMBERS, "string", "bytes", "bool")
    ),
    overload("bytes(string) -> bytes", str.encode),
    overload("bytes(bytes) -> bytes", lambda a: a),
    overload("bool(string) -> bool", _to_bool),
    overload("bool(bool) -> bool", lambda a: a),
    overload("dyn(A) -> dyn", lambda a: a),
    overload("type(A) -> type", lambda a: CelType(kind_of(a))),
    overload("string.contains(string) -> bool", lambda a, b: b in a),
    overload("string.startsWith(string) -> bool", str.startswith),
    overload("string.endsWith(string) -> bool", str.endswith),
    metered("string.matches(string) -> bool", _is_match),
    metered("matches(string, string) -> bool", _is_match),
    metered("string.find(string) -> string", _find),
    metered("string.findAll(string) -> list(string)", _find_all),
    metered("string.findAll(string, int) -> list(string)", _find_all),
    overload("string.charAt(int) -> string", _char_at),
    overload("string.indexOf(string) -> int", _index_of),
    overload("string.indexOf(string, int) -> int", _index_of),
    metered("string.lastIndexOf(string) -> int", _last_index_of),
    metered("string.lastIndexOf(string, int) -> int", _last_index_of),
    overload("string.lowerAscii() -> string", _lower_ascii),
    overload("string.upperAscii() -> string", _upper_ascii),
    overload("string.trim() -> string", lambda text: text.strip(_SPACES)),
    metered("string.replace(string, string) -> string", _replaced),
    metered("string.replace(string, string, int) -> string", _replaced),
    metered("string.split(string) -> list(string)", _split),
    metered("string.split(string, int) -> list(string)", _split),
    overload("string.substring(int) -> string", _substring),
    overload("string.substring(int, int) -> string", _substring),
    metered("list(string).join() -> string", _joined),
    metered("list(string).join(string) -> string", _joined),
    metered("list(A).isSorted() -> bool", _is_sorted),
    overload("list(A).sum() -> A", lambda a: _ordered(lambda: sum(a))),
    metered("list(A).min() -> A", lambda spend, a: _extreme(spend, a, min, "min")),
    metered("list(A).max() -> A", lambda spend, a: _extreme(spend, a, max, "max")),
    metered("list(A).indexOf(A) -> int", _place),
    metered("list(A).lastIndexOf(A) -> int", lambda spend, a, b: _place(spend, a, b, last=True)),
    overload("list(A).slice(int, int) -> list(A)", _slice),
    metered("dyn.includes(dyn) -> bool", _includes),
    metered("list(list(A)).flatten() -> list(A)", _flatten),
    metered("list(dyn).flatten(int) -> list(dyn)", _flatten),
    *(metered(f"list({kind}).sort() -> list({kind})", sorted_values) for kind in SORTED),
    overload("list(A).first() -> optional_type(A)", lambda a: _optional_at(a, 0)),
    overload("list(A).last() -> optional_type(A)", lambda a: _optional_at(a, -1)),
    overload("list(A).reverse() -> list(A)", lambda a: list(reversed(a))),
    metered("list(A).distinct() -> list(A)", _distinct),
    metered("`lists.range`(int) -> list(int)", _counted),
    overload("`strings.quote`(string) -> string", _quoted),
    metered("`sets.contains`(list(A), list(A)) -> bool", _contains_all),
    metered(
        "`sets.equivalent`(list(A), list(A)) -> bool",
        lambda spend, a, b: _contains_all(spend, a, b) and _contains_all(spend, b, a),
    ),
    metered(
        "`sets.intersects`(list(A), list(A)) -> bool",
        lambda spend, a, b: any(_is_in(spend, one, b) for one in a),
    ),
    overload("`optional.of`(A) -> optional_type(A)", lambda a: OptionalValue(a, is_present=True)),
    overload("`optional.ofNonZeroValue`(A) -> optional_type(A)", _of_non_zero),
    overload("`optional.none`() -> optional_type(dyn)", lambda: ABSENT),
    overload("optional_type(A).hasValue() -> bool", lambda a: a.is_present),
    overload("optional_type(A).value() -> A", _value),
    overload("optional_type(A).orValue(A) -> A", _or_value),
    overload(
        "optional_type(A).or(optional_type(A)) -> optional_type(A)",
        lambda a, b: a if a.is_present else b,
    ),
)
