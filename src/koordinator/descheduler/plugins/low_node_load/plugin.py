"""LowNodeLoad plugin: balances node pools in order.

Source: koordinator pkg/descheduler/framework/plugins/loadaware/low_node_load.go,
utilization_util.go.
"""

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

import numpy as np
from numpy.typing import NDArray

from koordinator.api.node import Node
from koordinator.api.node_metric import NodeMetric, PodUsage
from koordinator.api.pod import Pod
from koordinator.descheduler.candidates import (
    CandidateFilter,
    SortKey,
    candidates_of,
    eviction_rank,
    selected_nodes,
)
from koordinator.descheduler.contract import DeschedulerPluginSpec, Handle
from koordinator.descheduler.plugins.low_node_load.arguments import (
    Detectors,
    LowNodeLoadArgs,
    LowNodeLoadNodePool,
)
from koordinator.descheduler.plugins.low_node_load.goal import LoadGoal, Targets
from koordinator.descheduler.plugins.low_node_load.usage import (
    CPU,
    PODS,
    NodeAmounts,
    PoolUsage,
    amount_of,
    is_prod,
    measure,
    over,
    pod_amounts,
    raw_allocatable,
    thresholds_of,
)
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import NANOS_PER_MILLI

Rows = NDArray[np.intp]
_PERMILLE = 1000

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Groups:
    """Rows of nodes by the usage of the node and of its prod pods, sorted by name."""

    low: Rows  # low usage, prod usage neither low nor high
    high: Rows
    prod_low: Rows  # low prod usage, usage neither low nor high
    prod_high: Rows  # high prod usage, usage not high
    both_low: Rows

    @property
    def n_low(self) -> int:
        return len(self.low) + len(self.prod_low) + len(self.both_low)


@dataclass(slots=True)
class _Round:
    """Usage and limits of nodes, or of their prod pods, and the remaining headroom of targets."""

    is_prod: bool
    usage: NodeAmounts
    high: NodeAmounts
    budget: list[
        int
    ]  # by resource, as Python integers, since sums over thousands of nodes may exceed 64 bits
    targets: Targets
    n_targets: int
    detectors: Detectors
    goal: LoadGoal


@dataclass(frozen=True, slots=True)
class LowNodeLoad:
    """Plugin that evicts from nodes above high thresholds while others are below low ones."""

    args: LowNodeLoadArgs
    handle: Handle
    candidates: CandidateFilter
    node_detectors: Detectors
    prod_detectors: Detectors
    pools: tuple[LowNodeLoadNodePool, ...]

    def balance(self, nodes: Sequence[Node]) -> None:
        if self.args.paused:
            log.info("LowNodeLoad is paused")
            return
        treated: set[str] = set()
        for pool in self.pools:
            chosen = selected_nodes(nodes, pool.node_selector)
            if pool.node_selector is not None:
                chosen = [node for node in chosen if node.metadata.name not in treated]
            if chosen:
                treated |= self._balance_pool(pool, chosen)

    def _balance_pool(self, pool: LowNodeLoadNodePool, nodes: Sequence[Node]) -> set[str]:
        """Balance a pool; return the names of its nodes with high usage, empty if it is skipped."""
        now_s = self.handle.clock.now_s()
        use = measure(
            nodes,
            self.handle.view,
            thresholds_of(pool),
            expiration_s=self.args.node_metric_expiration_seconds,
            now_s=self.handle.date_s(),
        )
        groups = _classify(use)
        names = [node.metadata.name for node in use.nodes]
        rows = {name: row for row, name in enumerate(names)}
        if not (len(groups.high) or len(groups.prod_high)):
            return set()

        def anomalous(detectors: Detectors, node_rows: Rows) -> list[int]:
            hot = [names[row] for row in node_rows]
            marked = detectors.find_anomalous(hot, pool.anomaly_condition, now_s)
            return [rows[name] for name in marked]

        sources = anomalous(self.node_detectors, groups.high)
        prod_sources = anomalous(self.prod_detectors, groups.prod_high)
        if not (sources or prod_sources) or not groups.n_low:
            return set()
        # As in the original: nodes with low usage restart their count of anomalies only if some
        # node is anomalous and can be relieved.
        for detectors, node_rows in (
            (self.node_detectors, groups.low),
            (self.prod_detectors, groups.prod_low),
            (self.node_detectors, groups.both_low),
        ):
            for row in node_rows:
                detectors.reset(names[row], now_s)
        if groups.n_low <= self.args.number_of_nodes or groups.n_low == len(nodes):
            return set()
        self._move(pool, use, groups, sources, prod_sources)
        for row in sources:
            self.node_detectors.mark_normal(names[row], now_s)
        for row in prod_sources:
            self.prod_detectors.mark_normal(names[row], now_s)
        return {names[row] for row in groups.high}

    def _move(
        self,
        pool: LowNodeLoadNodePool,
        use: PoolUsage,
        groups: _Groups,
        sources: list[int],
        prod_sources: list[int],
    ) -> None:
        """Evict from nodes with high usage, then prod pods from nodes with high prod usage."""
        goal = LoadGoal.of(use, self.handle.view)
        both, both_prod = (
            _headroom(use.usage, use.high, groups.both_low),
            _headroom(use.prod_usage, use.prod_high, groups.both_low),
        )
        prod_only = _headroom(use.prod_usage, use.prod_high, groups.prod_low)
        budget = _added(_headroom(use.usage, use.high, groups.low), both)
        first = self._round(use, (groups.low, groups.both_low), budget, goal)
        self._balance_nodes(pool, use, _hottest_first(pool, use, sources, use.usage), first)
        left = [min(mine, all_of_it) for mine, all_of_it in zip(both, first.budget, strict=True)]
        prod_budget = _added(prod_only, [min(a, b) for a, b in zip(both_prod, left, strict=True)])
        second = self._round(
            use, (groups.prod_low, groups.both_low), prod_budget, replace(goal, is_prod=True)
        )
        hottest = _hottest_first(pool, use, prod_sources, use.prod_usage)
        self._balance_nodes(pool, use, hottest, second)

    def _round(
        self, use: PoolUsage, rows: tuple[Rows, Rows], budget: list[int], goal: LoadGoal
    ) -> _Round:
        is_prod = goal.is_prod
        usage, high = (use.prod_usage, use.prod_high) if is_prod else (use.usage, use.high)
        node_rows = np.concatenate(rows)
        return _Round(
            is_prod,
            usage,
            high,
            budget,
            Targets(use.nodes, node_rows, usage, high, self.handle.view),
            len(node_rows),
            self.prod_detectors if is_prod else self.node_detectors,
            goal,
        )

    def _balance_nodes(
        self, pool: LowNodeLoadNodePool, use: PoolUsage, sources: list[int], attempt: _Round
    ) -> None:
        if not attempt.n_targets:
            return
        for row in sources:
            reports = {
                f"{each.namespace}/{each.name}": each
                for each in use.metrics[row].status.pods_metric
            }
            pods = self.handle.view.active_pods_on(use.nodes[row].metadata.name)
            removable = [
                pod
                for pod in pods
                if (not attempt.is_prod or is_prod(pod))
                and self.candidates.is_candidate(pod)
                and self._fits_somewhere(pod, reports.get(pod.key), use, attempt)
            ]
            excess, weights = _excess(use, attempt, row), pool.resource_weights or {}
            ranks = [_rank(pod, reports.get(pod.key), excess, weights) for pod in removable]
            ranked = sorted(zip(ranks, removable, strict=True), key=itemgetter(0))
            self._evict(use, row, [pod for _, pod in ranked], reports, attempt)

    def _fits_somewhere(
        self, pod: Pod, report: PodUsage | None, use: PoolUsage, attempt: _Round
    ) -> bool:
        if not self.args.node_fit:
            return True
        if report is None:
            return False
        amounts = np.array(pod_amounts(report, use.thresholds.resources), np.int64)
        return attempt.targets.take(pod, amounts)

    def _evict(
        self,
        use: PoolUsage,
        row: int,
        pods: Iterable[Pod],
        reports: Mapping[str, PodUsage],
        attempt: _Round,
    ) -> None:
        names = use.thresholds.resources
        name = use.nodes[row].metadata.name
        for pod in pods:
            if not over(attempt.usage[row], attempt.high[row]):
                attempt.detectors.reset(name, self.handle.clock.now_s())
                return
            if any(left <= 0 for left in attempt.budget):
                return
            if not self.candidates.is_candidate(pod):
                continue
            if self.args.dry_run:
                log.info("dry run: pod would be evicted", extra={"pod": pod.key})
            elif not self.handle.evictor.evict(pod, _reason(use, row, attempt), goal=attempt.goal):
                continue
            report = reports.get(pod.key)
            if report is None:
                continue
            amounts = pod_amounts(report, names)
            if PODS in names:
                amounts[names.index(PODS)] = 1
            attempt.budget[:] = [
                left - evicted for left, evicted in zip(attempt.budget, amounts, strict=True)
            ]
            use.usage[row] -= amounts
            if attempt.is_prod:
                use.prod_usage[row] -= amounts


def build_low_node_load(args: LowNodeLoadArgs, handle: Handle) -> LowNodeLoad:
    """Build the plugin; detectors are kept at least from one cycle to the next."""
    expiration_s = max(args.detector_cache_timeout.total_seconds(), handle.interval_s)
    candidates = candidates_of(handle, args.evictable_namespaces, args.pod_selectors)
    node_detectors, prod_detectors = Detectors(expiration_s), Detectors(expiration_s)
    return LowNodeLoad(args, handle, candidates, node_detectors, prod_detectors, args.pools())


def _classify(use: PoolUsage) -> _Groups:
    under, high = use.under(), use.over()
    prod_high, prod_under = use.prod_over(), use.prod_under()
    neither = ~under & ~high

    def rows(mask: NDArray[np.bool_]) -> Rows:
        return np.flatnonzero(mask)

    return _Groups(
        low=rows(under & ~prod_high & ~prod_under),
        high=rows(~under & high),
        prod_low=rows(neither & ~prod_high & prod_under),
        prod_high=rows((under | neither) & prod_high),
        both_low=rows(under & ~prod_high & prod_under),
    )


def _headroom(usage: NodeAmounts, high: NodeAmounts, rows: Rows) -> list[int]:
    """Return the total headroom of the nodes by resource."""
    return [sum(column) for column in (high[rows] - usage[rows]).T.tolist()]


def _added(one: Sequence[int], other: Sequence[int]) -> list[int]:
    return [a + b for a, b in zip(one, other, strict=True)]


def _hottest_first(
    pool: LowNodeLoadNodePool, use: PoolUsage, rows: list[int], usage: NodeAmounts
) -> list[int]:
    """Return the rows by weighted usage, highest first, then by name."""
    weights, names = pool.resource_weights or {}, use.thresholds.resources

    def score(row: int) -> int:
        total = weighted = 0
        for column, name in enumerate(names):
            weight = weights.get(name, 0)
            has = _whole(name, int(use.base[row, column]))
            used = _whole(name, int(usage[row, column]))
            weighted += weight * (min(used, has) * _PERMILLE // has if has else 0)
            total += weight
        return weighted // total if total else 0

    return sorted(rows, key=score, reverse=True)


def _whole(name: str, amount: int) -> int:
    return -(-amount // NANOS_PER_MILLI) if name == CPU else amount


def _excess(use: PoolUsage, attempt: _Round, row: int) -> Mapping[str, int]:
    """Return the usage of a node above its limits by resource."""
    beyond = (attempt.usage[row] - attempt.high[row]).tolist()
    names = use.thresholds.resources
    return {name: amount for name, amount in zip(names, beyond, strict=True) if amount > 0}


def _rank(
    pod: Pod, report: PodUsage | None, excess: Mapping[str, int], weights: Mapping[str, int]
) -> SortKey:
    return eviction_rank(pod, None if report is None else _relief(report, excess, weights))


def _relief(report: PodUsage, excess: Mapping[str, int], weights: Mapping[str, int]) -> float:
    """Return the relief by the eviction of a pod; at most 2, if its usage equals the excess."""
    total = weighted = 0.0
    for name, quantity in report.pod_usage.resources.items():
        if name not in excess:
            continue
        needed = _whole(name, excess[name])
        ratio = _whole(name, amount_of(name, quantity)) / needed
        weight = weights.get(name, 0)
        weighted += (1 / ratio + 1 if ratio >= 1 else ratio) * weight
        total += weight
    return weighted / total if total else 0.0


def _reason(use: PoolUsage, row: int, attempt: _Round) -> str:
    thresholds = use.thresholds
    percentages = thresholds.prod_high if attempt.is_prod else thresholds.high
    scope = "prod" if attempt.is_prod else "node"
    allocatable = raw_allocatable(use.nodes[row])
    parts = []
    for column, name in enumerate(thresholds.resources):
        used, high = int(attempt.usage[row, column]), int(attempt.high[row, column])
        if name not in thresholds.high or used <= high:
            continue
        has = amount_of(name, allocatable.get(name))
        used, has = (_whole(name, each) * (1 if name == CPU else _PERMILLE) for each in (used, has))
        percent = 100 * float(used) / float(has) if has else 0.0
        parts.append(
            f"{scope} {name} usage({percent:.2f}%)>threshold({percentages.get(name, 0.0):.2f}%)"
        )
    return f"node is overutilized, {', '.join(parts)}"


LOW_NODE_LOAD = DeschedulerPluginSpec(
    "LowNodeLoad",
    LowNodeLoadArgs,
    build_low_node_load,
    watches=(NodeMetric,),
    proves_moves=True,
)
