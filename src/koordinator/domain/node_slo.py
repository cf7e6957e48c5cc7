"""What a NodeSLO says where nobody says anything: of the manager that renders it, and of the agent.

QoS classes are not among it: the manager renders none, the agent has defaults for each.
Source: koordinator pkg/util/sloconfig/nodeslo_config.go.
"""

from typing import Final

from koordinator.api.node_slo import CpuBurstStrategy, ResourceThresholdStrategy, SystemStrategy
from koordinator.foundation.quantity import Quantity

THRESHOLD: Final = ResourceThresholdStrategy(
    enable=False,
    cpu_suppress_threshold_percent=65,
    cpu_suppress_policy="cpuset",
    memory_evict_threshold_percent=70,
    cpu_evict_policy="evictByRealLimit",
)
CPU_BURST: Final = CpuBurstStrategy(
    policy="none",
    cpu_burst_percent=1000,
    cfs_quota_burst_percent=300,
    cfs_quota_burst_period_seconds=-1,
    share_pool_threshold_percent=50,
)
SYSTEM: Final = SystemStrategy(total_network_bandwidth=Quantity(0))
