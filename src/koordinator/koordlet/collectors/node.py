"""CPU and memory of the whole machine and of its NUMA nodes.

Source: koordinator pkg/koordlet/metricsadvisor/collectors/noderesource, nodeinfo.
"""

from collections.abc import Mapping

from koordinator.domain.cpus.cpu_list import cpu_ids
from koordinator.domain.procfs import busy_ticks, memory_info
from koordinator.foundation.errors import HostError, InputError
from koordinator.koordlet.collectors.scene import Counters, Scene
from koordinator.koordlet.metrics import Metric


class NodeCollector:
    """``ticks_per_s`` is what /proc/stat counts in."""

    def __init__(self, interval_s: float, ticks_per_s: float) -> None:
        self._counters = Counters(interval_s)
        self._ticks_per_s = ticks_per_s

    def collect(self, scene: Scene, now_s: float) -> None:
        self._collect_cpu(scene, now_s)
        self._collect_memory(scene, now_s)

    def _collect_cpu(self, scene: Scene, now_s: float) -> None:
        try:
            ticks = busy_ticks(scene.files.read(f"{scene.roots.proc}/stat"))
        except (HostError, InputError):
            return
        busy_s = self._rate(scene, "cpu", ticks["cpu"], now_s)
        if busy_s is not None:
            capacity = max(len(scene.machine.cpus), 1)
            scene.store.add(Metric.NODE_CPU, "", now_s, min(busy_s, capacity))
        for node, mask in scene.machine.numa_nodes.items():
            total = self._sum_of(ticks, mask)
            if total is None:
                continue
            rate = self._rate(scene, f"numa{node}", total, now_s)
            if rate is not None:
                scene.store.add(Metric.NUMA_CPU, str(node), now_s, min(rate, mask.bit_count()))

    @staticmethod
    def _sum_of(ticks: Mapping[str, int], mask: int) -> int | None:
        found = [ticks.get(f"cpu{cpu}") for cpu in cpu_ids(mask)]
        return None if None in found else sum(number for number in found if number is not None)

    def _rate(self, scene: Scene, name: str, ticks: int, now_s: float) -> float | None:
        return scene.add_rate(self._counters, (name, ""), now_s, ticks / self._ticks_per_s)

    @staticmethod
    def _collect_memory(scene: Scene, now_s: float) -> None:
        store = scene.store
        try:
            memory = memory_info(scene.files.read(f"{scene.roots.proc}/meminfo"))
        except (HostError, InputError):
            return
        store.add(Metric.NODE_MEMORY, "", now_s, memory.used)
        store.add(Metric.NODE_MEMORY_WITH_PAGE_CACHE, "", now_s, memory.used_with_page_cache)
        for node in scene.machine.numa_nodes:
            path = f"{scene.roots.sys}/bus/node/devices/node{node}/meminfo"
            try:
                memory = memory_info(scene.files.read(path))
            except (HostError, InputError):
                continue
            store.add(Metric.NUMA_MEMORY, str(node), now_s, memory.used_of_numa_node)
