"""CPU and memory usage of host applications, which run outside of pods.

Source: koordinator pkg/koordlet/metricsadvisor/collectors/hostapplication.
"""

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import HostError, InputError
from koordinator.koordlet.cgroup_readings import cpu_usage_ns, memory_stat
from koordinator.koordlet.collectors.context import CollectionContext, Counters
from koordinator.koordlet.metrics import Metric

_NANOS = 1e9


class HostApplicationCollector:
    """Collector over the cgroups of the applications in the NodeSLO."""

    def __init__(self, interval_s: float) -> None:
        self._counters = Counters(interval_s)

    def collect(self, context: CollectionContext, now_s: float) -> None:
        for application in context.slo.host_applications:
            folder = context.layout.host_application(application)
            self._collect(context, application.name, folder, now_s)
        self._counters.forget(now_s)

    def _collect(self, context: CollectionContext, name: str, folder: str, now_s: float) -> None:
        cgroups, store = context.cgroups, context.store
        try:
            used_ns = cpu_usage_ns(cgroups.read(CgroupFile.CPU_USAGE, folder), cgroups.version)
            stat = memory_stat(cgroups.read(CgroupFile.MEMORY_STAT, folder), cgroups.version)
        except (HostError, InputError):
            return
        rate = context.add_rate(
            self._counters, (Metric.HOST_APP_CPU, name), now_s, used_ns / _NANOS
        )
        if rate is not None:
            store.add(Metric.HOST_APP_CPU, name, now_s, rate)
        store.add(Metric.HOST_APP_MEMORY, name, now_s, stat.used)
        metric = Metric.HOST_APP_MEMORY_WITH_PAGE_CACHE
        store.add(metric, name, now_s, stat.used_with_page_cache)
