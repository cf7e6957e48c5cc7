"""Performance of containers: CPI, pressure, cold pages, and the use of caches by QoS class.

The original counts cycles of all containers at the same time; here they take turns, so that fewer
counters are open.
Source: koordinator pkg/koordlet/metricsadvisor/collectors/performance;
pkg/koordlet/metricsadvisor/collectors/coldmemoryresource; pkg/koordlet/util/
system/kidled_util.go; pkg/koordlet/metricsadvisor/collectors/resctrl,
pkg/koordlet/resourceexecutor/
resctrl.go; Linux Documentation/filesystems/resctrl.rst, "Resource monitoring".
"""

import logging
import math
from collections.abc import Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import Final

from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.errors import HostError, InputError, MissingFileError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.port import PerfCounting, PerfEvents
from koordinator.koordlet.collectors.context import CollectionContext
from koordinator.koordlet.kernel_readings import (
    Pressure,
    cold_bytes,
    memory_info,
    memory_stat,
    pressure,
)
from koordinator.koordlet.metrics import Metric
from koordinator.koordlet.qos.resctrl import CLASS_GROUPS
from koordinator.koordlet.view.pods import ContainerView

log = logging.getLogger(__name__)

CYCLE, INSTRUCTION = "cycle", "instruction"
_PAUSE_S: Final = 300.0  # after the kernel has refused a counter

_FILES = {
    "cpu": CgroupFile.CPU_PRESSURE,
    "mem": CgroupFile.MEMORY_PRESSURE,
    "io": CgroupFile.IO_PRESSURE,
}

SCAN_PERIOD_S = 5

BANDWIDTHS: Final = ("mbm_local_bytes", "mbm_total_bytes")
_L3 = "mon_L3_"


@dataclass(frozen=True, slots=True)
class _Measurement:
    counting: PerfCounting
    since_s: float


class CpiCollector:
    """Collector that counts each container for ``window_s`` per ``interval_s``.

    ``step_s`` is the interval of the calls.
    """

    def __init__(
        self, events: PerfEvents, *, interval_s: float, window_s: float, step_s: float
    ) -> None:
        self._events = events
        self._interval_s = interval_s
        self._window_s = window_s
        self._step_s = step_s
        self._measurements: dict[str, _Measurement] = {}  # by container id
        self._began_s: dict[str, float] = {}
        self._refused_s = -math.inf

    def collect(self, context: CollectionContext, now_s: float) -> None:
        containers = {
            container.id: container for pod in context.active_pods for container in pod.containers
        }
        for id_, measurement in tuple(self._measurements.items()):
            if id_ not in containers or now_s - measurement.since_s >= self._window_s:
                del self._measurements[id_]
                self._finish(context, id_, measurement, now_s)
        self._began_s = {i: s for i, s in self._began_s.items() if i in containers}
        if now_s - self._refused_s >= _PAUSE_S:
            self._begin(context, containers, now_s)

    def close(self) -> None:
        """Close all counters."""
        for measurement in self._measurements.values():
            try:
                measurement.counting.stop()
            except HostError:
                continue  # the counter is closed nevertheless
        self._measurements.clear()

    def _begin(
        self, context: CollectionContext, containers: dict[str, ContainerView], now_s: float
    ) -> None:
        """Start with the containers whose last measurement is oldest."""
        began_s = {id_: self._began_s.get(id_, -math.inf) for id_ in containers}
        due = [i for i in containers if now_s - began_s[i] >= self._interval_s]
        due.sort(key=began_s.__getitem__)
        at_once = math.ceil(len(containers) * self._step_s / self._interval_s)
        cpus = [cpu.id for cpu in context.machine.cpus]
        for id_ in due[:at_once]:
            self._began_s[id_] = now_s
            folder = context.cgroups.perf_folder(containers[id_].folder)
            try:
                counting = self._events.start(folder, cpus)
            except MissingFileError as error:
                if context.files.exists(context.cgroups.perf_folder(context.layout.kubepods)):
                    continue  # the container has just ended
                self._pause(error, now_s)
                return
            except HostError as error:
                self._pause(error, now_s)
                return
            self._measurements[id_] = _Measurement(counting, now_s)

    def _pause(self, error: HostError, now_s: float) -> None:
        self._refused_s = now_s
        log.warning("CPI not measured", extra={"error": str(error)})

    @staticmethod
    def _finish(
        context: CollectionContext, id_: str, measurement: _Measurement, now_s: float
    ) -> None:
        try:
            counts = measurement.counting.stop()
        except HostError:
            return
        context.store.add(Metric.CONTAINER_CPI, f"{id_}/{CYCLE}", now_s, counts.cycles)
        context.store.add(Metric.CONTAINER_CPI, f"{id_}/{INSTRUCTION}", now_s, counts.instructions)


Pressures = Mapping[str, Mapping[str, Pressure]]  # by UID or container id, and resource


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
