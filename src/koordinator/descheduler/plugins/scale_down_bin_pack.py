"""ScaleDownBinPack: ranks pods so that scaling down empties nodes.

Source: koordinator pkg/descheduler/framework/plugins/scaledownbinpack;
pkg/descheduler/apis/config/validation/validation_scaledownbinpack.go.
"""

import logging
import math
from collections.abc import Iterable, Mapping, Sequence

from koordinator.api.annotations.scheduling import POD_DELETION_COST
from koordinator.api.kubescheduler.structs import fill
from koordinator.api.meta import Int32, LabelSelector
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.candidates import CandidateFilter, candidates_of, selected_nodes
from koordinator.descheduler.configuration import (
    DeschedulerPluginArgs,
    NamedPodSelector,
    NamespaceLists,
    check_namespaces,
    check_pod_selectors,
    check_selector,
    field_error,
)
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle, MoveGain, Relocation
from koordinator.domain.amounts import canonical
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import ClusterError
from koordinator.foundation.lazy_dataclass import dataclass

_DEFAULT = ("cpu", "memory")
_HIGHEST_COST = 2**31 - 1  # of pods that must not be evicted
_CALCULATE, _EVICT = "CalculateOnly", "EvictDirectly"
_MILLIS = 1000

log = logging.getLogger(__name__)


class ScaleDownBinPackArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Selected pods, and the strategy: write ranks as deletion costs, or evict the first pods."""

    paused: bool = False
    strategy: str = ""  # CalculateOnly (default) or EvictDirectly
    max_pods_to_evict: Int32 | None = None  # number of pods that EvictDirectly evicts
    node_selector: LabelSelector | None = None
    pod_selectors: tuple[NamedPodSelector, ...] = ()
    evictable_namespaces: NamespaceLists | None = None
    resources: tuple[str, ...] = _DEFAULT  # resources by which nodes are ranked
    resource_weights: dict[str, float] | None = None  # weight by resource

    def __post_init__(self) -> None:
        resources = self.resources or _DEFAULT
        weights = {**dict.fromkeys(resources, 1.0), **(self.resource_weights or {})}
        fill(
            self,
            resources=resources,
            resource_weights=weights,
            strategy=self.strategy or _CALCULATE,
        )

    def validate(self) -> None:
        if self.strategy not in (_CALCULATE, _EVICT):
            message = "strategy must be CalculateOnly or EvictDirectly"
            raise field_error("strategy", self.strategy, message)
        if self.strategy == _EVICT and (self.max_pods_to_evict or 0) <= 0:
            message = "maxPodsToEvict must be positive when strategy is EvictDirectly"
            raise field_error("maxPodsToEvict", self.max_pods_to_evict, message)
        check_selector(self.node_selector, "nodeSelector")
        check_pod_selectors(self.pod_selectors)
        check_namespaces(self.evictable_namespaces, "evictableNamespaces")
        for name, weight in (self.resource_weights or {}).items():
            if not (math.isfinite(weight) and weight > 0):
                message = "weights must be positive finite floats"
                raise field_error(f"resourceWeights[{name}]", weight, message)


@dataclass(frozen=True, slots=True)
class _NodePods:
    node: Node
    eligible: Sequence[Pod]
    skipped: Sequence[Pod]  # selected pods that must not be evicted
    others: Sequence[Pod]


@dataclass(frozen=True, slots=True)
class ScaleDownBinPack:
    """Plugin that ranks pods of nodes with few other pods first."""

    args: ScaleDownBinPackArgs
    handle: Handle
    candidates: CandidateFilter

    def balance(self, nodes: Sequence[Node]) -> None:
        if self.args.paused:
            log.info("ScaleDownBinPack is paused")
            return
        selected = (self._pods_of(node) for node in selected_nodes(nodes, self.args.node_selector))
        sources = [each for each in selected if each.eligible]
        if not sources:
            return
        ranked = self._ranked(sources)
        if self.args.strategy == _EVICT:
            scores = {each.node.metadata.name: self._score(each) for each in sources}
            self._evict(ranked, FullerNodeGoal(scores))
        else:
            self._write_costs(ranked, [pod for each in sources for pod in each.skipped])

    def _pods_of(self, node: Node) -> _NodePods:
        eligible, skipped, others = [], [], []
        for pod in self.handle.view.active_pods_on(node.metadata.name):
            if self.candidates.is_candidate(pod):
                eligible.append(pod)
            elif self._is_target(pod):
                skipped.append(pod)
            else:
                others.append(pod)
        return _NodePods(node, eligible, skipped, others)

    def _is_target(self, pod: Pod) -> bool:
        """Return whether a selector matches the pod, in any namespace."""
        selectors = self.args.pod_selectors
        if any(each.selector is None for each in selectors):
            return True
        return CandidateFilter(lambda _: True, None, self.candidates.selectors).is_in_scope(pod)

    def _ranked(self, nodes: Iterable[_NodePods]) -> list[Pod]:
        """Return the pods in the order of eviction."""

        def by_emptiness(each: _NodePods) -> tuple[float, int, str]:
            return self._score(each), len(each.eligible), each.node.metadata.name

        return [
            pod
            for each in sorted(nodes, key=by_emptiness)
            for pod in sorted(each.eligible, key=lambda pod, on=each.node: self._rank(pod, on))  # type: ignore[misc]
        ]

    def _score(self, pods: _NodePods) -> float:
        """Return the requests of other pods divided by the requests of eligible pods."""
        eligible = self._share(pods.node, pods.eligible)
        others = self._share(pods.node, (*pods.others, *pods.skipped))
        if eligible > 0:
            return others / eligible
        return math.inf if others > 0 else 0.0

    def _rank(self, pod: Pod, node: Node) -> tuple[float, float, str, str]:
        meta = pod.metadata
        created_s = to_epoch_s(meta.creation_timestamp)
        return -self._share(node, [pod]), -created_s, meta.namespace, meta.name

    def _share(self, node: Node, pods: Sequence[Pod]) -> float:
        """Return the weighted sum of the requests of pods, as shares of allocatable."""
        requests = [self.handle.view.allocation_of(pod) for pod in pods]
        total = 0.0
        weights: Mapping[str, float] = self.args.resource_weights or {}
        for name, weight in weights.items():
            quantity = node.status.allocatable.get(name)
            has = canonical(name, quantity) if quantity is not None else 0
            if has > 0:
                unit = 1 if name == "cpu" else _MILLIS
                requested = sum(each.get(name, 0) for each in requests)
                total += weight * (float(requested * unit) / float(has * unit))
        return total

    def _evict(self, ranked: Iterable[Pod], goal: "FullerNodeGoal") -> None:
        left = self.args.max_pods_to_evict or 0
        for pod in ranked:
            if left <= 0:
                return
            left -= self.handle.evictor.evict(pod, "scale-down binpack", goal=goal)

    def _write_costs(self, ranked: Sequence[Pod], skipped: Sequence[Pod]) -> None:
        """Write ranks as deletion costs, and the highest cost for skipped pods.

        Raises ClusterError after all writes if some of them failed.
        """
        if self.handle.is_dry_run:
            return
        failed = 0
        costs = [
            *((pod, rank) for rank, pod in enumerate(ranked)),
            *((p, _HIGHEST_COST) for p in skipped),
        ]
        for pod, cost in costs:
            if pod.metadata.annotations.get(POD_DELETION_COST) == str(cost):
                continue
            patch = {
                "metadata": {
                    "uid": pod.metadata.uid,
                    "annotations": {POD_DELETION_COST: str(cost)},
                }
            }
            try:
                self.handle.writer.patch(Pod, pod.metadata.name, pod.metadata.namespace, patch)
            except ClusterError as error:
                failed += 1
                log.warning("cost not written", extra={"pod": pod.key, "error": str(error)})
        if failed:
            raise ClusterError(f"failed to patch {failed} pods")


@dataclass(frozen=True, slots=True)
class FullerNodeGoal:
    """Goal that pods leave nodes with few other pods, for nodes with relatively more."""

    scores: Mapping[str, float]  # by source: requests of other pods relative to eligible ones

    def gain(self, moves: Sequence[Relocation]) -> MoveGain:
        """Return the number of pods moved to nodes that are emptied later or not at all."""
        moves = [move for move in moves if move.source != move.target]
        for move in moves:
            source, target = self.scores.get(move.source, 0.0), self.scores.get(move.target)
            if target is not None and target <= source:
                why = f"it would move to {move.target}, which is emptied before {move.source}"
                return MoveGain(0.0, why)
        return MoveGain(float(len(moves)), "its node has fewer pods")

    def made(self, moves: Sequence[Relocation]) -> None:
        """Do nothing: the order of the nodes is fixed for the cycle."""


def build_scale_down_bin_pack(args: ScaleDownBinPackArgs, handle: Handle) -> ScaleDownBinPack:
    """Build the plugin."""
    candidates = candidates_of(handle, args.evictable_namespaces, args.pod_selectors)
    return ScaleDownBinPack(args, handle, candidates)


SCALE_DOWN_BIN_PACK = DeschedulerPluginSpec(
    "ScaleDownBinPack", ScaleDownBinPackArgs, build_scale_down_bin_pack, proves_moves=True
)
