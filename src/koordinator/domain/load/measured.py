"""A NodeMetric in numbers: what was measured on a node, and when.

Source: koordinator pkg/scheduler/plugins/loadaware/pod_assign_cache.go
``AddOrUpdateNodeMetric``, ``getTargetAggregatedUsage``; helper.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import inf
from typing import NamedTuple

from koordinator.api.node_metric import NodeMetric, NodeMetricStatus, NodeUsage
from koordinator.api.qos import PriorityBand
from koordinator.domain.load.rules import Amounts, LoadRules, Window
from koordinator.foundation.clock import to_epoch_s

REPORT_INTERVAL_S = 60.0  # of a koordlet that has not been told otherwise


class PodReport(NamedTuple):
    """What was measured of a pod, and whether it was of band koord-prod then."""

    usage: Amounts
    is_prod: bool


@dataclass(frozen=True, slots=True)
class Measured:
    """The newest measurement of a node."""

    updated_s: float  # since the epoch; -inf if the report doesn't say
    interval_s: float  # between two reports
    usage: Amounts | None  # the latest; None: the report has no body
    windows: Mapping[tuple[str, float], Amounts]  # by statistic and duration; 0 is the longest
    system: Amounts  # the part of the usage that is no pod's
    pods: Mapping[str, PodReport]  # by ``namespace/name``

    def over(self, window: Window | None) -> Amounts | None:
        """Return the usage over a window.

        Where no window has been filled yet, the longest one is the latest usage; a certain one is
        None.
        """
        if window is None:
            return self.usage
        found = self.windows.get((window.statistic, window.duration_s))
        return self.usage if found is None and not window.duration_s else found


def measured_by(metric: NodeMetric, rules: LoadRules) -> Measured:
    """Return what the report says about the resources of the rules."""
    status, body = metric.status, metric.status.node_metric
    policy = metric.spec.metric_collect_policy
    interval_s = policy.report_interval_seconds if policy is not None else None
    return Measured(
        updated_s=to_epoch_s(status.update_time, -inf),
        interval_s=REPORT_INTERVAL_S if interval_s is None else float(interval_s),
        usage=None if body is None else rules.amounts(body.node_usage.resources),
        windows={} if body is None else _windows(body, rules),
        system=rules.amounts({} if body is None else body.system_usage.resources),
        pods=_pods(status, rules),
    )


def _windows(body: NodeUsage, rules: LoadRules) -> Mapping[tuple[str, float], Amounts]:
    found: dict[tuple[str, float], Amounts] = {}
    longest: dict[str, float] = {}
    for aggregated in body.aggregated_node_usages:
        duration_s = aggregated.duration.total_seconds()
        for statistic, usage in aggregated.usage.items():
            if usage.resources:
                found[statistic, duration_s] = rules.amounts(usage.resources)
                longest[statistic] = max(longest.get(statistic, 0.0), duration_s)
    for statistic, duration_s in longest.items():
        found[statistic, 0.0] = found[statistic, duration_s]
    return found


def _pods(status: NodeMetricStatus, rules: LoadRules) -> Mapping[str, PodReport]:
    found: dict[str, PodReport] = {}
    for report in status.pods_metric:
        used = report.pod_usage.resources
        if used:
            is_prod = report.priority == PriorityBand.PROD
            found[f"{report.namespace}/{report.name}"] = PodReport(rules.amounts(used), is_prod)
    return found
