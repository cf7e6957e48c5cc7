"""How full NUMA nodes would be with a pod.

Source: koordinator pkg/scheduler/plugins/nodenumaresource: scoring.go,
``calculateAllocatableAndRequested``, ``calculateResourceAllocatableRequest``; least_allocated.go,
most_allocated.go.
"""

from dataclasses import dataclass

from koordinator.api.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY
from koordinator.domain.amounts import (
    Amounts,
    ZoneAmounts,
    amplified,
    remaining,
    total,
)
from koordinator.domain.numa_masks import zones_of
from koordinator.scheduler.rules.numa.ledger import NumaAllocation
from koordinator.scheduler.rules.numa.node import MILLI
from koordinator.scheduler.rules.numa.trial import NumaTrial

MAX_SCORE = 100
ALWAYS_SCORED = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})


@dataclass(frozen=True, slots=True)
class ZoneScorer:
    """A weighted mean over resources, 0..100: percent free, or percent used with ``pack``.

    ``weights`` are those of ``scoringStrategy``, also where only the type is that of
    ``numaScoringStrategy``.
    """

    weights: Amounts
    pack: bool

    def score(self, requested: Amounts, allocatable: Amounts, pod: Amounts) -> int:
        """Return the score of ``requested`` and ``pod`` on ``allocatable``.

        A resource that isn't there, or that is an extended one the pod doesn't ask for, is left
        out.
        """
        points = weights = 0
        for name, weight in self.weights.items():
            capacity, asked = allocatable.get(name, 0), pod.get(name, 0)
            if capacity and (asked or name in ALWAYS_SCORED):
                used = requested.get(name, 0) + asked
                part = min(used, capacity) if self.pack else max(capacity - used, 0)
                points += part * MAX_SCORE // capacity * weight
                weights += weight
        return points // weights if weights else 0


def score_zones(trial: NumaTrial, zones: int, scorer: ZoneScorer) -> int:
    """Return how full some NUMA nodes would be, whatever part the pod takes of which."""
    node = trial.node
    allocatable = _summed(node.zones, zones)
    requested = remaining(allocatable, _summed(trial.available, zones))
    return scorer.score(requested, allocatable, trial.request.counted(node.cpu_ratio))


def _summed(amounts: ZoneAmounts, zones: int) -> Amounts:
    among = zones_of(zones)
    if len(among) == 1:
        return amounts.get(among[0], {})
    return total([amounts[zone] for zone in among if zone in amounts])


def bound_cpu_milli(trial: NumaTrial, allocation: NumaAllocation) -> int:
    """Return what the CPUs bound by others count for, in milli-CPU.

    What the pod doesn't take of its reservation is free.
    """
    node = trial.node
    given_back = trial.reusable.preferred_cpus & ~allocation.cpus
    bound = node.ledger.cpus.held_without(given_back).bit_count()
    return amplified(bound * MILLI, node.cpu_ratio)
