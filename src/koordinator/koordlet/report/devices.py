"""Device object: accelerators and RDMA cards of the node.

Accelerators described by a device daemon take precedence over GPUs found by the driver.

Source: koordinator pkg/koordlet/statesinformer/impl/states_device_linux.go; pkg/koordlet/
metricsadvisor/devices/rdma.
"""

import re
from collections.abc import Iterable, Sequence
from typing import Literal

from msgspec.structs import replace

from koordinator.api.annotations.devices import (
    GpuPartition,
    GpuPartitionTable,
    gpu_partitions_entry,
)
from koordinator.api.core import ResourceList
from koordinator.api.crd import StandardCondition
from koordinator.api.device import (
    HEALTHY,
    Device,
    DeviceInfo,
    DeviceSpec,
    DeviceTopology,
    DeviceType,
    VirtualFunction,
    VirtualFunctionGroup,
)
from koordinator.api.labels import (
    GPU_DRIVER_VERSION,
    GPU_MODEL,
    GPU_PARTITION_POLICY,
    GPU_VENDOR,
    GpuPartitionPolicy,
    GpuVendor,
)
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA
from koordinator.api.resource_names import WHOLE_DEVICE as WHOLE
from koordinator.domain.devices.requests import Xpu, XpuStatus
from koordinator.foundation.clock import to_datetime
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity
from koordinator.host.gpus import Gpu
from koordinator.koordlet.report.topology import owner_of

#: Of conditions.  Source: apimachinery pkg/apis/meta/v1/types.go ``Condition``.
_LONGEST_REASON = 1024
_REASON = re.compile(r"[A-Za-z]([A-Za-z0-9_,:]{0,1022}[A-Za-z0-9_])?")
#: Short resource names of device daemons.
_SHORT_NAMES = {"gpu-core": GPU_CORE, "gpu-memory": GPU_MEMORY}


@dataclass(frozen=True, slots=True)
class RdmaCard:
    """RDMA-capable PCI function with the bus addresses of its virtual functions."""

    minor: int
    bus_id: str
    numa_node: int
    pcie_id: str
    is_healthy: bool = True
    virtual_functions: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Accelerators:
    """Accelerators of the node, from a device daemon or the GPU driver.

    ``links`` are partitions: the linked minors with the type of the link.
    """

    vendor: str
    model: str
    devices: tuple[DeviceInfo, ...]
    driver_version: str = ""
    links: tuple[GpuPartition, ...] = ()
    must_honor_links: bool = False


def device_of(node: Node, accelerators: Accelerators | None, cards: Sequence[RdmaCard]) -> Device:
    """Return the desired Device object."""
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}
    devices = [_card(card) for card in cards]
    if accelerators is not None:
        devices += accelerators.devices
        labels = {GPU_VENDOR: accelerators.vendor}
        stated = {GPU_MODEL: accelerators.model, GPU_DRIVER_VERSION: accelerators.driver_version}
        labels |= {key: label_value(text) for key, text in stated.items() if text}
        if accelerators.links:
            policy = GpuPartitionPolicy.PREFER
            if accelerators.must_honor_links:
                policy = GpuPartitionPolicy.HONOR
            labels[GPU_PARTITION_POLICY] = policy.value
            annotations = gpu_partitions_entry(_table(accelerators.links))
    return Device(
        metadata=ObjectMeta(
            name=node.metadata.name,
            labels=labels,
            annotations=annotations,
            owner_references=(owner_of(node),),
        ),
        spec=_spec(devices),
    )


def _spec(devices: Iterable[DeviceInfo]) -> DeviceSpec:
    by_minor = sorted(devices, key=lambda info: (info.type, info.minor or 0))
    return DeviceSpec(devices=tuple(by_minor))


def of_driver(gpus: Sequence[Gpu], driver_version: str, now_s: float) -> Accelerators | None:
    """Return the GPUs of the driver; None if there are none.

    The model is set if all GPUs have the same one, without the vendor's name.
    """
    if not gpus:
        return None
    models = {gpu.model for gpu in gpus}
    model = models.pop().removeprefix("NVIDIA ") if len(models) == 1 else ""
    devices = tuple(_gpu(gpu, now_s) for gpu in gpus)
    return Accelerators(GpuVendor.NVIDIA.value, model, devices, driver_version)


def of_daemon(xpus: Sequence[Xpu], now_s: float) -> Accelerators | None:
    """Return the accelerators of device daemons; None if there are none.

    The first one determines vendor, model and partition policy.
    """
    if not xpus:
        return None
    first = xpus[0].topology
    return Accelerators(
        xpus[0].vendor,
        xpus[0].model,
        tuple(_xpu(xpu, now_s) for xpu in xpus),
        links=_links(xpus),
        must_honor_links=first is not None and first.must_honor_partition,
    )


def label_value(text: str) -> str:
    """Return a text as a valid label value: no blanks, at most 63 characters."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text)
    return kept[:63].strip("-_.")


def _gpu(gpu: Gpu, now_s: float) -> DeviceInfo:
    topology = status = None
    if gpu.problem is not None:
        status = XpuStatus(False, gpu.problem.code, gpu.problem.message)
    if gpu.numa_node >= 0 and gpu.bus_id:
        topology = DeviceTopology(
            socket_id=-1, node_id=gpu.numa_node, pcie_id=gpu.pcie_id, bus_id=gpu.bus_id
        )
    return DeviceInfo(
        type=DeviceType.GPU,
        id=gpu.uuid,
        minor=gpu.minor,
        health=gpu.problem is None,
        resources={
            GPU_CORE: Quantity.from_int(WHOLE),
            GPU_MEMORY: Quantity.from_int(gpu.memory_bytes, binary=True),
            GPU_MEMORY_RATIO: Quantity.from_int(WHOLE),
        },
        topology=topology,
        conditions=_conditions(status, now_s),
    )


def _xpu(xpu: Xpu, now_s: float) -> DeviceInfo:
    topology = None
    if xpu.topology is not None:
        topology = DeviceTopology(
            socket_id=-1,
            node_id=_number(xpu.topology.node_id, -1),
            pcie_id=xpu.topology.pcie_id,
            bus_id=xpu.topology.bus_id,
        )
    return DeviceInfo(
        type=DeviceType.GPU,
        id=xpu.uuid,
        minor=_number(xpu.minor, 0),
        health=xpu.status is None or xpu.status.healthy,
        resources={GPU_MEMORY_RATIO: Quantity.from_int(WHOLE), **_amounts(xpu)},
        topology=topology,
        conditions=_conditions(xpu.status, now_s),
    )


def _amounts(xpu: Xpu) -> ResourceList:
    amounts = {}
    for name, text in xpu.resources.items():
        try:
            amounts[_SHORT_NAMES.get(name, name)] = Quantity.parse(text)
        except InputError:
            continue  # one invalid amount must not hide the others
    return amounts


def _conditions(status: XpuStatus | None, now_s: float) -> tuple[StandardCondition, ...]:
    if status is None:
        return ()
    if status.healthy:
        state: tuple[Literal["True", "False"], str, str] = (
            "True",
            "DeviceHealthy",
            "device is healthy",
        )
    else:
        message = status.err_message or "device is unhealthy"
        state = ("False", _reason(status.err_code), message)
    return (
        StandardCondition(
            type=HEALTHY,
            status=state[0],
            reason=state[1],
            message=state[2],
            last_transition_time=to_datetime(now_s),
        ),
    )


def _reason(code: str) -> str:
    """Convert a code to a valid reason of a condition; the API server rejects other texts."""
    if _REASON.fullmatch(code):
        return code
    kept = "".join(c for c in code.title() if c.isascii() and c.isalnum())
    return kept[:_LONGEST_REASON].lstrip("0123456789") or "Unknown"


def _links(xpus: Sequence[Xpu]) -> tuple[GpuPartition, ...]:
    links: dict[tuple[int, ...], GpuPartition] = {}
    for xpu in xpus:
        for link in xpu.topology.p2p_links if xpu.topology is not None else ():
            if not link.peer_minor or not link.type:
                continue
            texts = (*link.peer_minor.split(","), xpu.minor)
            minors = tuple(sorted({int(text) for text in texts if text.strip().isdecimal()}))
            partition = GpuPartition(minors=minors, gpu_link_type=link.type, allocation_score=1)
            links.setdefault(minors, partition)
    return tuple(links.values())


def _table(links: Sequence[GpuPartition]) -> GpuPartitionTable:
    sizes = sorted({len(link.minors) for link in links})
    return {size: tuple(link for link in links if len(link.minors) == size) for size in sizes}


def _number(text: str, default: int) -> int:
    return int(text) if text.strip().removeprefix("-").isdecimal() else default


def with_gpus_of(existing: Device, wanted: Device) -> Device:
    """Return the desired object with the accelerators of the existing one added."""
    known = {(info.type, info.id) for info in wanted.spec.devices}
    kept = [
        info
        for info in existing.spec.devices
        if info.type == DeviceType.GPU and (info.type, info.id) not in known
    ]
    return replace(wanted, spec=_spec((*kept, *wanted.spec.devices)))


def merged_device(existing: Device, wanted: Device) -> Device:
    """Return the existing object with the desired content.

    A condition with an unchanged status keeps its transition time.
    """
    since = {
        (info.id, condition.type): condition
        for info in existing.spec.devices
        for condition in info.conditions
    }
    devices = []
    for info in wanted.spec.devices:
        conditions = []
        for condition in info.conditions:
            old = since.get((info.id, condition.type))
            is_same = old is not None and old.status == condition.status
            time = old.last_transition_time if old is not None and is_same else None
            changed = replace(condition, last_transition_time=time) if time else condition
            conditions.append(changed)
        devices.append(replace(info, conditions=tuple(conditions)))
    meta = existing.metadata
    return replace(
        existing,
        metadata=replace(
            meta,
            labels={**meta.labels, **wanted.metadata.labels},
            annotations={**meta.annotations, **wanted.metadata.annotations},
        ),
        spec=DeviceSpec(devices=tuple(devices)),
    )


def _card(card: RdmaCard) -> DeviceInfo:
    groups: tuple[VirtualFunctionGroup, ...] = ()
    if card.virtual_functions:
        vfs = (VirtualFunction(minor=-1, bus_id=bus) for bus in sorted(card.virtual_functions))
        groups = (VirtualFunctionGroup(vfs=tuple(vfs)),)
    return DeviceInfo(
        type=DeviceType.RDMA,
        id=card.bus_id,
        minor=card.minor,
        health=card.is_healthy,
        resources={RDMA: Quantity.from_int(WHOLE)},
        topology=DeviceTopology(
            socket_id=-1, node_id=card.numa_node, pcie_id=card.pcie_id, bus_id=card.bus_id
        ),
        vf_groups=groups,
    )
