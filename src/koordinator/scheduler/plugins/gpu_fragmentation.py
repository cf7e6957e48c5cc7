"""Fragmentation gradient descent: the placement that costs the expected pods the least GPU.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023; see ``domain.gpus.options``.
"""

from collections import Counter
from collections.abc import Hashable
from typing import Annotated, ClassVar

from msgspec import Meta

from koordinator.api.kubescheduler import PluginArgs
from koordinator.domain.gpus.mix import ExpectedPods, GpuClass, PodMix
from koordinator.domain.gpus.options import BestOptions, Fragmentation, fgd_score
from koordinator.foundation.arrays import IntArray
from koordinator.scheduler.contract import (
    PluginHints,
    PluginSpec,
    Reads,
)
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.gpu_view import (
    best_ways,
    expected_mix,
    gpu_class,
    node_kinds,
    slot_preference,
)
from koordinator.scheduler.snapshot.selection import affinity_key


class GpuFragmentationArgs(PluginArgs, frozen=True, kw_only=True):
    """Arguments; without ``expected`` the mix is counted from the pods that arrive."""

    expected: tuple[ExpectedPods, ...] = ()
    threshold: Annotated[float, Meta(gt=0, le=1)] = 0.95  # share of pods that typical shapes cover
    relearn_every: Annotated[int, Meta(ge=1)] = 200  # arrivals


class GpuFragmentation:
    """Score of the best allocation on each node; ``reserve`` then takes that GPU."""

    reads: ClassVar = Reads.PLACED

    def __init__(self, args: GpuFragmentationArgs) -> None:
        self._args = args
        self._arrived: Counter[GpuClass] = Counter()
        self._number = 0
        self._learned = 0  # number of arrivals that the current mix covers
        self._built: tuple[Hashable, Fragmentation] | None = None
        self.hints = PluginHints(
            key=lambda pod: (pod.demand, affinity_key(pod)), version=self._version
        )

    def _version(self, snapshot: Snapshot) -> Hashable:
        return self._learned, snapshot.node_version, snapshot.device_version

    def on_arrival(self, snapshot: Snapshot, pod: PodClass) -> None:
        """Count the pod and periodically adopt the counted mix."""
        if self._args.expected:
            return
        self._arrived[gpu_class(snapshot, pod)] += 1
        self._number += 1
        if self._number % self._args.relearn_every == 0 or self._number in (1, 20, 50, 100):
            self._learned = self._number

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)``, 0..100; 50 means that fragmentation does not change.

        The score is 0 where CPU or GPUs do not suffice.
        """
        return self._best(snapshot, pod).score

    def prefer_devices(self, node: Snapshot, pod: PodClass) -> IntArray | None:
        """Return ``(n_minors,)``: 1 for the scored GPU; None for requests of whole GPUs."""
        if not gpu_class(node, pod).is_share:
            return None
        return slot_preference(node, self._best(node, pod))

    def _best(self, snapshot: Snapshot, pod: PodClass) -> BestOptions:
        return best_ways(snapshot, pod, self._measure(snapshot).unusable, fgd_score)

    def _measure(self, snapshot: Snapshot) -> Fragmentation:
        version = self._version(snapshot)
        if self._built is None or self._built[0] != version:
            if self._args.expected:
                mix = expected_mix(snapshot, self._args.expected)
            else:
                mix = PodMix.of(self._arrived)
            typical = mix.typical(self._args.threshold)
            self._built = (version, Fragmentation(typical, node_kinds(snapshot)[0]))
        return self._built[1]


def build(args: GpuFragmentationArgs, _axis: ResourceAxis) -> GpuFragmentation:
    return GpuFragmentation(args)


PLUGIN = PluginSpec("GPUFragmentation", GpuFragmentationArgs, build)
