"""Cycles per instruction (CPI) of containers.

Source: koordinator pkg/koordlet/metricsadvisor/collectors/performance, CPI part.  The original
counts all containers at the same time; here they take turns, so that fewer counters are open.
"""

import logging
import math
from dataclasses import dataclass
from typing import Final

from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.host.perf_events import Counting, PerfEvents
from koordinator.koordlet.collectors.context import CollectionContext
from koordinator.koordlet.metrics import Metric
from koordinator.koordlet.view.pods import ContainerView

log = logging.getLogger(__name__)

CYCLE, INSTRUCTION = "cycle", "instruction"
_PAUSE_S: Final = 300.0  # after the kernel has refused a counter


@dataclass(frozen=True, slots=True)
class _Measurement:
    counting: Counting
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
