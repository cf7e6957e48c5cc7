"""Keep pods off nodes that are busy by measurement, and prefer those that are least so.

The load of a node is what was measured of it, the pods that no measurement shows yet (by estimate),
and the pod itself (likewise).  Of a node that nobody measures, it says nothing.
Source: koordinator pkg/scheduler/plugins/loadaware/load_aware.go.
"""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from koordinator.api.kubescheduler import (
    LoadAwareSchedulingAggregatedArgs,
    LoadAwareSchedulingArgs,
)
from koordinator.api.meta import KubeObject
from koordinator.api.node_metric import NodeMetric
from koordinator.domain.load.kernels import exceeded, least_used
from koordinator.domain.load.limits import limits_of
from koordinator.domain.load.pod_load import Sum
from koordinator.domain.load.rules import LoadRules, Window, tracked_resources
from koordinator.foundation.duration import Duration
from koordinator.foundation.errors import InputError
from koordinator.scheduler.contract import (
    Action,
    ClusterEvent,
    EventHint,
    Hint,
    PluginSpec,
    Reads,
    Rejections,
)
from koordinator.scheduler.snapshot import IntArray, PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.load_ledger import LoadLedger, class_load

EXPIRED = "node(s) nodeMetric expired"
DAEMON_SET = "DaemonSet"
MOST_RESOURCES = 31  # two reasons each have to fit into the codes of a verdict


@dataclass(frozen=True, slots=True, eq=False)
class LoadAwareScheduling:
    """Filter by thresholds of usage, score by what would be left."""

    rules: LoadRules
    weights: IntArray  # by resource of the rules
    dominant: int  # weight of the scarcest of all resources, once more
    by_prod: bool  # score prod pods by what prod pods use
    refuse_expired: bool  # a node whose report has expired takes no pods
    use_expired: bool  # a report counts for the filter however old it is
    reasons: tuple[str, ...]
    reads: ClassVar = Reads.USAGE

    def key(self, pod: PodClass) -> Hashable:
        load = class_load(pod, self.rules).load
        return load.estimate, load.is_prod, load.counts, pod.owner_kind == DAEMON_SET

    def filters(self, _snapshot: Snapshot, pod: PodClass) -> bool:
        """Leave out the pods of DaemonSets: they can't go anywhere else."""
        return pod.owner_kind != DAEMON_SET

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        """Reject where a resource would be used beyond its limit; the first one is the reason."""
        if not self.filters(snapshot, pod):
            return Rejections.none(snapshot)
        ledger = snapshot.load(self.rules)
        rows, times, step = self._asked(snapshot)
        asked = class_load(pod, self.rules)
        kernel = exceeded.compiled if snapshot.is_large else exceeded.reference
        found = kernel(
            rows,
            times,
            step,
            asked.estimate,
            ledger.sums,
            ledger.limited,
            ledger.limited_known,
            ledger.has,
            ledger.limits,
            ledger.prod_limits,
            ledger.status,
            asked.load.is_prod,
            self.refuse_expired,
            self.use_expired,
        )
        return self._rejections(ledger, rows, found, is_prod=asked.load.is_prod)

    def _rejections(
        self, ledger: LoadLedger, rows: IntArray, found: IntArray, *, is_prod: bool
    ) -> Rejections:
        if not found.any():
            return Rejections(found)
        width = len(self.rules.resources)
        aggregated = ledger.is_aggregated[rows]
        if is_prod:
            aggregated &= ~ledger.prod_limits[:, rows].any(axis=0)
        place = np.where((found > 1) & aggregated, found + width, found)
        return Rejections(np.where(found > 0, 1 << np.maximum(place - 1, 0), 0), self.reasons)

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return the weighted mean share that would be left; 0 without a fresh measurement."""
        ledger = snapshot.load(self.rules)
        rows, times, step = self._asked(snapshot)
        asked = class_load(pod, self.rules)
        kernel = least_used.compiled if snapshot.is_large else least_used.reference
        return kernel(
            rows,
            times,
            step,
            asked.estimate,
            ledger.sums,
            ledger.scored,
            ledger.scored_known,
            ledger.has,
            ledger.status,
            self.weights,
            self.dominant,
            self.by_prod and asked.load.is_prod,
        )

    def _asked(self, snapshot: Snapshot) -> tuple[IntArray, IntArray, IntArray]:
        """Return the rows, how many more pods each has taken, and what each of these adds."""
        rows = snapshot.row_numbers
        if snapshot.added is None:
            nothing = np.zeros((len(Sum), len(self.rules.resources)), np.int64)
            return rows, np.zeros(len(rows), np.int64), nothing
        pod, times = snapshot.added
        return rows, times, class_load(pod, self.rules).added


def _may_help(_pod: KubeObject, event: ClusterEvent) -> Hint:
    """Skip reports that say what the last one said."""
    old, new = event.old, event.new
    if isinstance(old, NodeMetric) and isinstance(new, NodeMetric):
        same = old.status == new.status and old.spec == new.spec
        return Hint.SKIP if same else Hint.QUEUE
    return Hint.QUEUE


def build(args: LoadAwareSchedulingArgs, _axis: ResourceAxis) -> LoadAwareScheduling:
    aggregated = args.aggregated or LoadAwareSchedulingAggregatedArgs()
    resources = tracked_resources(
        args.usage_thresholds,
        args.prod_usage_thresholds,
        aggregated.usage_thresholds,
        args.resource_weights,
        args.estimated_scaling_factors,
        args.supported_resources,
    )
    if len(resources) > MOST_RESOURCES:
        raise InputError(
            f"found {len(resources)} resources in all; accepted are {MOST_RESOURCES} at most",
            path="supportedResources",
        )
    rules = LoadRules(
        resources=resources,
        factors=tuple(sorted(args.estimated_scaling_factors.items())),
        limits=limits_of(
            args.usage_thresholds,
            args.prod_usage_thresholds,
            aggregated.usage_thresholds,
            _window(aggregated.usage_aggregation_type, aggregated.usage_aggregated_duration),
            resources,
        ),
        scored=_window(aggregated.score_aggregation_type, aggregated.score_aggregated_duration),
        expiration_s=float(args.node_metric_expiration_seconds),
        customised=args.allow_customize_estimation,
        after_scheduled_s=args.estimated_seconds_after_pod_scheduled,
        after_initialized_s=args.estimated_seconds_after_initialized,
        includes_system=args.prod_usage_include_sys,
    )
    filters_expired = args.filter_expired_node_metrics
    return LoadAwareScheduling(
        rules=rules,
        weights=np.array(rules.numbers(args.resource_weights), np.int64),
        dominant=args.dominant_resource_weight,
        by_prod=args.score_according_prod_usage,
        refuse_expired=filters_expired and not args.enable_schedule_when_node_metrics_expired,
        use_expired=not filters_expired,
        reasons=(
            EXPIRED,
            *(f"node(s) {name} usage exceed threshold" for name in resources),
            *(f"node(s) {name} aggregated usage exceed threshold" for name in resources),
        ),
    )


def _window(statistic: str, duration: Duration) -> Window | None:
    return Window(statistic, duration.total_seconds()) if statistic else None


PLUGIN = PluginSpec(
    "LoadAwareScheduling",
    LoadAwareSchedulingArgs,
    build,
    events=(
        EventHint("AssignedPod", Action.DELETE),
        EventHint("NodeMetric", Action.ALL, _may_help),
        EventHint("Node", Action.ADD | Action.UPDATE_ALLOCATABLE | Action.UPDATE_ANNOTATIONS),
    ),
)
