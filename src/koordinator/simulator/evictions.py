"""Budget of evictions, and evaluation of their benefit."""

from dataclasses import dataclass

_PER = 1000.0


def moves_allowed(per_1000: float, arrivals: int) -> int:
    """Return the moves that a budget per 1,000 arrivals allows after a number of arrivals."""
    return int(per_1000 * arrivals / _PER)


@dataclass(frozen=True, slots=True)
class Eviction:
    """Eviction of a pod from a node, with the time it had run."""

    node: str
    at_s: float
    ran_s: float

    def is_in_vain(self, node: str, waited_s: float) -> bool:
        """Return whether the eviction had no benefit, given the replacement's node and wait.

        That is the case if the replacement is on the same node again, or waited (or still waits)
        longer than the pod had run.
        """
        return node == self.node or waited_s > self.ran_s
