"""CPU, memory and throttling of pods and their containers.

Source: koordinator pkg/koordlet/metricsadvisor/collectors/podresource, podthrottled.
"""

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import HostError, InputError
from koordinator.koordlet.collectors.context import CollectionContext, Counters
from koordinator.koordlet.kernel_readings import (
    cpu_usage_ns,
    memory_by_numa_node,
    memory_stat,
    throttling,
)
from koordinator.koordlet.metrics import Metric
from koordinator.koordlet.view.pods import PodView

_NANOS = 1e9


class PodCollector:
    """Collector of pod usage, with memory by NUMA node on machines with several nodes."""

    def __init__(self, interval_s: float) -> None:
        self._counters = Counters(interval_s)
        self._throttled: dict[str, tuple[int, int]] = {}

    def collect(self, context: CollectionContext, now_s: float) -> None:
        with_numa = len(context.machine.numa_nodes) > 1
        for pod in context.active_pods:
            self._cpu(context, Metric.POD_CPU, pod.uid, pod.folder, now_s)
            self._memory_of_pod(context, pod, now_s)
            self._throttling(context, Metric.POD_THROTTLED, pod.uid, pod.folder, now_s)
            if with_numa:
                self._numa(context, pod, now_s)
            for container in pod.containers:
                folder = container.folder
                self._cpu(context, Metric.CONTAINER_CPU, container.id, folder, now_s)
                used = self._used(context, folder)
                if used is not None:
                    context.store.add(Metric.CONTAINER_MEMORY, container.id, now_s, used[0])
                metric = Metric.CONTAINER_THROTTLED
                self._throttling(context, metric, container.id, folder, now_s)
        self._counters.forget(now_s)
        known: set[str] = {pod.uid for pod in context.pods}
        known.update(container.id for pod in context.pods for container in pod.containers)
        for owner in self._throttled.keys() - known:
            del self._throttled[owner]

    def _cpu(
        self, context: CollectionContext, metric: Metric, owner: str, folder: str, now_s: float
    ) -> None:
        cgroups = context.cgroups
        try:
            used_ns = cpu_usage_ns(cgroups.read(CgroupFile.CPU_USAGE, folder), cgroups.version)
        except (HostError, InputError):
            return
        rate = context.add_rate(self._counters, (metric, owner), now_s, used_ns / _NANOS)
        if rate is not None:
            context.store.add(metric, owner, now_s, rate)

    def _memory_of_pod(self, context: CollectionContext, pod: PodView, now_s: float) -> None:
        used = self._used(context, pod.folder)
        if used is not None:
            context.store.add(Metric.POD_MEMORY, pod.uid, now_s, used[0])
            context.store.add(Metric.POD_MEMORY_WITH_PAGE_CACHE, pod.uid, now_s, used[1])

    @staticmethod
    def _used(context: CollectionContext, folder: str) -> tuple[int, int] | None:
        """Return bytes without and with page cache; None if unreadable or above the capacity."""
        cgroups = context.cgroups
        try:
            stat = memory_stat(cgroups.read(CgroupFile.MEMORY_STAT, folder), cgroups.version)
        except (HostError, InputError):
            return None
        capacity = context.machine.memory_bytes
        if capacity and stat.used_with_page_cache > capacity:
            return None
        return stat.used, stat.used_with_page_cache

    def _throttling(
        self, context: CollectionContext, metric: Metric, owner: str, folder: str, now_s: float
    ) -> None:
        cgroups = context.cgroups
        try:
            current = throttling(cgroups.read(CgroupFile.CPU_STAT, folder), cgroups.version)
        except (HostError, InputError):
            return
        before = self._throttled.get(owner)
        self._throttled[owner] = (current.periods, current.throttled)
        if before is None:
            return
        periods, throttled = current.periods - before[0], current.throttled - before[1]
        if periods < 0 or not 0 <= throttled <= periods:
            return  # the cgroup was recreated under the same name
        context.store.add(metric, owner, now_s, throttled / periods if periods else 0.0)

    @staticmethod
    def _numa(context: CollectionContext, pod: PodView, now_s: float) -> None:
        cgroups = context.cgroups
        try:
            text = cgroups.read(CgroupFile.MEMORY_NUMA_STAT, pod.folder)
            by_node = memory_by_numa_node(text, cgroups.version)
        except (HostError, InputError):
            return
        for node, used in by_node.items():
            context.store.add(Metric.POD_NUMA_MEMORY, f"{pod.uid}/{node}", now_s, used)
