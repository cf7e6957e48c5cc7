"""Checks of the agent's own code on a real GPU: inventory, usage, health, Device, cost."""

import json
import logging
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import pynvml
from tests.gpu.inventory import FIELDS, differences, mig_mode, parse_query
from tests.gpu.loads import running
from tests.gpu.report import Figures, SkippedError, expect

from koordinator.api.annotations.devices import ALLOCATED
from koordinator.api.codec import to_manifest
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.resource_names import GPU_MEMORY
from koordinator.foundation.clock import WallClock
from koordinator.foundation.errors import HostError
from koordinator.host.gpus import Gpu, Gpus, GpuUsage
from koordinator.host.linux.host import LinuxHost
from koordinator.host.linux.nvml import find_gpus
from koordinator.host.port import HOST
from koordinator.koordlet.app.options import KoordletOptions
from koordinator.koordlet.report.devices import device_of, of_driver

#: Points of the percentage between the load's duty cycle and the measured utilization.
UTILIZATION_TOLERANCE = 10.0
#: MiB between the size of an allocation and the measured memory.
MEMORY_TOLERANCE_MIB = 64.0
#: MiB that a context may take besides its allocation.
CONTEXT_MIB = 1024.0
SMALL_MIB, LARGE_MIB = 1024, 3072
_INTERVAL_S = KoordletOptions(node_name="").collect_interval_s
_SAMPLES, _SETTLE_S = 8, 3.0
_COLLECTIONS = 50
_MIB = 1 << 20
_KOORD = "from koordinator.cli.main import main; main()"


@dataclass(frozen=True)
class Machine:
    """Machine under test; ``folder`` is for scratch files, ``library`` HAMi-core's or None."""

    folder: Path
    library: Path | None = None

    @cached_property
    def gpus(self) -> Gpus:
        """GPUs through the agent's own factory."""
        try:
            return find_gpus(LinuxHost(), HOST.sys)
        except HostError as error:
            if not isinstance(error.__cause__, pynvml.NVMLError_FunctionNotFound):
                raise
            raise SkippedError("the driver lacks an NVML function that the agent needs") from None

    @property
    def first(self) -> Gpu:
        """First GPU, which carries the loads."""
        return self.gpus.devices()[0]


def inventory(machine: Machine) -> Figures:
    """Compare the agent's inventory with ``nvidia-smi``; report NUMA node, NVLink and MIG."""
    gpus = machine.gpus.devices()
    program = shutil.which("nvidia-smi")
    if program is None:
        raise SkippedError("there is no nvidia-smi to compare with")
    query = [program, f"--query-gpu={','.join(FIELDS)}", "--format=csv,noheader,nounits"]
    rows = parse_query(subprocess.run(query, check=True, capture_output=True, text=True).stdout)
    wrong = differences(gpus, rows)
    figures: dict[str, float | int | str] = {"GPUs": len(gpus)}
    modes = {row["uuid"]: row["mig.mode.current"] for row in rows}
    for gpu in gpus:
        handle = pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)
        mig = mig_mode(_mig(handle))
        if mig.strip("[]") != modes.get(gpu.uuid, mig).strip("[]"):
            wrong.append(f"{gpu.uuid} mig.mode.current: expected {modes[gpu.uuid]}, got {mig}")
        node_file = Path(f"/sys/bus/pci/devices/{gpu.bus_id}/numa_node")
        numa = max(int(node_file.read_text()), 0) if node_file.exists() else -1
        if numa != gpu.numa_node:
            wrong.append(f"{gpu.uuid} NUMA node: expected {numa}, got {gpu.numa_node}")
        name = f"GPU {gpu.minor}"
        figures |= {
            f"{name} model": gpu.model,
            f"{name} MiB": gpu.memory_bytes // _MIB,
            f"{name} bus": gpu.bus_id,
            f"{name} root port": gpu.pcie_id,
            f"{name} NUMA node": gpu.numa_node,
            f"{name} NVLinks": _active_links(handle),
            f"{name} MIG": mig,
        }
    expect(not wrong, "; ".join(wrong), figures)
    return figures


def usage(machine: Machine) -> Figures:
    """Compare utilization and memory of the card and of a process with loads of known size."""
    minor = machine.first.minor
    before = machine.gpus.usage()
    known = {each.pid for each in before}
    card_before = _whole(before, minor)
    with running(SMALL_MIB, duty=1.0):
        full, small = _sample(machine.gpus, minor, known)
    time.sleep(1)
    with running(LARGE_MIB, duty=0.5):
        half, large = _sample(machine.gpus, minor, known)
    figures: dict[str, float | int | str] = {
        "card at duty 100 %": full.core_percent,
        "card at duty 50 %": half.core_percent,
        "card MiB more": (half.memory_bytes - card_before.memory_bytes) / _MIB,
        "tolerance in points": UTILIZATION_TOLERANCE,
        "tolerance in MiB": MEMORY_TOLERANCE_MIB,
    }
    for measured, wanted in ((full, 100), (half, 50)):
        within = abs(measured.core_percent - wanted) <= UTILIZATION_TOLERANCE
        expect(within, f"the card's utilization must be near {wanted} %", figures)
    grown = (half.memory_bytes - full.memory_bytes) / _MIB
    figures["card MiB between loads"] = grown
    near = abs(grown - (LARGE_MIB - SMALL_MIB)) <= MEMORY_TOLERANCE_MIB
    expect(near, f"memory must differ by {LARGE_MIB - SMALL_MIB} MiB", figures)
    if small is None or large is None:
        text = "; ".join(f"{name} {value}" for name, value in figures.items())
        raise SkippedError(f"the driver shows no process of this PID namespace; card: {text}")
    figures |= {
        "process at duty 100 %": small.core_percent,
        "process MiB small": small.memory_bytes / _MIB,
        "process MiB large": large.memory_bytes / _MIB,
    }
    within = abs(small.core_percent - 100) <= UTILIZATION_TOLERANCE
    expect(within, "the process's utilization must be near 100 %", figures)
    for measured, mib in ((small, SMALL_MIB), (large, LARGE_MIB)):
        extra = measured.memory_bytes / _MIB - mib
        expect(0 <= extra <= CONTEXT_MIB, f"the process must have {mib} MiB and a context", figures)
    difference = (large.memory_bytes - small.memory_bytes) / _MIB
    near = abs(difference - (LARGE_MIB - SMALL_MIB)) <= MEMORY_TOLERANCE_MIB
    expect(near, "the processes' memory must differ by their allocations", figures)
    return figures


def health(machine: Machine) -> Figures:
    """Subscribe to errors of each GPU through the agent's own code."""
    messages: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: messages.append(record.getMessage())  # type: ignore[method-assign]
    log = logging.getLogger("koordinator.host.linux.nvml")
    log.addHandler(handler)
    try:
        gpus = Machine(machine.folder).gpus.devices()  # subscribes
    finally:
        log.removeHandler(handler)
    problems = [gpu.problem.code for gpu in gpus if gpu.problem is not None]
    figures: Figures = {"GPUs": len(gpus), "problems": ", ".join(problems) or "none"}
    expect(not messages, "; ".join(messages), figures)
    expect(not problems, "a GPU reports a problem or supports no health events", figures)
    return figures


def device(machine: Machine) -> Figures:
    """Make the Device object as the agent does, and schedule a pod on a node with it."""
    gpus = machine.gpus.devices()
    clock = WallClock()
    node = Node(metadata=ObjectMeta(name="gpu-node", uid="1"))
    accelerators = of_driver(gpus, machine.gpus.driver_version, clock.now_s())
    made = to_manifest(device_of(node, accelerators, ()))
    healthy = {gpu.minor for gpu in gpus if gpu.problem is None}
    file = machine.folder / "device.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": _world(gpus, made)}))
    words = ["schedule", "-f", str(file), "--config", "koordinator", "-o", "json"]
    done = subprocess.run(
        [sys.executable, "-c", _KOORD, *words],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    if done.returncode:
        raise RuntimeError(f"koord schedule: {done.stderr.strip()[-300:]}")
    placements = json.loads(done.stdout)["placements"]
    figures: dict[str, float | int | str] = {"devices": len(made["spec"]["devices"])}
    expect(len(placements) == 1, "the pod must be placed", figures)
    allocated = json.loads(placements[0]["annotations"][ALLOCATED.key])["gpu"]
    figures |= {
        "allocated minor": allocated[0]["minor"],
        "allocated memory": allocated[0]["resources"][GPU_MEMORY],
    }
    expect({each["minor"] for each in allocated} <= healthy, "a GPU must be healthy", figures)
    return figures


def cost(machine: Machine) -> Figures:
    """Measure a collection of usage and of devices, under no load."""
    usage_s = _durations(machine.gpus.usage)
    devices_s = _durations(machine.gpus.devices)
    mean_s = sum(usage_s) / len(usage_s)
    return {
        "collections": len(usage_s),
        "usage mean ms": 1000 * mean_s,
        "usage max ms": 1000 * max(usage_s),
        "usage ms per second": 1000 * mean_s / _INTERVAL_S,
        "interval s": _INTERVAL_S,
        "devices mean ms": 1000 * sum(devices_s) / len(devices_s),
        "devices max ms": 1000 * max(devices_s),
    }


def _durations(collect: Callable[[], object]) -> list[float]:
    durations = []
    for _ in range(_COLLECTIONS):
        begin = time.perf_counter()
        collect()
        durations.append(time.perf_counter() - begin)
    return durations


def _whole(measured: Sequence[GpuUsage], minor: int) -> GpuUsage:
    return next(each for each in measured if each.minor == minor and not each.pid)


def _sample(gpus: Gpus, minor: int, known: set[int]) -> tuple[GpuUsage, GpuUsage | None]:
    """Return the means over some seconds: the card, and the process that is not ``known``."""
    time.sleep(_SETTLE_S)
    card: list[GpuUsage] = []
    process: list[GpuUsage] = []
    for _ in range(_SAMPLES):
        measured = gpus.usage()
        card.append(_whole(measured, minor))
        process += [each for each in measured if each.minor == minor and each.pid not in known]
        time.sleep(0.5)
    return _mean(card), _mean(process) if process else None


def _mean(parts: list[GpuUsage]) -> GpuUsage:
    return GpuUsage(
        minor=parts[0].minor,
        core_percent=round(sum(each.core_percent for each in parts) / len(parts)),
        memory_bytes=parts[-1].memory_bytes,
        pid=parts[-1].pid,
    )


def _mig(handle: object) -> int | None:
    try:
        return int(pynvml.nvmlDeviceGetMigMode(handle)[0])
    except pynvml.NVMLError:
        return None


def _active_links(handle: object) -> int:
    """Return the number of active NVLinks."""
    links = 0
    for link in range(pynvml.NVML_NVLINK_MAX_LINKS):
        try:
            links += int(pynvml.nvmlDeviceGetNvLinkState(handle, link) == 1)
        except pynvml.NVMLError:
            break
    return links


def _world(gpus: Sequence[Gpu], made: object) -> list[object]:
    """Return a node with the Device object, and a pod with 30 % of a GPU."""
    whole = str(100 * len(gpus))
    amounts = {
        "koordinator.sh/gpu-core": whole,
        "koordinator.sh/gpu-memory-ratio": whole,
        GPU_MEMORY: str(sum(gpu.memory_bytes for gpu in gpus)),
    }
    resources = {
        "cpu": "1",
        "koordinator.sh/gpu-core": "30",
        "koordinator.sh/gpu-memory-ratio": "30",
    }
    container = {
        "name": "main",
        "image": "none",
        "resources": {"requests": resources, "limits": resources},
    }
    return [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": "gpu-node", "uid": "1"},
            "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", **amounts}},
        },
        made,
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "share", "namespace": "default"},
            "spec": {"schedulerName": "koord-scheduler", "containers": [container]},
        },
    ]
