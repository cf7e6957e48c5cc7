"""Usage of the last-level cache and of the memory bandwidth by QoS class.

Source: koordinator pkg/koordlet/metricsadvisor/collectors/resctrl, pkg/koordlet/resourceexecutor/
resctrl.go; Linux Documentation/filesystems/resctrl.rst, "Resource monitoring".
"""

from typing import Final

from koordinator.foundation.errors import HostError
from koordinator.koordlet.collectors.context import CollectionContext
from koordinator.koordlet.metrics import Metric
from koordinator.koordlet.qos.resctrl import CLASS_GROUPS

BANDWIDTHS: Final = ("mbm_local_bytes", "mbm_total_bytes")
_L3 = "mon_L3_"


class ResctrlCollector:
    """Collector over the resctrl groups of the classes, per L3 cache.

    Processors without monitoring have no such files.  A counter that the hardware can't allocate
    reads Unavailable; that sample is skipped.
    """

    def collect(self, context: CollectionContext, now_s: float) -> None:
        for group in CLASS_GROUPS:
            folder = f"{context.roots.resctrl}/{group}/mon_data"
            for domain in context.files.folders(folder):
                cache = domain.removeprefix(_L3)
                if cache == domain or not cache.isdigit():
                    continue
                owner, path = f"{group}/{int(cache)}", f"{folder}/{domain}"
                self._add(context, Metric.RESCTRL_LLC, owner, f"{path}/llc_occupancy", now_s)
                for name in BANDWIDTHS:
                    metric = Metric.RESCTRL_MB
                    self._add(context, metric, f"{owner}/{name}", f"{path}/{name}", now_s)

    @staticmethod
    def _add(
        context: CollectionContext, metric: Metric, owner: str, path: str, now_s: float
    ) -> None:
        try:
            value = int(context.files.read(path))
        except (HostError, ValueError):
            return
        context.store.add(metric, owner, now_s, value)
