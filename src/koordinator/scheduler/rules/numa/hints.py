"""Which NUMA nodes each resource of a pod could come from."""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct

from koordinator.api.annotations.numa import NumaTopologyExclusive
from koordinator.domain.numa_masks import mask_of, zones_of


class TopologyHint(NamedTuple):
    """A set of NUMA nodes that has enough of a resource; None says that any will do."""

    zones: int | None
    preferred: bool
    score: int = 0


#: By resource.  None: any set will do.  No hints: no set will do.
ResourceHints = Mapping[str, Sequence[TopologyHint] | None]


class ZoneState(StrEnum):
    """Who has bound CPUs on a NUMA node."""

    IDLE = "idle"
    SINGLE = "single"  # only pods that are on this NUMA node alone
    SHARED = "shared"  # also pods that are on several


class NumaMachine(Struct, frozen=True):
    """The NUMA nodes of a node, ascending, and who has bound CPUs there."""

    states: Mapping[int, ZoneState]

    @property
    def zones(self) -> tuple[int, ...]:
        """The ids."""
        return tuple(self.states)

    @property
    def all_zones(self) -> int:
        """The set of all."""
        return mask_of(self.states)

    def accepts(self, zones: int, exclusive: str) -> bool:
        """Return whether a pod may come onto these NUMA nodes, given who is there.

        Only pods that require it (a NumaTopologyExclusive) keep apart: one on several NUMA nodes
        from those on one, and the other way round.
        """
        if exclusive != NumaTopologyExclusive.REQUIRED:
            return True
        bar = ZoneState.SINGLE if zones.bit_count() > 1 else ZoneState.SHARED
        return all(self.states.get(zone) is not bar for zone in zones_of(zones))
