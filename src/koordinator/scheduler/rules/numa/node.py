"""Node in the view of a pod that requests NUMA nodes: topology, CPUs, and amounts taken.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/topology_options.go,
``NewTopologyOptions``; util.go, ``amplifyNUMANodeResources``.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec import Struct, field

from koordinator.api.annotations.node import read_amplification_ratios
from koordinator.api.annotations.numa import (
    KUBELET_CPU_MANAGER_POLICY,
    NODE_RESERVATION,
    POD_CPU_ALLOCATIONS,
    SYSTEM_QOS_RESOURCE,
    KubeletCpuManagerPolicy,
    NumaTopologyExclusive,
    NumaTopologyPolicy,
)
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import NUMA_ZONE, NodeResourceTopology, Zone
from koordinator.api.resource_names import CPU
from koordinator.domain.amounts import (
    Amounts,
    ZoneAmounts,
    amplified,
    read_amounts,
    remaining,
)
from koordinator.foundation.cpu_list import parse_cpu_list
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import MAX_ZONE
from koordinator.scheduler.rules.cpus.binding import CpuBinding
from koordinator.scheduler.rules.cpus.layout import CpuLayout, read_layout
from koordinator.scheduler.rules.cpus.ledger import FreeCpus
from koordinator.scheduler.rules.numa.align import NumaMachine, ZoneState
from koordinator.scheduler.rules.numa.ledger import NumaLedger

_MILLI = 1000
#: Kubelet policies by name; any other name means no policy.  Pods are aligned as a whole even if
#: the kubelet aligns each container.
_POLICIES = {
    f"{name}{level}": policy
    for name, policy in (
        ("BestEffort", NumaTopologyPolicy.BEST_EFFORT),
        ("Restricted", NumaTopologyPolicy.RESTRICTED),
        ("SingleNUMANode", NumaTopologyPolicy.SINGLE_NUMA_NODE),
    )
    for level in ("", "PodLevel", "ContainerLevel")
}

MILLI = 1000


class NumaRequest(Struct, frozen=True):
    """Positive canonical amounts; ``binding`` is set for exclusive CPUs."""

    amounts: Amounts
    binding: CpuBinding | None = None

    @property
    def required_policy(self) -> str:
        """The required bind policy (a CpuBindPolicy); empty if there is none."""
        return self.binding.policy if self.binding is not None and self.binding.required else ""

    def counted(self, cpu_ratio: float) -> Amounts:
        """Return the amounts with bound CPUs amplified by the node's ratio."""
        if cpu_ratio <= 1 or self.binding is None or CPU not in self.amounts:
            return self.amounts
        return {**self.amounts, CPU: amplified(self.amounts[CPU], cpu_ratio)}


class Reusable(Struct, frozen=True):
    """Amounts of reservations and victims that this pod may take."""

    preferred_cpus: int = 0  # taken first
    preemptible_cpus: int = 0
    zones: ZoneAmounts = field(default_factory=lambda: MappingProxyType({}))
    only: ZoneAmounts | None = None  # exclusive source, for a Restricted reservation


NOTHING: Final = Reusable()


class NumaNode(Struct, frozen=True):
    """Topology, ledger and settings of one node.

    ``zones`` are amounts by NUMA node, amplified.
    """

    layout: CpuLayout | None
    ledger: NumaLedger
    zones: ZoneAmounts
    unusable: int = 0  # CPUs reserved from binding
    cpu_ratio: float = 1.0  # CPU amplification ratio
    pack: bool = False  # fill the fullest NUMA node first
    max_holders: int = 1  # maximum number of pods per CPU

    @property
    def machine(self) -> NumaMachine:
        """The NUMA nodes with the state of their bound CPUs."""
        return NumaMachine(self.ledger.states(self.layout, self.zones))

    def machine_for(self, exclusive: str) -> NumaMachine:
        """Return the machine for a pod with this NumaTopologyExclusive.

        States are computed only if they matter.
        """
        if exclusive == NumaTopologyExclusive.REQUIRED:
            return self.machine
        return NumaMachine(dict.fromkeys(self.zones, ZoneState.IDLE))

    def free_cpus(self, reusable: Reusable) -> FreeCpus:
        """Return the CPUs that may be bound; none if the layout is unknown."""
        if self.layout is None:
            return FreeCpus((0,))
        return self.ledger.cpus.free(
            self.layout,
            unusable=self.unusable,
            max_holders=self.max_holders,
            given_back=(reusable.preferred_cpus, reusable.preemptible_cpus),
        )

    def used(self, reusable: ZoneAmounts) -> dict[int, dict[str, int]]:
        """Return the usage by NUMA node with bound CPUs amplified.

        Source: node_allocation.go, ``getAvailableNUMANodeResources``.  There, bound CPUs are not
        amplified on a NUMA node without charged amounts.
        """
        used, of_pods = {}, self.ledger.zones
        for zone in self.zones:
            charged = of_pods.get(zone, {})
            if self.cpu_ratio > 1 and self.layout is not None:
                own_cpus = self.layout.numa_nodes.get(zone, 0)
                bound = (self.ledger.cpus.in_use & own_cpus).bit_count() * MILLI
                if bound:
                    extra = amplified(bound, self.cpu_ratio) - bound
                    charged = {**charged, CPU: charged.get(CPU, 0) + extra}
            used[zone] = remaining(charged, reusable.get(zone, {}))
        return used

    def available(self, reusable: ZoneAmounts) -> dict[int, dict[str, int]]:
        """Return the free amounts of each NUMA node."""
        if reusable or self.cpu_ratio > 1:
            used = self.used(reusable)
            return {zone: remaining(amounts, used[zone]) for zone, amounts in self.zones.items()}
        of_pods = self.ledger.zones
        return {zone: _left(amounts, of_pods.get(zone)) for zone, amounts in self.zones.items()}


def _left(amounts: Amounts, charged: Amounts | None) -> dict[str, int]:
    """Return amounts minus charges, from 0 to the amount."""
    if not charged:
        return dict(amounts)
    return {
        name: amount - min(charged[name], amount) if charged.get(name, 0) > 0 else amount
        for name, amount in amounts.items()
    }


@dataclass(frozen=True, slots=True)
class NodeTopology:
    """Topology of one node.  ``layout`` is shared by all nodes of equal hardware."""

    layout: CpuLayout | None  # None: unknown, so CPUs can't be bound
    unusable: int  # unbindable CPUs: kubelet's, reserved, system QoS
    zones: ZoneAmounts  # by NUMA node, ascending; CPU without the unusable ones
    policy: NumaTopologyPolicy
    kubelet: KubeletCpuManagerPolicy | None
    own_ratios: Mapping[str, float] | None  # set: amounts are already amplified

    def ratios(self, of_node: Mapping[str, float] | None) -> Mapping[str, float]:
        """Return the amplification ratios; ``of_node`` are the ratios in the Node's annotation."""
        return (of_node if self.own_ratios is None else self.own_ratios) or {}

    def amplified_zones(self, of_node: Mapping[str, float] | None) -> ZoneAmounts:
        """Return the amplified amounts by NUMA node."""
        if self.own_ratios is not None or not of_node:
            return self.zones
        return {
            zone: {
                name: amplified(amount, of_node.get(name, 0.0)) for name, amount in amounts.items()
            }
            for zone, amounts in self.zones.items()
        }


def read_topology(report: NodeResourceTopology) -> NodeTopology:
    """Parse a NodeResourceTopology.

    Raises InputError with object and annotation: a node with unknown reservations must not be used.
    """
    try:
        return _read(report)
    except InputError as error:
        raise error.within(subject=f"NodeResourceTopology {report.key}") from None


def _read(report: NodeResourceTopology) -> NodeTopology:
    meta = report.metadata
    layout = read_layout(meta)
    unusable = _unusable(meta)
    zones = dict(sorted(_zones(report.zones).items()))
    for zone, amounts in zones.items():
        if layout is not None and amounts.get(CPU):
            lost = (unusable & layout.numa_nodes.get(zone, 0)).bit_count() * _MILLI
            amounts[CPU] = max(amounts[CPU] - lost, 0)
    return NodeTopology(
        layout=layout,
        unusable=unusable,
        zones=zones,
        policy=next(
            (_POLICIES[name] for name in report.topology_policies if name in _POLICIES),
            NumaTopologyPolicy.NONE,
        ),
        kubelet=KUBELET_CPU_MANAGER_POLICY.read(meta),
        own_ratios=read_amplification_ratios(meta),
    )


def _unusable(meta: ObjectMeta) -> int:
    """Return the CPUs of the kubelet's pods and of the three kinds of reservation."""
    cpus = 0
    for pod in POD_CPU_ALLOCATIONS.read(meta) or ():
        if pod.managed_by_kubelet and pod.uid:
            cpus |= _parse(POD_CPU_ALLOCATIONS.path, pod.cpuset)
    kubelet = KUBELET_CPU_MANAGER_POLICY.read(meta)
    if kubelet is not None:
        cpus |= _parse(KUBELET_CPU_MANAGER_POLICY.path, kubelet.reserved_cpus)
    reservation = NODE_RESERVATION.read(meta)
    if reservation is not None:
        cpus |= _parse(NODE_RESERVATION.path, reservation.reserved_cpus)
    system = SYSTEM_QOS_RESOURCE.read(meta)
    if system is not None and system.cpuset_exclusive:
        cpus |= _parse(SYSTEM_QOS_RESOURCE.path, system.cpuset)
    return cpus


def _parse(path: str, text: str) -> int:
    try:
        return parse_cpu_list(text)
    except InputError as error:
        raise error.within(path=path) from None


def _zones(zones: tuple[Zone, ...]) -> dict[int, dict[str, int]]:
    """Return the NUMA nodes; zones of other types or names are ignored."""
    by_number = {}
    for zone in zones:
        _, dash, number = zone.name.partition("node-")
        if zone.type == NUMA_ZONE and dash and number.isascii() and number.isdigit():
            if len(number) > len(str(MAX_ZONE)) or int(number) > MAX_ZONE:
                accepted = f"node- and a number from 0 to {MAX_ZONE}"
                raise InputError(f"must be {accepted}, got {zone.name}", path="zones.name")
            by_number[int(number)] = read_amounts(
                {resource.name: resource.allocatable for resource in zone.resources}
            )
    return by_number
