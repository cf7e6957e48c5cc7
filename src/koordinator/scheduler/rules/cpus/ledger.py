"""Which pod holds which CPUs of one node.

Needs no layout: pods may be known before their node is.  The state depends on who holds what, not
on the order in which that became known, so it is rebuilt from annotations as it was.
Source: koordinator pkg/scheduler/plugins/nodenumaresource/node_allocation.go, ``addPodAllocation``,
``release``, ``getAvailableCPUs``.  There, the exclusive policy of a CPU that two pods hold is that
of the pod seen last; here it is that of both.
"""

from collections.abc import Hashable, Iterable, Iterator

from msgspec import Struct

from koordinator.api.annotations.numa import CpuExclusivePolicy
from koordinator.foundation.errors import BugError
from koordinator.scheduler.rules.cpus.free_cpus import FreeCpus
from koordinator.scheduler.rules.cpus.holders import HolderCounts
from koordinator.scheduler.rules.cpus.layout import CpuLayout


class ExclusiveCpus(Struct, frozen=True):
    """The CPUs of a pod, and with whom it would rather not share (a CpuExclusivePolicy)."""

    cpus: int
    exclusive_policy: str = ""


class CpuLedger:
    """Mutable.  Adding and removing a pod are exact inverses."""

    __slots__ = ("_allocations", "_core_exclusive", "_counts", "_numa_exclusive")

    def __init__(self) -> None:
        self._allocations: dict[str, ExclusiveCpus] = {}
        self._counts = HolderCounts()
        self._core_exclusive = HolderCounts()
        self._numa_exclusive = HolderCounts()

    @property
    def held(self) -> int:
        """All CPUs that pods hold."""
        return self._counts.held

    def state(self, cpus: int) -> Hashable:
        """Return a key: equal for ledgers that leave the same CPUs of ``cpus`` free.

        That is, to pods that share no CPU.
        """
        held = self._counts.held & cpus
        return held, self._core_exclusive.held & held, self._numa_exclusive.held & held

    def held_without(self, given_back: int) -> int:
        """Return the CPUs still held if one holder less had those."""
        counts = self._counts.copy()
        counts.remove(given_back)
        return counts.held

    def __iter__(self) -> Iterator[ExclusiveCpus]:
        return iter(self._allocations.values())

    def add(self, uid: str, allocation: ExclusiveCpus) -> None:
        """Give CPUs to a pod; what it held before is given back."""
        self.remove(uid)
        self._allocations[uid] = allocation
        for counts in self._counters(allocation):
            counts.add(allocation.cpus)

    def remove(self, uid: str) -> None:
        """Take back what a pod holds, if it is known."""
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
        """Return the CPUs with fewer than ``max_holders`` holders that aren't unusable.

        Each of ``given_back`` is seen as if one holder less had these CPUs: the rest of a
        reservation, victims of a preemption.
        """
        counts = self._counts
        for cpus in given_back:
            if cpus:
                counts = self._counts.copy() if counts is self._counts else counts
                counts.remove(cpus)
        usable, held = layout.cpus & ~unusable, counts.held
        shared = [
            counts.at_least(number) & usable & ~counts.at_least(number + 1)
            for number in range(1, max_holders)
        ]
        return FreeCpus(
            (usable & ~held, *shared),
            self._core_exclusive.held & held,
            self._numa_exclusive.held & held,
        )

    def validate(self) -> None:
        """Raise BugError unless the counts are those of the holdings."""
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
