"""Metrics of GPU shares, under HAMi's names of both generations.

GPU metrics are read from the driver at the scrape; container metrics are from the last round.
Source: HAMi cmd/vGPUmonitor/metrics.go (v2.6.0 for the older names, which Koordinator's dashboards
use, and 2.10).
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from threading import Lock
from typing import Final, NamedTuple

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector

from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import HostError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.gpus import Gpus, GpuUsage
from koordinator.vgpu_monitor.monitor import VgpuSnapshot
from koordinator.vgpu_monitor.placement import RegionOwner
from koordinator.vgpu_monitor.region import UUID_SHOWN, DeviceUse

log = logging.getLogger(__name__)

_ZONE: Final = "vGPU"
_HOST = ("node", "device_index", "device_uuid", "device_type")
_OLD_HOST = ("nodeid", "deviceidx", "deviceuuid", "devicetype")
_CONTAINER = ("namespace", "pod", "container", "vdevice_index", "device_uuid")
_OLD_CONTAINER = ("podnamespace", "podname", "ctrname", "vdeviceid", "deviceuuid")
_PARTS = ("context", "module", "data", "offset")

_USED = "GPU memory used by a container in bytes."
_LIMIT = "GPU memory limit of a container in bytes; 0 for none."
_CORES = "Utilization of a GPU's cores by a container."
_LAST_KERNEL = "hami_container_last_kernel_elapsed_seconds"
_LAST = "Seconds since the last kernel of a container."


def _deprecated(successor: str, text: str) -> str:
    """Return the help of a metric under its older name."""
    return f"Deprecated: use {successor}; {text}"


class _Row(NamedTuple):
    """Usage of one GPU by a container; ``last_kernel_s`` is since the epoch, 0 for never."""

    owner: RegionOwner
    use: DeviceUse
    last_kernel_s: int


@dataclass(frozen=True, slots=True)
class _HostFamily:
    name: str
    text: str
    labels: tuple[str, ...]
    value: Callable[[GpuUsage], int]
    is_old: bool = False


@dataclass(frozen=True, slots=True)
class _ContainerFamily:
    name: str
    text: str
    value: Callable[[DeviceUse], float]
    is_old: bool = False
    has_parts: bool = False


_HOST_FAMILIES: Final = (
    _HostFamily(
        "hami_host_gpu_memory_used_bytes",
        "Used memory of a GPU in bytes.",
        _HOST,
        lambda use: use.memory_bytes,
    ),
    _HostFamily(
        "hami_host_gpu_utilization_ratio",
        "Utilization of a GPU's cores, 0 to 100.",
        _HOST,
        lambda use: use.core_percent,
    ),
    _HostFamily(
        "hami_host_gpu_memory_controller_utilization_ratio",
        "Utilization of a GPU's memory controller, 0 to 100.",
        _HOST[1:],
        lambda use: use.memory_controller_percent,
    ),
    _HostFamily(
        "HostGPUMemoryUsage",
        _deprecated("hami_host_gpu_memory_used_bytes", "Used memory of a GPU in bytes."),
        _OLD_HOST,
        lambda use: use.memory_bytes,
        is_old=True,
    ),
    _HostFamily(
        "HostCoreUtilization",
        _deprecated("hami_host_gpu_utilization_ratio", "Utilization of a GPU's cores, 0 to 100."),
        _OLD_HOST,
        lambda use: use.core_percent,
        is_old=True,
    ),
)
_CONTAINER_FAMILIES: Final = (
    _ContainerFamily("hami_vgpu_memory_used_bytes", _USED, lambda use: use.total),
    _ContainerFamily("hami_vgpu_memory_limit_bytes", _LIMIT, lambda use: use.memory_limit),
    _ContainerFamily("hami_container_device_memory_bytes", _USED, lambda use: use.total),
    _ContainerFamily(
        "hami_container_device_utilization_ratio", _CORES, lambda use: use.core_percent
    ),
    _ContainerFamily(
        "hami_vgpu_memory_context_bytes",
        "GPU memory of CUDA contexts in bytes.",
        lambda use: use.context,
    ),
    _ContainerFamily(
        "hami_vgpu_memory_module_bytes",
        "GPU memory of CUDA modules in bytes.",
        lambda use: use.module,
    ),
    _ContainerFamily(
        "hami_vgpu_memory_buffer_bytes",
        "GPU memory of buffers in bytes.",
        lambda use: use.data,
    ),
    _ContainerFamily(
        "vGPU_device_memory_usage_in_bytes",
        _deprecated("hami_vgpu_memory_used_bytes", _USED),
        lambda use: use.total,
        is_old=True,
    ),
    _ContainerFamily(
        "vGPU_device_memory_limit_in_bytes",
        _deprecated("hami_vgpu_memory_limit_bytes", _LIMIT),
        lambda use: use.memory_limit,
        is_old=True,
    ),
    _ContainerFamily(
        "Device_memory_desc_of_container",
        _deprecated("hami_container_device_memory_bytes", _USED),
        lambda use: use.total,
        is_old=True,
        has_parts=True,
    ),
    _ContainerFamily(
        "Device_utilization_desc_of_container",
        _deprecated("hami_container_device_utilization_ratio", _CORES),
        lambda use: use.core_percent,
        is_old=True,
    ),
)


class VgpuCollector(Collector):
    """Collector, called by the server's threads; ``with_old_names`` adds the names of HAMi v2.6."""

    def __init__(
        self,
        node: str,
        snapshot: Callable[[], VgpuSnapshot],
        gpus: Gpus,
        clock: Clock,
        *,
        with_old_names: bool,
    ) -> None:
        self._node = node
        self._snapshot = snapshot
        self._gpus = gpus
        self._clock = clock
        self._with_old_names = with_old_names
        self._driver_lock = Lock()  # one scrape at a time

    def collect(self) -> Iterable[GaugeMetricFamily]:
        snapshot = self._snapshot()
        yield from self._host(snapshot)
        rows = list(_rows(snapshot))
        for family in _CONTAINER_FAMILIES:
            if family.is_old and not self._with_old_names:
                continue
            names = _OLD_CONTAINER if family.is_old else _CONTAINER
            metric = _family(family.name, family.text, (*names, *_PARTS * family.has_parts))
            for owner, use, _ in rows:
                parts = _parts(use) if family.has_parts else ()
                metric.add_metric((*_labels(owner, use), *parts, _ZONE), family.value(use))
            yield metric
        yield from self._last_kernels(rows)
        yield from _own(snapshot)

    def _host(self, snapshot: VgpuSnapshot) -> Iterator[GaugeMetricFamily]:
        try:
            with self._driver_lock:
                usage = [use for use in self._gpus.usage() if not use.pid]
        except HostError as error:
            log.warning("GPUs not readable", extra={"error": str(error)})
            return
        known = {gpu.minor: gpu for gpu in snapshot.gpus}
        for family in _HOST_FAMILIES:
            if family.is_old and not self._with_old_names:
                continue
            metric = _family(family.name, family.text, family.labels)
            for index, use in enumerate(usage):
                gpu = known.get(use.minor)
                if gpu is not None:
                    labels = (self._node, str(index), gpu.uuid, f"NVIDIA-{gpu.model}")
                    own = labels[len(labels) - len(family.labels) :]
                    metric.add_metric((*own, _ZONE), family.value(use))
            yield metric

    def _last_kernels(self, rows: list[_Row]) -> Iterator[GaugeMetricFamily]:
        now_s = self._clock.now_s()
        names = {_LAST_KERNEL: (_LAST, _CONTAINER)}
        if self._with_old_names:
            old = (_deprecated(_LAST_KERNEL, _LAST), _OLD_CONTAINER)
            names["Device_last_kernel_of_container"] = old
        for name, (text, labels) in names.items():
            metric = _family(name, text, labels)
            for owner, use, last_kernel_s in rows:
                if last_kernel_s > 0:
                    elapsed_s = max(int(now_s) - last_kernel_s, 0)
                    metric.add_metric((*_labels(owner, use), _ZONE), elapsed_s)
            yield metric


def _rows(snapshot: VgpuSnapshot) -> Iterator[_Row]:
    """Yield a row per GPU of a container, limited to GPUs that are allocated to its pod.

    A container that has not used its GPUs yet has its limits and no usage.
    """
    known = {gpu.minor: gpu.uuid for gpu in snapshot.gpus}
    for region in snapshot.regions:
        allocated = set(_uuids(region.owner, known).values())
        for use in region.reading.devices:
            if use.uuid in allocated:
                yield _Row(region.owner, use, region.reading.last_kernel_s)
        if not region.reading.devices:
            yield from _idle_rows(region.owner, known)
    for owner in snapshot.idle:
        yield from _idle_rows(owner, known)


def _idle_rows(owner: RegionOwner, known: Mapping[int, str]) -> Iterator[_Row]:
    """Yield the limits set by the agent; no row without a limit or with an unknown UUID."""
    for index, uuid in _uuids(owner, known).items():
        if uuid and owner.memory_limit > 0:
            yield _Row(owner, DeviceUse.unused(index, uuid, owner.memory_limit), 0)


def _uuids(owner: RegionOwner, known: Mapping[int, str]) -> dict[int, str]:
    """Return the UUIDs of a container's GPUs as shown, by index in the container."""
    return {
        index: (uuid or known.get(minor, ""))[:UUID_SHOWN]
        for index, (minor, uuid) in enumerate(sorted(owner.gpus.items()))
    }


def _own(snapshot: VgpuSnapshot) -> Iterator[GaugeMetricFamily]:
    metric = GaugeMetricFamily(
        "koord_vgpu_monitor_regions", "Number of regions by state.", labels=["state"]
    )
    waiting = sum(region.is_waiting for region in snapshot.regions)
    for state, count in (
        ("read", len(snapshot.regions)),
        ("waiting", waiting),
        ("refused", len(snapshot.refused)),
    ):
        metric.add_metric([state], count)
    yield metric


def _labels(owner: RegionOwner, use: DeviceUse) -> tuple[str, ...]:
    return (owner.namespace, owner.pod, owner.container, str(use.index), use.uuid)


def _parts(use: DeviceUse) -> tuple[str, ...]:
    rest = use.total - use.context - use.module - use.data
    return tuple(str(int(part)) for part in (use.context, use.module, use.data, rest))


def _family(name: str, text: str, labels: tuple[str, ...]) -> GaugeMetricFamily:
    return GaugeMetricFamily(name, text, labels=[*labels, "zone"])
