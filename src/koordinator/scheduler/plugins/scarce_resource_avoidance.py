"""Placement that keeps pods without need for a scarce resource off the nodes that have it.

Source: koordinator pkg/scheduler/plugins/scarceresourceavoidance.
"""

from typing import ClassVar

import numpy as np

from koordinator.api.kubescheduler import ScarceResourceAvoidanceArgs
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import MAX_SCORE, PluginExample, PluginHints, PluginSpec, Reads
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.axis import PODS


@dataclass(frozen=True, slots=True)
class ScarceResourceAvoidance:
    """Score by the share of scarce kinds among the resources that a pod leaves idle.

    The idle kinds are those that the node has and the pod does not request.
    """

    scarce: tuple[int, ...]  # columns
    reads: ClassVar = Reads.NODE
    hints: ClassVar = PluginHints(key=lambda pod: tuple(column for column, _ in pod.demand))

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)``, 0..100; 100 where no scarce resource would be left idle."""
        idle = snapshot.allocatable > 0
        idle[:, pod.columns] = False
        idle[:, PODS] = False
        kinds = idle.sum(axis=1)
        scarce = idle[:, list(self.scarce)].sum(axis=1)
        share = (kinds - scarce) * MAX_SCORE // np.maximum(kinds, 1)
        return np.where(scarce == 0, MAX_SCORE, share)


def build(args: ScarceResourceAvoidanceArgs, axis: ResourceAxis) -> ScarceResourceAvoidance:
    return ScarceResourceAvoidance(tuple(axis.index(name) for name in args.resources))


EXAMPLE = PluginExample(
    args={"resources": ["example.com/foo", "koordinator.sh/gpu-memory-ratio"]},
)

PLUGIN = PluginSpec("ScarceResourceAvoidance", ScarceResourceAvoidanceArgs, build, example=EXAMPLE)
