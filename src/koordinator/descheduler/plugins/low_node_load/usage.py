"""Usage and thresholds of the nodes of a pool, as arrays: rows are nodes, columns resources.

CPU is in nanocores, so that measurements are not rounded; other resources are in whole units.
Source: koordinator pkg/descheduler/framework/plugins/loadaware/utilization_util.go,
low_node_load.go ``newThresholds``.
"""

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from koordinator.api.annotations.node import RAW_ALLOCATABLE
from koordinator.api.core import ResourceList
from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric, PodUsage
from koordinator.api.pod import Pod
from koordinator.api.qos import PriorityBand, band_of
from koordinator.descheduler.contract import ClusterView
from koordinator.descheduler.plugins.low_node_load.arguments import (
    LowNodeLoadNodePool,
    UsagePercentages,
)
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import NANOS_PER_MILLI, Quantity

NodeAmounts = NDArray[np.int64]
Mask = NDArray[np.bool_]
CPU, MEMORY, PODS = "cpu", "memory", "pods"
_ALL, _NONE = 100.0, 0.0
_LARGEST = 1 << 60  # bound of reported amounts, so that sums don't overflow 64 bits


@dataclass(frozen=True, slots=True)
class Thresholds:
    """Percentages by resource; each of ``resources`` has low ones for nodes and for prod pods."""

    resources: tuple[str, ...]
    low: UsagePercentages
    high: UsagePercentages
    prod_low: UsagePercentages
    prod_high: UsagePercentages
    is_deviation: bool

    @property
    def needs_prod(self) -> bool:
        """Whether the usage of prod pods is needed.

        Without thresholds for prod pods there is no limit on them.
        """
        free = _NONE if self.is_deviation else _ALL
        return any(
            given.get(name, _NONE) != free
            for given in (self.prod_low, self.prod_high)
            for name in self.resources
        )


def thresholds_of(pool: LowNodeLoadNodePool) -> Thresholds:
    """Return the thresholds of a pool.

    A resource without a low percentage is never above or below its thresholds, even with a high
    percentage.  The same holds for prod pods.
    """
    given = [
        dict(each or {})
        for each in (
            pool.low_thresholds,
            pool.high_thresholds,
            pool.prod_low_thresholds,
            pool.prod_high_thresholds,
        )
    ]
    low, high, prod_low, prod_high = given
    free = _NONE if pool.use_deviation_thresholds else _ALL
    resources = tuple(sorted({MEMORY, *low, *high, *prod_low, *prod_high}))
    for name in resources:
        if name not in low:
            low[name] = high[name] = free
        if name not in prod_low:
            prod_low[name] = prod_high[name] = free
    return Thresholds(resources, low, high, prod_low, prod_high, pool.use_deviation_thresholds)


@dataclass(slots=True)
class PoolUsage:
    """Arrays ``(n_nodes, n_resources)``; the usage arrays change with evictions."""

    nodes: Sequence[Node]
    metrics: Sequence[NodeMetric]
    thresholds: Thresholds
    base: NodeAmounts
    usage: NodeAmounts
    prod_usage: NodeAmounts
    low: NodeAmounts
    high: NodeAmounts
    prod_low: NodeAmounts
    prod_high: NodeAmounts

    def over(self) -> Mask:
        """Return ``(n_nodes,)``: the usage of a resource is above its high threshold."""
        return over(self.usage, self.high)

    def prod_over(self) -> Mask:
        """Return ``(n_nodes,)``: the usage of prod pods is above a high threshold."""
        return over(self.prod_usage, self.prod_high)

    def under(self) -> Mask:
        """Return ``(n_nodes,)``: all usage is below the low thresholds, and not cordoned."""
        return (self.usage <= self.low).all(axis=1) & self._takes_pods()

    def prod_under(self) -> Mask:
        """Return ``(n_nodes,)``: prod usage is below the low thresholds, and not cordoned."""
        return (self.prod_usage <= self.prod_low).all(axis=1) & self._takes_pods()

    def _takes_pods(self) -> Mask:
        return np.array([not node.spec.unschedulable for node in self.nodes], np.bool_)


def over(usage: NodeAmounts, high: NodeAmounts) -> Mask:
    """Return ``(n,)``: a column of ``usage`` is above its value in ``high``."""
    mask: Mask = np.asarray((usage > high).any(axis=-1))
    return mask


def measure(
    nodes: Iterable[Node],
    view: ClusterView,
    thresholds: Thresholds,
    *,
    expiration_s: float,
    now_s: float,
) -> PoolUsage:
    """Return the usage of the nodes with a fresh report; others are omitted."""
    reports = view.objects(NodeMetric)
    known: list[tuple[Node, NodeMetric]] = []
    for node in nodes:
        metric = reports.get(node.metadata.name)
        if metric is not None and _is_fresh(metric, expiration_s, now_s):
            known.append((node, metric))
    chosen, metrics = [node for node, _ in known], [metric for _, metric in known]
    names = thresholds.resources
    base = _array((base_of(node, names) for node in chosen), names)
    usage = _array((_usage(node, metric, view, names) for node, metric in known), names)
    prod_usage = np.zeros_like(usage)
    if thresholds.needs_prod:
        prod_usage = _array((_prod_usage(n, m, view, names) for n, m in known), names)
    limits = _limits(thresholds, base, usage, prod_usage)
    return PoolUsage(chosen, metrics, thresholds, base, usage, prod_usage, *limits)


def amount_of(name: str, quantity: Quantity | None) -> int:
    """Return a quantity in the units of the arrays; None is 0."""
    if quantity is None:
        return 0
    amount = quantity.nanos if name == CPU else quantity.value()
    return min(max(amount, -_LARGEST), _LARGEST)


def base_of(node: Node, names: Sequence[str]) -> list[int]:
    """Return the base of percentages: allocatable without amplification."""
    allocatable = raw_allocatable(node)
    return [amount_of(name, allocatable.get(name)) for name in names]


def raw_allocatable(node: Node) -> ResourceList:
    """Return the allocatable of the annotation ``raw-allocatable``, else of the status."""
    try:
        raw = RAW_ALLOCATABLE.read(node.metadata)
    except InputError:
        raw = None
    return node.status.allocatable if raw is None else raw


def is_prod(pod: Pod) -> bool:
    """Return whether the pod is of band prod, by label, priority or QoS class."""
    return band_of(pod) is PriorityBand.PROD


def pod_amounts(report: PodUsage, names: Sequence[str]) -> list[int]:
    """Return the reported usage of a pod; ``pods`` is 0, as it is not measured."""
    resources = report.pod_usage.resources
    return [amount_of(name, resources.get(name)) for name in names]


def _is_fresh(metric: NodeMetric, expiration_s: float, now_s: float) -> bool:
    status = metric.status
    if status.node_metric is None or status.update_time is None:
        return False
    return now_s - to_epoch_s(status.update_time) < expiration_s


def _usage(node: Node, metric: NodeMetric, view: ClusterView, names: Sequence[str]) -> list[int]:
    body = metric.status.node_metric
    system = body.system_usage.resources if body is not None else {}
    sums = _summed(metric.status.pods_metric, system, names)
    if PODS in names:
        sums[names.index(PODS)] = len(view.active_pods_on(node.metadata.name))
    return sums


def _prod_usage(
    node: Node, metric: NodeMetric, view: ClusterView, names: Sequence[str]
) -> list[int]:
    prod = {pod.key for pod in view.active_pods_on(node.metadata.name) if is_prod(pod)}
    reports = [
        each for each in metric.status.pods_metric if f"{each.namespace}/{each.name}" in prod
    ]
    sums = _summed(reports, {}, names)
    if PODS in names:
        sums[names.index(PODS)] = len(prod)
    return sums


def _summed(
    reports: Iterable[PodUsage], system: Mapping[str, Quantity], names: Sequence[str]
) -> list[int]:
    maps = [system, *(each.pod_usage.resources for each in reports)]
    sums = []
    for name in names:
        nanos = sum([quantities[name].nanos for quantities in maps if name in quantities])
        sums.append(amount_of(name, Quantity(nanos)))
    return sums


def _array(rows: Iterable[Sequence[int]], names: Sequence[str]) -> NodeAmounts:
    flat = [amount for row in rows for amount in row]
    return np.array(flat, np.int64).reshape(-1, len(names))


def _limits(
    thresholds: Thresholds, base: NodeAmounts, usage: NodeAmounts, prod_usage: NodeAmounts
) -> tuple[NodeAmounts, NodeAmounts, NodeAmounts, NodeAmounts]:
    """Return the low and high limits in amounts, of nodes and of prod pods."""
    low, high, prod_low, prod_high = (
        np.array([each.get(name, _NONE) for name in thresholds.resources], np.float64)
        for each in (
            thresholds.low, thresholds.high, thresholds.prod_low, thresholds.prod_high,
        )
    )  # fmt: skip
    if not thresholds.is_deviation:
        parts = tuple(
            _part(base, each, thresholds.resources) for each in (low, high, prod_low, prod_high)
        )
        return parts[0], parts[1], parts[2], parts[3]
    below, above = _around(thresholds, base, usage, low, high)
    prod_below, prod_above = _around(thresholds, base, prod_usage, prod_low, prod_high)
    return below, above, prod_below, prod_above


def _around(
    thresholds: Thresholds,
    base: NodeAmounts,
    usage: NodeAmounts,
    low: NDArray[np.float64],
    high: NDArray[np.float64],
) -> tuple[NodeAmounts, NodeAmounts]:
    """Return limits around the mean usage; a low percentage of 0 disables a resource."""
    names = thresholds.resources
    mean = _mean_percentages(base, usage, names)
    below = _part(base, np.clip(mean - low, _NONE, _ALL), names)
    above = _part(base, np.clip(mean + high, _NONE, _ALL), names)
    alone = low == _NONE
    return np.where(alone, base, below), np.where(alone, base, above)


def _mean_percentages(
    base: NodeAmounts, usage: NodeAmounts, names: Sequence[str]
) -> NDArray[np.float64]:
    """Return ``(n_resources,)``: the mean usage of all nodes, in percent."""
    used, has = _in_milli_cpu(usage, names), _in_milli_cpu(base, names)
    with np.errstate(divide="ignore", invalid="ignore"):
        percentages = np.where(has == 0, 0.0, used / has * 100.0)
    if not len(percentages):
        return np.zeros(len(names))
    # Add sequentially, as the original does: the last bits decide about a unit.
    mean: NDArray[np.float64] = np.cumsum(percentages, axis=0)[-1] / len(percentages)
    return mean


def _part(base: NodeAmounts, percentages: NDArray[np.float64], names: Sequence[str]) -> NodeAmounts:
    """Return percentages of the base, truncated to whole units, CPU to millicores."""
    scale = _scale(names)
    parts = percentages * 0.01 * _in_milli_cpu(base, names)
    cut: NodeAmounts = np.minimum(parts, float(_LARGEST) / scale).astype(np.int64)
    return cut * scale


def _in_milli_cpu(amounts: NodeAmounts, names: Sequence[str]) -> NDArray[np.float64]:
    """Return amounts with CPU in millicores, rounded up."""
    scaled: NodeAmounts = -(-amounts // _scale(names))
    return scaled.astype(np.float64)


def _scale(names: Sequence[str]) -> NodeAmounts:
    return np.array([NANOS_PER_MILLI if name == CPU else 1 for name in names], np.int64)
