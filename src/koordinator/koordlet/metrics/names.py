"""Names of the metrics.  CPU is in cores, memory in bytes, shares are in 0..1 unless noted.

Source: koordinator pkg/koordlet/metriccache/metric_resources.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Final


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
