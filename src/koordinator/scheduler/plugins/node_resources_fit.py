"""Resource fit, and scores by the resulting utilisation.

Source: kubernetes pkg/scheduler/framework/plugins/noderesources: fit.go, least_allocated.go,
most_allocated.go, requested_to_capacity_ratio.go.
"""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import field, replace
from typing import ClassVar

import numpy as np
from msgspec import structs

from koordinator.api.dynamic_resources import DeviceClass
from koordinator.api.kubescheduler import FeatureGates, NodeResourcesFitArgs
from koordinator.api.kubescheduler.gates import DRA_EXTENDED_RESOURCE
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.resource_names import BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY
from koordinator.domain.dynamic_resources.extended_resources import resources_of
from koordinator.domain.pod_requests import pod_requests
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    MAX_SCORE,
    Action,
    ClusterEvent,
    DeviceCounter,
    EventHint,
    PluginHints,
    PluginSpec,
    QueueingHint,
    Reads,
    Rejections,
    SizeRemedies,
    find_device_counter,
    served_usage,
)
from koordinator.scheduler.diagnosis import amount_text, did_you_mean
from koordinator.scheduler.rules.curves import Curve, piecewise
from koordinator.scheduler.rules.smaller_pods import with_renamed_resource
from koordinator.scheduler.rules.usage_kernels import MeanShare, RowUsage, shortfalls
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.axis import CPU, EPHEMERAL_STORAGE, MEMORY, PODS

_COMPUTED = frozenset((BATCH_CPU, BATCH_MEMORY, MID_CPU, MID_MEMORY))

#: Resources that come from unused requests of other pods, with the name of their band.
_BANDS = {
    BATCH_CPU: " of batch",
    BATCH_MEMORY: " of batch",
    MID_CPU: " of mid",
    MID_MEMORY: " of mid",
}


@dataclass(frozen=True, slots=True)
class CheckedRequests:
    """Requests of a pod that the filter checks."""

    columns: IntArray
    amounts: IntArray
    reasons: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NodeResourcesFit:
    """Filter on every requested resource; score the configured ones.

    The score is a curve over their utilisation.
    """

    weights: tuple[tuple[int, int], ...]  # (column, weight)
    pack: bool  # MostAllocated instead of LeastAllocated
    #: RequestedToCapacityRatio: rounds its mean, leaves out resources that score 0
    curve: Curve | None
    axis: ResourceAxis
    ignored: frozenset[str]
    ignored_groups: frozenset[str]
    delegates: bool = False  # claims of DeviceClasses serve nodes without the resource
    counters: list[DeviceCounter] = field(default_factory=list, repr=False, compare=False)
    _requests: Memo[CheckedRequests] = field(default_factory=Memo, repr=False, compare=False)
    _means: Memo[MeanShare] = field(default_factory=Memo, repr=False, compare=False)
    reads: ClassVar = Reads.USAGE

    def with_gates(self, gates: FeatureGates) -> "NodeResourcesFit":
        """Delegate resources to claims if extended resources are on."""
        return replace(self, delegates=DRA_EXTENDED_RESOURCE in gates)

    def setup(self, plugins: Sequence[object]) -> None:
        """Look up the plugin of the profile that counts devices."""
        counter = find_device_counter(plugins) if self.delegates else None
        self.counters[:] = [counter] if counter is not None else []

    @property
    def hints(self) -> PluginHints:
        counts = self.delegates and any(column > PODS for column, _ in self.weights)
        return PluginHints(
            version=self._device_version if counts else None,
            key=lambda pod: (
                pod.demand,
                pod.nonzero_cpu,
                pod.nonzero_memory,
                pod.served if self.delegates else (),
            ),
            compares=self._compares,
            rejects_otherwise=lambda pod: bool(self._delegated(pod)),
            formula=self._formula,
        )

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        """Reject nodes with too little free; unresolvable where allocatable is too small."""
        checked = self._checked(pod)
        allocatable = snapshot.allocatable
        kernel = shortfalls.compiled if snapshot.uses_kernels else shortfalls.reference
        codes = kernel(snapshot.requested, allocatable, checked.columns, checked.amounts)
        delegated = self._delegated(pod)
        for bit, column in enumerate(checked.columns.tolist() if delegated else ()):
            if column in delegated:
                codes[allocatable[:, column] == 0] &= ~(1 << bit)
        return Rejections(codes, checked.reasons, lambda: _never(allocatable, checked, delegated))

    def _delegated(self, pod: PodClass) -> list[int]:
        """Return the columns that claims serve on nodes without the resource."""
        return [column for column, _ in pod.served] if self.delegates else []

    def is_overcommitted(self, view: Snapshot, pod: PodClass) -> bool:
        """Return whether the only row has too little of what one of its own pods holds."""
        delegated = self._delegated(pod)
        for name, amount in pod.effective.requests.items():
            column = self.axis.index(name)
            capacity = int(view.allocatable[0, column])
            is_checked = (capacity or column not in delegated) and not self._is_ignored(column)
            if amount and is_checked and int(view.requested[0, column]) > capacity:
                return True
        return False

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Return per missing resource the request, the free and the allocatable amount."""
        parts = []
        for name, amount, free, capacity in self._short(view, pod):
            request, left, total = (amount_text(name, n) for n in (amount, free, capacity))
            band = _BANDS.get(name, "")
            parts.append(f"{name}: requests {request}{band}, {left} of {total} free")
            intended = self._similar_name(view, pod, name)
            parts[-1] += f" (no node offers it: did you mean {intended}?)" if intended else ""
        return "; ".join(parts)

    def pod_remedies(self, view: Snapshot, pod: PodClass, it: Pod) -> list[tuple[str, Pod]]:
        """Return the pod with an offered resource in place of a misspelt one."""
        steps, spec = [], it.spec
        for name, *_ in self._short(view, pod):
            intended = self._similar_name(view, pod, name)
            if not intended:
                return []
            spec = with_renamed_resource(spec, name, intended)
            steps.append(f"request {intended} instead of {name}")
        return [(" and ".join(steps), structs.replace(it, spec=spec))] if steps else []

    def _similar_name(self, view: Snapshot, pod: PodClass, name: str) -> str:
        """Return an offered resource with a name similar to one that no node offers; else empty.

        A resource that a DeviceClass serves counts as offered.  Batch and mid resources, which the
        manager computes, are not misspelt.
        """
        if name in _COMPUTED:
            return ""
        offered = np.flatnonzero(view.cluster.allocatable.any(axis=0)).tolist()
        known = [self.axis.names[column] for column in offered]
        served = {self.axis.names[column] for column, _ in pod.served}
        return "" if name in known or name in served else did_you_mean(name, known)

    def size_remedies(self, view: Snapshot, pod: PodClass) -> SizeRemedies:
        """Return the free amounts of the resources that are short, and the size of the node."""
        free = {name: free for name, _, free, _ in self._short(view, pod) if name != "pods"}
        return SizeRemedies((free,), self._required_size(view, pod))

    def _required_size(self, view: Snapshot, pod: PodClass) -> str:
        """Return the requests that exceed all that the node has; empty for batch and mid resources.

        Batch and mid resources depend on the usage of other pods, not on the size of the node.
        """
        short = [
            (n, most, capacity)
            for n, most, _, capacity in self._short(view, pod)
            if most > capacity
        ]
        if any(name in _BANDS for name, *_ in short):
            return ""
        return " and ".join(
            f"{amount_text(name, request)} of {name} (it has {amount_text(name, capacity)})"
            for name, request, capacity in short
        )

    def _short(self, view: Snapshot, pod: PodClass) -> Iterator[tuple[str, int, int, int]]:
        """Yield each resource the only row is short of: name, request, free, allocatable."""
        checked, delegated = self._checked(pod), self._delegated(pod)
        for column, amount in zip(checked.columns.tolist(), checked.amounts.tolist(), strict=True):
            capacity = int(view.allocatable[0, column])
            free = max(capacity - int(view.requested[0, column]), 0)
            if amount > free and (capacity or column not in delegated):
                yield self.axis.names[column], amount, free, capacity

    def _compares(self, pod: PodClass) -> tuple[IntArray, IntArray]:
        """Return the columns checked on every node, and the requested amounts."""
        checked, delegated = self._checked(pod), self._delegated(pod)
        if not delegated:
            return checked.columns, checked.amounts
        always = ~np.isin(checked.columns, delegated)
        return checked.columns[always], checked.amounts[always]

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return the weighted mean over the resources that the node has."""
        usage = self._served_usage(snapshot, pod)
        if self.curve is None:
            return snapshot.score(self._mean(pod), usage)
        requested, nonzero = snapshot.requested, snapshot.nonzero_requested
        allocatable = snapshot.allocatable
        if usage is not None:
            rows = snapshot.row_numbers
            requested, allocatable = usage.requested.T[rows], usage.allocatable.T[rows]
        total = np.zeros(len(snapshot), np.int64)
        weights = np.zeros(len(snapshot), np.int64)
        for column, amount, weight in self._scored(pod):
            capacity = allocatable[:, column]
            used = (nonzero if column in (CPU, MEMORY) else requested)[:, column] + amount
            score = self.curve(used, capacity)
            counted = (capacity > 0) & (score > 0)
            total += weight * (score * counted)
            weights += weight * counted
        mean = np.floor(total / np.maximum(weights, 1) + 0.5)  # all positive: Go's math.Round
        return mean.astype(np.int64)

    def score_placement(self, snapshot: Snapshot, rows: IntArray, _members: int) -> int:
        """Return the utilisation of the rows together, 0..100: fuller placements are better."""
        total = weight_sum = 0
        for column, weight in self.weights:
            has = int(snapshot.allocatable[rows, column].sum())
            if has:
                counted = column in (CPU, MEMORY)
                amounts = snapshot.nonzero_requested if counted else snapshot.requested
                used = int(amounts[rows, column].sum())
                total += weight * (min(used, has) * MAX_SCORE // has)
                weight_sum += weight
        return total // weight_sum if weight_sum else 0

    def _formula(self, _snapshot: Snapshot, pod: PodClass) -> MeanShare | None:
        return self._mean(pod) if self.curve is None and not self._by_devices(pod) else None

    def _by_devices(self, pod: PodClass) -> bool:
        """Return whether devices count for a scored resource of the pod."""
        scored = {column for column, _ in self.weights}
        return bool(self.counters) and any(column in scored for column, _ in pod.served)

    def _served_usage(self, snapshot: Snapshot, pod: PodClass) -> RowUsage | None:
        if not self._by_devices(pod):
            return None
        columns = [column for column, _ in self.weights]
        return served_usage(snapshot, pod, columns, self.counters[0])

    def _device_version(self, snapshot: Snapshot) -> Hashable:
        """Return the version of the devices that count for any pod; None without such devices."""
        served = snapshot.extended.classes if self.counters else {}
        if not served:
            return None
        names = snapshot.resources
        if not any(names[column] in served for column, _ in self.weights):
            return None
        return self.counters[0].device_version(snapshot)

    def _checked(self, pod: PodClass) -> CheckedRequests:
        return self._requests.of(pod, self._find_checked, pod)

    def _find_checked(self, pod: PodClass) -> CheckedRequests:
        demand = [(c, amount) for c, amount in pod.demand if not self._is_ignored(c)]
        return CheckedRequests(
            np.array([c for c, _ in demand], np.int64),
            np.array([amount for _, amount in demand], np.int64),
            tuple(
                "Too many pods" if c == PODS else f"Insufficient {self.axis.names[c]}"
                for c, _ in demand
            ),
        )

    def _mean(self, pod: PodClass) -> MeanShare:
        return self._means.of(pod, self._find_mean, pod)

    def _find_mean(self, pod: PodClass) -> MeanShare:
        columns, amounts, weights = np.array(self._scored(pod), np.int64).reshape(-1, 3).T
        return MeanShare(columns, amounts, weights, most=self.pack, nonzero=True)

    def _scored(self, pod: PodClass) -> list[tuple[int, int, int]]:
        """Return (column, amount, weight) of each scored resource.

        Extended resources count only if the pod requests them.
        """
        nonzero = {CPU: pod.nonzero_cpu, MEMORY: pod.nonzero_memory}
        return [
            (column, nonzero.get(column, pod.amount(column)), weight)
            for column, weight in self.weights
            if column <= EPHEMERAL_STORAGE or pod.amount(column)
        ]

    def _is_ignored(self, column: int) -> bool:
        if not (self.ignored or self.ignored_groups):
            return False
        name = self.axis.names[column]
        return name in self.ignored or name.partition("/")[0] in self.ignored_groups


def _never(allocatable: IntArray, checked: CheckedRequests, delegated: Sequence[int]) -> BoolArray:
    """Return ``(n,)``: the node has less than requested even when empty.

    Delegated resources that the node lacks are left to a claim.
    """
    never = np.zeros(len(allocatable), bool)
    for column, amount in zip(checked.columns.tolist(), checked.amounts.tolist(), strict=True):
        if column != PODS:
            capacity = allocatable[:, column]
            never |= (capacity < amount) & ((capacity > 0) | (column not in delegated))
    return never


def build(args: NodeResourcesFitArgs, axis: ResourceAxis) -> NodeResourcesFit:
    strategy = args.scoring_strategy
    shape = strategy.requested_to_capacity_ratio
    curve: Curve | None = None
    if strategy.type == "RequestedToCapacityRatio" and shape is not None:
        curve = piecewise([(p.utilization, p.score * 10) for p in shape.shape])
    return NodeResourcesFit(
        weights=tuple((axis.index(r.name), r.weight) for r in strategy.resources),
        pack=strategy.type == "MostAllocated",
        curve=curve,
        axis=axis,
        ignored=frozenset(args.ignored_resources),
        ignored_groups=frozenset(args.ignored_resource_groups),
    )


def _on_class(pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    """Queue if the DeviceClass changes which requested extended resources are served."""
    old, new = event.old, event.new
    if not isinstance(pod, Pod):
        return QueueingHint.QUEUE
    before = {*resources_of(old)} if isinstance(old, DeviceClass) else set()
    after = {*resources_of(new)} if isinstance(new, DeviceClass) else set()
    changed = (before ^ after).intersection(pod_requests(pod.spec))
    return QueueingHint.QUEUE if changed else QueueingHint.SKIP


PLUGIN = PluginSpec(
    "NodeResourcesFit",
    NodeResourcesFitArgs,
    build,
    events=(
        EventHint("AssignedPod", Action.DELETE | Action.UPDATE_SCALE_DOWN),
        EventHint("Pod", Action.UPDATE_SCALE_DOWN),
        EventHint("Node", Action.ADD | Action.UPDATE_ALLOCATABLE),
        EventHint("DeviceClass", Action.ALL, _on_class),
    ),
)
