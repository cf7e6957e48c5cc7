"""The CPUs that may be taken, and what of their surroundings matters to the choice."""

from typing import NamedTuple


class FreeCpus(NamedTuple):
    """CPUs by the number of pods that hold them already: none, one and so on.

    One group unless CPUs may be shared.
    """

    groups: tuple[int, ...]
    core_exclusive: int = 0  # held by pods that would rather not share a core (PCPULevel)
    numa_exclusive: int = 0  # held by pods that would rather not share a NUMA node

    @property
    def cpus(self) -> int:
        """All of them."""
        if len(self.groups) == 1:
            return self.groups[0]
        everything = 0
        for group in self.groups:
            everything |= group
        return everything

    def within(self, cpus: int) -> "FreeCpus":
        """Keep only these."""
        groups = tuple([group & cpus for group in self.groups])
        return FreeCpus(groups, self.core_exclusive, self.numa_exclusive)

    def without(self, cpus: int) -> "FreeCpus":
        """Keep all but these."""
        return self.within(~cpus)
