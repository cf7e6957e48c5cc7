"""Types of CEL with IP addresses and CIDR ranges, and the dispatch over its syntax tree.

Source: k8s.io/apiserver pkg/cel/library/ip.go and cidr.go; Go's net/netip for what is what.
"""

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv6Address,
    IPv6Interface,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import Any, Final, Generic, TypeVar, assert_never

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
from koordinator.foundation.lazy_dataclass import dataclass

Address = IPv4Address | IPv6Address
Range = IPv4Interface | IPv6Interface  # with the address that it was written with
_PREFIX: Final = re.compile(r"[^/%]+/(?:0|[1-9][0-9]{0,2})")
_BROADCAST: Final = IPv4Address("255.255.255.255")
_V4_LINK_MULTICAST: Final = ip_network("224.0.0.0/24")
_V4_LINK_UNICAST, _V6_LINK_UNICAST = ip_network("169.254.0.0/16"), ip_network("fe80::/10")


class CelError(Exception):
    """An expression that is well-formed can't be evaluated, as where a key is missing."""


class CelCostError(CelError):
    """An evaluation has taken all that it may; nothing makes up for that."""


#: Takes off steps of the evaluation under way.  Raises CelCostError when there are none left.
Spend = Callable[[int], None]


@dataclass(frozen=True, slots=True)
class CelType:
    """A type such as ``int`` or ``list(string)``; a single capital letter is a type variable."""

    name: str
    params: "tuple[CelType, ...]" = ()

    @property
    def is_variable(self) -> bool:
        """Whether the type is a variable."""
        return len(self.name) == 1 and self.name.isupper()

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.params))
        return f"{self.name}({inner})" if inner else self.name


DYN: Final = CelType("dyn")
BOOL: Final = CelType("bool")
INT: Final = CelType("int")
UINT: Final = CelType("uint")
DOUBLE: Final = CelType("double")
STRING: Final = CelType("string")
BYTES: Final = CelType("bytes")
NULL: Final = CelType("null_type")
TYPE: Final = CelType("type")


@dataclass(frozen=True, slots=True)
class OptionalValue:
    """A value that may be missing."""

    value: Any = None
    is_present: bool = False


ABSENT: Final = OptionalValue()


@dataclass(frozen=True, slots=True)
class RecordType:
    """A type with fields that are known beforehand, such as a device."""

    name: str
    fields: Mapping[str, CelType]


@dataclass(frozen=True, slots=True)
class Overload:
    """A function of arguments of some types; of a method the first of them is its target."""

    name: str
    params: tuple[CelType, ...]
    result: CelType
    run: Callable[..., Any]
    is_method: bool = False
    is_metered: bool = False  # whether it takes ``spend`` before its arguments


_KINDS: dict[type, str] = {
    bool: "bool",
    int: "int",
    UInt: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    list: "list",
    tuple: "list",
    dict: "map",
    OptionalValue: "optional_type",
    CelType: "type",
}


def register_kind(python_type: type, name: str) -> None:
    """Map a Python type to the CEL type of that name."""
    _KINDS[python_type] = name


def kind_of(value: object) -> str:
    """Return the name of the type of a value."""
    return _KINDS.get(type(value)) or _inherited_kind(value)


def _inherited_kind(value: object) -> str:
    for base in type(value).__mro__:
        if base in _KINDS:
            return _KINDS[base]
    return type(value).__name__


def overload(signature: str, run: Callable[..., Any]) -> Overload:
    """Return the function of a signature such as ``string.contains(string) -> bool``.

    A name with a dot that is no method is written in backquotes: ```sets.contains`(…)``.
    """
    head, _, result = signature.rpartition(" -> ")
    if head.startswith("`"):
        name, _, rest = head[1:].partition("`")
        return Overload(name, _type_list(rest[1:-1]), _one_type(result), run)
    depth, start = 0, 0
    for start in range(len(head) - 1, -1, -1):
        depth += {")": 1, "(": -1}.get(head[start], 0)
        if not depth:
            break
    called, params = head[:start], _type_list(head[start + 1 : -1])
    target, dot, name = called.rpartition(".")
    if not dot:
        return Overload(name, params, _one_type(result), run)
    return Overload(name, (_one_type(target), *params), _one_type(result), run, is_method=True)


def metered(signature: str, run: Callable[..., Any]) -> Overload:
    """Return the function of a signature; ``run`` takes a ``Spend`` before the arguments."""
    return replace(overload(signature, run), is_metered=True)


@cache
def _one_type(text: str) -> CelType:
    name, _, inner = text.partition("(")
    return CelType(name, _type_list(inner[:-1]) if inner else ())


def _type_list(text: str) -> tuple[CelType, ...]:
    parts, depth, last = [], 0, 0
    for index, char in enumerate(text):
        depth += {"(": 1, ")": -1}.get(char, 0)
        if char == "," and not depth:
            parts.append(text[last:index])
            last = index + 1
    parts.append(text[last:])
    return tuple(_one_type(part.strip()) for part in parts if part.strip())


class Functions:
    """The functions of an environment, by name."""

    def __init__(self, overloads: Sequence[Overload]) -> None:
        self._by_name: dict[str, list[Overload]] = {}
        for one in overloads:
            self._by_name.setdefault(one.name, []).append(one)

    def named(self, name: str, *, is_method: bool) -> list[Overload]:
        """Return the overloads of a name that are called in that way."""
        return [one for one in self._by_name.get(name, ()) if one.is_method is is_method]


ResultT = TypeVar("ResultT")


class NodeVisitor(ABC, Generic[ResultT]):
    """Visitor that computes a result for each node, usually from the results of its parts."""

    def visit(self, node: Expression) -> ResultT:  # noqa: PLR0911 -- one for each kind of node
        """Return the result for a node."""
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


for _type in (IPv4Address, IPv6Address):
    register_kind(_type, "net.IP")
for _type in (IPv4Interface, IPv6Interface):
    register_kind(_type, "net.CIDR")


def _address(text: str) -> Address:
    problem = f'IP Address "{text}" parse error during conversion from string: '
    try:
        address = ip_address(text)
    except ValueError:
        raise CelError(f'{problem}ParseAddr("{text}"): unable to parse IP') from None
    if "%" in text:
        raise CelError(f'IP address "{text}" with zone value is not allowed')
    _require_unmapped(address, text)
    return address


def _range(text: str) -> Range:
    problem = "network address parse error during conversion from string: "
    try:
        interface = ip_interface(text) if _PREFIX.fullmatch(text) else None
    except ValueError:
        interface = None
    if interface is None:
        why = "unable to parse" if "/" in text else "no '/'"
        raise CelError(f'{problem * 2}netip.ParsePrefix("{text}"): {why}')
    _require_unmapped(interface, text, problem)
    return interface


def _require_unmapped(address: Address, text: str, problem: str = "") -> None:
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        raise CelError(f'{problem}IPv4-mapped IPv6 address "{text}" is not allowed')


def _contains_text(outer: Range, text: str) -> bool:
    if not _is_address(text):
        raise CelError("no such overload")  # not why it is none, as it is there
    return _address(text) in outer.network


def _is_address(text: str) -> bool:
    try:
        _address(text)
    except CelError:
        return False
    return True


def _is_range(text: str) -> bool:
    try:
        _range(text)
    except CelError:
        return False
    return True


def _is_link_multicast(one: Address) -> bool:
    if isinstance(one, IPv4Address):
        return one in _V4_LINK_MULTICAST
    return int(one) >> 112 & 0xFF0F == 0xFF02  # noqa: PLR2004 -- ff02::, whatever its flags


def _is_link_unicast(one: Address) -> bool:
    return one in (_V4_LINK_UNICAST if isinstance(one, IPv4Address) else _V6_LINK_UNICAST)


def _is_global(one: Address) -> bool:
    return not (
        one.is_unspecified
        or one == _BROADCAST
        or one.is_loopback
        or one.is_multicast
        or _is_link_unicast(one)
    )


def _contains_range(outer: Range, inner: Range) -> bool:
    if outer.version != inner.version or outer.network.prefixlen > inner.network.prefixlen:
        return False
    return inner.network.network_address in outer.network


def _masked(one: Range) -> Range:
    return ip_interface(str(one.network))


ADDRESSES: Final[tuple[Overload, ...]] = (
    overload("ip(string) -> net.IP", _address),
    overload("isIP(string) -> bool", _is_address),
    overload("`ip.isCanonical`(string) -> bool", lambda text: str(_address(text)) == text),
    overload("string(net.IP) -> string", str),
    overload("net.IP.family() -> int", lambda one: one.version),
    overload("net.IP.isUnspecified() -> bool", lambda one: one.is_unspecified),
    overload("net.IP.isLoopback() -> bool", lambda one: one.is_loopback),
    overload("net.IP.isLinkLocalMulticast() -> bool", _is_link_multicast),
    overload("net.IP.isLinkLocalUnicast() -> bool", _is_link_unicast),
    overload("net.IP.isGlobalUnicast() -> bool", _is_global),
    overload("cidr(string) -> net.CIDR", _range),
    overload("isCIDR(string) -> bool", _is_range),
    overload("string(net.CIDR) -> string", str),
    overload("net.CIDR.containsIP(string) -> bool", _contains_text),
    overload("net.CIDR.containsIP(net.IP) -> bool", lambda one, ip: ip in one.network),
    overload(
        "net.CIDR.containsCIDR(string) -> bool",
        lambda one, text: _contains_range(one, _range(text)),
    ),
    overload("net.CIDR.containsCIDR(net.CIDR) -> bool", _contains_range),
    overload("net.CIDR.ip() -> net.IP", lambda one: one.ip),
    overload("net.CIDR.prefixLength() -> int", lambda one: one.network.prefixlen),
    overload("net.CIDR.masked() -> net.CIDR", _masked),
)
