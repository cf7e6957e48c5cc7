"""Load-aware placement: keep pods off nodes whose measured usage is high.

The load of a node is its measured usage, plus estimates of the pods that no measurement shows yet
and of the pod itself.  Nodes without a NodeMetric pass with score 0.
Source: koordinator pkg/scheduler/plugins/loadaware/load_aware.go.
"""

from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import field
from math import isfinite
from typing import ClassVar

import numpy as np

from koordinator.api.kubescheduler import (
    LoadAwareSchedulingAggregatedArgs,
    LoadAwareSchedulingArgs,
)
from koordinator.api.meta import KubeObject
from koordinator.api.node_metric import NodeMetric
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.clock import Duration, to_datetime
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    Action,
    ClusterEvent,
    EventHint,
    PluginExample,
    PluginHints,
    PluginSpec,
    QueueingHint,
    Reads,
    Rejections,
)
from koordinator.scheduler.diagnosis import quantity
from koordinator.scheduler.rules.load.kernels import (
    CASES,
    Case,
    Figure,
    Margin,
    Option,
    ReportStatus,
    StateColumn,
    judged,
)
from koordinator.scheduler.rules.load.rules import LoadRules, Window, limits_of, tracked_resources
from koordinator.scheduler.rules.usage_kernels import FAR, PluginColumns
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.load_ledger import class_load

EXPIRED = "node(s) nodeMetric expired"
DAEMON_SET = "DaemonSet"
_NONE: IntArray = np.zeros(0, np.int64)
MOST_RESOURCES = 31  # each has two reasons, and all must fit into the bits of a code


@dataclass(frozen=True, slots=True, eq=False)
class LoadAwareScheduling:
    """Filter by usage thresholds; score by the share that would be left."""

    rules: LoadRules
    weights: IntArray  # by resource of the rules
    options: IntArray  # by Option
    reasons: tuple[str, ...]
    _judgement: Memo[tuple[IntArray, IntArray]] = field(default_factory=Memo)
    reads: ClassVar = Reads.USAGE

    @property
    def accepts_expired(self) -> bool:
        """Whether the filter accepts each node whose report has expired."""
        return not self.options[Option.REFUSE_EXPIRED] and not self.options[Option.USE_EXPIRED]

    @property
    def hints(self) -> PluginHints:
        return PluginHints(
            key=self._key,
            filters=lambda _snapshot, pod: pod.owner_kind != DAEMON_SET,
            judge=self._filter_and_score,
            columns=self._columns,
            concerns=lambda snapshot, _pod: snapshot.has_load_reports,
        )

    def _key(self, pod: PodClass) -> Hashable:
        load = class_load(pod, self.rules).load
        return load.estimate, load.is_prod, load.counts, pod.owner_kind == DAEMON_SET

    def distinguishes(self, snapshot: Snapshot, keys: Collection[str]) -> bool:
        """Return whether a report names one of the pods, possibly an earlier pod of that name."""
        return snapshot.has_load_reports and snapshot.load(self.rules).names_any(keys)

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        """Reject nodes where usage would exceed a threshold; the first such one is the reason."""
        if pod.owner_kind == DAEMON_SET:
            return Rejections.none(snapshot)
        return Rejections(self._judged(snapshot, pod)[0], self.reasons)

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Return per resource the usage, the estimate of the pod and the threshold."""
        measured = view.load(self.rules).measured[int(view.row_numbers[0])]
        if measured is not None and self._judged(view, pod)[0][0] == 1:
            if not isfinite(measured.updated_s):
                return "its NodeMetric has no updateTime"
            when = to_datetime(measured.updated_s)
            return f"its NodeMetric was last updated at {when:%Y-%m-%dT%H:%M:%SZ}"
        parts = []
        for name, limit, headroom, own in self._exceeded(view, pod):
            used, more, most = (quantity(name, n) for n in (limit - headroom, own, limit))
            parts.append(f"{name}: {used} in use plus {more} of the pod, the threshold is {most}")
        return "; ".join(parts)

    def node_remedy(self, view: Snapshot, pod: PodClass) -> str:
        """Return the usage to shed, or that the koordlet must report again."""
        node = view.node_names[0]
        if self._judged(view, pod)[0][0] == 1:
            return f"restore the koordlet of {node}, which reports its usage"
        less = " and ".join(
            f"{quantity(name, own - headroom)} {name}"
            for name, _, headroom, own in self._exceeded(view, pod)
        )
        return f"reduce the usage of {node} by {less}" if less else ""

    def _exceeded(self, view: Snapshot, pod: PodClass) -> Iterator[tuple[str, int, int, int]]:
        """Yield each resource that exceeds its threshold: name, threshold, headroom, estimate."""
        ledger, own = view.load(self.rules), class_load(pod, self.rules).load
        row = int(view.row_numbers[0])
        by_prod = own.is_prod and ledger.facts[row, StateColumn.CASE] & Case.HAS_PROD_LIMITS
        limits = ledger.figures[row, Figure.PROD_MOST if by_prod else Figure.MOST].tolist()
        headrooms = ledger.margins[
            row, Margin.PROD_HEADROOM if by_prod else Margin.HEADROOM
        ].tolist()
        of_all = zip(self.rules.resources, limits, headrooms, own.estimate, strict=True)
        yield from (each for each in of_all if each[3] > each[2])

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return the weighted mean share left with this pod; 0 without a fresh measurement."""
        return self._judged(snapshot, pod)[1]

    def _judged(self, snapshot: Snapshot, pod: PodClass) -> tuple[IntArray, IntArray]:
        """Return codes and scores, ``(n,)`` each; kept because filter and score ask in turn."""
        version = (snapshot.usage_version, pod.id)
        return self._judgement.as_of(snapshot, version, self._judge_all, snapshot, pod)

    def _judge_all(self, snapshot: Snapshot, pod: PodClass) -> tuple[IntArray, IntArray]:
        codes, scores = np.zeros((2, len(snapshot)), np.int64)
        self._filter_and_score(snapshot, pod, 1, np.ones(len(snapshot), bool), scores, codes=codes)
        return codes, scores

    def _columns(self, snapshot: Snapshot, pods: Sequence[PodClass]) -> PluginColumns:
        """Return the usage as columns: headroom, and usage for the score, each also of prod pods.

        Exceeded headroom is held, so that what a pod asks fits within a capacity of 0.
        """
        ledger, rows = snapshot.load(self.rules), snapshot.row_numbers
        margins, facts, r = ledger.margins[rows], ledger.facts[rows], len(self.weights)
        status, has_own = (
            facts[:, StateColumn.STATUS],
            facts[:, StateColumn.CASE] & Case.HAS_PROD_LIMITS != 0,
        )
        is_fresh, is_expired = status == ReportStatus.FRESH, status == ReportStatus.EXPIRED
        is_judged = is_fresh | is_expired & bool(self.options[Option.USE_EXPIRED])
        is_refused = (is_expired | (status == ReportStatus.EMPTY)) & bool(
            self.options[Option.REFUSE_EXPIRED]
        )
        limits = facts[:, StateColumn.HAS_LIMITS] != 0
        used = np.zeros((len(rows), 4 * r), np.int64)
        capacity = np.zeros_like(used)
        for place, margin, refuses in (
            (0, Margin.HEADROOM, limits),
            (r, Margin.PROD_HEADROOM, limits | has_own),
        ):
            exceeded = np.where(is_judged[:, None], -margins[:, margin], -FAR)
            exceeded[is_refused & refuses] = FAR
            used[:, place : place + r] = np.clip(exceeded, -FAR, FAR)
        for place, margin in ((2 * r, Margin.FREE), (3 * r, Margin.PROD_FREE)):
            has = margins[:, Margin.HAS] * is_fresh[:, None]
            capacity[:, place : place + r] = has
            used[:, place : place + r] = has - margins[:, margin] * is_fresh[:, None]
        loads = [class_load(pod, self.rules) for pod in pods]
        by_prod = np.array([own.load.is_prod for own in loads], np.int64)[:, None]
        scores_prod = by_prod * int(self.options[Option.SCORE_BY_PROD])
        margins_used = [Margin.HEADROOM, Margin.PROD_HEADROOM, Margin.FREE, Margin.PROD_FREE]
        added = np.array([own.takes[:CASES, margins_used] for own in loads])
        return PluginColumns(
            used=used,
            capacity=capacity,
            case=facts[:, StateColumn.CASE].astype(np.int64),
            added=added.reshape(len(pods), CASES, 4 * r),
            checked=by_prod * r + np.arange(r),
            scored=(2 + scores_prod) * r + np.arange(r),
            amounts=np.array([own.load.estimate for own in loads], np.int64),
            weights=self.weights,
            dominant=int(self.options[Option.DOMINANT]),
        )

    def _filter_and_score(
        self,
        snapshot: Snapshot,
        pod: PodClass,
        weight: int,
        fits: BoolArray,
        total: IntArray,
        *,
        codes: IntArray = _NONE,
    ) -> None:
        """Filter and score in one pass; fill ``codes`` ``(n,)`` with reasons unless it is empty."""
        ledger, own = snapshot.load(self.rules), class_load(pod, self.rules)
        takes, times, added = own.takes, _NONE, snapshot.added
        if added is not None:
            others, times = added
            if others is not pod:
                takes = np.concatenate((class_load(others, self.rules).takes[:-1], takes[-1:]))
        kernel = judged.compiled if snapshot.uses_kernels else judged.reference
        kernel(
            snapshot.row_numbers,
            times,
            takes,
            ledger.margins,
            ledger.facts,
            self.options,
            self.weights,
            own.load.is_prod,
            weight,
            codes,
            fits,
            total,
        )


def _on_node_metric(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    """Skip updates that change neither the status nor the spec of a NodeMetric."""
    old, new = event.old, event.new
    if isinstance(old, NodeMetric) and isinstance(new, NodeMetric):
        same = old.status == new.status and old.spec == new.spec
        return QueueingHint.SKIP if same else QueueingHint.QUEUE
    return QueueingHint.QUEUE


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
            f"must have at most {MOST_RESOURCES} resources in all, got {len(resources)}",
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
    options = np.zeros(len(Option), np.int64)
    refuses = not args.enable_schedule_when_node_metrics_expired
    options[Option.REFUSE_EXPIRED] = args.filter_expired_node_metrics and refuses
    options[Option.USE_EXPIRED] = not args.filter_expired_node_metrics
    options[Option.SCORE_BY_PROD] = args.score_according_prod_usage
    options[Option.DOMINANT] = args.dominant_resource_weight
    return LoadAwareScheduling(
        rules=rules,
        weights=np.array(rules.numbers(args.resource_weights), np.int64),
        options=options,
        reasons=(
            EXPIRED,
            *(f"node(s) {name} usage exceed threshold" for name in resources),
            *(f"node(s) {name} aggregated usage exceed threshold" for name in resources),
        ),
    )


def _window(statistic: str, duration: Duration) -> Window | None:
    return Window(statistic, duration.total_seconds()) if statistic else None


EXAMPLE = PluginExample(
    node_objects=tuple(
        {
            "apiVersion": "slo.koordinator.sh/v1alpha1",
            "kind": "NodeMetric",
            "spec": {"metricCollectPolicy": {}},
            "status": {
                "updateTime": "2023-11-14T22:13:00Z",
                "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu, "memory": "2Gi"}}},
                "podsMetric": [
                    {
                        "namespace": "more",
                        "name": name,
                        "podUsage": {"resources": {"cpu": "700m", "memory": "1Gi"}},
                    }
                    for name in names
                ],
            },
        }
        for cpu, names in (("100m", ()), ("1900m", ("0", "1")), ("12", ("1",)))
    ),
)

PLUGIN = PluginSpec(
    "LoadAwareScheduling",
    LoadAwareSchedulingArgs,
    build,
    events=(
        EventHint("AssignedPod", Action.DELETE | Action.UPDATE),
        EventHint("NodeMetric", Action.ALL, _on_node_metric),
        EventHint("Node", Action.ADD | Action.UPDATE_ALLOCATABLE | Action.UPDATE_ANNOTATIONS),
    ),
    example=EXAMPLE,
)
