"""Accelerators and RDMA cards: usage of GPUs, descriptions by device daemons, RDMA in sysfs.

Source: koordinator pkg/koordlet/metricsadvisor/devices/gpu/collector_gpu_linux.go;
pkg/koordlet/metricsadvisor/devices/xpu/collector_xpu.go; pkg/koordlet/metricsadvisor/devices/rdma,
helper; pkg/koordlet/util/device.go, ``XPUDeviceInfo``.
"""

import logging
from collections import defaultdict
from collections.abc import Callable, Sequence

import msgspec

from koordinator.domain.devices.requests import Xpu
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import HostError, MissingFileError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.gpus import Gpus, numa_node_of, pcie_id_of
from koordinator.host.port import Files
from koordinator.koordlet.adjustments import ContainerDevice
from koordinator.koordlet.collectors.context import CollectionContext
from koordinator.koordlet.metrics import Metric

log = logging.getLogger(__name__)

_UNFINISHED = ".tmp"


class GpuCollector:
    """Collector of GPU usage; the usage of a pod is the sum over its processes."""

    def __init__(self, gpus: Gpus) -> None:
        self._gpus = gpus

    def collect(self, context: CollectionContext, now_s: float) -> None:
        try:
            usage = self._gpus.usage()
        except HostError:
            return
        if not usage:
            return
        owners = self._owners(context)
        core: dict[str, int] = defaultdict(int)
        memory: dict[str, int] = defaultdict(int)
        for part in usage:
            if not part.pid:
                minor = str(part.minor)
                context.store.add(Metric.NODE_GPU_CORE, minor, now_s, part.core_percent)
                context.store.add(Metric.NODE_GPU_MEMORY, minor, now_s, part.memory_bytes)
            elif part.pid in owners:
                key = f"{owners[part.pid]}/{part.minor}"
                core[key] += part.core_percent
                memory[key] += part.memory_bytes
        for key, percent in core.items():
            context.store.add(Metric.POD_GPU_CORE, key, now_s, percent)
            context.store.add(Metric.POD_GPU_MEMORY, key, now_s, memory[key])

    @staticmethod
    def _owners(context: CollectionContext) -> dict[int, str]:
        """Return the pod's UID by process in its containers."""
        return {
            pid: pod.uid
            for pod in context.active_pods
            for container in pod.containers
            for pid in context.cgroups.processes(container.folder)
        }


def read_xpus(
    files: Files,
    folder: str,
    before: Sequence[Xpu] = (),
    on_problem: Callable[[str], object] = lambda _problem: None,
) -> Sequence[Xpu]:
    """Return the devices in all files of a folder, by UUID; a later file overrides earlier ones.

    An unreadable file is logged and reported; in that case devices of ``before`` are kept.  Files
    that are being written (hidden, or named ``.tmp``) are skipped.
    """
    xpus: dict[str, Xpu] = {}
    is_incomplete = False
    for name in files.names(folder):
        if name.startswith(".") or name.endswith(_UNFINISHED):
            continue
        path = f"{folder}/{name}"
        try:
            described = decode_json(files.read(path), list[Xpu])
        except MissingFileError:
            continue  # a folder, or deleted meanwhile
        except (HostError, msgspec.DecodeError, msgspec.ValidationError) as error:
            log.warning("accelerators not readable", extra={"file": path, "error": str(error)})
            on_problem(f"{path}: {error}")
            is_incomplete = True
            continue
        xpus |= {xpu.uuid: xpu for xpu in described}
    if is_incomplete:
        xpus = {xpu.uuid: xpu for xpu in before} | xpus
    return sorted(xpus.values(), key=lambda xpu: xpu.uuid)


@dataclass(frozen=True, slots=True)
class RdmaFunction:
    """RDMA card with its virtual functions; ``pcie_id`` is the root port above it."""

    bus_id: str
    numa_node: int
    pcie_id: str
    is_healthy: bool
    virtual_functions: tuple[str, ...]


def rdma_functions(files: Files, sys_root: str) -> list[RdmaFunction]:
    """Return the RDMA cards by bus address."""
    cards = []
    for name in files.names(f"{sys_root}/class/infiniband"):
        link = f"{sys_root}/class/infiniband/{name}"
        try:
            folder = files.target(f"{link}/device")
        except HostError:
            continue
        if files.exists(f"{folder}/physfn"):
            continue  # a virtual function of another card
        bus_id = folder.rpartition("/")[2]
        cards.append(
            RdmaFunction(
                bus_id,
                numa_node_of(files, folder),
                pcie_id_of(folder),
                _is_active(files, link),
                _virtual_functions(files, folder),
            )
        )
    return sorted(cards, key=lambda card: card.bus_id)


def _is_active(files: Files, link: str) -> bool:
    states = []
    for port in files.names(f"{link}/ports"):
        try:
            states.append("ACTIVE" in files.read(f"{link}/ports/{port}/state"))
        except HostError:
            continue
    return any(states) or not states


def _virtual_functions(files: Files, folder: str) -> tuple[str, ...]:
    addresses = []
    for name in files.names(folder):
        if name.startswith("virtfn"):
            try:
                addresses.append(files.target(f"{folder}/{name}").rpartition("/")[2])
            except HostError:
                continue
    return tuple(sorted(addresses))


class SysfsVerbs:
    """Implementation of ``hooks.rdma_devices.VerbsLookup`` over the current sysfs."""

    def __init__(self, files: Files, sys_root: str) -> None:
        self._files = files
        self._sys = sys_root

    def connection_manager(self) -> ContainerDevice | None:
        return self._node(f"{self._sys}/class/misc/rdma_cm", "rdma_cm")

    def of_function(self, bus_id: str) -> Sequence[ContainerDevice]:
        folder = f"{self._sys}/bus/pci/devices/{bus_id}/infiniband_verbs"
        nodes = (self._node(f"{folder}/{name}", name) for name in self._files.names(folder))
        return [device for device in nodes if device is not None]

    def _node(self, folder: str, name: str) -> ContainerDevice | None:
        try:
            major, _, minor = self._files.read(f"{folder}/dev").strip().partition(":")
            return ContainerDevice(f"/dev/infiniband/{name}", int(major), int(minor))
        except (HostError, ValueError):
            return None
