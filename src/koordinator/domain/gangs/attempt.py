"""The members of a gang group that are to be placed together, and when that has failed."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass


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
