"""LowNodeUtilization and HighNodeUtilization: balance or pack nodes by requested resources.

Source: kubernetes-sigs/descheduler pkg/framework/plugins/nodeutilization lownodeutilization.go,
highnodeutilization.go, nodeutilization.go.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.configuration import NamespaceLists
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle
from koordinator.descheduler.plugins.node_utilization.arguments import (
    ONLY_THRESHOLDING_RESOURCES,
    HighNodeUtilizationArgs,
    LowNodeUtilizationArgs,
)
from koordinator.descheduler.plugins.node_utilization.requested import (
    ALL,
    BASIC,
    Percentages,
    RequestedNode,
    around_mean,
    requested_nodes,
)
from koordinator.descheduler.pod_order import in_low_priority_order
from koordinator.domain.node_selection import untolerated
from koordinator.domain.pod_requests import pod_requests

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


@dataclass(frozen=True, slots=True)
class _Evictions:
    """Evictions from source nodes while targets have headroom."""

    handle: Handle
    namespaces: NamespaceLists | None
    may_evict: Callable[[Pod], bool]
    targets: Sequence[RequestedNode]
    headroom: dict[str, int]  # decreases with evictions
    most_per_node: int | None = None

    def evict_from(
        self, sources: Iterable[RequestedNode], should_continue: "ShouldContinue"
    ) -> None:
        for source in sources:
            pods = filter(self.may_evict, self.handle.view.active_pods_on(source.name))
            ordered = in_low_priority_order(pods)
            if should_continue(source) and self._has_headroom():
                self._evict(source, ordered, should_continue)

    def _evict(
        self, source: RequestedNode, pods: Sequence[Pod], should_continue: "ShouldContinue"
    ) -> None:
        evicted = 0
        for pod in pods:
            if self.most_per_node is not None and evicted >= self.most_per_node:
                return
            excluded = self.namespaces is not None and not self.namespaces.covers(
                pod.metadata.namespace
            )
            if excluded or not self._is_tolerant(pod) or not self.may_evict(pod):
                continue
            if not self.handle.evictor.evict(pod):
                continue
            evicted += 1
            requests = {**pod_requests(pod.spec), "pods": 1}
            allocation = {**self.handle.view.allocation_of(pod), "pods": 1}
            for name in self.headroom:
                self.headroom[name] -= requests.get(name, 0)
                source.amounts[name] -= allocation.get(name, 0)
            if not (should_continue(source) and self._has_headroom()):
                return

    def _has_headroom(self) -> bool:
        return all(amount > 0 for amount in self.headroom.values())

    def _is_tolerant(self, pod: Pod) -> bool:
        """Return whether a pod tolerates all taints of a target, including PreferNoSchedule."""
        tolerations = pod.spec.tolerations
        return any(
            len(tolerations) >= len(target.node.spec.taints)
            and not untolerated(target.node.spec.taints, tolerations, _EFFECTS)
            for target in self.targets
        )


ShouldContinue = Callable[[RequestedNode], bool]


@dataclass(frozen=True, slots=True)
class LowNodeUtilization:
    """Plugin that evicts from nodes with requests above the target thresholds."""

    args: LowNodeUtilizationArgs
    handle: Handle

    def balance(self, nodes: Sequence[Node]) -> None:
        names = tuple(dict.fromkeys((*BASIC, *self.args.thresholds)))
        measured = requested_nodes(nodes, names, self.handle.view)
        low, high = self._thresholds(measured)
        below = [each for each in measured if not each.is_above(low) and _takes_pods(each)]
        lows = {each.name for each in below}
        above = [each for each in measured if each.name not in lows and each.is_above(high)]
        if not below or len(below) <= self.args.number_of_nodes or len(below) == len(nodes):
            return
        limits = {each.name: each.limits(high, names) for each in (*below, *above)}
        given = self.args.eviction_limits
        moves = _Evictions(
            self.handle,
            self.args.evictable_namespaces,
            self.handle.evictor.filter,
            below,
            _headroom(below, limits),
            given.node if given is not None else None,
        )

        def is_above_target(node: RequestedNode) -> bool:
            return any(limits[node.name][name] < amount for name, amount in node.amounts.items())

        above.sort(key=lambda each: each.total, reverse=True)
        moves.evict_from(above, is_above_target)

    def _thresholds(self, nodes: Sequence[RequestedNode]) -> tuple[Percentages, Percentages]:
        args = self.args
        if args.use_deviation_thresholds:
            return around_mean(nodes, args.thresholds, args.target_thresholds)
        return args.thresholds, args.target_thresholds


@dataclass(frozen=True, slots=True)
class HighNodeUtilization:
    """Plugin that evicts from nodes with requests below the thresholds."""

    args: HighNodeUtilizationArgs
    handle: Handle

    def balance(self, nodes: Sequence[Node]) -> None:
        thresholds = self.args.thresholds
        names = tuple(dict.fromkeys((*BASIC, *thresholds)))
        measured = requested_nodes(nodes, names, self.handle.view)
        below = [each for each in measured if not each.is_above(thresholds)]
        lows = {each.name for each in below}
        targets = [each for each in measured if each.name not in lows and _takes_pods(each)]
        if not below or len(below) <= self.args.number_of_nodes or len(below) == len(nodes):
            return
        if not targets:
            return
        whole = dict.fromkeys(thresholds, ALL)
        limits = {each.name: each.limits(whole, names) for each in targets}
        moves = _Evictions(
            self.handle,
            self.args.evictable_namespaces,
            self._may_evict,
            targets,
            _headroom(targets, limits),
        )
        below.sort(key=lambda each: each.total)
        moves.evict_from(below, lambda _: True)

    def _may_evict(self, pod: Pod) -> bool:
        if ONLY_THRESHOLDING_RESOURCES in self.args.eviction_modes and not any(
            name in container.resources.requests
            for name in self.args.thresholds
            for container in (*pod.spec.containers, *pod.spec.init_containers)
        ):
            return False
        return self.handle.evictor.filter(pod)


def build_low_node_utilization(args: LowNodeUtilizationArgs, handle: Handle) -> LowNodeUtilization:
    """Build the plugin."""
    return LowNodeUtilization(args, handle)


def build_high_node_utilization(
    args: HighNodeUtilizationArgs, handle: Handle
) -> HighNodeUtilization:
    """Build the plugin."""
    return HighNodeUtilization(args, handle)


def _takes_pods(node: RequestedNode) -> bool:
    return not node.node.spec.unschedulable


def _headroom(
    nodes: Sequence[RequestedNode], limits: Mapping[str, Mapping[str, int]]
) -> dict[str, int]:
    """Return the total headroom of the nodes by resource."""
    headroom: dict[str, int] = {}
    for node in nodes:
        for name, limit in limits[node.name].items():
            headroom[name] = headroom.get(name, 0) + limit - node.amounts[name]
    return headroom


LOW_NODE_UTILIZATION = DeschedulerPluginSpec(
    "LowNodeUtilization", LowNodeUtilizationArgs, build_low_node_utilization
)
HIGH_NODE_UTILIZATION = DeschedulerPluginSpec(
    "HighNodeUtilization", HighNodeUtilizationArgs, build_high_node_utilization
)
