"""Usage of accelerators, by device and by pod.

Source: koordinator pkg/koordlet/metricsadvisor/devices/gpu/collector_gpu_linux.go.
"""

from collections import defaultdict

from koordinator.foundation.errors import HostError
from koordinator.host.gpus import Gpus
from koordinator.koordlet.collectors.context import CollectionContext
from koordinator.koordlet.metrics import Metric


class GpuCollector:
    """Collector of GPU usage; the usage of a pod is the sum over its processes."""

    def __init__(self, gpus: Gpus) -> None:
        self._gpus = gpus

    def collect(self, context: CollectionContext, now_s: float) -> None:
        try:
            usage = self._gpus.usage()
        except HostError:
            return
        if not usage:
            return
        owners = self._owners(context)
        core: dict[str, int] = defaultdict(int)
        memory: dict[str, int] = defaultdict(int)
        for part in usage:
            if not part.pid:
                minor = str(part.minor)
                context.store.add(Metric.NODE_GPU_CORE, minor, now_s, part.core_percent)
                context.store.add(Metric.NODE_GPU_MEMORY, minor, now_s, part.memory_bytes)
            elif part.pid in owners:
                key = f"{owners[part.pid]}/{part.minor}"
                core[key] += part.core_percent
                memory[key] += part.memory_bytes
        for key, percent in core.items():
            context.store.add(Metric.POD_GPU_CORE, key, now_s, percent)
            context.store.add(Metric.POD_GPU_MEMORY, key, now_s, memory[key])

    @staticmethod
    def _owners(context: CollectionContext) -> dict[int, str]:
        """Return the pod's UID by process in its containers."""
        return {
            pid: pod.uid
            for pod in context.active_pods
            for container in pod.containers
            for pid in context.cgroups.processes(container.folder)
        }
