"""One pod on one node: what it would get, given the NUMA nodes it may use.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/resource_manager.go, ``Allocate``,
``tryBestToDistributeEvenly``, ``allocateCPUSet``.  One difference: the NUMA nodes with the least
are asked first, also where there are more than two; the original compares by position there.
"""

from dataclasses import dataclass
from typing import Final

from koordinator.api.annotations.numa import CpuBindPolicy
from koordinator.api.resource_names import CPU
from koordinator.domain.amounts import ZoneAmounts
from koordinator.domain.masks import zones_of
from koordinator.scheduler.rules.cpus.binding import CpuBinding, obeys, usable_under
from koordinator.scheduler.rules.cpus.layout import CpuLayout
from koordinator.scheduler.rules.cpus.take import CpuPreference, take_preferred_cpus
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.rules.numa.node import MILLI, NOTHING, NumaNode, NumaRequest, Reusable

NOT_ENOUGH_CPUS: Final = "not enough cpus available to satisfy request"
INVALID_LAYOUT: Final = "node(s) invalid CPU Topology"
NO_ZONES: Final = "insufficient resources on NUMA Node"

#: Amounts of a pod by NUMA node, on the way.
Shares = dict[int, dict[str, int]]


@dataclass(frozen=True, slots=True)
class NumaShortage:
    """Why a pod gets nothing."""

    reasons: tuple[str, ...]


class NumaTrial:
    """Changes nothing.  Valid as long as the node's ledger stays as it is."""

    def __init__(self, node: NumaNode, request: NumaRequest, reusable: Reusable = NOTHING) -> None:
        self.node, self.request, self.reusable = node, request, reusable
        self._available: ZoneAmounts | None = None
        self._divisions: dict[int, Shares | NumaShortage] = {}  # by NUMA nodes
        free = node.free_cpus(reusable)
        policy = request.required_policy
        if policy and node.layout is not None:
            free = free.within(usable_under(policy, node.layout, free.cpus))
        self._free = free

    @property
    def available(self) -> ZoneAmounts:
        """What the pod may take by NUMA node; of CPU no more than can be bound as required."""
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
        """Return whether any NUMA node reports it; they have nothing to do with what none does."""
        return any(name in here for here in self.available.values())

    def allocate(self, zones: int | None) -> NumaAllocation | NumaShortage:
        """Return what the pod gets of some NUMA nodes.

        None: of any, without charging them; that leaves its CPUs, if they are bound.
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
        """Return whether ``allocate`` gives something, by counting where that is enough."""
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
        """Divide the request over NUMA nodes (None: over none).  Not to be written to."""
        if zones is None:
            return {}
        known = self._divisions.get(zones)
        if known is None:
            known = self._divisions[zones] = self._divided_over(zones)
        return known

    def _divided_over(self, zones: int) -> Shares | NumaShortage:
        """Divide the request over NUMA nodes, those that have least first."""
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
        here, is_bound = self.available.get(zone, {}), self.request.binding is not None
        shares, short = {}, []
        for name, amount in self.request.amounts.items():
            has = here.get(name)
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
        """Return the even part of an amount, rounded down to what isn't divided."""
        if name != CPU or self.request.binding is None:
            return amount // parts
        cpus = -(-amount // MILLI)
        whole = self.request.required_policy == CpuBindPolicy.FULL_PCPUS
        step = self.node.layout.cpus_per_core if whole and self.node.layout is not None else 1
        return cpus // step // parts * step * MILLI

    def _choose_cpus(self, binding: CpuBinding, layout: CpuLayout, shares: Shares) -> int | None:
        """Return as many CPUs as were charged of each NUMA node; None if they aren't there."""
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
