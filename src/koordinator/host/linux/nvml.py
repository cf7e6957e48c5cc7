"""NVIDIA GPUs of this machine, through the driver's own library.

Source: NVML API reference (nvidia-ml-py); koordinator pkg/koordlet/metricsadvisor/devices/gpu.
"""

import logging
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace

import pynvml

from koordinator.foundation.errors import HostError
from koordinator.host.gpus import Gpu, GpuProblem, Gpus, GpuUsage, NoGpus
from koordinator.host.linux.nvml_health import HealthWatch
from koordinator.host.port import Files

log = logging.getLogger(__name__)

_SAMPLED_US = 0  # all samples of the driver; the newest one of each process counts


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
    """Return the GPUs of this machine; none without a driver."""
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return NoGpus()
    return NvmlGpus(files, sys_root)


def _bus_id(text: str | bytes) -> str:
    """Return the address as in sysfs: a domain of four digits, lower case."""
    plain = text.decode() if isinstance(text, bytes) else text
    domain, _, rest = plain.lower().partition(":")
    return f"{domain[-4:]}:{rest}"
