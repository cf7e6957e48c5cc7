"""A NodeMetric in numbers: what was measured on a node, and when.

Source: koordinator pkg/scheduler/plugins/loadaware/pod_assign_cache.go
``AddOrUpdateNodeMetric``, ``getTargetAggregatedUsage``; helper.go.
"""

from collections.abc import Mapping
from math import inf

import msgspec

from koordinator.api.node_metric import AggregatedUsage, NodeMetric, PodUsage
from koordinator.foundation.clock import to_epoch_s
from koordinator.scheduler.rules.load.rules import Amounts, LoadRules, Window

REPORT_INTERVAL_S = 60.0  # of a koordlet that has not been told otherwise


class NodeMeasurement(msgspec.Struct, frozen=True):  # a struct: one is made per report
    """The newest measurement of a node."""

    updated_s: float  # since the epoch; -inf if the report doesn't say
    interval_s: float  # between two reports
    usage: Amounts | None  # the latest; None: the report has no body
    windows: tuple[AggregatedUsage, ...]
    system: Amounts  # the part of the usage that is no pod's, as far as the rules count it
    pods: Mapping[str, PodUsage]  # those of which anything was, by ``namespace/name``

    def over(self, window: Window | None, rules: LoadRules) -> Amounts | None:
        """Return the usage over a window.

        Where no window has been filled yet, the longest one is the latest usage; a certain one is
        None.
        """
        if window is None:
            return self.usage
        found, longest_s = None, -1.0
        for aggregated in self.windows:
            usage = aggregated.usage.get(window.statistic)
            duration_s = aggregated.duration.total_seconds()
            wanted = not window.duration_s or duration_s == window.duration_s
            if usage is not None and usage.resources and wanted and duration_s >= longest_s:
                found, longest_s = usage.resources, duration_s
        if found is None:
            return None if window.duration_s else self.usage
        return rules.amounts(found)


def measured_by(metric: NodeMetric, rules: LoadRules) -> NodeMeasurement:
    """Return what the report says about the resources of the rules."""
    status, body = metric.status, metric.status.node_metric
    policy = metric.spec.metric_collect_policy
    interval_s = policy.report_interval_seconds if policy is not None else None
    return NodeMeasurement(
        updated_s=to_epoch_s(status.update_time, -inf),
        interval_s=REPORT_INTERVAL_S if interval_s is None else float(interval_s),
        usage=None if body is None else rules.amounts(body.node_usage.resources),
        windows=() if body is None else body.aggregated_node_usages,
        system=rules.nothing
        if body is None or not rules.includes_system
        else rules.amounts(body.system_usage.resources),
        pods={
            f"{report.namespace}/{report.name}": report
            for report in status.pods_metric
            if report.pod_usage.resources
        },
    )
