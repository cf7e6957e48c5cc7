"""Strategies in effect where slo-controller-config sets none, and the resolved colocation strategy.

Defaults that the node agent shares are in ``domain.node_slo``.
Source: koordinator apis/configuration/slo_controller_config.go; pkg/util/sloconfig/
colocation_config.go, ``DefaultColocationStrategy``; nodeslo_config.go.
"""

from dataclasses import dataclass
from typing import Final

from koordinator.api.annotations.node import ColocationStrategy
from koordinator.api.node_metric import AggregatePolicy
from koordinator.api.resource_qos import ResourceQosStrategy
from koordinator.foundation.clock import Duration

USAGE: Final = "usage"
REQUEST: Final = "request"
MAX_USAGE_REQUEST: Final = "maxUsageRequest"
STATIC: Final = "static"  # the mode of mid resources that uses no metric

MINUTE_S: Final = 60


@dataclass(frozen=True, slots=True, kw_only=True)
class Strategy:
    """Resolved colocation strategy of a node.

    Percentages are of the capacity, except ``mid_unallocated_percent``, which is of the
    unallocated amount.
    """

    cpu_reclaim_percent: int = 60  # may be above 100
    memory_reclaim_percent: int = 65
    cpu_policy: str = USAGE  # anything but maxUsageRequest is usage
    memory_policy: str = USAGE
    batch_cpu_percent: int | None = None  # upper limit; None: unlimited
    batch_memory_percent: int | None = None
    mid_is_static: bool = False
    mid_cpu_percent: int = 100  # upper limit
    mid_memory_percent: int = 100
    mid_unallocated_percent: int = 0
    mid_static_cpu_percent: int = 0
    mid_static_memory_percent: int = 0
    degrade_s: int = 15 * MINUTE_S  # age at which a NodeMetric expires
    update_s: int = 300  # age at which an unchanged node is written again
    difference: float = 0.1  # smallest change that is written, as a fraction of the old value


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
