"""Which GPUs are broken: critical errors (Xid) that the driver reports as events.

Source: koordinator pkg/koordlet/statesinformer/impl/states_device_linux.go, ``checkHealth``; NVIDIA
"Xid Errors", which errors are those of programs.
"""

import logging
from collections.abc import Mapping
from typing import Final

import pynvml

from koordinator.host.gpus import GpuProblem

log = logging.getLogger(__name__)

_OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
_AT_ONCE_MS: Final = 0


class HealthWatch:
    """Keeps the first error of every GPU, by UUID, until the agent is started again.

    A GPU that can't report errors counts as broken, as in the original.
    """

    def __init__(self, handles: Mapping[str, object]) -> None:
        self._handles = handles
        self._problems: dict[str, GpuProblem] = {}
        self._events: object | None = None
        try:
            self._events = pynvml.nvmlEventSetCreate()
        except pynvml.NVMLError as error:
            log.warning("errors of GPUs are not followed", extra={"error": str(error)})
            return
        for uuid, handle in handles.items():
            self._register(uuid, handle)

    def problems(self) -> Mapping[str, GpuProblem]:
        """Take in what has happened, without waiting, and return what is wrong with which GPU."""
        while self._events is not None:
            try:
                event = pynvml.nvmlEventSetWait_v2(self._events, _AT_ONCE_MS)
            except pynvml.NVMLError:
                break  # nothing more has happened
            if event.eventType == pynvml.nvmlEventTypeXidCriticalError:
                self._take_in(event.device, int(event.eventData))
        return self._problems

    def _register(self, uuid: str, handle: object) -> None:
        kind = pynvml.nvmlEventTypeXidCriticalError
        try:
            pynvml.nvmlDeviceRegisterEvents(handle, kind, self._events)
        except pynvml.NVMLError_NotSupported:
            message = "device does not support health checking"
            self._problems[uuid] = GpuProblem("DeviceHealthCheckNotSupported", message)
        except pynvml.NVMLError as error:
            log.warning("errors of a GPU are not followed", extra={"gpu": uuid, "why": str(error)})

    def _take_in(self, handle: object, xid: int) -> None:
        if xid in _OF_PROGRAMS:
            return
        problem = GpuProblem(f"Xid{xid}", f"Xid error detected on device, error code: {xid}")
        for uuid in self._struck(handle):
            self._problems.setdefault(uuid, problem)
            log.warning("GPU broken", extra={"gpu": uuid, "why": problem.message})

    def _struck(self, handle: object) -> list[str]:
        """Return the GPU of an event; of one that has fallen off the bus nothing can be asked."""
        found = _uuid(handle)
        if found in self._handles:
            return [found]
        lost = [uuid for uuid, known in self._handles.items() if not _uuid(known)]
        return lost or list(self._handles)


def _uuid(handle: object) -> str:
    try:
        return str(pynvml.nvmlDeviceGetUUID(handle))
    except pynvml.NVMLError:
        return ""
