"""How much of the last-level cache and of the memory bandwidth each class takes.

Source: koordinator pkg/koordlet/metricsadvisor/collectors/resctrl, pkg/koordlet/resourceexecutor/
resctrl.go; Linux Documentation/filesystems/resctrl.rst, "Resource monitoring".
"""

from typing import Final

from koordinator.foundation.errors import HostError
from koordinator.koordlet.collectors.scene import Scene
from koordinator.koordlet.metrics import Metric
from koordinator.koordlet.qos.resctrl import CLASS_GROUPS

BANDWIDTHS: Final = ("mbm_local_bytes", "mbm_total_bytes")
_L3 = "mon_L3_"


class ResctrlCollector:
    """Reads the groups of the classes, each L3 cache on its own.

    A processor without monitoring has no such files, and gives nothing; a counter that the
    hardware has no room for reads Unavailable, and costs this sample.
    """

    def collect(self, scene: Scene, now_s: float) -> None:
        for group in CLASS_GROUPS:
            folder = f"{scene.roots.resctrl}/{group}/mon_data"
            for domain in scene.files.folders(folder):
                cache = domain.removeprefix(_L3)
                if cache == domain or not cache.isdigit():
                    continue
                owner, path = f"{group}/{int(cache)}", f"{folder}/{domain}"
                self._add(scene, Metric.RESCTRL_LLC, owner, f"{path}/llc_occupancy", now_s)
                for name in BANDWIDTHS:
                    metric = Metric.RESCTRL_MB
                    self._add(scene, metric, f"{owner}/{name}", f"{path}/{name}", now_s)

    @staticmethod
    def _add(scene: Scene, metric: Metric, owner: str, path: str, now_s: float) -> None:
        try:
            value = int(scene.files.read(path))
        except (HostError, ValueError):
            return
        scene.store.add(metric, owner, now_s, value)
