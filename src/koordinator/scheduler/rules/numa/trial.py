"""Trial of one pod on one node: its allocation for a set of NUMA nodes.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/resource_manager.go, ``Allocate``,
``tryBestToDistributeEvenly``, ``allocateCPUSet``.  One difference: NUMA nodes are used in ascending
order of their free amount, also if there are more than two; the original compares by position
there.
"""

from typing import Final

from koordinator.api.annotations.numa import CpuBindPolicy
from koordinator.api.resource_names import CPU
from koordinator.domain.amounts import ZoneAmounts
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import zones_of
from koordinator.scheduler.rules.cpus.binding import CpuBinding, obeys, usable_under
from koordinator.scheduler.rules.cpus.layout import CpuLayout
from koordinator.scheduler.rules.cpus.take import CpuPreference, take_preferred_cpus
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.rules.numa.node import MILLI, NOTHING, NumaNode, NumaRequest, Reusable

NOT_ENOUGH_CPUS: Final = "not enough cpus available to satisfy request"
INVALID_LAYOUT: Final = "node(s) invalid CPU Topology"
NO_ZONES: Final = "insufficient resources on NUMA Node"

#: Amounts of a pod by NUMA node.
Shares = dict[int, dict[str, int]]


@dataclass(frozen=True, slots=True)
class NumaShortage:
    """Reasons why an allocation is impossible."""

    reasons: tuple[str, ...]


class NumaTrial:
    """Read-only evaluation, valid while the node's ledger is unchanged."""

    def __init__(self, node: NumaNode, request: NumaRequest, reusable: Reusable = NOTHING) -> None:
        self.node, self.request, self.reusable = node, request, reusable
        self._available: ZoneAmounts | None = None
        self._divisions: dict[int, Shares | NumaShortage] = {}  # by set of NUMA nodes
        free = node.free_cpus(reusable)
        policy = request.required_policy
        if policy and node.layout is not None:
            free = free.within(usable_under(policy, node.layout, free.cpus))
        self._free = free

    @property
    def available(self) -> ZoneAmounts:
        """Amounts that the pod may take by NUMA node; CPU capped by the bindable CPUs."""
        if self._available is None:
            self._available = self._find_available()
        return self._available

    def _find_available(self) -> ZoneAmounts:
        available = self.reusable.only or self.node.available(self.reusable.zones)
        if not self.request.required_policy or self.node.layout is None:
            return available
        return {
            zone: {**amounts, CPU: min(amounts[CPU], self._bindable(zone) * MILLI)}
            if CPU in amounts
            else amounts
            for zone, amounts in available.items()
        }

    def _is_reported(self, name: str) -> bool:
        """Return whether any NUMA node reports the resource; others are not aligned."""
        return any(name in amounts for amounts in self.available.values())

    def allocate(self, zones: int | None) -> NumaAllocation | NumaShortage:
        """Return the pod's allocation on a set of NUMA nodes.

        None allocates on any NUMA nodes without charging them; only bound CPUs remain.
        """
        shares = self._divide(zones)
        if isinstance(shares, NumaShortage):
            return shares
        binding, layout = self.request.binding, self.node.layout
        if binding is None:
            return NumaAllocation(zones=shares)
        if layout is None:
            return NumaShortage((INVALID_LAYOUT,))
        cpus = self._choose_cpus(binding, layout, shares)
        if cpus is None:
            return NumaShortage((NOT_ENOUGH_CPUS,))
        if binding.required and not obeys(binding.policy, layout, cpus):
            return NumaShortage(
                (f"insufficient CPUs to satisfy required cpu bind policy {binding.policy}",)
            )
        return NumaAllocation(cpus, shares, binding.exclusive_policy)

    def fits(self, zones: int | None) -> bool:
        """Return whether ``allocate`` succeeds, by counting where that suffices."""
        if self.reusable.preferred_cpus or self.node.layout is None:
            return isinstance(self.allocate(zones), NumaAllocation)
        shares = self._divide(zones)
        if isinstance(shares, NumaShortage):
            return False
        binding = self.request.binding
        if binding is None:
            return True
        counts = [
            min(self._bindable(zone), share.get(CPU, 0) // MILLI) for zone, share in shares.items()
        ]
        if not shares and self._free.cpus.bit_count() >= binding.count:
            counts = [binding.count]
        per_core = self.node.layout.cpus_per_core
        whole = self.request.required_policy != CpuBindPolicy.FULL_PCPUS or all(
            count % per_core == 0 for count in counts
        )
        return whole and sum(counts) == binding.count

    def _bindable(self, zone: int) -> int:
        layout = self.node.layout
        cpus = layout.numa_nodes.get(zone, 0) if layout is not None else 0
        return (self._free.cpus & cpus).bit_count()

    def _divide(self, zones: int | None) -> Shares | NumaShortage:
        """Divide the request over NUMA nodes (None: over none); the result is read-only."""
        if zones is None:
            return {}
        known = self._divisions.get(zones)
        if known is None:
            known = self._divisions[zones] = self._divided_over(zones)
        return known

    def _divided_over(self, zones: int) -> Shares | NumaShortage:
        """Divide the request over NUMA nodes, smallest free amount first."""
        if not self.node.zones:
            return NumaShortage((NO_ZONES,))
        among = zones_of(zones)
        if len(among) == 1:
            return self._take_of(among[0])
        shares: Shares = {}
        short = []
        for name, amount in self.request.amounts.items():
            if not self._is_reported(name):
                continue
            has = {zone: self.available.get(zone, {}).get(name, 0) for zone in among}
            left = amount
            for index, zone in enumerate(sorted(among, key=has.__getitem__)):
                share = min(has[zone], self._part(name, left, len(among) - index))
                if share:
                    shares.setdefault(zone, {})[name] = share
                    left -= share
            if left:
                short.append(f"Insufficient NUMA {name}")
        if short:
            return NumaShortage(tuple(short))
        return dict(sorted(shares.items()))

    def _take_of(self, zone: int) -> Shares | NumaShortage:
        """Return the request as the share of one NUMA node."""
        available, is_bound = self.available.get(zone, {}), self.request.binding is not None
        shares, short = {}, []
        for name, amount in self.request.amounts.items():
            has = available.get(name)
            if has is None and not self._is_reported(name):
                continue
            whole = self._part(name, amount, 1) if is_bound and name == CPU else amount
            if has is None or min(has, whole) < amount:
                short.append(f"Insufficient NUMA {name}")
            else:
                shares[name] = min(has, whole)
        if short:
            return NumaShortage(tuple(short))
        return {zone: shares} if shares else {}

    def _part(self, name: str, amount: int, parts: int) -> int:
        """Return the even part of an amount, rounded down to the indivisible unit."""
        if name != CPU or self.request.binding is None:
            return amount // parts
        cpus = -(-amount // MILLI)
        whole = self.request.required_policy == CpuBindPolicy.FULL_PCPUS
        step = self.node.layout.cpus_per_core if whole and self.node.layout is not None else 1
        return cpus // step // parts * step * MILLI

    def _choose_cpus(self, binding: CpuBinding, layout: CpuLayout, shares: Shares) -> int | None:
        """Return the CPUs charged on each NUMA node; None if there are not enough."""
        preference = CpuPreference(binding.policy, binding.exclusive_policy, self.node.pack)
        preferred = self.reusable.preferred_cpus
        if not shares:
            return take_preferred_cpus(layout, self._free, preferred, binding.count, preference)
        chosen = 0
        for zone, share in shares.items():
            free = self._free.within(layout.numa_nodes.get(zone, 0))
            count = min(free.cpus.bit_count(), share.get(CPU, 0) // MILLI)
            chosen |= take_preferred_cpus(layout, free, preferred, count, preference) or 0
        return chosen if chosen.bit_count() == binding.count else None
