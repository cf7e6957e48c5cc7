"""Health of GPUs: critical errors (Xid) that the driver reports as events.

Source: koordinator pkg/koordlet/statesinformer/impl/states_device_linux.go, ``checkHealth``; NVIDIA
"Xid Errors" for the errors that programs cause.
"""

import logging
from collections.abc import Mapping
from typing import Final

import pynvml

from koordinator.host.gpus import GpuProblem

log = logging.getLogger(__name__)

_OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
_NO_WAIT_MS: Final = 0


class HealthWatch:
    """First error of each GPU by UUID, kept until the agent restarts.

    As in the original, a GPU without support for error events counts as broken.
    """

    def __init__(self, handles: Mapping[str, object]) -> None:
        self._handles = handles
        self._problems: dict[str, GpuProblem] = {}
        self._events: object | None = None
        try:
            self._events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            log.warning("GPU errors not monitored", extra={"error": str(error)})
            return
        for uuid, handle in handles.items():
            self._register(uuid, handle)

    def problems(self) -> Mapping[str, GpuProblem]:
        """Process pending events without waiting; return the errors by UUID."""
        while self._events is not None:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, _NO_WAIT_MS)
            except pynvml.NVMLError:
                break  # no more events
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                self._record(event.device, int(event.eventData))
        return self._problems

    def _register(self, uuid: str, handle: object) -> None:
        kind = pynvml.nvmlEventTypeXidCriticalError
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, kind, self._events)
        except pynvml.NVMLError_NotSupported:
            message = "device does not support health checking"
            self._problems[uuid] = GpuProblem("DeviceHealthCheckNotSupported", message)
        except pynvml.NVMLError as error:
            log.warning("errors of a GPU not monitored", extra={"gpu": uuid, "why": str(error)})

    def _record(self, handle: object, xid: int) -> None:
        if xid in _OF_PROGRAMS:
            return
        problem = GpuProblem(f"Xid{xid}", f"Xid error detected on device, error code: {xid}")
        for uuid in self._affected(handle):
            self._problems.setdefault(uuid, problem)
            log.warning("GPU broken", extra={"gpu": uuid, "why": problem.message})

    def _affected(self, handle: object) -> list[str]:
        """Return the GPU of an event; if it has fallen off the bus, the unresponsive GPUs."""
        uuid = _uuid(handle)
        if uuid in self._handles:
            return [uuid]
        lost = [uuid for uuid, known in self._handles.items() if not _uuid(known)]
        return lost or list(self._handles)


def _uuid(handle: object) -> str:
    try:
        return str(pynvml.nvmlDeviceGetUUID(handle))
    except pynvml.NVMLError:
        return ""
