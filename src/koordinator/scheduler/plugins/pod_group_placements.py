"""Placements of pod groups with a topology constraint, and their score by members.

Source: kubernetes pkg/scheduler/framework/plugins/topologyaware, podgrouppodscount.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import MAX_SCORE, Action, EventHint, NoArgs, PluginSpec
from koordinator.scheduler.plugin_lists import PLACEMENT_GENERATOR, PODS_COUNT
from koordinator.scheduler.snapshot import ResourceAxis, Snapshot


@dataclass(frozen=True, slots=True)
class TopologyPlacementGenerator:
    """Generator of a placement for each value of a node label."""

    def placements(self, snapshot: Snapshot, key: str) -> Mapping[str, IntArray]:
        """Return the rows of the nodes with each value, in the order of their first nodes."""
        rows: dict[str, list[int]] = {}
        for row in np.flatnonzero(snapshot.alive).tolist():
            value = snapshot.node_labels(row).get(key)
            if value is not None:
                rows.setdefault(value, []).append(row)
        return {value: np.array(those, np.int64) for value, those in rows.items()}


@dataclass(frozen=True, slots=True)
class PodGroupPodsCount:
    """Score that prefers placements with more members of the group."""

    def score_placement(self, _snapshot: Snapshot, _rows: IntArray, members: int) -> int:
        """Return the number of members with a node, placed earlier or in this placement."""
        return members

    def normalize_placements(self, raw: Sequence[int]) -> list[int]:
        """Return 100 for the placement with the most members, and shares of that for others."""
        most = max(raw)
        return [members * MAX_SCORE // most for members in raw]


def build_generator(_args: NoArgs, _axis: ResourceAxis) -> TopologyPlacementGenerator:
    return TopologyPlacementGenerator()


def build_count(_args: NoArgs, _axis: ResourceAxis) -> PodGroupPodsCount:
    return PodGroupPodsCount()


GENERATOR = PluginSpec(
    PLACEMENT_GENERATOR,
    NoArgs,
    build_generator,
    # Labels of any node may join placements or make one.
    events=(EventHint("Node", Action.ADD | Action.UPDATE_LABELS),),
)
COUNT = PluginSpec(PODS_COUNT, NoArgs, build_count)
