"""A request for NUMA nodes, and a node in the view of a pod: CPUs, NUMA nodes, taken amounts."""

from types import MappingProxyType
from typing import Final

from msgspec import Struct, field

from koordinator.api.annotations.numa import NumaTopologyExclusive
from koordinator.api.resource_names import CPU
from koordinator.domain.amounts import (
    Amounts,
    ZoneAmounts,
    amplified,
    remaining,
)
from koordinator.scheduler.rules.cpus.binding import CpuBinding
from koordinator.scheduler.rules.cpus.layout import CpuLayout
from koordinator.scheduler.rules.cpus.ledger import FreeCpus
from koordinator.scheduler.rules.numa.align import NumaMachine, ZoneState
from koordinator.scheduler.rules.numa.ledger import NumaLedger


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


MILLI = 1000


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
