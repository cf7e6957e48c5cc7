"""Keep pods off nodes that are busy by measurement, and prefer those that are least so.

The load of a node is what was measured of it, the pods that no measurement shows yet (by estimate),
and the pod itself (likewise).  Of a node that nobody measures, it says nothing.
Source: koordinator pkg/scheduler/plugins/loadaware/load_aware.go.
"""

from collections.abc import Collection, Hashable, Iterator
from dataclasses import dataclass, field
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
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.duration import Duration
from koordinator.foundation.errors import InputError
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
    Case,
    Fact,
    Figure,
    Margin,
    Option,
    judged,
)
from koordinator.scheduler.rules.load.limits import limits_of
from koordinator.scheduler.rules.load.rules import LoadRules, Window, tracked_resources
from koordinator.scheduler.snapshot import PodClass, ResourceAxis, Snapshot
from koordinator.scheduler.snapshot.load_ledger import class_load

EXPIRED = "node(s) nodeMetric expired"
DAEMON_SET = "DaemonSet"
_NONE: IntArray = np.zeros(0, np.int64)
MOST_RESOURCES = 31  # two reasons each have to fit into the codes of a verdict


@dataclass(frozen=True, slots=True, eq=False)
class LoadAwareScheduling:
    """Filter by thresholds of usage, score by what would be left."""

    rules: LoadRules
    weights: IntArray  # by resource of the rules
    options: IntArray  # by Option
    reasons: tuple[str, ...]
    _judgement: Memo[tuple[IntArray, IntArray]] = field(default_factory=Memo)
    reads: ClassVar = Reads.USAGE

    @property
    def hints(self) -> PluginHints:
        return PluginHints(
            key=self._key,
            filters=lambda _snapshot, pod: pod.owner_kind != DAEMON_SET,
            judge=self._judge,
        )

    def _key(self, pod: PodClass) -> Hashable:
        load = class_load(pod, self.rules).load
        return load.estimate, load.is_prod, load.counts, pod.owner_kind == DAEMON_SET

    def distinguishes(self, snapshot: Snapshot, keys: Collection[str]) -> bool:
        """Return whether a report names one of the pods: it may be of a former pod of that name."""
        return snapshot.load(self.rules).names_any(keys)

    def filter(self, snapshot: Snapshot, pod: PodClass) -> Rejections:
        """Reject where a resource would be used beyond its limit; the first one is the reason."""
        if pod.owner_kind == DAEMON_SET:
            return Rejections.none(snapshot)
        return Rejections(self._judged(snapshot, pod)[0], self.reasons)

    def detail(self, view: Snapshot, pod: PodClass) -> str:
        """Tell of each resource how much would be used, and how much may be."""
        measured = view.load(self.rules).measured[int(view.row_numbers[0])]
        if measured is not None and self._judged(view, pod)[0][0] == 1:
            if not isfinite(measured.updated_s):
                return "its report has no updateTime"
            return f"reported last at {to_datetime(measured.updated_s):%Y-%m-%dT%H:%M:%SZ}"
        told = []
        for name, limit, headroom, own in self._exceeded(view, pod):
            used, more, most = (quantity(name, n) for n in (limit - headroom, own, limit))
            told.append(f"{name}: {used} in use and {more} of the pod, of {most} at most")
        return "; ".join(told)

    def node_remedy(self, view: Snapshot, pod: PodClass) -> str:
        """Say how much less has to be in use, or that nobody knows how much is."""
        node = view.node_names[0]
        if self._judged(view, pod)[0][0] == 1:
            return f"let the koordlet of {node} report again"
        less = " and ".join(
            f"{quantity(name, own - headroom)} {name}"
            for name, _, headroom, own in self._exceeded(view, pod)
        )
        return f"bring the use of {node} down by {less}" if less else ""

    def _exceeded(self, view: Snapshot, pod: PodClass) -> Iterator[tuple[str, int, int, int]]:
        """Yield resources of a node that don't suffice: limit, what is left of it, pod's use."""
        ledger, asked = view.load(self.rules), class_load(pod, self.rules).load
        row = int(view.row_numbers[0])
        by_prod = asked.is_prod and ledger.facts[row, Fact.CASE] & Case.HAS_PROD_LIMITS
        limits = ledger.figures[row, Figure.PROD_MOST if by_prod else Figure.MOST].tolist()
        headrooms = ledger.margins[
            row, Margin.PROD_HEADROOM if by_prod else Margin.HEADROOM
        ].tolist()
        of_all = zip(self.rules.resources, limits, headrooms, asked.estimate, strict=True)
        yield from (each for each in of_all if each[3] > each[2])

    def score(self, snapshot: Snapshot, pod: PodClass) -> IntArray:
        """Return the weighted mean share that would be left; 0 without a fresh measurement."""
        return self._judged(snapshot, pod)[1]

    def _judged(self, snapshot: Snapshot, pod: PodClass) -> tuple[IntArray, IntArray]:
        """Return codes and scores, each ``(n,)``, which are asked for one after the other."""
        version = (snapshot.usage_version, pod.id)
        return self._judgement.as_of(snapshot, version, self._judge_all, snapshot, pod)

    def _judge_all(self, snapshot: Snapshot, pod: PodClass) -> tuple[IntArray, IntArray]:
        codes, scores = np.zeros((2, len(snapshot)), np.int64)
        self._judge(snapshot, pod, 1, np.ones(len(snapshot), bool), scores, codes=codes)
        return codes, scores

    def _judge(
        self,
        snapshot: Snapshot,
        pod: PodClass,
        weight: int,
        fits: BoolArray,
        total: IntArray,
        *,
        codes: IntArray = _NONE,
    ) -> None:
        """Filter and score at once; ``codes`` ``(n,)``, unless it is empty, says why not."""
        ledger, asked = snapshot.load(self.rules), class_load(pod, self.rules)
        takes, times, added = asked.takes, _NONE, snapshot.added
        if added is not None:
            others, times = added
            if others is not pod:
                takes = np.concatenate((class_load(others, self.rules).takes[:-1], takes[-1:]))
        kernel = judged.compiled if snapshot.is_large else judged.reference
        kernel(
            snapshot.row_numbers,
            times,
            takes,
            ledger.margins,
            ledger.facts,
            self.options,
            self.weights,
            asked.load.is_prod,
            weight,
            codes,
            fits,
            total,
        )


def _may_help(_pod: KubeObject, event: ClusterEvent) -> QueueingHint:
    """Skip reports that say what the last one said."""
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
        EventHint("AssignedPod", Action.DELETE),
        EventHint("NodeMetric", Action.ALL, _may_help),
        EventHint("Node", Action.ADD | Action.UPDATE_ALLOCATABLE | Action.UPDATE_ANNOTATIONS),
    ),
    example=EXAMPLE,
)
