"""IP addresses and their ranges: ``ip``, ``cidr`` and what can be asked of them.

Source: k8s.io/apiserver pkg/cel/library/ip.go and cidr.go; Go's net/netip for what is what.
"""

import re
from ipaddress import (
    IPv4Address,
    IPv4Interface,
    IPv6Address,
    IPv6Interface,
    ip_address,
    ip_interface,
    ip_network,
)
from typing import Final

from koordinator.foundation.cel.types import CelError, Overload, overload, register_kind

Address = IPv4Address | IPv6Address
Range = IPv4Interface | IPv6Interface  # with the address that it was written with

_PREFIX: Final = re.compile(r"[^/%]+/(?:0|[1-9][0-9]{0,2})")
_BROADCAST: Final = IPv4Address("255.255.255.255")
_V4_LINK_MULTICAST: Final = ip_network("224.0.0.0/24")
_V4_LINK_UNICAST, _V6_LINK_UNICAST = ip_network("169.254.0.0/16"), ip_network("fe80::/10")

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
