"""The members of a gang group that are to be placed together, and when that has failed."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

KindT = TypeVar("KindT", bound=Hashable)


@dataclass(frozen=True, slots=True)
class GangAttempt:
    """Enough members of each strict gang get a place, or nobody does."""

    group_id: str
    members: Mapping[str, str]  # pod key -> gang id, in the order in which they are tried
    spare: Mapping[str, int]  # strict gang -> how many of these members may find no place
    waiting: int = 0  # members that hold a place already
    is_alone: bool = False  # a member of a gang that has started; it waits for nobody

    def is_lost(self, failed: Iterable[str]) -> bool:
        """Return whether too many members (by key) have found no place."""
        lost = Counter(self.members[key] for key in failed)
        return any(lost[gang] > spare for gang, spare in self.spare.items())

    @property
    def enough(self) -> int:
        """How many members of the strict gangs must get places."""
        there = Counter(self.members.values())
        return sum(max(there[gang] - max(spare, 0), 0) for gang, spare in self.spare.items())

    def least(self, kinds: Mapping[str, KindT]) -> dict[KindT, int]:
        """Return how many members of each kind must get places, whoever else is left out.

        ``kinds`` are those of the members, by key.
        """
        least = dict.fromkeys(kinds.values(), 0)
        by_gang = Counter((gang, kinds[key]) for key, gang in self.members.items())
        for (gang, kind), count in by_gang.items():
            if gang in self.spare:
                least[kind] += max(count - max(self.spare[gang], 0), 0)
        return least

    def fewest(self) -> list[str]:
        """Return the first members that are enough, in order."""
        left = Counter(self.members.values())
        left.subtract({gang: max(spare, 0) for gang, spare in self.spare.items()})
        kept = []
        for key, gang in self.members.items():
            if left[gang] > 0:
                left[gang] -= 1
                kept.append(key)
        return kept
