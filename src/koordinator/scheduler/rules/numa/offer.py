"""Hints for the resources of NUMA nodes: cpu, memory, huge pages, batch resources.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/resource_manager.go,
``GetTopologyHints``, ``generateResourceHints``.
"""

from collections.abc import Callable, Sequence
from typing import Final

from koordinator.api.annotations.numa import NumaTopologyPolicy
from koordinator.domain.numa_masks import MAX_ZONE, subsets
from koordinator.scheduler.rules.numa.hints import TopologyHint
from koordinator.scheduler.rules.numa.trial import NumaTrial
from koordinator.scheduler.rules.numa.zone_scorer import ZoneScorer, score_zones

MISSING_ZONES: Final = "node(s) missing NUMA resources"


def resource_hints(
    trial: NumaTrial,
    policy: NumaTopologyPolicy,
    scorer: ZoneScorer,
    fits: Callable[[int], bool] | None = None,
    largest: int = MAX_ZONE + 1,
) -> dict[str, list[TopologyHint]]:
    """Return the sets of NUMA nodes that have enough for the whole pod, by resource.

    A set with a NUMA node that has nothing of a resource is no hint for that resource.  Preferred
    are the smallest sets; all of them under Restricted.  Resources that no NUMA node reports have
    no entry.  ``fits`` replaces the trial's, where reservations are to be tried as well; sets of
    more than ``largest`` NUMA nodes are left out (SingleNUMANode needs them for its message only).
    """
    node, fits = trial.node, fits or trial.fits
    there = set().union(*node.zones.values())
    reported = [name for name in trial.request.amounts if name in there]
    found = [
        (zones, score_zones(trial, zones, scorer))
        for zones in subsets(tuple(node.zones))
        if zones.bit_count() <= largest and fits(zones)
    ]
    restricted = policy is NumaTopologyPolicy.RESTRICTED
    everywhere = _hints(found, restricted=restricted)
    lacking = dict.fromkeys(reported, 0)
    for zone, here in trial.available.items():
        for name in reported:
            if not here.get(name):
                lacking[name] |= 1 << zone
    return {
        name: everywhere
        if not empty
        else _hints([each for each in found if not each[0] & empty], restricted=restricted)
        for name, empty in lacking.items()
    }


def _hints(sets: Sequence[tuple[int, int]], *, restricted: bool) -> list[TopologyHint]:
    """Return the hints for sets of NUMA nodes, which ascend in size, with their scores."""
    smallest = sets[0][0].bit_count() if sets else 0
    return [
        TopologyHint(zones, restricted or zones.bit_count() == smallest, score)
        for zones, score in sets
    ]
