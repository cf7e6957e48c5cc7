"""What a pod asks of the NUMA nodes of a node, and what it may take from others."""

from types import MappingProxyType
from typing import Final

from msgspec import Struct, field

from koordinator.api.resource_names import CPU
from koordinator.domain.amounts import Amounts, ZoneAmounts, amplified
from koordinator.scheduler.rules.cpus.binding import CpuBinding


class NumaRequest(Struct, frozen=True):
    """Amounts above 0, canonical; ``binding`` if the CPUs are for the pod alone."""

    amounts: Amounts
    binding: CpuBinding | None = None

    @property
    def required_policy(self) -> str:
        """The bind policy that must be kept (a CpuBindPolicy); empty if there is none."""
        return self.binding.policy if self.binding is not None and self.binding.required else ""

    def counted(self, cpu_ratio: float) -> Amounts:
        """Return the amounts with bound CPUs at what they count for on an amplified node."""
        if cpu_ratio <= 1 or self.binding is None or CPU not in self.amounts:
            return self.amounts
        return {**self.amounts, CPU: amplified(self.amounts[CPU], cpu_ratio)}


class Reusable(Struct, frozen=True):
    """What others hold and this pod may take: from reservations, and from victims."""

    preferred_cpus: int = 0  # taken before any others
    preemptible_cpus: int = 0
    zones: ZoneAmounts = field(default_factory=lambda: MappingProxyType({}))
    only: ZoneAmounts | None = None  # nothing but this, where a reservation is restricted


NOTHING: Final = Reusable()
