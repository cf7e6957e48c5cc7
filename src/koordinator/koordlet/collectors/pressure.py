"""For how much of the time pods and containers wait for CPU, memory and disks.

Source: koordinator pkg/koordlet/metricsadvisor/collectors/performance, PSI part.
"""

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.domain.cgroups.readings import pressure
from koordinator.foundation.errors import HostError, InputError
from koordinator.koordlet.collectors.scene import Scene
from koordinator.koordlet.metrics import Metric

_FILES = {
    "cpu": CgroupFile.CPU_PRESSURE,
    "mem": CgroupFile.MEMORY_PRESSURE,
    "io": CgroupFile.IO_PRESSURE,
}


class PressureCollector:
    """Keeps the averages over 10 s; a kernel without PSI gives nothing."""

    def collect(self, scene: Scene, now_s: float) -> None:
        for pod in scene.pods:
            if not pod.is_active:
                continue
            self._collect(scene, Metric.POD_PSI, pod.uid, pod.folder, now_s)
            for container in pod.containers:
                self._collect(scene, Metric.CONTAINER_PSI, container.id, container.folder, now_s)

    @staticmethod
    def _collect(scene: Scene, metric: Metric, owner: str, folder: str, now_s: float) -> None:
        for resource, file in _FILES.items():
            try:
                found = pressure(scene.cgroups.read(file, folder))
            except (HostError, InputError):
                continue
            scene.store.add(metric, f"{owner}/{resource}/some", now_s, found.some[0])
            if found.full is not None:
                scene.store.add(metric, f"{owner}/{resource}/full", now_s, found.full[0])
