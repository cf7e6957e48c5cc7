"""GPUs of a driver that is made up: its library's functions are replaced, nothing of ours is."""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest
from tests.memory_host import MemoryHost

from koordinator.foundation.errors import HostError
from koordinator.host.gpus import GpuProblem, GpusOnDemand, NoGpus
from koordinator.host.linux.nvml import NvmlGpus, find_gpus

GIB = 1 << 30
XID = pynvml.nvmlEventTypeXidCriticalError


class Driver:
    """Two GPUs; ``lost`` ones answer nothing any more, ``events`` are waiting to be fetched."""

    def __init__(self, patch: Callable[[str, Any], None]) -> None:
        self.lost: set[int] = set()
        self.too_old: set[int] = set()
        self.events: list[tuple[int, int, int]] = []  # GPU, type, number
        patch("nvmlSystemGetDriverVersion", lambda: "550.1")
        patch("nvmlDeviceGetCount", lambda: 2)
        patch("nvmlDeviceGetHandleByIndex", self.handle)
        patch("nvmlDeviceGetHandleByUUID", lambda uuid: int(uuid[-1]))
        patch("nvmlDeviceGetPciInfo", lambda gpu: SimpleNamespace(busId=f"0000000{gpu}:65:00.0"))
        patch("nvmlDeviceGetMinorNumber", lambda gpu: gpu)
        patch("nvmlDeviceGetUUID", lambda gpu: f"GPU-{self.handle(gpu)}")
        patch("nvmlDeviceGetName", lambda _: "NVIDIA H100")
        patch("nvmlDeviceGetMemoryInfo", lambda _: SimpleNamespace(total=80 * GIB, used=GIB))
        patch("nvmlDeviceGetUtilizationRates", lambda _: SimpleNamespace(gpu=40, memory=9))
        patch("nvmlDeviceGetProcessUtilization", lambda *_: [])
        patch("nvmlDeviceGetComputeRunningProcesses", lambda _: [])
        patch("nvmlEventSetCreate", lambda: "events")
        patch("nvmlDeviceRegisterEvents", self.register)
        patch("nvmlEventSetWait_v2", self.event)

    def handle(self, gpu: int) -> int:
        if gpu in self.lost:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_GPU_IS_LOST)
        return gpu

    def register(self, gpu: int, kind: int, _: object) -> None:
        assert kind == XID
        if gpu in self.too_old:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    def event(self, _: object, timeout_ms: int) -> object:
        assert timeout_ms == 0  # the agent has no time to wait
        if not self.events:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_TIMEOUT)
        gpu, kind, number = self.events.pop(0)
        return SimpleNamespace(device=gpu, eventType=kind, eventData=number)


@pytest.fixture
def driver(monkeypatch: pytest.MonkeyPatch) -> Driver:
    return Driver(lambda name, made: monkeypatch.setattr(pynvml, name, made))


def problems(gpus: NvmlGpus) -> list[GpuProblem | None]:
    """Return what is wrong with each GPU."""
    return [gpu.problem for gpu in gpus.devices()]


def test_a_critical_error_breaks_the_gpu_that_has_it(driver: Driver) -> None:
    """From then on, whatever comes later; the other one is as before."""
    gpus = NvmlGpus(MemoryHost(), "/sys")
    assert problems(gpus) == [None, None]

    driver.events = [(1, XID, 79), (1, XID, 48)]
    expected = GpuProblem("Xid79", "Xid error detected on device, error code: 79")
    assert problems(gpus) == [None, expected]
    assert problems(gpus) == [None, expected]


@pytest.mark.parametrize("xid", [13, 31, 43, 45, 68, 109])
def test_an_error_of_a_program_breaks_no_gpu(driver: Driver, xid: int) -> None:
    """Events of other kinds leave the GPU healthy as well."""
    gpus = NvmlGpus(MemoryHost(), "/sys")
    gpus.devices()
    driver.events = [(0, XID, xid), (0, XID << 1, 79)]

    assert problems(gpus) == [None, None]


def test_a_gpu_that_fell_off_the_bus_is_still_reported(driver: Driver) -> None:
    """As broken, with what was known of it; the other one is still measured."""
    gpus = NvmlGpus(MemoryHost(), "/sys")
    gpus.devices()
    driver.lost = {0}
    first, second = gpus.devices()

    assert (first.uuid, first.memory_bytes) == ("GPU-0", 80 * GIB)
    assert first.problem is not None
    assert first.problem.code == "DeviceLost"
    assert second.problem is None
    assert [usage.minor for usage in gpus.usage()] == [1]

    driver.events = [(0, XID, 79)]
    assert [problem and problem.code for problem in problems(gpus)] == ["Xid79", None]


def test_a_gpu_with_unreadable_errors_is_unhealthy(driver: Driver) -> None:
    """As in the original."""
    driver.too_old = {0}
    first, second = problems(NvmlGpus(MemoryHost(), "/sys"))

    assert first is not None
    assert (first.code, second) == ("DeviceHealthCheckNotSupported", None)


def test_failing_driver_raises_host_error(driver: Driver, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the error of this node."""
    gpus = NvmlGpus(MemoryHost(), "/sys")
    driver.lost = {0, 1}
    assert gpus.devices() == []

    def fail() -> int:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_DRIVER_NOT_LOADED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", fail)
    with pytest.raises(HostError, match="NVML"):
        gpus.devices()


@pytest.mark.usefixtures("driver")
def test_driver_that_fails_on_a_machine_with_cards_is_searched_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """By each reading of the devices; a machine without cards of NVIDIA has no GPUs."""
    host, is_ready = MemoryHost(), False

    def init() -> None:
        if not is_ready:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH)

    monkeypatch.setattr(pynvml, "nvmlInit", init)
    assert isinstance(find_gpus(host, "/sys"), NoGpus)

    host.put("/sys/bus/pci/devices/0000:65:00.0/vendor", "0x10de\n")
    host.put("/sys/bus/pci/devices/0000:65:00.0/device", "0x2330\n")
    gpus = GpusOnDemand(lambda: find_gpus(host, "/sys"))
    for read in (gpus.devices, gpus.usage):
        with pytest.raises(HostError, match="version mismatch"):
            read()
    assert gpus.driver_version == ""

    is_ready = True
    with pytest.raises(HostError):
        gpus.usage()  # each second, and a search may take long
    assert len(gpus.devices()) == len(gpus.usage())
    assert gpus.driver_version == "550.1"
