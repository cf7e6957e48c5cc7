"""CPUs of one node: free ones, exclusive ones, and the pods that hold them.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/node_allocation.go,
``addPodAllocation``, ``release``, ``getAvailableCPUs``. There, the exclusive policy of a CPU that
two pods hold is the policy of the pod seen last; here both apply.
"""

from collections.abc import Hashable, Iterable, Iterator
from typing import NamedTuple

from msgspec import Struct

from koordinator.api.annotations.numa import CpuExclusivePolicy
from koordinator.foundation.errors import BugError
from koordinator.scheduler.rules.cpus.layout import CpuLayout


class FreeCpus(NamedTuple):
    """CPUs by the number of pods that hold them: none, one and so on.

    There is one group unless CPUs may be shared.
    """

    groups: tuple[int, ...]
    core_exclusive: int = 0  # held by pods with policy PCPULevel
    numa_exclusive: int = 0  # held by pods with policy NUMANodeLevel

    @property
    def cpus(self) -> int:
        """All free CPUs."""
        if len(self.groups) == 1:
            return self.groups[0]
        everything = 0
        for group in self.groups:
            everything |= group
        return everything

    def within(self, cpus: int) -> "FreeCpus":
        """Return the intersection with these CPUs."""
        groups = tuple([group & cpus for group in self.groups])
        return FreeCpus(groups, self.core_exclusive, self.numa_exclusive)

    def without(self, cpus: int) -> "FreeCpus":
        """Return the free CPUs except these."""
        return self.within(~cpus)


class HolderCounts:
    """Counts per CPU; usually there is one layer or none."""

    __slots__ = ("_layers",)

    def __init__(self, layers: Iterable[int] = ()) -> None:
        self._layers = [layer for layer in layers if layer]

    @property
    def in_use(self) -> int:
        """The CPUs with at least one holder."""
        return self._layers[0] if self._layers else 0

    def at_least(self, count: int) -> int:
        """Return the CPUs with at least ``count`` (1 or more) holders."""
        return self._layers[count - 1] if count <= len(self._layers) else 0

    def add(self, cpus: int) -> None:
        """Add one holder to each CPU."""
        for index, layer in enumerate(self._layers):
            self._layers[index] = layer | cpus
            cpus &= layer
        if cpus:
            self._layers.append(cpus)

    def remove(self, cpus: int) -> None:
        """Remove one holder from each CPU; CPUs without holders stay free."""
        for index in reversed(range(len(self._layers))):
            layer = self._layers[index]
            self._layers[index] = layer & ~cpus
            cpus &= ~layer
        while self._layers and not self._layers[-1]:
            self._layers.pop()

    def copy(self) -> "HolderCounts":
        """Return an independent copy."""
        return HolderCounts(self._layers)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HolderCounts) and self._layers == other._layers

    __hash__ = None  # type: ignore[assignment]  # mutable


class ExclusiveCpus(Struct, frozen=True):
    """The CPUs of a pod, and its CpuExclusivePolicy."""

    cpus: int
    exclusive_policy: str = ""


class CpuLedger:
    """Mutable allocations by pod uid.  Adding and removing a pod are exact inverses."""

    __slots__ = ("_allocations", "_core_exclusive", "_counts", "_numa_exclusive")

    def __init__(self) -> None:
        self._allocations: dict[str, ExclusiveCpus] = {}
        self._counts = HolderCounts()
        self._core_exclusive = HolderCounts()
        self._numa_exclusive = HolderCounts()

    @property
    def in_use(self) -> int:
        """All CPUs with holders."""
        return self._counts.in_use

    def state(self, cpus: int) -> Hashable:
        """Return a key that is equal for ledgers with the same free CPUs among ``cpus``.

        Valid for pods that do not share CPUs.
        """
        in_use = self._counts.in_use & cpus
        return in_use, self._core_exclusive.in_use & in_use, self._numa_exclusive.in_use & in_use

    def in_use_without(self, given_back: int) -> int:
        """Return the CPUs still held after removing one holder of ``given_back``."""
        counts = self._counts.copy()
        counts.remove(given_back)
        return counts.in_use

    def __iter__(self) -> Iterator[ExclusiveCpus]:
        return iter(self._allocations.values())

    def add(self, uid: str, allocation: ExclusiveCpus) -> None:
        """Allocate CPUs to a pod; its previous allocation is released."""
        self.remove(uid)
        self._allocations[uid] = allocation
        for counts in self._counters(allocation):
            counts.add(allocation.cpus)

    def remove(self, uid: str) -> None:
        """Release a pod's allocation, if there is one."""
        allocation = self._allocations.pop(uid, None)
        if allocation is not None:
            for counts in self._counters(allocation):
                counts.remove(allocation.cpus)

    def free(
        self,
        layout: CpuLayout,
        *,
        unusable: int = 0,
        max_holders: int = 1,
        given_back: Iterable[int] = (),
    ) -> FreeCpus:
        """Return the usable CPUs with fewer than ``max_holders`` holders.

        For each mask in ``given_back`` (the rest of a reservation, victims of a preemption) one
        holder of these CPUs is discounted.
        """
        counts = self._counts
        for cpus in given_back:
            if cpus:
                counts = self._counts.copy() if counts is self._counts else counts
                counts.remove(cpus)
        usable, in_use = layout.cpus & ~unusable, counts.in_use
        shared = [
            counts.at_least(number) & usable & ~counts.at_least(number + 1)
            for number in range(1, max_holders)
        ]
        return FreeCpus(
            (usable & ~in_use, *shared),
            self._core_exclusive.in_use & in_use,
            self._numa_exclusive.in_use & in_use,
        )

    def validate(self) -> None:
        """Raise BugError unless the counts equal the recomputed ones."""
        again = CpuLedger()
        for uid, allocation in self._allocations.items():
            again.add(uid, allocation)
        for name in ("_counts", "_core_exclusive", "_numa_exclusive"):
            if getattr(self, name) != getattr(again, name):
                raise BugError(f"{name} of a CPU ledger differ from its holdings")

    def _counters(self, allocation: ExclusiveCpus) -> tuple[HolderCounts, ...]:
        if allocation.exclusive_policy == CpuExclusivePolicy.PCPU_LEVEL:
            return self._counts, self._core_exclusive
        if allocation.exclusive_policy == CpuExclusivePolicy.NUMA_NODE_LEVEL:
            return self._counts, self._numa_exclusive
        return (self._counts,)
