"""LowNodeUtilization and HighNodeUtilization: balance nodes by the requests of their pods.

``arguments``   arguments of both plugins
``requested``   requested resources of nodes, in amounts and in percent
``plugins``     the two plugins

Source: kubernetes-sigs/descheduler pkg/framework/plugins/nodeutilization types.go,
validation.go; kubernetes-sigs/descheduler pkg/framework/plugins/nodeutilization
nodeutilization.go, usageclients.go; kubernetes-sigs/descheduler
pkg/framework/plugins/nodeutilization lownodeutilization.go, highnodeutilization.go,
nodeutilization.go.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from koordinator.api.kubescheduler.structs import ConfigStruct, Count
from koordinator.api.meta import Int32
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.descheduler.candidates import in_low_priority_order
from koordinator.descheduler.configuration import DeschedulerPluginArgs, NamespaceLists, field_error
from koordinator.descheduler.contract import ClusterView, DeschedulerPluginSpec, Handle
from koordinator.domain.amounts import canonical
from koordinator.domain.node_selection import untolerated
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.lazy_dataclass import dataclass

ONLY_THRESHOLDING_RESOURCES: Final = "OnlyThresholdingResources"
_ALL = 100

BASIC = ("cpu", "memory", "pods")
ALL = 100.0

_EFFECTS = ("NoSchedule", "PreferNoSchedule", "NoExecute")


class PrometheusQuery(ConfigStruct, frozen=True, kw_only=True):
    """Query of Prometheus."""

    query: str = ""  # PromQL query


class MetricsUtilization(ConfigStruct, frozen=True, kw_only=True):
    """Source of usage; only requests are supported."""

    metrics_server: bool = False  # whether the metrics API is the source
    source: str = ""  # name of the source
    prometheus: PrometheusQuery | None = None  # query, where Prometheus is the source


class EvictionLimitsArgs(ConfigStruct, frozen=True, kw_only=True):
    """Limit of evictions per node and cycle."""

    node: Count | None = None  # largest number of evictions from a node per cycle


class LowNodeUtilizationArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Thresholds: pods leave nodes above the target thresholds while others are below."""

    use_deviation_thresholds: bool = False  # whether thresholds are distances from the average
    #: requests in percent by resource below which a node has room
    thresholds: dict[str, float] = {}  # noqa: RUF012 -- msgspec copies it
    #: requests in percent by resource above which pods leave a node
    target_thresholds: dict[str, float] = {}  # noqa: RUF012 -- as above
    number_of_nodes: Int32 = 0  # the plugin runs if more nodes than this are below
    #: source of usage; refused: only requests are supported
    metrics_utilization: MetricsUtilization | None = None
    evictable_namespaces: NamespaceLists | None = None
    eviction_limits: EvictionLimitsArgs | None = None  # limits of evictions

    def validate(self) -> None:
        _check_namespaces(self.evictable_namespaces)
        _check_thresholds(self.thresholds, "thresholds")
        _check_thresholds(self.target_thresholds, "targetThresholds")
        if self.thresholds.keys() != self.target_thresholds.keys():
            message = "thresholds and targetThresholds configured different resources"
            raise field_error("targetThresholds", sorted(self.target_thresholds), message)
        for name, percentage in self.thresholds.items():
            if percentage > self.target_thresholds[name] and not self.use_deviation_thresholds:
                message = f"thresholds' {name} percentage is greater than targetThresholds'"
                raise field_error(f"thresholds[{name}]", percentage, message)
        if self.metrics_utilization is not None:
            message = "metrics client not initialized: only requests can be used, without this"
            raise field_error("metricsUtilization", "a value", message)


class HighNodeUtilizationArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Thresholds: pods leave nodes below them, so that these nodes can be removed."""

    #: requests in percent by resource below which pods leave a node
    thresholds: dict[str, float] = {}  # noqa: RUF012 -- as above
    number_of_nodes: Int32 = 0  # the plugin runs if more nodes than this are below the thresholds
    #: OnlyThresholdingResources: only pods that request a resource of the thresholds
    eviction_modes: tuple[str, ...] = ()
    evictable_namespaces: NamespaceLists | None = None

    def validate(self) -> None:
        _check_namespaces(self.evictable_namespaces)
        _check_thresholds(self.thresholds, "thresholds")
        for index, mode in enumerate(self.eviction_modes):
            if mode != ONLY_THRESHOLDING_RESOURCES:
                message = f"invalid eviction mode; must be {ONLY_THRESHOLDING_RESOURCES}"
                raise field_error(f"evictionModes[{index}]", mode, message)


def _check_namespaces(namespaces: NamespaceLists | None) -> None:
    if namespaces is not None and namespaces.include:
        message = "only Exclude namespaces can be set, inclusion is not supported"
        raise field_error("evictableNamespaces.include", list(namespaces.include), message)


def _check_thresholds(thresholds: Mapping[str, float], path: str) -> None:
    if not thresholds:
        raise field_error(path, {}, "no resource threshold is configured")
    for name, percentage in thresholds.items():
        if not 0 <= percentage <= _ALL:
            message = f"{name} threshold not in [0, {_ALL}] range"
            raise field_error(f"{path}[{name}]", percentage, message)


Percentages = Mapping[str, float]


@dataclass(frozen=True, slots=True)
class RequestedNode:
    """Node with its requested amounts and percentages by resource."""

    node: Node
    capacity: Mapping[str, int]
    amounts: dict[str, int]  # decreases with evictions
    percentages: Percentages  # of the resources of the node

    @property
    def name(self) -> str:
        return self.node.metadata.name

    @property
    def total(self) -> int:
        """Sum of all amounts, by which nodes are sorted."""
        return sum(self.amounts.values())

    def is_above(self, thresholds: Percentages) -> bool:
        """Return whether the requested percentage of a resource exceeds its threshold."""
        return any(limit < self.percentages.get(name, 0.0) for name, limit in thresholds.items())

    def limits(self, thresholds: Percentages, names: Iterable[str]) -> dict[str, int]:
        """Return the limits in amounts; a resource without a threshold has its capacity."""
        limits = {}
        for name in names:
            capacity = self.capacity.get(name, 0)
            part = thresholds.get(name)
            limits[name] = capacity if part is None else int(part * 0.01 * float(capacity))
        return limits


def requested_nodes(
    nodes: Sequence[Node], names: Sequence[str], view: ClusterView
) -> list[RequestedNode]:
    """Return the nodes with their requested resources, in the same order."""
    requested_on = []
    for node in nodes:
        requested = view.requested_on(node.metadata.name)
        has = node.status.allocatable or node.status.capacity
        capacity = {name: canonical(name, quantity) for name, quantity in has.items()}
        amounts = {name: requested.get(name, 0) for name in names}
        percentages = {
            name: float(amounts[name]) / float(capacity[name]) * ALL if capacity[name] > 0 else 0.0
            for name in names
            if name in capacity
        }
        requested_on.append(RequestedNode(node, capacity, amounts, percentages))
    return requested_on


def around_mean(
    nodes: Sequence[RequestedNode], below: Percentages, above: Percentages
) -> tuple[Percentages, Percentages]:
    """Return thresholds at the given distances below and above the mean of the nodes."""
    low, high = {}, {}
    for name in below:
        known = [each.percentages[name] for each in nodes if name in each.percentages]
        if known:
            mean = sum(known) / len(known)
            low[name] = min(max(mean - below[name], 0.0), ALL)
            high[name] = min(max(mean + above[name], 0.0), ALL)
    return low, high


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
