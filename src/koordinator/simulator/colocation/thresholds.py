"""Best-effort thresholds of the NodeSLOs, as arrays over nodes."""

from dataclasses import dataclass

import numpy as np

from koordinator.api.node_slo import NodeSloSpec, ResourceThresholdStrategy
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.koordlet.qos.cpu_suppress import CFS_QUOTA_POLICY

NOT_STATED = -1


@dataclass(slots=True)
class NodeThresholds:
    """Thresholds with an entry per node; unset percentages are ``NOT_STATED``."""

    is_enabled: BoolArray
    by_quota: BoolArray  # CPU suppress by cfs quota, not by CPU set
    suppress_percent: IntArray
    suppress_least_percent: IntArray
    satisfaction_percent: IntArray  # lower bound, below which best effort is evicted
    memory_percent: IntArray  # memory usage from which best effort is evicted

    @classmethod
    def none(cls, n_nodes: int) -> "NodeThresholds":
        """Return the thresholds of nodes without a NodeSLO."""
        off, unstated = np.zeros(n_nodes, bool), np.full(n_nodes, NOT_STATED, np.int64)
        return cls(off, off.copy(), *(unstated.copy() for _ in range(4)))

    @property
    def suppresses(self) -> BoolArray:
        """Mask of the nodes with CPU suppression."""
        return self.is_enabled & (self.suppress_percent >= 0)

    def put(self, row: int, slo: NodeSloSpec) -> None:
        """Set the thresholds of a node's NodeSLO, which has its defaults applied."""
        strategy = slo.resource_used_threshold_with_be or ResourceThresholdStrategy()
        self.is_enabled[row] = bool(strategy.enable)
        self.by_quota[row] = strategy.cpu_suppress_policy == CFS_QUOTA_POLICY
        for percents, stated in (
            (self.suppress_percent, strategy.cpu_suppress_threshold_percent),
            (self.suppress_least_percent, strategy.cpu_suppress_min_percent),
            (self.satisfaction_percent, strategy.cpu_evict_be_satisfaction_lower_percent),
            (self.memory_percent, strategy.memory_evict_threshold_percent),
        ):
            percents[row] = NOT_STATED if stated is None else stated
