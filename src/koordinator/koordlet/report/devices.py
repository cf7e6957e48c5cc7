"""The Device object: accelerators and RDMA cards of the node.

Source: koordinator pkg/koordlet/statesinformer/impl/states_device_linux.go; pkg/koordlet/
metricsadvisor/devices/rdma.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from koordinator.api.device import (
    Device,
    DeviceInfo,
    DeviceSpec,
    DeviceTopology,
    DeviceType,
    VirtualFunction,
    VirtualFunctionGroup,
)
from koordinator.api.labels import GPU_DRIVER_VERSION, GPU_MODEL, GPU_VENDOR, GpuVendor
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, RDMA
from koordinator.api.resource_names import WHOLE_DEVICE as WHOLE
from koordinator.foundation.quantity import Quantity
from koordinator.host.gpus import Gpu
from koordinator.koordlet.report.topology import owner_of


@dataclass(frozen=True, slots=True)
class RdmaCard:
    """An RDMA-capable PCI function; ``virtual_functions`` are the bus addresses of its slices."""

    minor: int
    bus_id: str
    numa_node: int
    pcie_id: str
    is_healthy: bool = True
    virtual_functions: tuple[str, ...] = ()


def device_of(
    node: Node, gpus: Sequence[Gpu], driver_version: str, cards: Sequence[RdmaCard]
) -> Device:
    """Return the object as it has to be."""
    labels = {}
    if gpus:
        labels = {GPU_VENDOR: GpuVendor.NVIDIA.value}
        if gpus[0].model:
            labels[GPU_MODEL] = label_value(gpus[0].model)
        if driver_version:
            labels[GPU_DRIVER_VERSION] = label_value(driver_version)
    devices = [*(_gpu(gpu) for gpu in gpus), *(_card(card) for card in cards)]
    return Device(
        metadata=ObjectMeta(
            name=node.metadata.name, labels=labels, owner_references=(owner_of(node),)
        ),
        spec=DeviceSpec(
            devices=tuple(sorted(devices, key=lambda info: (info.type, info.minor or 0)))
        ),
    )


def label_value(text: str) -> str:
    """Return a text as the value of a label may be: without blanks, at most 63 characters."""
    kept = "".join(c if c.isascii() and (c.isalnum() or c in "-_.") else "-" for c in text)
    return kept[:63].strip("-_.")


def _gpu(gpu: Gpu) -> DeviceInfo:
    topology = None
    if gpu.numa_node >= 0 and gpu.bus_id:
        topology = DeviceTopology(
            socket_id=-1, node_id=gpu.numa_node, pcie_id=gpu.pcie_id, bus_id=gpu.bus_id
        )
    return DeviceInfo(
        type=DeviceType.GPU,
        id=gpu.uuid,
        minor=gpu.minor,
        health=gpu.is_healthy,
        resources={
            GPU_CORE: Quantity.from_int(WHOLE),
            GPU_MEMORY: Quantity.from_int(gpu.memory_bytes, binary=True),
            GPU_MEMORY_RATIO: Quantity.from_int(WHOLE),
        },
        topology=topology,
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
