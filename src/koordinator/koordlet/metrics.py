"""Metric store of koordlet: samples by metric and subject, and their aggregation.

A series of samples per metric and owner is kept in memory.  CPU is in cores, memory in bytes,
shares are in 0..1 unless noted.

Source: koordinator pkg/koordlet/metriccache/metric_resources.go; koordinator
pkg/koordlet/metriccache, whose TSDB the rings replace; util.go, ``fieldPercentileOfMetricList``,
``fieldAvgOfMetricList``, ``fieldLastOfMetricList``.
"""

import math
from collections.abc import Iterator, Mapping
from enum import StrEnum
from types import MappingProxyType
from typing import Final

import numpy as np

from koordinator.foundation.arrays import FloatArray
from koordinator.foundation.errors import BugError
from koordinator.foundation.lazy_dataclass import dataclass

MAX_SAMPLES = 12 * 3600  # half a day of seconds: the original keeps no more


class Metric(StrEnum):
    """Kind of series; the comment names its owner."""

    NODE_CPU = "node_cpu_usage"
    NODE_MEMORY = "node_memory_usage"
    NODE_MEMORY_WITH_PAGE_CACHE = "node_memory_usage_with_page_cache"
    NODE_MEMORY_WITH_HOT_PAGES = "node_memory_with_hot_page_usage"
    NODE_COLD_PAGES = "node_memory_cold_page_size"
    NODE_GPU_CORE = "node_gpu_core_usage"  # minor; percent
    NODE_GPU_MEMORY = "node_gpu_memory_usage"  # minor
    NUMA_CPU = "node_numa_cpu_usage"  # NUMA node
    NUMA_MEMORY = "node_numa_memory_usage"  # NUMA node
    SYSTEM_CPU = "sys_cpu_usage"
    SYSTEM_MEMORY = "sys_memory_usage"
    SYSTEM_MEMORY_WITH_PAGE_CACHE = "sys_memory_usage_with_page_cache"
    SYSTEM_MEMORY_WITH_HOT_PAGES = "sys_memory_with_hot_page_usage"
    SYSTEM_NUMA_CPU = "sys_numa_cpu_usage"  # NUMA node
    SYSTEM_NUMA_MEMORY = "sys_numa_memory_usage"  # NUMA node
    BE_CPU = "be_cpu_usage"
    BE_CPU_REQUEST = "be_cpu_request"  # milli
    BE_CPU_LIMIT = "be_cpu_real_limit"  # milli
    POD_CPU = "pod_cpu_usage"  # UID
    POD_MEMORY = "pod_memory_usage"  # UID
    POD_MEMORY_WITH_PAGE_CACHE = "pod_memory_usage_with_page_cache"  # UID
    POD_MEMORY_WITH_HOT_PAGES = "pod_memory_with_hot_page_usage"  # UID
    POD_NUMA_MEMORY = "pod_numa_memory_usage"  # UID/NUMA node
    POD_THROTTLED = "pod_cpu_throttled"  # UID
    POD_GPU_CORE = "pod_gpu_core_usage"  # UID/minor; percent
    POD_GPU_MEMORY = "pod_gpu_memory_usage"  # UID/minor
    CONTAINER_CPU = "container_cpu_usage"  # container id
    CONTAINER_MEMORY = "container_memory_usage"  # container id
    CONTAINER_THROTTLED = "container_cpu_throttled"  # container id
    CONTAINER_CPI = "container_cpi"  # container id/cycle or instruction; of a time window
    CONTAINER_PSI = "container_psi"  # container id/resource/degree; percent of time over 10 s
    POD_PSI = "pod_psi"  # UID/resource/degree; percent of time over 10 s
    RESCTRL_LLC = "resctrl_resource_llc"  # group/cache id; bytes
    RESCTRL_MB = "resctrl_resource_mb"  # group/cache id/file; bytes since the group was made
    HOST_APP_CPU = "host_application_cpu_usage"  # name
    HOST_APP_MEMORY = "host_application_memory_usage"  # name
    HOST_APP_MEMORY_WITH_PAGE_CACHE = "host_application_memory_usage_with_page_cache"  # name
    HOST_APP_MEMORY_WITH_HOT_PAGES = "host_application_memory_with_hot_page_usage"  # name


#: Metrics with a series per pod or container.
PER_POD: Final = frozenset(
    metric for metric in Metric if metric.value.startswith(("pod_", "container_"))
)


@dataclass(frozen=True, slots=True)
class MemoryMetrics:
    """Series of used memory that treat the page cache in the same way."""

    node: Metric
    pod: Metric
    host_application: Metric
    system: Metric


WITHOUT_PAGE_CACHE: Final = MemoryMetrics(
    Metric.NODE_MEMORY, Metric.POD_MEMORY, Metric.HOST_APP_MEMORY, Metric.SYSTEM_MEMORY
)
WITH_HOT_PAGES: Final = MemoryMetrics(
    Metric.NODE_MEMORY_WITH_HOT_PAGES,
    Metric.POD_MEMORY_WITH_HOT_PAGES,
    Metric.HOST_APP_MEMORY_WITH_HOT_PAGES,
    Metric.SYSTEM_MEMORY_WITH_HOT_PAGES,
)
#: By the ``nodeMemoryCollectPolicy`` of a NodeMetric.
MEMORY_METRICS: Final[Mapping[str, MemoryMetrics]] = MappingProxyType(
    {
        "usageWithoutPageCache": WITHOUT_PAGE_CACHE,
        "usageWithHotPageCache": WITH_HOT_PAGES,
        "usageWithPageCache": MemoryMetrics(
            Metric.NODE_MEMORY_WITH_PAGE_CACHE,
            Metric.POD_MEMORY_WITH_PAGE_CACHE,
            Metric.HOST_APP_MEMORY_WITH_PAGE_CACHE,
            Metric.SYSTEM_MEMORY_WITH_PAGE_CACHE,
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Aggregate:
    """Samples of a time window in order of time; both arrays have shape (n_samples,)."""

    times_s: FloatArray
    values: FloatArray

    @property
    def count(self) -> int:
        """Number of samples."""
        return len(self.values)

    @property
    def span_s(self) -> float:
        """Time from the first to the last sample; 0 for fewer than two."""
        return float(self.times_s[-1] - self.times_s[0]) if self.count else 0.0

    def average(self) -> float:
        """Return the mean.  Raises BugError without samples."""
        self._check_not_empty()
        return float(self.values.mean())

    def last(self) -> float:
        """Return the newest value.  Raises BugError without samples."""
        self._check_not_empty()
        return float(self.values[-1])

    def percentile(self, share: float) -> float:
        """Return the sorted sample with the 1-based number max(floor(n * share), 1).

        ``share`` is in (0, 1].  The product has single precision, as in the original: 95 % of 20
        samples is the nineteenth.  Raises BugError without samples.
        """
        self._check_not_empty()
        index = max(int(np.float32(self.count) * np.float32(share)) - 1, 0)
        return float(np.partition(self.values, index)[index])

    def _check_not_empty(self) -> None:
        if not self.count:
            raise BugError("no samples to aggregate")


class MetricSeries:
    """Ring of up to ``capacity`` samples; when full, the newest replaces the oldest.

    The ring grows by doubling, so that the series of a short-lived pod stays small.
    """

    __slots__ = ("_capacity", "_count", "_next", "_times_s", "_values")

    _FIRST_SIZE = 16

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        size = min(capacity, self._FIRST_SIZE)
        self._times_s = np.empty(size)
        self._values = np.empty(size)
        self._next = 0
        self._count = 0

    @property
    def last_s(self) -> float:
        """Time of the newest sample; minus infinity without samples."""
        return float(self._times_s[self._next - 1]) if self._count else -np.inf

    def append(self, time_s: float, value: float) -> None:
        """Add a sample; drop it unless it is newer than the last one."""
        if time_s <= self.last_s:
            return
        if self._count == len(self._values) < self._capacity:
            self._grow()
        self._times_s[self._next] = time_s
        self._values[self._next] = value
        self._next = (self._next + 1) % len(self._values)
        self._count = min(self._count + 1, len(self._values))

    def between(self, start_s: float, end_s: float) -> Aggregate:
        """Return the samples with ``start_s`` <= time <= ``end_s``."""
        times_s, values = self._in_order()
        low = int(np.searchsorted(times_s, start_s, side="left"))
        high = int(np.searchsorted(times_s, end_s, side="right"))
        return Aggregate(times_s[low:high], values[low:high])

    def last(self) -> float:
        """Return the newest value; NaN without samples."""
        return float(self._values[self._next - 1]) if self._count else float("nan")

    def _in_order(self) -> tuple[np.ndarray, np.ndarray]:
        if self._count < len(self._values):
            return self._times_s[: self._count], self._values[: self._count]
        return np.roll(self._times_s, -self._next), np.roll(self._values, -self._next)

    def _grow(self) -> None:
        times_s, values = self._in_order()
        size = min(2 * len(values), self._capacity)
        self._times_s = np.empty(size)
        self._values = np.empty(size)
        self._times_s[: self._count] = times_s
        self._values[: self._count] = values
        self._next = self._count


class MetricStore:
    """Samples of the last ``retention_s`` seconds, with at most one per ``interval_s``.

    Series of pods and containers keep ``pod_retention_s`` seconds.  A series without a sample for
    that time is dropped.
    """

    def __init__(
        self, retention_s: float, interval_s: float, pod_retention_s: float | None = None
    ) -> None:
        self._interval_s = interval_s
        self._retention_s = retention_s
        self._pod_retention_s = retention_s if pod_retention_s is None else pod_retention_s
        self._series: dict[tuple[Metric, str], MetricSeries] = {}
        self.refused = 0  #: number of implausible samples so far

    def add(self, metric: Metric, owner: str, time_s: float, value: float) -> None:
        """Add a sample; refuse a value that is negative or not finite."""
        if not 0 <= value < math.inf:
            self.refused += 1
            return
        series = self._series.get((metric, owner))
        if series is None:
            seconds = self._seconds(metric)
            capacity = min(math.ceil(seconds / self._interval_s) + 1, MAX_SAMPLES)
            series = self._series[metric, owner] = MetricSeries(capacity)
        series.append(time_s, value)

    def between(self, metric: Metric, owner: str, start_s: float, end_s: float) -> Aggregate | None:
        """Return the samples of a window, both ends included; None if there are none."""
        series = self._series.get((metric, owner))
        if series is None:
            return None
        aggregate = series.between(start_s, end_s)
        return aggregate if aggregate.count else None

    def last(self, metric: Metric, owner: str, since_s: float) -> float | None:
        """Return the newest sample; None if it is older than ``since_s``."""
        series = self._series.get((metric, owner))
        if series is None or series.last_s < since_s:
            return None
        return series.last()

    def owners(self, metric: Metric) -> Iterator[str]:
        """Yield the owners with a series of a metric; safe while another thread adds some."""
        return (owner for kind, owner in tuple(self._series) if kind is metric)

    def expire(self, now_s: float) -> None:
        """Drop the series whose samples are all too old."""
        idle = [
            key
            for key, series in self._series.items()
            if series.last_s < now_s - self._seconds(key[0])
        ]
        for key in idle:
            del self._series[key]

    def _seconds(self, metric: Metric) -> float:
        return self._pod_retention_s if metric in PER_POD else self._retention_s

    def __len__(self) -> int:
        return len(self._series)
