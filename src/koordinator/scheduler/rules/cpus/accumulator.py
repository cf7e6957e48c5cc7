"""A choice of CPUs under way: what is free, what is taken, what is still needed."""

from collections.abc import Iterator, Sequence

from msgspec import Struct

from koordinator.api.annotations.numa import CpuExclusivePolicy
from koordinator.foundation.cpu_list import lowest
from koordinator.scheduler.rules.cpus.free_cpus import FreeCpus
from koordinator.scheduler.rules.cpus.layout import CpuLayout


class CpuPreference(Struct, frozen=True):
    """How a pod would like its CPUs."""

    bind_policy: str  # a CpuBindPolicy; what isn't FullPCPUs spreads
    exclusive_policy: str = ""  # a CpuExclusivePolicy; a wish, not a condition
    pack: bool = False  # fill the fullest NUMA node first (MostAllocated), else the emptiest


class CpuAccumulator:
    """Mutable, for the time of one choice."""

    __slots__ = ("free", "layout", "need", "preference", "sign", "taken")

    def __init__(
        self, layout: CpuLayout, free: FreeCpus, need: int, preference: CpuPreference
    ) -> None:
        self.layout, self.free, self.preference, self.need = layout, free, preference, need
        self.taken = 0
        #: times a number of free CPUs, sorts ascending what is to be filled first
        self.sign = 1 if preference.pack else -1

    def take(self, cpus: int) -> None:
        """Move free CPUs to the taken ones."""
        self.taken |= cpus
        self.need -= cpus.bit_count()
        self.free = self.free.without(cpus)

    def barred_cores(self) -> int:
        """Return the CPUs of cores to avoid: pods of the same policy have them, this one too."""
        if self.preference.exclusive_policy != CpuExclusivePolicy.PCPU_LEVEL:
            return 0
        held = self.free.core_exclusive | self.taken
        return self.layout.cpus_of(self.layout.cores_of(held)) if held else 0

    def barred_numa_nodes(self) -> int:
        """Return the CPUs of NUMA nodes to avoid: pods of the same policy have CPUs there."""
        if self.preference.exclusive_policy != CpuExclusivePolicy.NUMA_NODE_LEVEL:
            return 0
        held = self.free.numa_exclusive | self.taken
        barred = 0
        for cpus in self.layout.numa_nodes.values():
            if cpus & held:
                barred |= cpus
        return barred

    def in_order(self, cores: int) -> Iterator[int]:
        """Split cores into sets that follow each other; in each, the lowest core comes first.

        Cores with fewer holders come first, then sockets and core ids ascending.
        """
        for _, alike in self.by_holders(cores):
            for run in self.layout.core_order:
                part = alike & run
                if part:
                    yield part

    def by_holders(self, cores: int) -> Sequence[tuple[int, int]]:
        """Return (holders of its free CPUs, cores) for each number of holders, ascending."""
        if len(self.free.groups) == 1:
            return ((0, cores),)
        classes = {0: cores}
        for holders, cpus in enumerate(self.free.groups):
            for among in self.layout.threads(cpus) if holders else ():
                split: dict[int, int] = {}
                for number, members in classes.items():
                    for key, part in (
                        (number, members & ~among),
                        (number + holders, members & among),
                    ):
                        if part:
                            split[key] = split.get(key, 0) | part
                classes = split
        return sorted(classes.items())


def with_and_without(barred: int) -> tuple[int, ...]:
    """Return what to leave out: first what is to be avoided, then nothing."""
    return (barred, 0) if barred else (0,)


def first_of(groups: Sequence[int], count: int) -> int:
    """Return the first ``count`` CPUs, group after group, each ascending."""
    chosen = 0
    for cpus in groups:
        some = lowest(cpus, count)
        chosen |= some
        count -= some.bit_count()
    return chosen
