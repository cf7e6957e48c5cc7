"""CPU and memory usage of the machine and its NUMA nodes.

Source: koordinator pkg/koordlet/metricsadvisor/collectors/noderesource, nodeinfo.
"""

from collections.abc import Mapping

from koordinator.foundation.cpu_list import cpu_ids
from koordinator.foundation.errors import HostError, InputError
from koordinator.koordlet.collectors.context import CollectionContext, Counters
from koordinator.koordlet.collectors.procfs import busy_ticks, memory_info
from koordinator.koordlet.metrics import Metric


class NodeCollector:
    """Collector of node usage; ``ticks_per_s`` is the unit of /proc/stat."""

    def __init__(self, interval_s: float, ticks_per_s: float) -> None:
        self._counters = Counters(interval_s)
        self._ticks_per_s = ticks_per_s

    def collect(self, context: CollectionContext, now_s: float) -> None:
        self._collect_cpu(context, now_s)
        self._collect_memory(context, now_s)

    def _collect_cpu(self, context: CollectionContext, now_s: float) -> None:
        try:
            ticks = busy_ticks(context.files.read(f"{context.roots.proc}/stat"))
        except (HostError, InputError):
            return
        busy_s = self._rate(context, "cpu", ticks["cpu"], now_s)
        if busy_s is not None:
            capacity = max(len(context.machine.cpus), 1)
            context.store.add(Metric.NODE_CPU, "", now_s, min(busy_s, capacity))
        for node, mask in context.machine.numa_nodes.items():
            total = self._sum_of(ticks, mask)
            if total is None:
                continue
            rate = self._rate(context, f"numa{node}", total, now_s)
            if rate is not None:
                context.store.add(Metric.NUMA_CPU, str(node), now_s, min(rate, mask.bit_count()))

    @staticmethod
    def _sum_of(ticks: Mapping[str, int], mask: int) -> int | None:
        numbers = [ticks.get(f"cpu{cpu}") for cpu in cpu_ids(mask)]
        return None if None in numbers else sum(number for number in numbers if number is not None)

    def _rate(
        self, context: CollectionContext, name: str, ticks: int, now_s: float
    ) -> float | None:
        return context.add_rate(self._counters, (name, ""), now_s, ticks / self._ticks_per_s)

    @staticmethod
    def _collect_memory(context: CollectionContext, now_s: float) -> None:
        store = context.store
        try:
            memory = memory_info(context.files.read(f"{context.roots.proc}/meminfo"))
        except (HostError, InputError):
            return
        store.add(Metric.NODE_MEMORY, "", now_s, memory.used)
        store.add(Metric.NODE_MEMORY_WITH_PAGE_CACHE, "", now_s, memory.used_with_page_cache)
        for node in context.machine.numa_nodes:
            path = f"{context.roots.sys}/bus/node/devices/node{node}/meminfo"
            try:
                memory = memory_info(context.files.read(path))
            except (HostError, InputError):
                continue
            store.add(Metric.NUMA_MEMORY, str(node), now_s, memory.used_of_numa_node)
