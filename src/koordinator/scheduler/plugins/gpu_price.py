"""Least growth of stranded GPU at prices that follow the cluster; see ``domain.gpu_price``.

The default for GPU clusters without topology constraints; measured against FGD in
``docs/benchmarks.md``.
"""

from collections import Counter
from collections.abc import Hashable
from typing import ClassVar

from koordinator.api.kubescheduler import PluginArgs
from koordinator.domain.gpus.mix import ExpectedPods, GpuClass, PodMix
from koordinator.domain.gpus.options import BestOptions
from koordinator.domain.gpus.price import MAX_PRICE_SCORE, PriceModel, price_score
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
    gpu_nodes,
    node_kinds,
    slot_preference,
)
from koordinator.scheduler.snapshot.selection import affinity_key


class GpuPriceArgs(PluginArgs, frozen=True, kw_only=True):
    """Arguments; without ``expected`` the mix is counted from the pods that arrive."""

    expected: tuple[ExpectedPods, ...] = ()


class GpuPrice:
    """Score of the best allocation on each node; ``reserve`` then takes that GPU.

    Prices are solved again every 200 arrivals and constant in between, so scores stay cacheable.
    """

    reads: ClassVar = Reads.PLACED

    def __init__(self, args: GpuPriceArgs) -> None:
        self._args = args
        self._arrived: Counter[GpuClass] = Counter()
        self._number = 0
        self._solved = 0
        self._model: tuple[Hashable, PriceModel] | None = None
        self.hints = PluginHints(
            key=lambda pod: (pod.demand, affinity_key(pod)), version=self._version
        )

    def _version(self, snapshot: Snapshot) -> Hashable:
        return self._solved, snapshot.node_version, snapshot.device_version

    def on_arrival(self, snapshot: Snapshot, pod: PodClass) -> None:
        """Count the pod and periodically solve for new prices."""
        model = self._current(snapshot)
        self._arrived[gpu_class(snapshot, pod)] += 1
        self._number += 1
        if model.due(self._number, mix_is_known=bool(self._args.expected)):
            model.solve(self._mix(snapshot), gpu_nodes(snapshot.cluster))
            self._solved += 1

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return ``(n,)``, 0..MAX_PRICE_SCORE; the middle means no growth.

        The score is 0 where CPU or GPUs do not suffice.
        """
        return self._best(snapshot, pod).score

    def prefer_devices(self, node: Snapshot, pod: PodClass) -> IntArray | None:
        """Return ``(n_minors,)``: 1 for the scored GPU; None for requests of whole GPUs."""
        if not gpu_class(node, pod).is_share:
            return None
        return slot_preference(node, self._best(node, pod))

    def _best(self, snapshot: Snapshot, pod: PodClass) -> BestOptions:
        return best_ways(snapshot, pod, self._current(snapshot).prices.potential, price_score)

    def _current(self, snapshot: Snapshot) -> PriceModel:
        """Return the price model of the current nodes; rebuild it after nodes or devices change."""
        version = (snapshot.node_version, snapshot.device_version)
        if self._model is None or self._model[0] != version:
            model = PriceModel(node_kinds(snapshot)[0])
            self._model = (version, model)
            if self._args.expected or self._number:
                model.solve(self._mix(snapshot), gpu_nodes(snapshot.cluster))
                self._solved += 1
        return self._model[1]

    def _mix(self, snapshot: Snapshot) -> PodMix:
        if not self._args.expected:
            return PodMix.of(self._arrived)
        return expected_mix(snapshot, self._args.expected)


def build(args: GpuPriceArgs, _axis: ResourceAxis) -> GpuPrice:
    return GpuPrice(args)


PLUGIN = PluginSpec("GPUPrice", GpuPriceArgs, build, max_score=MAX_PRICE_SCORE)
