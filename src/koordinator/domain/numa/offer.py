"""Hints for the resources of NUMA nodes: cpu, memory, huge pages, batch resources.

Source: koordinator pkg/scheduler/plugins/nodenumaresource/resource_manager.go,
``GetTopologyHints``, ``generateResourceHints``.
"""

from collections.abc import Callable
from typing import Final

from koordinator.api.annotations.numa import NumaTopologyPolicy
from koordinator.domain.numa.hints import Hint
from koordinator.domain.numa.masks import MAX_ZONE, subsets
from koordinator.domain.numa.scoring import ZoneScorer, score_zones
from koordinator.domain.numa.trial import NumaTrial

MISSING_ZONES: Final = "node(s) missing NUMA resources"


def resource_hints(
    trial: NumaTrial,
    policy: NumaTopologyPolicy,
    scorer: ZoneScorer,
    fits: Callable[[int], bool] | None = None,
    largest: int = MAX_ZONE + 1,
) -> dict[str, list[Hint]]:
    """Return the sets of NUMA nodes that have enough for the whole pod, by resource.

    A set with a NUMA node that has nothing of a resource is no hint for that resource.  Preferred
    are the smallest sets; all of them under Restricted.  Resources that no NUMA node reports have
    no entry.  ``fits`` replaces the trial's, where reservations are to be tried as well; sets of
    more than ``largest`` NUMA nodes are left out (SingleNUMANode needs them for its message only).
    """
    node, fits = trial.node, fits or trial.fits
    there = set().union(*node.zones.values())
    reported = [name for name in trial.request.amounts if name in there]
    lacking = {
        name: sum(1 << zone for zone, here in trial.available.items() if not here.get(name))
        for name in reported
    }
    found: dict[str, list[tuple[int, int]]] = {name: [] for name in reported}
    for zones in subsets(tuple(node.zones)):
        if zones.bit_count() > largest or not fits(zones):
            continue
        score = score_zones(trial, zones, scorer)
        for name in reported:
            if not zones & lacking[name]:
                found[name].append((zones, score))
    restricted = policy is NumaTopologyPolicy.RESTRICTED
    hints = {}
    for name, sets in found.items():
        smallest = min((zones.bit_count() for zones, _ in sets), default=0)
        hints[name] = [
            Hint(zones, restricted or zones.bit_count() == smallest, score) for zones, score in sets
        ]
    return hints
