"""Strategies where nothing is said, as far as they are the manager's alone.

Those that the node agent falls back on as well are in ``domain.node_slo``.
Source: koordinator pkg/util/sloconfig/colocation_config.go, nodeslo_config.go.
"""

from typing import Final

from koordinator.api.annotations.node import ColocationStrategy
from koordinator.api.node_metric import AggregatePolicy
from koordinator.api.resource_qos import ResourceQosStrategy
from koordinator.foundation.duration import Duration
from koordinator.manager.configuration.resource_strategy import USAGE

COLOCATION: Final = ColocationStrategy(
    enable=False,
    metric_aggregate_duration_seconds=300,
    metric_report_interval_seconds=60,
    metric_aggregate_policy=AggregatePolicy(
        durations=tuple(Duration(minutes=minutes) for minutes in (5, 10, 30))
    ),
    metric_memory_collect_policy="usageWithoutPageCache",
    cpu_reclaim_threshold_percent=60,
    memory_reclaim_threshold_percent=65,
    cpu_calculate_policy=USAGE,
    memory_calculate_policy=USAGE,
    degrade_time_minutes=15,
    update_time_threshold_seconds=300,
    resource_diff_threshold=0.1,
    mid_cpu_threshold_percent=100,
    mid_memory_threshold_percent=100,
    mid_unallocated_percent=0,
    mid_static_cpu_reserved_percent=0,
    mid_static_memory_reserved_percent=0,
)
RESOURCE_QOS: Final = ResourceQosStrategy()
