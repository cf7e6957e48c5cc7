"""Pressure stall information (PSI) of pods and containers: waiting for CPU, memory and disks.

Source: koordinator pkg/koordlet/metricsadvisor/collectors/performance, PSI part.
"""

from collections.abc import Mapping
from types import MappingProxyType

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import HostError, InputError
from koordinator.koordlet.cgroup_readings import Pressure, pressure
from koordinator.koordlet.collectors.context import CollectionContext
from koordinator.koordlet.metrics import Metric

Pressures = Mapping[str, Mapping[str, Pressure]]  # by UID or container id, and resource

_FILES = {
    "cpu": CgroupFile.CPU_PRESSURE,
    "mem": CgroupFile.MEMORY_PRESSURE,
    "io": CgroupFile.IO_PRESSURE,
}


class PressureCollector:
    """Collector of the 10 s averages; without effect on a kernel without PSI.

    ``last`` has all averages of the last round, by UID or container id.
    """

    def __init__(self) -> None:
        self.last: Pressures = MappingProxyType({})

    def collect(self, context: CollectionContext, now_s: float) -> None:
        read: dict[str, Mapping[str, Pressure]] = {}
        for pod in context.active_pods:
            read[pod.uid] = self._collect(context, Metric.POD_PSI, pod.uid, pod.folder, now_s)
            for each in pod.containers:
                read[each.id] = self._collect(
                    context, Metric.CONTAINER_PSI, each.id, each.folder, now_s
                )
        self.last = read

    @staticmethod
    def _collect(
        context: CollectionContext, metric: Metric, owner: str, folder: str, now_s: float
    ) -> Mapping[str, Pressure]:
        read = {}
        for resource, file in _FILES.items():
            try:
                stall = pressure(context.cgroups.read(file, folder))
            except (HostError, InputError):
                continue
            read[resource] = stall
            context.store.add(metric, f"{owner}/{resource}/some", now_s, stall.some[0])
            if stall.full is not None:
                context.store.add(metric, f"{owner}/{resource}/full", now_s, stall.full[0])
        return read
