"""ResourceSlices: the GPUs of the Device object, for pods with resource claims.

Unhealthy GPUs are omitted.  There are no slices on nodes that allocate GPUs only by partition,
because claims know no partitions, and none for vendors other than NVIDIA, whose devices the runtime
may not find.

Source: k8s.io/api resource/v1 types.go for the limits; kubernetes enhancement 5075 (consumable
capacity).
"""

import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from koordinator.api.codec import encode_part
from koordinator.api.device import Device, DeviceInfo, DeviceType
from koordinator.api.dynamic_resources import (
    CapacityRequestPolicy,
    CapacityRequestPolicyRange,
    DeviceAttribute,
    DeviceCapacity,
    PoolDevice,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from koordinator.api.labels import (
    GPU_MODEL,
    GPU_PARTITION_POLICY,
    GPU_VENDOR,
    GpuPartitionPolicy,
    GpuVendor,
)
from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, WHOLE_DEVICE
from koordinator.domain.dynamic_resources.node_gpus import (
    CORE_CAPACITY,
    DRIVER,
    MEMORY_CAPACITY,
    device_name,
)
from koordinator.foundation.masks import MAX_MINOR
from koordinator.foundation.quantity import Quantity
from koordinator.koordlet.report.topology import owner_of

DEVICES_MAX: Final = 128  # of a slice
_TEXT_MAX: Final = 64  # characters of an attribute
_NAME_MAX: Final = 253
_SHARED_NAMES = {GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO}
_LEAST_CORE, _LEAST_MEMORY = Quantity.from_int(1), Quantity.parse("1Mi")
#: Attributes that other drivers use.
PCIE_ROOT: Final = "resource.kubernetes.io/pcieRoot"
NUMA_NODE: Final = "resource.kubernetes.io/numaNode"
_ROOT = re.compile(r"pci[0-9a-f]{4}:[0-9a-f]{2}")


def gpu_slices(node: Node, device: Device, *, shares: bool) -> tuple[ResourceSlice, ...]:
    """Return the slices, with generation 0; with ``shares``, claims can share a GPU."""
    labels = device.metadata.labels
    if labels.get(GPU_PARTITION_POLICY) == GpuPartitionPolicy.HONOR:
        return ()
    if labels.get(GPU_VENDOR) != GpuVendor.NVIDIA:
        return ()
    gpus = {
        info.minor: info
        for info in device.spec.devices
        if info.type == DeviceType.GPU and info.health and info.minor is not None and info.id
    }
    common = {"vendor": labels.get(GPU_VENDOR, ""), "model": labels.get(GPU_MODEL, "")}
    devices = [
        _device(info, minor, common, shares=shares)
        for minor, info in sorted(gpus.items())
        if 0 <= minor <= MAX_MINOR
    ]
    parts = [devices[at : at + DEVICES_MAX] for at in range(0, len(devices), DEVICES_MAX)]
    name = node.metadata.name
    return tuple(
        ResourceSlice(
            metadata=ObjectMeta(name=_slice_name(name, index), owner_references=(owner_of(node),)),
            spec=ResourceSliceSpec(
                driver=DRIVER,
                node_name=name,
                pool=ResourcePool(name=name, resource_slice_count=len(parts)),
                devices=tuple(part),
            ),
        )
        for index, part in enumerate(parts)
    )


def _slice_name(node: str, index: int) -> str:
    suffix = f"-{DRIVER}-{index}"
    if len(node) + len(suffix) > _NAME_MAX:
        digest = hashlib.sha256(node.encode()).hexdigest()[:10]
        node = f"{node[: _NAME_MAX - len(suffix) - 11].rstrip('.-')}-{digest}"
    return node + suffix


def _device(info: DeviceInfo, minor: int, common: dict[str, str], *, shares: bool) -> PoolDevice:
    topology = info.topology
    texts = {**common, "uuid": info.id}
    numbers = {"minor": minor}
    if topology is not None:
        texts |= {"busID": topology.bus_id}
        if _ROOT.fullmatch(topology.pcie_id):
            texts |= {PCIE_ROOT: topology.pcie_id}
        if topology.node_id >= 0:
            numbers |= {"numaNode": topology.node_id, NUMA_NODE: topology.node_id}
    attributes = {
        name: DeviceAttribute(string_value=text[:_TEXT_MAX]) for name, text in texts.items() if text
    }
    attributes |= {name: DeviceAttribute(int_value=number) for name, number in numbers.items()}
    memory = info.resources.get(GPU_MEMORY)
    is_shared = shares and memory is not None and _SHARED_NAMES.issuperset(info.resources)
    whole = Quantity.from_int(WHOLE_DEVICE)
    capacity = {CORE_CAPACITY: _capacity(whole, _LEAST_CORE, shared=is_shared)}
    if memory is not None and memory.nanos > 0:
        capacity[MEMORY_CAPACITY] = _capacity(memory, _LEAST_MEMORY, shared=is_shared)
    return PoolDevice(
        name=device_name(minor),
        attributes=attributes,
        capacity=capacity,
        allow_multiple_allocations=True if is_shared else None,
    )


def _capacity(total: Quantity, least: Quantity, *, shared: bool) -> DeviceCapacity:
    """Return a capacity; a claim of a shared one without an amount gets all of it."""
    if not shared or total < least:
        return DeviceCapacity(value=total)
    allowed = CapacityRequestPolicyRange(min=least, max=total)
    return DeviceCapacity(
        value=total, request_policy=CapacityRequestPolicy(default=total, valid_range=allowed)
    )


Content = tuple[str, bytes]  # name of a slice, and its encoded spec without generation


def renewed(
    wanted: Sequence[ResourceSlice],
    existing: Iterable[ResourceSlice],
    kept: Mapping[Content, Content] = MappingProxyType({}),
) -> tuple[ResourceSlice, ...]:
    """Return the slices to write, with a generation above the existing ones.

    Return none if the existing slices are the desired ones.  ``kept`` maps written content to the
    content that the server stored: the server drops fields of disabled feature gates.
    """
    known = list(existing)
    generations = {each.spec.pool.generation for each in known}
    are_equal = {kept.get(each, each) for each in map(content, wanted)} == set(map(content, known))
    if len(generations) <= 1 and len(known) == len(wanted) and are_equal:
        return ()
    generation = max(generations, default=0) + 1
    return tuple(
        replace(
            each,
            spec=replace(each.spec, pool=replace(each.spec.pool, generation=generation)),
        )
        for each in wanted
    )


def content(item: ResourceSlice) -> Content:
    """Return the name and the spec of a slice without its generation."""
    spec = replace(item.spec, pool=replace(item.spec.pool, generation=0))
    return item.metadata.name, encode_part(spec)
