"""CPU suppression of the node agent, and its thresholds, vectorised over nodes.

Elementwise equal to ``koordlet.qos.cpu_suppress``: ``CpuDemand.headroom_milli``,
``wanted_quota_us`` and the number of ``wanted_cpus`` on a node without exclusive CPUs.  A test
compares both.
"""

from dataclasses import dataclass

import numpy as np

from koordinator.api.node_slo import NodeSloSpec, ResourceThresholdStrategy
from koordinator.domain.cgroups.files import CFS_PERIOD_US, UNLIMITED
from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray
from koordinator.koordlet.qos.cpu_suppress import (
    CFS_QUOTA_POLICY,
    MAX_GROWTH,
    MIN_CHANGE,
    MIN_CPUS,
    MIN_QUOTA_US,
)

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


_MILLI = 1000
_PERCENT = 100
_MAX_ROUNDS = 10  # a round adds at most a tenth of the CPUs


def headroom_milli(
    thresholds: NodeThresholds, capacity: IntArray, services: IntArray, system: IntArray
) -> IntArray:
    """Return the milli-CPU left for best effort on each node; may be negative."""
    headroom = capacity * thresholds.suppress_percent // _PERCENT - services - system
    least = capacity * thresholds.suppress_least_percent // _PERCENT
    return np.where(thresholds.suppress_least_percent >= 0, np.maximum(headroom, least), headroom)


def next_quota_us(capacity: IntArray, headroom: IntArray, current: IntArray) -> IntArray:
    """Return the quotas after one round."""
    wanted = np.maximum(headroom * CFS_PERIOD_US // _MILLI, MIN_QUOTA_US)
    whole = -(-capacity // _MILLI) * CFS_PERIOD_US
    stays = (np.abs(wanted - current) < whole * MIN_CHANGE) & (wanted != MIN_QUOTA_US)
    grown = np.minimum(wanted, current + (whole * MAX_GROWTH).astype(np.int64))
    after: IntArray = np.where(current == UNLIMITED, wanted, np.where(stays, current, grown))
    return after


def next_cpus(cpus: IntArray, headroom: IntArray, current: IntArray) -> IntArray:
    """Return the numbers of CPUs after one round; a number above ``cpus`` leaves it unchanged."""
    growth = np.ceil(cpus * MAX_GROWTH).astype(np.int64)
    wanted = np.minimum(np.maximum(-(-headroom // _MILLI), MIN_CPUS), current + growth)
    after: IntArray = np.where(wanted > cpus, current, wanted)
    return after


class Suppressor:
    """State of the best-effort CPU limit on each node, in milli-CPU."""

    def __init__(self, capacity: IntArray, thresholds: NodeThresholds) -> None:
        self._capacity = capacity
        self._cpus = -(-capacity // _MILLI)
        self._thresholds = thresholds
        self._quota = np.full(len(capacity), UNLIMITED, np.int64)
        self._count = self._cpus.copy()

    @property
    def limit(self) -> FloatArray:
        """CPU limit of best effort, ``(n_nodes,)``."""
        by_quota = np.where(
            self._quota == UNLIMITED, self._capacity, self._quota * (_MILLI / CFS_PERIOD_US)
        )
        least: FloatArray = np.minimum(by_quota, self._count * float(_MILLI))
        return least

    def converge(self, services: IntArray, system: IntArray) -> None:
        """Run the rounds of ten seconds of constant load."""
        thresholds = self._thresholds
        headroom = headroom_milli(thresholds, self._capacity, services, system)
        by_quota = thresholds.suppresses & thresholds.by_quota
        by_cpus = thresholds.suppresses & ~thresholds.by_quota
        for _ in range(_MAX_ROUNDS):
            quota = next_quota_us(self._capacity, headroom, self._quota)
            quota = np.where(by_quota, quota, UNLIMITED)
            count = np.where(by_cpus, next_cpus(self._cpus, headroom, self._count), self._cpus)
            if np.array_equal(quota, self._quota) and np.array_equal(count, self._count):
                return
            self._quota, self._count = quota, count
