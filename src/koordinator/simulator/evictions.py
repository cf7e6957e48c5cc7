"""What evictions may cost, and whether they were for nothing."""

from dataclasses import dataclass

_PER = 1000.0


def moves_allowed(per_1000: float, arrivals: int) -> int:
    """Return how many moves a budget per 1,000 arrivals allows after so many arrivals."""
    return int(per_1000 * arrivals / _PER)


@dataclass(frozen=True, slots=True)
class Eviction:
    """Which node a pod had to leave, when, and after how long."""

    node: str
    at_s: float
    ran_s: float

    def is_in_vain(self, node: str, waited_s: float) -> bool:
        """Return whether it was for nothing, its replacement having waited so long for a node.

        It was if the replacement is where the pod had been, or waited longer than the pod had run;
        without a node it waits still.
        """
        return node == self.node or waited_s > self.ran_s
