"""Keep pods that don't need a scarce resource off the nodes that have it.

Source: koordinator pkg/scheduler/plugins/scarceresourceavoidance.
"""

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from koordinator.api.kubescheduler import ScarceResourceAvoidanceArgs
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract import MAX_SCORE, PluginExample, PluginHints, PluginSpec, Reads
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.axis import PODS


@dataclass(frozen=True, slots=True)
class ScarceResourceAvoidance:
    """The share that isn't scarce of the kinds of resources that a pod leaves unused.

    Those are the kinds that the node has and the pod doesn't ask for.
    """

    scarce: tuple[int, ...]  # columns
    reads: ClassVar = Reads.NODE
    hints: ClassVar = PluginHints(key=lambda pod: tuple(column for column, _ in pod.demand))

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return 0..100; 100 where nothing scarce would be left idle."""
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
