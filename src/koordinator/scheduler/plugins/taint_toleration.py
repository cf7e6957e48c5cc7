"""Keep pods off taints they don't tolerate, and prefer nodes with few soft ones.

Source: kubernetes pkg/scheduler/framework/plugins/tainttoleration.
"""

from collections.abc import Hashable
from typing import ClassVar

import numpy as np

from koordinator.domain.tolerations import FORBIDDING, untolerated
from koordinator.scheduler.contract import (
    Action,
    EventHint,
    NoArgs,
    PluginSpec,
    Reads,
    Rejections,
    Spread,
    spread_of,
)
from koordinator.scheduler.snapshot import IntArray, PodClass, ResourceAxis, Snapshot

REASON = "node(s) had untolerated taint(s)"
SOFT = ("PreferNoSchedule",)


class TaintToleration:
    """A cluster has few distinct taint lists.

    Each is judged once and the verdict spread over the rows.
    """

    reads: ClassVar = Reads.NODE
    spread: ClassVar = Spread.LOWEST

    def key(self, pod: PodClass) -> Hashable:
        return pod.spec.tolerations

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        tolerations = pod.spec.tolerations
        forbidden = np.array(
            [bool(untolerated(taints, tolerations, FORBIDDING)) for taints in snapshot.taint_sets]
        )
        return Rejections.where(forbidden[snapshot.taint_set], REASON, unresolvable=True)

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Name the taints."""
        taints = view.taint_sets[int(view.taint_set[0])]
        left = untolerated(taints, pod.spec.tolerations, FORBIDDING)
        return ", ".join(f"{t.key}{'=' if t.value else ''}{t.value}:{t.effect}" for t in left)

    def node_remedy(self, view: Snapshot, pod: PodClass) -> str:
        return f"take the taint off {view.node_names[0]} ({self.detail(view, pod)})"

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return the number of soft taints not tolerated."""
        tolerations = pod.spec.tolerations
        counts = np.array(
            [len(untolerated(taints, tolerations, SOFT)) for taints in snapshot.taint_sets],
            np.int64,
        )
        return counts[snapshot.taint_set]

    def normalize(self, raw: IntArray) -> IntArray:
        return spread_of(raw, reverse=True)


def build(_args: NoArgs, _axis: ResourceAxis) -> TaintToleration:
    return TaintToleration()


PLUGIN = PluginSpec(
    "TaintToleration",
    NoArgs,
    build,
    events=(
        EventHint("Node", Action.ADD | Action.UPDATE_TAINTS),
        EventHint("Pod", Action.UPDATE_TOLERATIONS),
    ),
)
