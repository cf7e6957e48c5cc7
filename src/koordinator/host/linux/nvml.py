"""NVIDIA GPUs of this machine and their health, through the driver's library.

Source: NVML API reference (nvidia-ml-py); koordinator pkg/koordlet/metricsadvisor/devices/gpu,
pkg/koordlet/statesinformer/impl/states_device_linux.go, ``checkHealth``; NVIDIA "Xid Errors" for
the errors that programs cause.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import Final

import pynvml

from koordinator.foundation.errors import HostError
from koordinator.host.gpus import Gpu, GpuProblem, Gpus, GpuUsage, NoGpus, pci_functions
from koordinator.host.port import Files

log = logging.getLogger(__name__)

_OF_PROGRAMS: Final = frozenset({13, 31, 43, 45, 68, 109})
_NO_WAIT_MS: Final = 0
_PCI_VENDOR: Final = "10de"

_SAMPLED_US = 0  # all samples of the driver; the newest one of each process counts


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


class NvmlGpus:
    """Implementation of ``gpus.Gpus``; created by ``find_gpus``."""

    def __init__(self, files: Files, sys_root: str) -> None:
        self._files = files
        self._sys = sys_root
        self.driver_version = str(pynvml.nvmlSystemGetDriverVersion())
        self._known: dict[int, Gpu] = {}  # by index, when they last responded
        self._health: HealthWatch | None = None

    def devices(self) -> Sequence[Gpu]:
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise HostError(f"NVML: {error}") from None
        gpus = [gpu for index in range(count) if (gpu := self._device(index)) is not None]
        if self._health is None:
            self._health = HealthWatch(
                {gpu.uuid: pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid) for gpu in gpus}
            )
        problems = self._health.problems()
        return [replace(gpu, problem=problems.get(gpu.uuid, gpu.problem)) for gpu in gpus]

    def usage(self) -> Sequence[GpuUsage]:
        try:
            count = pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            raise HostError(f"NVML: {error}") from None
        usage: list[GpuUsage] = []
        for index in range(count):
            with suppress(pynvml.NVMLError):  # a broken GPU has no usage
                usage += self._usage(pynvml.nvmlDeviceGetHandleByIndex(index))
        return usage

    def _device(self, index: int) -> Gpu | None:
        """Return a GPU; one that no longer responds is broken."""
        try:
            self._known[index] = self._gpu(index)
        except pynvml.NVMLError as error:
            known = self._known.get(index)
            if known is None:
                log.warning("GPU not readable", extra={"index": index, "why": str(error)})
                return None
            return replace(
                known, problem=GpuProblem("DeviceLost", f"failed to get device: {error}")
            )
        return self._known[index]

    def _gpu(self, index: int) -> Gpu:
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        bus_id = _bus_id(pynvml.nvmlDeviceGetPciInfo(handle).busId)
        folder = f"{self._sys}/bus/pci/devices/{bus_id}"
        try:
            real = self._files.target(folder)
            node = max(int(self._files.read(f"{folder}/numa_node")), 0)
        except (HostError, ValueError):
            real, node = "", -1
        roots = [part for part in real.split("/") if part.startswith("pci0")]
        return Gpu(
            minor=int(pynvml.nvmlDeviceGetMinorNumber(handle)),
            uuid=str(pynvml.nvmlDeviceGetUUID(handle)),
            model=str(pynvml.nvmlDeviceGetName(handle)),
            memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).total),
            bus_id=bus_id,
            pcie_id=roots[0] if roots else "",
            numa_node=node,
        )

    @staticmethod
    def _usage(handle: object) -> list[GpuUsage]:
        minor = int(pynvml.nvmlDeviceGetMinorNumber(handle))
        core = {}
        try:
            for sample in pynvml.nvmlDeviceGetProcessUtilization(handle, _SAMPLED_US):
                core[int(sample.pid)] = int(sample.smUtil)
        except pynvml.NVMLError:
            core = {}  # no process has used it recently
        memory = {
            int(process.pid): int(process.usedGpuMemory or 0)
            for process in pynvml.nvmlDeviceGetComputeRunningProcesses(handle)
        }
        rates = pynvml.nvmlDeviceGetUtilizationRates(handle)
        whole = GpuUsage(
            minor=minor,
            core_percent=int(rates.gpu),
            memory_bytes=int(pynvml.nvmlDeviceGetMemoryInfo(handle).used),
            memory_controller_percent=int(rates.memory),
        )
        return [
            whole,
            *(
                GpuUsage(
                    minor=minor,
                    core_percent=core.get(pid, 0),
                    memory_bytes=memory.get(pid, 0),
                    pid=pid,
                )
                for pid in sorted({*core, *memory} - {0})
            ),
        ]


def find_gpus(files: Files, sys_root: str) -> Gpus:
    """Return the GPUs of this machine; none without a driver.

    Raises HostError if the driver fails although the bus has cards of NVIDIA.
    """
    try:
        pynvml.nvmlInit()
        return NvmlGpus(files, sys_root)
    except pynvml.NVMLError as error:
        if any(each.vendor == _PCI_VENDOR for each in pci_functions(files, sys_root)):
            raise HostError(f"NVML: {error}") from error
        return NoGpus()


def _bus_id(text: str | bytes) -> str:
    """Return the address as in sysfs: a domain of four digits, lower case."""
    plain = text.decode() if isinstance(text, bytes) else text
    domain, _, rest = plain.lower().partition(":")
    return f"{domain[-4:]}:{rest}"
