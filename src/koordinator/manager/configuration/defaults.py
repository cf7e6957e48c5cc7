"""Strategies where nothing is said.

Source: koordinator pkg/util/sloconfig/colocation_config.go, nodeslo_config.go.
"""

from typing import Final

from koordinator.api.annotations.node import ColocationStrategy
from koordinator.api.node_metric import AggregatePolicy
from koordinator.api.node_slo import CpuBurstStrategy, ResourceThresholdStrategy, SystemStrategy
from koordinator.api.resource_qos import ResourceQosStrategy
from koordinator.domain.colocation.strategy import USAGE
from koordinator.foundation.duration import Duration
from koordinator.foundation.quantity import Quantity

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
THRESHOLD: Final = ResourceThresholdStrategy(
    enable=False,
    cpu_suppress_threshold_percent=65,
    cpu_suppress_policy="cpuset",
    memory_evict_threshold_percent=70,
    cpu_evict_policy="evictByRealLimit",
)
RESOURCE_QOS: Final = ResourceQosStrategy()
CPU_BURST: Final = CpuBurstStrategy(
    policy="none",
    cpu_burst_percent=1000,
    cfs_quota_burst_percent=300,
    cfs_quota_burst_period_seconds=-1,
    share_pool_threshold_percent=50,
)
SYSTEM: Final = SystemStrategy(total_network_bandwidth=Quantity(0))
