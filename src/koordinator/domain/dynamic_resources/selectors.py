"""Expressions over a device, as DeviceClasses and claims have them.

``device`` has ``driver``, ``attributes`` and ``capacity``; both are maps by domain, then by name,
and a domain that a device has nothing of is an empty map.

Source: k8s.io/dynamic-resource-allocation cel/compile.go; k8s.io/apiserver
pkg/cel/library/quantity.go and semver.go; https://semver.org/spec/v2.0.0.html sections 2, 9 to
11.
"""

import re
from collections.abc import Hashable, Iterable, Mapping, Sequence
from functools import lru_cache, total_ordering
from typing import Any, Final

from koordinator.api.dynamic_resources import DeviceAttribute, DeviceCapacity, PoolDevice
from koordinator.foundation.cel import (
    BOOL,
    COST_LIMIT_EXCEEDED,
    DYN,
    STRING,
    CelCostError,
    CelEnvironment,
    CelError,
    CelProgram,
    CelType,
    RecordType,
    kind_of,
    overload,
    register_kind,
)
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import NANOS, Quantity

_NUMBER = r"0|[1-9][0-9]{0,18}"
_TEXT = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
    r"(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)
_MAX_TEXT = 256  # characters
_LOOSE = re.compile(r"v?([0-9]+)(\.[0-9]+)?(\.[0-9]+)?(.*)", re.DOTALL)


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class SemanticVersion:
    """A version compared by precedence; build metadata is ignored."""

    major: int
    minor: int
    patch: int
    pre_release: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, *, normalize: bool = False) -> "SemanticVersion":
        """Parse a version; ``normalize`` adds missing parts and strips ``v`` and leading zeros.

        Raises InputError.
        """
        given = _normalized(text) if normalize and len(text) <= _MAX_TEXT else text
        match = _TEXT.fullmatch(given) if len(given) <= _MAX_TEXT else None
        if match is None:
            raise InputError(f"must be a semantic version such as 1.2.3, got {text[:_MAX_TEXT]!r}")
        major, minor, patch, pre_release = match.groups()
        parts = pre_release.split(".") if pre_release else ()
        return cls(int(major), int(minor), int(patch), tuple(parts))

    @property
    def _precedence(self) -> tuple[object, ...]:
        parts = tuple(
            (0, int(part), "") if part.isdecimal() else (1, 0, part)
            for part in self.pre_release
            if part
        )
        return self.major, self.minor, self.patch, not parts, parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SemanticVersion) and self._precedence == other._precedence

    def __lt__(self, other: "SemanticVersion") -> bool:
        return self._precedence < other._precedence

    def __hash__(self) -> int:
        return hash(self._precedence)


def _normalized(text: str) -> str:
    match = _LOOSE.fullmatch(text)
    if match is None:
        return text
    major, minor, patch, rest = match.groups()
    numbers = [str(int(part.strip("."))) for part in (major, minor or "0", patch or "0")]
    return ".".join(numbers) + rest


MAX_EXPRESSION: Final = 10 * 1024  # characters
MAX_COST: Final = 20_000  # steps of one evaluation; typical expressions take dozens
_TOO_DEAR: Final[set[str]] = set()  # expressions that exceeded MAX_COST
_MOST_DEAR: Final = 4096


class DomainMap(dict[str, Any]):
    """A map by domain; looking up a missing domain returns an empty map without adding it."""

    __slots__ = ()

    def __missing__(self, key: str) -> dict[str, Any]:
        return {}


register_kind(Quantity, "quantity")
register_kind(SemanticVersion, "semver")
register_kind(DomainMap, "map")


def _quantity(text: str) -> Quantity:
    try:
        return Quantity.parse(text)
    except InputError:
        raise CelError(
            "quantities must match the regular expression "
            "'^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ) from None


def _is_quantity(text: str) -> bool:
    try:
        Quantity.parse(text)
    except InputError:
        return False
    return True


def _as_integer(amount: Quantity) -> int:
    whole, rest = divmod(amount.nanos, NANOS)
    if rest or not -(2**63) <= whole < 2**63:
        raise CelError("cannot convert value to integer")
    return whole


def _is_integer(amount: Quantity) -> bool:
    return not amount.nanos % NANOS and -(2**63) <= amount.nanos // NANOS < 2**63


def _version(text: str, normalize: bool = False) -> SemanticVersion:
    try:
        return SemanticVersion.parse(text, normalize=normalize)
    except InputError as error:
        raise CelError(str(error)) from None


def _is_version(text: str, normalize: bool = False) -> bool:
    try:
        SemanticVersion.parse(text, normalize=normalize)
    except InputError:
        return False
    return True


def _compared(a: Any, b: Any) -> int:
    return int(a > b) - int(a < b)


_OVERLOADS = (
    overload("quantity(string) -> quantity", _quantity),
    overload("isQuantity(string) -> bool", _is_quantity),
    overload("sign(quantity) -> int", lambda a: (a.nanos > 0) - (a.nanos < 0)),
    overload("quantity.isInteger() -> bool", _is_integer),
    overload("quantity.asInteger() -> int", _as_integer),
    overload("quantity.asApproximateFloat() -> double", lambda a: a.nanos / NANOS),
    overload("quantity.add(quantity) -> quantity", lambda a, b: Quantity(a.nanos + b.nanos)),
    overload("quantity.add(int) -> quantity", lambda a, b: Quantity(a.nanos + b * NANOS)),
    overload("quantity.sub(quantity) -> quantity", lambda a, b: Quantity(a.nanos - b.nanos)),
    overload("quantity.sub(int) -> quantity", lambda a, b: Quantity(a.nanos - b * NANOS)),
    overload("quantity.isLessThan(quantity) -> bool", lambda a, b: a < b),
    overload("quantity.isGreaterThan(quantity) -> bool", lambda a, b: a > b),
    overload("quantity.compareTo(quantity) -> int", _compared),
    overload("semver(string) -> semver", _version),
    overload("semver(string, bool) -> semver", _version),
    overload("isSemver(string) -> bool", _is_version),
    overload("isSemver(string, bool) -> bool", _is_version),
    overload("semver.major() -> int", lambda a: a.major),
    overload("semver.minor() -> int", lambda a: a.minor),
    overload("semver.patch() -> int", lambda a: a.patch),
    overload("semver.isLessThan(semver) -> bool", lambda a, b: a < b),
    overload("semver.isGreaterThan(semver) -> bool", lambda a, b: a > b),
    overload("semver.compareTo(semver) -> int", _compared),
)
_BY_DOMAIN = "map"
_DEVICE = RecordType(
    "device",
    {
        "driver": STRING,
        "attributes": CelType(_BY_DOMAIN, (STRING, CelType("map", (STRING, DYN)))),
        "capacity": CelType(_BY_DOMAIN, (STRING, CelType("map", (STRING, CelType("quantity"))))),
        "allowMultipleAllocations": BOOL,
    },
)
ENVIRONMENT = CelEnvironment({"device": CelType("device")}, {"device": _DEVICE}, _OVERLOADS)


@lru_cache(maxsize=4096)
def compile_selector(expression: str) -> CelProgram | InputError:
    """Compile an expression; return the error instead if it is invalid."""
    if len(expression) > MAX_EXPRESSION:
        return InputError(f"must have at most {MAX_EXPRESSION} characters, got {len(expression)}")
    try:
        program = ENVIRONMENT.compile(expression)
    except InputError as error:
        return error
    if program.result not in (BOOL, DYN):
        return InputError("must evaluate to bool or the unknown type, not " + str(program.result))
    return program


def device_variables(driver: str, device: PoolDevice) -> dict[str, Any]:
    """Return the variables of expressions over a device.

    Raises InputError for an invalid version.
    """
    return {
        "device": {
            "driver": driver,
            "attributes": _by_domain(
                driver, {name: attribute_value(a) for name, a in device.attributes.items()}
            ),
            "capacity": _by_domain(driver, {n: c.value for n, c in device.capacity.items()}),
            "allowMultipleAllocations": bool(device.allow_multiple_allocations),
        }
    }


def attribute_value(attribute: DeviceAttribute) -> Any:
    """Return a number, text, boolean or version, or a list of them.

    Raises InputError if none is set.
    """
    for values in (attribute.int_values, attribute.bool_values, attribute.string_values):
        if values:
            return [*values]
    if attribute.version_values:
        return [*map(SemanticVersion.parse, attribute.version_values)]
    if attribute.int_value is not None:
        return attribute.int_value
    if attribute.bool_value is not None:
        return attribute.bool_value
    if attribute.string_value is not None:
        return attribute.string_value
    if attribute.version_value is not None:
        return SemanticVersion.parse(attribute.version_value)
    raise InputError("must have a value: one of int, bool, string and version, or a list")


@dataclass(frozen=True, slots=True)
class ComparedAttribute:
    """Values of an attribute as constraints compare them, each with the name of its type."""

    values: frozenset[tuple[str, int | str]]
    is_list: bool


def compared_attribute(attribute: DeviceAttribute) -> ComparedAttribute | None:
    """Return what constraints compare of an attribute; None if it has no value.

    Versions are compared as texts.
    """
    lists: tuple[tuple[str, Sequence[int | str]], ...] = (
        ("int", attribute.int_values),
        ("bool", attribute.bool_values),
        ("string", attribute.string_values),
        ("version", attribute.version_values),
    )
    for kind, values in lists:
        if values:
            return ComparedAttribute(frozenset((kind, value) for value in values), is_list=True)
    singles = (
        ("string", attribute.string_value),
        ("int", attribute.int_value),
        ("bool", attribute.bool_value),
        ("version", attribute.version_value),
    )
    for kind, value in singles:
        if value is not None:
            return ComparedAttribute(frozenset(((kind, value),)), is_list=False)
    return None


def qualified(name: str, driver: str) -> str:
    """Return the attribute name with its domain; the default domain is the driver."""
    return name if "/" in name else f"{driver}/{name}"


def _by_domain(driver: str, values: Mapping[str, Any]) -> DomainMap:
    by_domain = DomainMap()
    for name, value in values.items():
        domain, _, short = qualified(name, driver).partition("/")
        by_domain.setdefault(domain, {})[short] = value
    return by_domain


@lru_cache(maxsize=4096)
def _is_version_text(text: str) -> bool:
    return _is_version(text)


@lru_cache(maxsize=4096)
def parts_read(program: CelProgram) -> tuple[tuple[str, str, str], ...] | None:
    """Return the (part, domain, name) triples that an expression reads; None if any may be read.

    Domain and name are empty for the driver.
    """
    parts: list[tuple[str, str, str]] = []
    for _, *path in sorted(program.reads) if program.reads is not None else [("", "")]:
        match path:
            case ["driver" | "allowMultipleAllocations" as part, *_]:
                parts.append((part, "", ""))
            case ["attributes" | "capacity" as part, domain, name, *_]:
                parts.append((part, domain, name))
            case _:
                return None
    return tuple(parts)


def values_read(
    parts: Iterable[tuple[str, str, str]], driver: str, device: PoolDevice
) -> tuple[Hashable, ...] | None:
    """Return the values of some parts of a device; None if they don't determine the result.

    Expressions that read only these parts have equal results for devices with equal values. The
    result is also None for a device with an invalid attribute.
    """
    if not all(map(_is_valid, device.attributes.values())):
        return None
    values: list[Hashable] = []
    for part, domain, name in parts:
        if not domain:
            values.append(driver if part == "driver" else device.allow_multiple_allocations)
            continue
        of: Mapping[str, Any] = device.attributes if part == "attributes" else device.capacity
        value = of.get(f"{domain}/{name}")
        if domain == driver and name in of:
            if value is not None:
                return None  # ambiguous: qualified and unqualified name
            value = of[name]
        values.append(value.value if isinstance(value, DeviceCapacity) else value)
    return tuple(values)


def _is_valid(attribute: DeviceAttribute) -> bool:
    texts = (attribute.version_value, *attribute.version_values)
    if not all(_is_version_text(text) for text in texts if text is not None):
        return False
    return compared_attribute(attribute) is not None


_NOT_BOOL: Final = {
    "int": ": unsupported type conversion from 'int' to bool",
    "string": ": unsupported native conversion from string to 'bool'",
}


def matches(program: CelProgram, variables: Mapping[str, Any]) -> bool:
    """Return whether the expression is true for a device.  Raises CelError."""
    if program.text in _TOO_DEAR:  # not evaluated again: there may be thousands of devices
        raise CelCostError(COST_LIMIT_EXCEEDED)
    try:
        value = program.evaluate(variables, MAX_COST)
    except CelCostError:
        if len(_TOO_DEAR) >= _MOST_DEAR:
            _TOO_DEAR.clear()
        _TOO_DEAR.add(program.text)
        raise
    if not isinstance(value, bool):
        kind = kind_of(value)
        why = _NOT_BOOL.get(kind, "")
        raise CelError(f"CEL result of type {kind} could not be converted to bool{why}")
    return value
