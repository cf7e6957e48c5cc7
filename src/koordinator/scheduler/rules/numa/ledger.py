"""Allocations of pods on one node: CPUs, and amounts of its NUMA nodes.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/node_allocation.go, pod_eventhandler.go,
``updatePod``.
"""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from types import MappingProxyType

from msgspec import Struct, field, structs

from koordinator.api.annotations.numa import (
    RESOURCE_SPEC,
    RESOURCE_STATUS,
    CpuAllocation,
    NumaNodeResource,
)
from koordinator.api.meta import ObjectMeta
from koordinator.api.resource_names import CPU, MEMORY
from koordinator.domain.amounts import (
    Amounts,
    ZoneAmounts,
    add,
    read_amounts,
    subtract,
)
from koordinator.foundation.cpu_list import format_cpu_list, parse_cpu_list
from koordinator.foundation.errors import BugError, InputError
from koordinator.foundation.quantity import Notation, Quantity
from koordinator.scheduler.rules.cpus.layout import CpuLayout
from koordinator.scheduler.rules.cpus.ledger import CpuLedger, ExclusiveCpus
from koordinator.scheduler.rules.numa.align import ZoneState


class NumaAllocation(Struct, frozen=True):
    """A pod's exclusive CPUs and amounts by NUMA node; either may be empty."""

    cpus: int = 0
    zones: ZoneAmounts = field(default_factory=dict)
    exclusive_policy: str = ""  # a CpuExclusivePolicy

    def status(self, notations: Mapping[str, Notation] = MappingProxyType({})) -> CpuAllocation:
        """Return the ``resource-status`` for koordlet and for restarted schedulers.

        ``notations`` are the notations of the pod's requests; by default memory and huge pages are
        printed with binary suffixes.
        """
        return CpuAllocation(
            cpuset=format_cpu_list(self.cpus),
            numa_node_resources=tuple(
                NumaNodeResource(
                    node=zone,
                    resources={
                        name: _quantity(name, amount, notations) for name, amount in amounts.items()
                    },
                )
                for zone, amounts in sorted(self.zones.items())
            ),
        )


def read_allocation(meta: ObjectMeta, problems: list[InputError]) -> NumaAllocation | None:
    """Return the allocation in the annotations of a placed pod or reservation; None if empty.

    An annotation that can't be parsed counts as missing and is added to ``problems``.  CPUs count
    even if their exclusive policy can't be parsed.
    """
    try:
        allocation = _read_status(meta)
    except InputError as error:
        problems.append(error)
        return None
    try:
        spec = RESOURCE_SPEC.read(meta) if allocation is not None else None
    except InputError as error:
        problems.append(error)
        return allocation
    if allocation is None or spec is None:
        return allocation
    return structs.replace(allocation, exclusive_policy=spec.preferred_cpu_exclusive_policy)


def _read_status(meta: ObjectMeta) -> NumaAllocation | None:
    status = RESOURCE_STATUS.read(meta)
    if status is None:
        return None
    try:
        cpus = parse_cpu_list(status.cpuset)
    except InputError as error:
        raise error.within(path=f"{RESOURCE_STATUS.path}.cpuset") from None
    zones: dict[int, dict[str, int]] = {}
    for part in status.numa_node_resources:
        amounts = {name: much for name, much in read_amounts(part.resources).items() if much}
        if amounts:
            add(zones.setdefault(part.node, {}), amounts)
    return NumaAllocation(cpus, zones) if cpus or zones else None


class NumaLedger:
    """Mutable allocations by pod uid.  Adding and removing are exact inverses, in any order."""

    __slots__ = ("_allocations", "_zones", "cpus")

    def __init__(self) -> None:
        self.cpus = CpuLedger()
        self._allocations: dict[str, NumaAllocation] = {}
        self._zones: dict[int, dict[str, int]] = {}

    @property
    def zones(self) -> Mapping[int, Amounts]:
        """Allocated amounts by NUMA node; as charged, CPU not amplified."""
        return self._zones

    @property
    def allocations(self) -> Mapping[str, NumaAllocation]:
        """Allocation of each pod by uid."""
        return self._allocations

    def state(self, zones: Sequence[int], cpus: int) -> Hashable:
        """Return a key that is equal for ledgers with equal free amounts and CPUs.

        Valid for pods that do not share CPUs.
        """
        amounts = [tuple(self._zones.get(zone, {}).items()) for zone in zones]
        return self.cpus.state(cpus), *amounts

    def add(self, uid: str, allocation: NumaAllocation) -> None:
        """Record a pod's allocation, replacing the previous one."""
        self.remove(uid)
        self._allocations[uid] = allocation
        if allocation.cpus:
            self.cpus.add(uid, ExclusiveCpus(allocation.cpus, allocation.exclusive_policy))
        for zone, amounts in allocation.zones.items():
            add(self._zones.setdefault(zone, {}), amounts)

    def remove(self, uid: str) -> None:
        """Remove a pod's allocation, if there is one."""
        allocation = self._allocations.pop(uid, None)
        if allocation is None:
            return
        self.cpus.remove(uid)
        for zone, amounts in allocation.zones.items():
            remaining = self._zones[zone]
            subtract(remaining, amounts)
            if not remaining:
                del self._zones[zone]

    def states(self, layout: CpuLayout | None, zones: Iterable[int]) -> dict[int, ZoneState]:
        """Return the state of bound CPUs on each NUMA node.

        Pods without exclusive CPUs don't count.  All NUMA nodes are idle if the layout is unknown.
        """
        states = dict.fromkeys(zones, ZoneState.IDLE)
        if layout is None:
            return states
        own = {zone: layout.numa_nodes.get(zone, 0) for zone in states}
        everywhere = sum(own.values())
        cpu_sets = [allocation.cpus for allocation in self.cpus]
        for zone, zone_cpus in own.items():
            other_cpus = everywhere & ~zone_cpus
            on_it = [cpus for cpus in cpu_sets if cpus & zone_cpus]
            if on_it:
                shared = [cpus for cpus in on_it if cpus & other_cpus]
                states[zone] = ZoneState.SHARED if shared else ZoneState.SINGLE
        return states

    def validate(self) -> None:
        """Raise BugError unless the sums equal the recomputed ones."""
        self.cpus.validate()
        again = NumaLedger()
        for uid, allocation in self._allocations.items():
            again.add(uid, allocation)
        if again._zones != self._zones:
            raise BugError(f"a NUMA ledger says {self._zones}, its holdings {again._zones}")


def _quantity(name: str, amount: int, notations: Mapping[str, Notation]) -> Quantity:
    if name == CPU:
        return Quantity.from_milli(amount)
    is_binary = name == MEMORY or name.startswith("hugepages-")
    default = Notation.BINARY_SI if is_binary else Notation.DECIMAL_SI
    return Quantity.from_int(amount, binary=notations.get(name, default) is Notation.BINARY_SI)
