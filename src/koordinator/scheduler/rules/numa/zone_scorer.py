"""Scores of NUMA nodes by utilization, and hints for the resources of NUMA nodes.

Source: koordinator pkg/scheduler/plugins/nodenumaresource: scoring.go,
``calculateAllocatableAndRequested``, ``calculateResourceAllocatableRequest``; least_allocated.go,
most_allocated.go; koordinator pkg/scheduler/plugins/nodenumaresource/resource_manager.go,
``GetTopologyHints``, ``generateResourceHints``.
"""

from collections.abc import Callable, Sequence
from typing import Final

from koordinator.api.annotations.numa import NumaTopologyPolicy
from koordinator.api.resource_names import CPU, EPHEMERAL_STORAGE, MEMORY
from koordinator.domain.amounts import (
    Amounts,
    ZoneAmounts,
    remaining,
    total,
)
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.masks import MAX_ZONE, subsets, zones_of
from koordinator.scheduler.rules.numa.align import TopologyHint
from koordinator.scheduler.rules.numa.trial import NumaTrial

MAX_SCORE = 100
ALWAYS_SCORED = frozenset({CPU, MEMORY, EPHEMERAL_STORAGE})

MISSING_ZONES: Final = "node(s) missing NUMA resources"


@dataclass(frozen=True, slots=True)
class ZoneScorer:
    """Weighted mean over resources, 0..100: percent free, or percent used with ``pack``.

    ``weights`` come from ``scoringStrategy``, even if ``numaScoringStrategy`` determines the type.
    """

    weights: Amounts
    pack: bool

    def score(self, requested: Amounts, allocatable: Amounts, pod: Amounts) -> int:
        """Return the score of ``requested`` plus ``pod`` on ``allocatable``.

        Missing resources, and extended resources that the pod does not request, are left out.
        """
        points = weights = 0
        for name, weight in self.weights.items():
            capacity, request = allocatable.get(name, 0), pod.get(name, 0)
            if capacity and (request or name in ALWAYS_SCORED):
                used = requested.get(name, 0) + request
                part = min(used, capacity) if self.pack else max(capacity - used, 0)
                points += part * MAX_SCORE // capacity * weight
                weights += weight
        return points // weights if weights else 0


def score_zones(trial: NumaTrial, zones: int, scorer: ZoneScorer) -> int:
    """Return the score of a set of NUMA nodes, independent of the pod's shares."""
    node = trial.node
    allocatable = _summed(node.zones, zones)
    requested = remaining(allocatable, _summed(trial.available, zones))
    return scorer.score(requested, allocatable, trial.request.counted(node.cpu_ratio))


def _summed(amounts: ZoneAmounts, zones: int) -> Amounts:
    among = zones_of(zones)
    if len(among) == 1:
        return amounts.get(among[0], {})
    return total([amounts[zone] for zone in among if zone in amounts])


def resource_hints(
    trial: NumaTrial,
    policy: NumaTopologyPolicy,
    scorer: ZoneScorer,
    fits: Callable[[int], bool] | None = None,
    largest: int = MAX_ZONE + 1,
) -> dict[str, list[TopologyHint]]:
    """Return the sufficient sets of NUMA nodes for the whole pod, by resource.

    A set that contains a NUMA node without any of a resource is no hint for that resource.  The
    smallest sets are preferred; under Restricted all are.  Resources that no NUMA node reports have
    no entry.  ``fits`` replaces the trial's check, for reservations; sets of more than ``largest``
    NUMA nodes are left out (SingleNUMANode needs them for its message only).
    """
    node, fits = trial.node, fits or trial.fits
    known = set().union(*node.zones.values())
    reported = [name for name in trial.request.amounts if name in known]
    sets = [
        (zones, score_zones(trial, zones, scorer))
        for zones in subsets(tuple(node.zones))
        if zones.bit_count() <= largest and fits(zones)
    ]
    restricted = policy is NumaTopologyPolicy.RESTRICTED
    everywhere = _hints(sets, restricted=restricted)
    empty_zones = dict.fromkeys(reported, 0)
    for zone, available in trial.available.items():
        for name in reported:
            if not available.get(name):
                empty_zones[name] |= 1 << zone
    return {
        name: everywhere
        if not empty
        else _hints([each for each in sets if not each[0] & empty], restricted=restricted)
        for name, empty in empty_zones.items()
    }


def _hints(sets: Sequence[tuple[int, int]], *, restricted: bool) -> list[TopologyHint]:
    """Return the hints for sets of NUMA nodes in ascending size, with their scores."""
    smallest = sets[0][0].bit_count() if sets else 0
    return [
        TopologyHint(zones, restricted or zones.bit_count() == smallest, score)
        for zones, score in sets
    ]
