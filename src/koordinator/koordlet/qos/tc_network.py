"""Egress bandwidth of pods: classes of tc per QoS class, and their members.

Only egress of the node is shaped.  A pod with its own limit has its own class.
Source: koordinator pkg/koordlet/runtimehooks/hooks/tc: rule.go, netqos_tc.go, tc_linux.go,
helper.go.
"""

import zlib
from collections.abc import Iterable, Iterator, Mapping
from ipaddress import AddressValueError, IPv4Address
from typing import Final

from koordinator.api.qos import QosClass
from koordinator.api.resource_qos import NetworkQos, ResourceQos
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.koordlet.intents import Intent, SetCgroup
from koordinator.koordlet.view.node_view import NodeView
from koordinator.koordlet.view.pods import PodView

TC: Final = "tc"
SYSTEM_MINOR, LS_MINOR, BE_MINOR = 2, 3, 4
_PRIORITIES: Final = {SYSTEM_MINOR: 1, LS_MINOR: 2, BE_MINOR: 3}
#: Names of the original's sets, by class.
SETS: Final = {SYSTEM_MINOR: "system_class", LS_MINOR: "ls_class", BE_MINOR: "be_class"}
_CLASSES: Final[Mapping[QosClass, int]] = {
    QosClass.SYSTEM: SYSTEM_MINOR,
    QosClass.LSE: LS_MINOR,
    QosClass.LSR: LS_MINOR,
    QosClass.LS: LS_MINOR,
    QosClass.BE: BE_MINOR,
}
_FIRST_POD_MINOR, _LAST_MINOR = 0x100, 0xFFFE
_LEAST_BPS: Final = 8_000  # the kernel rejects a class without a rate
_ROOT_CLASS: Final = 1 << 16  # major number in the format of net_cls.classid
_REASON: Final = "network QoS"


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


@dataclass(frozen=True, slots=True)
class PodLimit:
    """Egress limit of a pod, with the minor of its class."""

    pod: PodView
    minor: int
    egress_bps: int


def plan_network_shape(view: NodeView) -> NetworkShape | None:
    """Return the desired shape; None without a total bandwidth, or under another policy.

    Raises InputError if the guaranteed rates exceed the node's bandwidth.
    """
    policies = view.qos_strategy.policies
    system = view.slo.system_strategy
    total = system.total_network_bandwidth if system is not None else None
    total_bps = total.value() if total is not None else 0
    if total_bps <= 0 or ((policies and policies.net_qos_policy) or TC) != TC:
        return None
    strategy = view.qos_strategy
    latency, batch = (
        _class(qos, minor, total_bps)
        for qos, minor in ((strategy.ls_class, LS_MINOR), (strategy.be_class, BE_MINOR))
    )
    left_bps = total_bps - latency.rate_bps - batch.rate_bps
    if left_bps < 0:
        raise InputError(
            f"must be at most {total_bps} bit/s together (systemStrategy.totalNetworkBandwidth), "
            f"got {latency.rate_bps} and {batch.rate_bps}",
            path="resourceQOSStrategy.{lsClass,beClass}.networkQOS.egressRequest",
        )
    others = BandwidthClass(
        minor=SYSTEM_MINOR,
        rate_bps=max(left_bps, _LEAST_BPS),
        ceil_bps=total_bps,
        priority=_PRIORITIES[SYSTEM_MINOR],
    )
    limits = pod_limits(view.active_pods)
    return NetworkShape(
        total_bps=total_bps,
        default_minor=SYSTEM_MINOR,
        classes=(others, latency, batch, *_own_classes(limits, (others, latency, batch))),
        sets=tuple(_sets(view.active_pods, {limit.pod.uid for limit in limits})),
        addresses=tuple(
            (address, limit.minor) for limit in limits if (address := _address(limit.pod))
        ),
        cgroup_minors=(
            *SETS,
            *(limit.minor for limit in limits if limit.pod.pod.spec.host_network),
        ),
    )


def plan_network_classes(view: NodeView) -> list[Intent]:
    """Return ``net_cls.classid`` of pods in a class; nodes without net_cls ignore it."""
    own = {limit.pod.uid: limit.minor for limit in pod_limits(view.active_pods)}
    return [
        SetCgroup(
            CgroupFile.NET_CLASS,
            pod.folder,
            str(_ROOT_CLASS | own.get(pod.uid, _CLASSES[pod.labelled_qos])),
            _REASON,
            pod.key,
        )
        for pod in view.active_pods
        if pod.labelled_qos in _CLASSES
    ]


def pod_limits(pods: Iterable[PodView]) -> list[PodLimit]:
    """Return the limits of the active ``pods`` that have one, each with its own minor number.

    The number is derived from the UID, so that it survives a restart; on a collision, the pod
    with the later UID gets the next free number.
    """
    limited = [
        (pod, bits)
        for pod in sorted(pods, key=lambda pod: pod.uid)
        if pod.labelled_qos in _CLASSES and (bits := _egress_bps(pod)) > 0
    ]
    taken: set[int] = set()
    limits = []
    span = _LAST_MINOR - _FIRST_POD_MINOR + 1
    for pod, bits in limited[:span]:
        offset = zlib.crc32(pod.uid.encode()) % span
        while offset in taken:
            offset = (offset + 1) % span
        taken.add(offset)
        limits.append(PodLimit(pod, _FIRST_POD_MINOR + offset, bits))
    return limits


def bandwidth_bps(stated: int | str | None, total_bps: int) -> int:
    """Return a bandwidth of a NodeSLO: a number is a percentage, a text an amount.

    Invalid values count as 0, as in the original.
    """
    if stated is None:
        return 0
    if isinstance(stated, int):
        return total_bps * stated // 100 if 0 <= stated <= 100 else 0  # noqa: PLR2004 -- percent
    try:
        return max(Quantity.parse(stated).value(), 0)
    except InputError:
        return 0


def _class(qos: ResourceQos | None, minor: int, total_bps: int) -> BandwidthClass:
    """Return the class of a QoS class; a disabled one may use idle bandwidth."""
    stated = (qos.network_qos if qos is not None else None) or NetworkQos()
    request = limit = 0
    if stated.enable:
        request = bandwidth_bps(stated.egress_request, total_bps)
        limit = bandwidth_bps(stated.egress_limit, total_bps) or request
    rate_bps = max(request, _LEAST_BPS)
    ceil_bps = max(min(limit, total_bps), rate_bps) if limit else total_bps
    return BandwidthClass(
        minor=minor, rate_bps=rate_bps, ceil_bps=ceil_bps, priority=_PRIORITIES[minor]
    )


def _own_classes(
    limits: Iterable[PodLimit], classes: Iterable[BandwidthClass]
) -> Iterator[BandwidthClass]:
    """Yield a class per limit; rate and ceiling are bounded by its QoS class."""
    by_minor = {each.minor: each for each in classes}
    for limit in limits:
        whole = by_minor[_CLASSES[limit.pod.labelled_qos]]
        bits = max(limit.egress_bps, _LEAST_BPS)
        yield BandwidthClass(
            minor=limit.minor,
            rate_bps=min(bits, whole.rate_bps),
            ceil_bps=min(bits, whole.ceil_bps),
            priority=whole.priority,
        )


def _sets(pods: Iterable[PodView], own: set[str]) -> Iterator[AddressSet]:
    addresses: dict[int, set[str]] = {minor: set() for minor in SETS}
    for pod in pods:
        minor = _CLASSES.get(pod.labelled_qos)
        if minor is not None and pod.uid not in own:
            addresses[minor] |= {each for each in (_address(pod),) if each}
    for minor, name in SETS.items():
        yield AddressSet(name, minor, frozenset(addresses[minor]))


def _address(pod: PodView) -> str:
    """Return the IPv4 address of the pod; empty without one, and on the host network."""
    if pod.pod.spec.host_network:
        return ""
    try:
        return str(IPv4Address(pod.pod.status.pod_ip))
    except AddressValueError:
        return ""


def _egress_bps(pod: PodView) -> int:
    try:
        stated = pod.network_qos
        return Quantity.parse(stated.egress_limit).value() if stated and stated.egress_limit else 0
    except InputError:
        return 0
