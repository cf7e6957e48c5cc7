"""How the machine is to share out what it sends: classes of bandwidth, and who is in which.

All amounts are bits per second.  A class is called by its minor number; the major one is 1.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class BandwidthClass:
    """``rate`` is what it has for certain, ``ceil`` what it may borrow up to.

    Of several that could borrow, the lower ``priority`` is tried first.
    """

    minor: int
    rate_bps: int
    ceil_bps: int
    priority: int


@dataclass(frozen=True, slots=True)
class AddressSet:
    """IPv4 addresses of pods whose packets go into one class."""

    name: str
    minor: int
    addresses: frozenset[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkShape:
    """Classes below a root of ``total_bps``; what belongs to none goes into ``default_minor``.

    ``addresses`` are single ones with the minor of their class; ``cgroup_minors`` are classes that
    processes get into by ``net_cls.classid``.
    """

    total_bps: int
    default_minor: int
    classes: tuple[BandwidthClass, ...]
    sets: tuple[AddressSet, ...] = ()
    addresses: tuple[tuple[str, int], ...] = ()
    cgroup_minors: tuple[int, ...] = ()
