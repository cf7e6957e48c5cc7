"""Bandwidth classes of the machine's egress, and their members.

All amounts are bits per second.  Classes are identified by their minor number; the major is 1.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthClass:
    """Class with a guaranteed ``rate``, which may borrow up to ``ceil``.

    Classes with a lower ``priority`` borrow first.
    """

    minor: int
    rate_bps: int
    ceil_bps: int
    priority: int


@dataclass(frozen=True, slots=True)
class AddressSet:
    """IPv4 addresses of pods whose packets belong to one class."""

    name: str
    minor: int
    addresses: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkShape:
    """Classes below a root of ``total_bps``; other packets belong to ``default_minor``.

    ``addresses`` are single addresses with the minor of their class; ``cgroup_minors`` are classes
    of processes by ``net_cls.classid``.
    """

    total_bps: int
    default_minor: int
    classes: tuple[BandwidthClass, ...]
    sets: tuple[AddressSet, ...] = ()
    addresses: tuple[tuple[str, int], ...] = ()
    cgroup_minors: tuple[int, ...] = ()
