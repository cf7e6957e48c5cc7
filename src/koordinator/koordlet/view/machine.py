"""Hardware and capacity of this node, with the fields that decisions need.

Source: koordinator pkg/util/node.go ``GetNodeReservationFromAnnotation``,
``GetNodeReservationFromKubelet``; apis/extension/system_qos.go, node_reservation.go.
"""

from collections.abc import Sequence
from functools import cached_property

from koordinator.api.annotations.node import RAW_ALLOCATABLE, read_cpu_normalization_ratio
from koordinator.api.annotations.numa import (
    NODE_RESERVATION,
    SYSTEM_QOS_RESOURCE,
    CpuInfo,
    NodeReservation,
    PodCpuAllocation,
    SystemQosResource,
)
from koordinator.api.node import Node
from koordinator.domain.amounts import canonical
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import bits_of


@dataclass(frozen=True)
class Machine:
    """Node object with the CPUs of the machine.

    ``cpus`` are ascending by id.  ``kubelet_policy`` is the policy of the kubelet's CPU manager,
    static or none; ``kubelet_allocations`` are the CPUs that it allocated exclusively to pods;
    without ``knows_allocations`` these are unknown.
    """

    node: Node
    cpus: Sequence[CpuInfo]
    kubelet_policy: str = "none"
    kubelet_allocations: tuple[PodCpuAllocation, ...] = ()
    knows_allocations: bool = True

    @cached_property
    def all_cpus(self) -> int:
        """Mask of all CPUs."""
        return sum(1 << cpu.id for cpu in self.cpus)

    @cached_property
    def kubelet_cpus(self) -> int:
        """Mask of the CPUs that the kubelet allocated to pods."""
        mask = 0
        for allocation in self.kubelet_allocations:
            mask |= _mask(allocation.cpuset)
        return mask

    @cached_property
    def kubelet_pods(self) -> frozenset[str]:
        """UIDs of the pods to which the kubelet allocated CPUs."""
        return frozenset(each.uid for each in self.kubelet_allocations)

    @property
    def capacity_milli(self) -> int:
        """CPU capacity in milli-CPU."""
        return self._amount(self.node.status.capacity.get("cpu"), "cpu")

    @property
    def memory_bytes(self) -> int:
        """Memory capacity in bytes."""
        return self._amount(self.node.status.capacity.get("memory"), "memory")

    @cached_property
    def allocatable(self) -> dict[str, int]:
        """Allocatable resources: milli-CPU for ``cpu``, whole units otherwise."""
        return {name: canonical(name, q) for name, q in self.node.status.allocatable.items()}

    @cached_property
    def raw_allocatable(self) -> dict[str, int]:
        """Allocatable resources before amplification, in canonical units."""
        try:
            raw = RAW_ALLOCATABLE.read(self.node.metadata)
        except InputError:
            raw = None
        stated = {name: canonical(name, q) for name, q in (raw or {}).items()}
        return {**self.allocatable, **stated}

    @cached_property
    def cpu_normalization_ratio(self) -> float | None:
        """CPU normalization ratio of the node; None without a valid annotation."""
        try:
            return read_cpu_normalization_ratio(self.node.metadata)
        except InputError:
            return None

    @cached_property
    def reservation(self) -> NodeReservation:
        """Reservation of the node's annotation; empty if it is invalid."""
        try:
            return NODE_RESERVATION.read(self.node.metadata) or NodeReservation()
        except InputError:
            return NodeReservation()

    @cached_property
    def reserved_cpus(self) -> int:
        """Mask of the reserved CPUs.

        If only an amount is stated, these are the first CPUs, core by core, in the kubelet's order.
        """
        stated = self.reservation
        if stated.reserved_cpus:
            return _mask(stated.reserved_cpus)
        amount = stated.resources.get("cpu")
        if amount is None:
            return 0
        order = sorted(self.cpus, key=lambda cpu: (cpu.socket, cpu.core, cpu.id))
        return sum(1 << cpu.id for cpu in order[: -(-amount.milli() // 1000)])

    @cached_property
    def reserved_milli(self) -> int:
        """The larger of the node's and the kubelet's reservation, in milli-CPU."""
        stated = self.reservation.resources.get("cpu")
        named = 1000 * _mask(self.reservation.reserved_cpus).bit_count()
        own = named or (stated.milli() if stated is not None else 0)
        of_kubelet = self.capacity_milli - self.raw_allocatable.get("cpu", self.capacity_milli)
        return max(own, of_kubelet, 0)

    @cached_property
    def system_qos(self) -> SystemQosResource:
        """CPUs for pods of class SYSTEM; empty if the annotation is invalid."""
        try:
            return SYSTEM_QOS_RESOURCE.read(self.node.metadata) or SystemQosResource()
        except InputError:
            return SystemQosResource()

    @cached_property
    def exclusive_system_cpus(self) -> int:
        """Mask of the CPUs that only pods of class SYSTEM use."""
        return _mask(self.system_qos.cpuset) if self.system_qos.cpuset_exclusive else 0

    @cached_property
    def numa_nodes(self) -> dict[int, int]:
        """Mask of CPUs by NUMA node, ascending."""
        masks: dict[int, int] = {}
        for cpu in self.cpus:
            masks[cpu.node] = masks.get(cpu.node, 0) | 1 << cpu.id
        return dict(sorted(masks.items()))

    @cached_property
    def sockets(self) -> dict[int, int]:
        """Socket by NUMA node."""
        return {cpu.node: cpu.socket for cpu in reversed(self.cpus)}

    @staticmethod
    def _amount(quantity: object, name: str) -> int:
        return canonical(name, quantity) if quantity is not None else 0  # type: ignore[arg-type]


def _mask(text: str) -> int:
    try:
        return parse_cpu_list(text)
    except InputError:
        return 0


def infos_of(mask: int, cpus: Sequence[CpuInfo]) -> list[CpuInfo]:
    """Return the CPUs of a mask, in the order of ``cpus``."""
    chosen = set(bits_of(mask))
    return [cpu for cpu in cpus if cpu.id in chosen]
