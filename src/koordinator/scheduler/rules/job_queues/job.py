"""A job that waits in a queue."""

from dataclasses import dataclass, field

from koordinator.domain.quota.amounts import Amounts

Rank = tuple[int, float, int]


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A gang group or a single pod; all its members wait where the first of them does."""

    id: str  # of the gang group; of a single pod its key
    pod: str  # key of the pod that is tried for the job
    namespace: str
    priority: int
    arrived_s: float  # since the epoch
    sequence: int  # who was seen first; breaks ties
    request: Amounts = field(default_factory=dict)  # of all members together

    @property
    def rank(self) -> Rank:
        """Sorts jobs: the highest priority first, then who came first."""
        return -self.priority, self.arrived_s, self.sequence
