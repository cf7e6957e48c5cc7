"""A node, its pods and their usage as CPU and memory in nanos: of a CPU, of a byte.

Source: koordinator pkg/slo-controller/noderesource/plugins/util/util.go; pkg/util/resource.go;
k8s.io/apimachinery pkg/api/resource/quantity.go.
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from koordinator.api.annotations.numa import NODE_RESERVATION, RESOURCE_STATUS
from koordinator.api.core import ResourceList
from koordinator.api.node import Node
from koordinator.api.node_metric import HostApplicationUsage, NodeMetricStatus
from koordinator.api.pod import Pod
from koordinator.api.qos import (
    DEFAULT_PRIORITIES,
    PriorityBand,
    QosClass,
    band_named,
    band_of,
    qos_of,
)
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity

NANOS = 10**9
NANOS_PER_MILLI = 10**6
_NANOS_PER_GIGA = 10**18
_NOTHING = Quantity(0)


class CpuMemory(NamedTuple):
    """Two amounts; may be negative."""

    cpu: int = 0
    memory: int = 0

    def plus(self, other: "CpuMemory") -> "CpuMemory":
        return CpuMemory(self.cpu + other.cpu, self.memory + other.memory)

    def minus(self, other: "CpuMemory") -> "CpuMemory":
        return CpuMemory(self.cpu - other.cpu, self.memory - other.memory)

    def larger(self, other: "CpuMemory") -> "CpuMemory":
        """Return the larger of each."""
        return CpuMemory(max(self.cpu, other.cpu), max(self.memory, other.memory))

    def divided(self, parts: int) -> "CpuMemory":
        """Return one of so many equal parts, each amount rounded up to thousandths."""
        return CpuMemory(_part(self.cpu, parts), _part(self.memory, parts))


ZERO = CpuMemory()


def cpu_and_memory(resources: Mapping[str, Quantity]) -> CpuMemory:
    """Return the two of a list; what is missing is 0."""
    return CpuMemory(resources.get(CPU, _NOTHING).nanos, resources.get(MEMORY, _NOTHING).nanos)


def milli(nanos: int) -> int:
    """Return thousandths, rounded away from zero."""
    return _away_from_zero(nanos, NANOS_PER_MILLI)


def units(nanos: int) -> int:
    """Return whole units, rounded away from zero."""
    return _away_from_zero(nanos, NANOS)


def giga(nanos: int) -> int:
    """Return units of 10^9, rounded away from zero."""
    return _away_from_zero(nanos, _NANOS_PER_GIGA)


def scaled_milli(nanos: int, factor: float) -> int:
    """Return nanos of the thousandths times a factor, cut to whole thousandths."""
    return int(milli(nanos) * factor) * NANOS_PER_MILLI


def scaled_units(nanos: int, factor: float) -> int:
    """Return nanos of the whole units times a factor, cut to whole units."""
    return int(units(nanos) * factor) * NANOS


def plain(number: float) -> str:
    """Return a float as Go's ``%v`` prints those that occur here: no ``.0``."""
    return str(int(number)) if number == int(number) else repr(number)


def _part(nanos: int, parts: int) -> int:
    return math.ceil(milli(nanos) / parts) * NANOS_PER_MILLI


def _away_from_zero(nanos: int, divisor: int) -> int:
    return -(-nanos // divisor) if nanos >= 0 else nanos // divisor


_LOW = frozenset((PriorityBand.BATCH, PriorityBand.FREE))
_ACTIVE = frozenset(("Running", "Pending"))


@dataclass(frozen=True, slots=True)
class NodePod:
    """A pod on the node that has not ended."""

    key: str
    request: CpuMemory
    band: PriorityBand
    keeps_cpus: bool  # QoS class LSE: its CPUs are nobody else's, used or not
    numa_nodes: tuple[int, ...] = ()  # that it was given; none means all

    @property
    def is_low(self) -> bool:
        """Whether it lives on what is left itself."""
        return self.band in _LOW


@dataclass(frozen=True, slots=True)
class NodeUse:
    """What koordlet reported of a node, and who is there now."""

    pods: tuple[NodePod, ...]
    usages: Mapping[str, CpuMemory]  # by namespace/name
    dangling: tuple[CpuMemory, ...]  # usages of important pods that are not among ``pods``
    system: CpuMemory  # of what is no pod's
    node: CpuMemory | None  # the whole node; None if that is not reported in full
    reclaimable: CpuMemory  # what prod pods requested and will hardly use
    host_applications: tuple[HostApplicationUsage, ...] = ()


def node_pod(pod: Pod) -> NodePod | None:
    """Return the pod as it counts; None if it has ended."""
    if pod.status.phase not in _ACTIVE:
        return None
    requests = pod_requests(pod.spec)
    return NodePod(
        key=pod.key,
        request=CpuMemory(
            requests.get(CPU, 0) * NANOS_PER_MILLI,
            requests.get(MEMORY, 0) * NANOS,
        ),
        band=band_of(pod),
        keeps_cpus=qos_of(pod) is QosClass.LSE,
        numa_nodes=_numa_nodes(pod),
    )


def node_use(status: NodeMetricStatus, pods: Iterable[NodePod]) -> NodeUse:
    """Return what the report says about the pods that are there now."""
    present = tuple(pods)
    keys = {pod.key for pod in present}
    usages, dangling = {}, []
    for each in status.pods_metric:
        key = f"{each.namespace}/{each.name}"
        usages[key] = usage = _used(each.pod_usage.resources)
        if key not in keys and each.priority not in _LOW:
            dangling.append(usage)
    metric = status.node_metric
    system = node = None
    if metric is not None:
        system = _used(metric.system_usage.resources)
        if metric.node_usage.resources.keys() >= {CPU, MEMORY}:
            node = _used(metric.node_usage.resources)
    reclaimable = status.prod_reclaimable_metric
    return NodeUse(
        pods=present,
        usages=usages,
        dangling=tuple(dangling),
        system=system or ZERO,
        node=node,
        reclaimable=cpu_and_memory(reclaimable.resource.resources) if reclaimable else ZERO,
        host_applications=status.host_application_metric,
    )


def system_usage(use: NodeUse, above: PriorityBand) -> CpuMemory:
    """Return what the system uses, with the host applications that stand above a band."""
    total = use.system
    least = DEFAULT_PRIORITIES[above]
    for application in use.host_applications:
        if DEFAULT_PRIORITIES[band_named(application.priority)] > least:
            total = total.plus(_used(application.usage.resources))
    return total


def node_reserved(node: Node) -> CpuMemory:
    """Return what pods don't get: the kubelet's reserve or the annotation's, whichever is more.

    An annotation that can't be read reserves nothing.
    """
    status = node.status
    kubelet = cpu_and_memory(status.capacity).minus(cpu_and_memory(status.allocatable))
    return kubelet.larger(ZERO).larger(_annotated(node))


def _used(resources: ResourceList) -> CpuMemory:
    """Return a usage; a negative one, which nothing can have, is none."""
    used = cpu_and_memory(resources)
    return used if used.cpu >= 0 and used.memory >= 0 else used.larger(ZERO)


def _annotated(node: Node) -> CpuMemory:
    try:
        reservation = NODE_RESERVATION.read(node.metadata)
        if reservation is None:
            return ZERO
        reserved = cpu_and_memory(reservation.resources)
        if reservation.reserved_cpus:
            cpus = parse_cpu_list(reservation.reserved_cpus).bit_count()
            reserved = CpuMemory(cpus * NANOS, reserved.memory)
    except InputError:
        return ZERO
    return reserved


def _numa_nodes(pod: Pod) -> tuple[int, ...]:
    try:
        allocation = RESOURCE_STATUS.read(pod.metadata)
    except InputError:
        return ()
    return tuple(each.node for each in allocation.numa_node_resources) if allocation else ()
