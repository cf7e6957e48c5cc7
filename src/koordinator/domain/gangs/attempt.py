"""Joint placement of the members of a gang group, and its failure condition."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

KindT = TypeVar("KindT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class GangAttempt:
    """Members to place together: enough of each strict gang, or none at all."""

    group_id: str
    members: Mapping[str, str]  # pod key -> gang id, in the order of placement
    spare: Mapping[str, int]  # strict gang -> number of members that may remain unplaced
    waiting: int = 0  # members that are placed but not bound
    is_alone: bool = False  # one member of a gang that has started

    def is_lost(self, failed: Iterable[str]) -> bool:
        """Return whether too many members (by key) could not be placed."""
        lost = Counter(self.members[key] for key in failed)
        return any(lost[gang] > spare for gang, spare in self.spare.items())

    @property
    def enough(self) -> int:
        """The number of members of strict gangs that must be placed."""
        there = Counter(self.members.values())
        return sum(max(there[gang] - max(spare, 0), 0) for gang, spare in self.spare.items())

    def least(self, kinds: Mapping[str, KindT]) -> dict[KindT, int]:
        """Return the minimum number of members of each kind that must be placed.

        ``kinds`` maps the key of each member to its kind.
        """
        least = dict.fromkeys(kinds.values(), 0)
        by_gang = Counter((gang, kinds[key]) for key, gang in self.members.items())
        for (gang, kind), count in by_gang.items():
            if gang in self.spare:
                least[kind] += max(count - max(self.spare[gang], 0), 0)
        return least

    def fewest(self) -> list[str]:
        """Return the shortest prefix of members that suffices, in order."""
        left = Counter(self.members.values())
        left.subtract({gang: max(spare, 0) for gang, spare in self.spare.items()})
        kept = []
        for key, gang in self.members.items():
            if left[gang] > 0:
                left[gang] -= 1
                kept.append(key)
        return kept
