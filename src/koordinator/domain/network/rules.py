"""Network requirements of a gang in terms of the existing layers.

Source: koordinator pkg/scheduler/plugins/coscheduling/core/network_topology_types.go.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from koordinator.api.annotations.gang import (
    NETWORK_TOPOLOGY_SPEC,
    GatherStrategy,
    NetworkTopologySpec,
)
from koordinator.foundation.errors import InputError


@dataclass(frozen=True, slots=True)
class GatherRules:
    """Restriction of a job to one domain of level ``must``; 0, the cluster, does not restrict.

    ``multiples`` maps a level to the divisor of the number of members in each of its domains.
    """

    must: int = 0
    multiples: Mapping[int, int] = field(default_factory=dict)  # each above 1


def rules_of(spec: NetworkTopologySpec, layers: Sequence[str]) -> GatherRules:
    """Return the rules; ``layers`` are the names by level.  The deepest must-gather applies.

    Raises InputError if a mandatory rule names a layer that doesn't exist.
    """
    levels = {name: level for level, name in enumerate(layers)}
    must, multiples = 0, {}
    for index, rule in enumerate(spec.gather_strategy):
        multiple = rule.pod_count_multiple
        has_to_be_met = rule.strategy == GatherStrategy.MUST_GATHER or multiple > 1
        level = levels.get(rule.layer)
        if level is None and has_to_be_met:
            raise InputError(
                f"must be one of {', '.join(layers)}, got {rule.layer!r}",
                path=f"{NETWORK_TOPOLOGY_SPEC.path}.gatherStrategy[{index}].layer",
            )
        if level is None:
            continue
        if rule.strategy == GatherStrategy.MUST_GATHER:
            must = max(must, level)
        if multiple > 1:
            multiples[level] = multiple
    return GatherRules(must, multiples)


def warnings_about(spec: NetworkTopologySpec) -> Iterator[str]:
    """Yield warnings about values of a spec that are invalid for any layers."""
    path = f"{NETWORK_TOPOLOGY_SPEC.path}.gatherStrategy"
    seen: set[str] = set()
    for index, rule in enumerate(spec.gather_strategy):
        if rule.strategy not in tuple(GatherStrategy):
            yield (
                f"{path}[{index}].strategy: must be {' or '.join(GatherStrategy)}, got "
                f"{rule.strategy!r}. {GatherStrategy.PREFER_GATHER} is used"
            )
        if rule.pod_count_multiple < 0:
            yield (
                f"{path}[{index}].podCountMultiple: must be at least 0, got "
                f"{rule.pod_count_multiple}"
            )
        if rule.layer in seen:
            yield f"{path}[{index}].layer: must be unique, got {rule.layer!r} again"
        seen.add(rule.layer)
