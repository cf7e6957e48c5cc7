"""CPU and memory of a node, its pods and their usage, in nanos of a CPU and of a byte.

Source: koordinator pkg/slo-controller/noderesource/plugins/util/util.go; pkg/util/resource.go;
k8s.io/apimachinery pkg/api/resource/quantity.go.
"""

import math
from collections.abc import Iterable, Mapping
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
from koordinator.domain.resized_pods import DEFAULT_RULES, effective_requests
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity

NANOS = 10**9
NANOS_PER_MILLI = 10**6
_NANOS_PER_GIGA = 10**18
_NOTHING = Quantity(0)

_LOW = frozenset((PriorityBand.BATCH, PriorityBand.FREE))
_ACTIVE = frozenset(("Running", "Pending"))


class CpuMemory(NamedTuple):
    """Amounts of CPU and memory in nanos; may be negative."""

    cpu: int = 0
    memory: int = 0

    def plus(self, other: "CpuMemory") -> "CpuMemory":
        return CpuMemory(self.cpu + other.cpu, self.memory + other.memory)

    def minus(self, other: "CpuMemory") -> "CpuMemory":
        return CpuMemory(self.cpu - other.cpu, self.memory - other.memory)

    def larger(self, other: "CpuMemory") -> "CpuMemory":
        """Return the larger amount of each resource."""
        return CpuMemory(max(self.cpu, other.cpu), max(self.memory, other.memory))

    def divided(self, parts: int) -> "CpuMemory":
        """Return one of ``parts`` equal parts, each amount rounded up to thousandths."""
        return CpuMemory(_part(self.cpu, parts), _part(self.memory, parts))


ZERO = CpuMemory()


def cpu_and_memory(resources: Mapping[str, Quantity]) -> CpuMemory:
    """Return CPU and memory of a resource list; a missing resource is 0."""
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
    """Return nanos: thousandths times a factor, truncated to whole thousandths."""
    return int(milli(nanos) * factor) * NANOS_PER_MILLI


def scaled_units(nanos: int, factor: float) -> int:
    """Return nanos: whole units times a factor, truncated to whole units."""
    return int(units(nanos) * factor) * NANOS


def plain(number: float) -> str:
    """Return a float as Go's ``%v`` prints it, without a trailing ``.0``."""
    return str(int(number)) if number == int(number) else repr(number)


def _part(nanos: int, parts: int) -> int:
    return math.ceil(milli(nanos) / parts) * NANOS_PER_MILLI


def _away_from_zero(nanos: int, divisor: int) -> int:
    return -(-nanos // divisor) if nanos >= 0 else nanos // divisor


@dataclass(frozen=True, slots=True)
class NodePod:
    """A running or pending pod on the node."""

    key: str
    request: CpuMemory
    band: PriorityBand
    keeps_cpus: bool  # QoS class LSE: its CPUs are exclusive, used or not
    numa_nodes: tuple[int, ...] = ()  # allocated NUMA nodes; empty: all

    @property
    def is_low(self) -> bool:
        """Whether the pod's priority band is batch or free."""
        return self.band in _LOW


@dataclass(frozen=True, slots=True)
class NodeUse:
    """Usage of a node as reported by koordlet, and the pods that run there now."""

    pods: tuple[NodePod, ...]
    usages: Mapping[str, CpuMemory]  # by namespace/name
    dangling: tuple[CpuMemory, ...]  # usages of prod and mid pods that are not among ``pods``
    system: CpuMemory  # usage outside of pods
    node: CpuMemory | None  # the whole node; None if CPU or memory is not reported
    reclaimable: CpuMemory  # predicted unused requests of prod pods
    host_applications: tuple[HostApplicationUsage, ...] = ()


def node_pod(pod: Pod) -> NodePod | None:
    """Return the pod as input of the formulas; None if it has ended.

    During a resize it counts with the greatest of its requested, granted and in-force amounts, as
    for the scheduler: batch pods must not get what it has not released yet.
    """
    if pod.status.phase not in _ACTIVE:
        return None
    requests = effective_requests(pod, DEFAULT_RULES)
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
    """Return the usage that a NodeMetric reports for the pods that run there now."""
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
    """Return the system usage, including host applications of higher priority than a band."""
    total = use.system
    least = DEFAULT_PRIORITIES[above]
    for application in use.host_applications:
        if DEFAULT_PRIORITIES[band_named(application.priority)] > least:
            total = total.plus(_used(application.usage.resources))
    return total


def node_reserved(node: Node) -> CpuMemory:
    """Return the resources reserved from pods: the larger of the kubelet's and the annotation's.

    An annotation that can't be parsed is ignored.
    """
    capacity, allocatable = node.status.capacity, node.status.allocatable
    annotated = _annotated(node)
    return CpuMemory(
        max(_nanos(capacity, CPU) - _nanos(allocatable, CPU), annotated.cpu, 0),
        max(_nanos(capacity, MEMORY) - _nanos(allocatable, MEMORY), annotated.memory, 0),
    )


def _nanos(resources: ResourceList, name: str) -> int:
    return resources.get(name, _NOTHING).nanos


def _used(resources: ResourceList) -> CpuMemory:
    """Return a usage; negative amounts are invalid and count as 0."""
    cpu, memory = _nanos(resources, CPU), _nanos(resources, MEMORY)
    return CpuMemory(max(cpu, 0), max(memory, 0))


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
