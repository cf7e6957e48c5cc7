"""Cold pages: memory not accessed for a minute, on kernels with kidled (cgroup v1 only).

Source: koordinator pkg/koordlet/metricsadvisor/collectors/coldmemoryresource; pkg/koordlet/util/
system/kidled_util.go.
"""

from contextlib import suppress

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import HostError, InputError
from koordinator.koordlet.cgroup_readings import cold_bytes, memory_stat
from koordinator.koordlet.collectors.context import CollectionContext
from koordinator.koordlet.collectors.procfs import memory_info
from koordinator.koordlet.metrics import Metric

SCAN_PERIOD_S = 5


class ColdPageCollector:
    """Collector of cold pages; ``is_started`` once the kernel scans, and hot pages are known."""

    def __init__(self) -> None:
        self.is_started = False

    def collect(self, context: CollectionContext, now_s: float) -> None:
        if not self.is_started and not self._start(context):
            return
        self._collect_node(context, now_s)
        for pod in context.active_pods:
            metric = Metric.POD_MEMORY_WITH_HOT_PAGES
            self._collect(context, metric, pod.uid, pod.folder, now_s)
        for application in context.slo.host_applications:
            folder = context.layout.host_application(application)
            metric = Metric.HOST_APP_MEMORY_WITH_HOT_PAGES
            self._collect(context, metric, application.name, folder, now_s)

    def _start(self, context: CollectionContext) -> bool:
        folder = f"{context.roots.sys}/kernel/mm/kidled"
        with suppress(HostError):
            context.files.write(f"{folder}/scan_period_in_seconds", str(SCAN_PERIOD_S))
            context.files.write(f"{folder}/use_hierarchy", "1")
            self.is_started = True
        return self.is_started

    @staticmethod
    def _collect_node(context: CollectionContext, now_s: float) -> None:
        try:
            cold = cold_bytes(context.cgroups.read(CgroupFile.MEMORY_IDLE_PAGES, ""))
            memory = memory_info(context.files.read(f"{context.roots.proc}/meminfo"))
        except (HostError, InputError):
            return
        hot = memory.used_with_page_cache - cold
        context.store.add(Metric.NODE_COLD_PAGES, "", now_s, cold)
        context.store.add(Metric.NODE_MEMORY_WITH_HOT_PAGES, "", now_s, max(hot, 0))

    @staticmethod
    def _collect(
        context: CollectionContext, metric: Metric, owner: str, folder: str, now_s: float
    ) -> None:
        cgroups = context.cgroups
        try:
            cold = cold_bytes(cgroups.read(CgroupFile.MEMORY_IDLE_PAGES, folder))
            stat = memory_stat(cgroups.read(CgroupFile.MEMORY_STAT, folder), cgroups.version)
        except (HostError, InputError):
            return
        context.store.add(metric, owner, now_s, max(stat.used_with_page_cache - cold, 0))
