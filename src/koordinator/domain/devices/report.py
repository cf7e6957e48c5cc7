"""Conversion of a Device object to a node's devices.

Invalid entries are left out and reported; the rest of the node remains usable.
"""

from collections.abc import Iterator, Mapping

from msgspec.structs import replace

from koordinator.api.annotations.devices import GpuPartitionTable, read_gpu_partitions
from koordinator.api.device import NUMA_UNKNOWN, Device, DeviceInfo, DeviceType
from koordinator.api.labels import (
    GPU_MODEL,
    GPU_VENDOR,
    SECONDARY_DEVICE_WELL_PLANNED,
    GpuPartitionPolicy,
    gpu_partition_policy,
    is_true,
)
from koordinator.domain.devices.allocation import amounts_of
from koordinator.domain.devices.model import (
    DeviceGroup,
    Labels,
    ModelDevice,
    NodeDevices,
    NodeModel,
    NodeModels,
    VirtualFunctions,
)
from koordinator.domain.devices.partitions import check_partitions, partition_table
from koordinator.domain.devices.vendors import vendor_named
from koordinator.foundation.errors import InputError
from koordinator.foundation.masks import MAX_MINOR, MAX_ZONE, mask_of


def node_devices(device: Device, node_labels: Mapping[str, str], models: NodeModels) -> NodeDevices:
    """Return the devices of a node.

    The node's labels apply where the original reads the Node; vendor and model come from the report
    if the node does not have the labels yet.
    """
    problems: list[InputError] = []
    by_kind = _devices(device, problems)
    healthy = {
        kind: mask_of(
            minor
            for minor, info in infos.items()
            if info.health and any(amounts_of(kind, info.resources))
        )
        for kind, infos in by_kind.items()
    }
    known = mask_of(by_kind.get(DeviceType.GPU, ()))
    table, policy = (
        _partitions(device, known, problems),
        gpu_partition_policy(device.metadata.labels),
    )
    labels = {**device.metadata.labels, **node_labels}
    vendor, gpu_model = labels.get(GPU_VENDOR, ""), labels.get(GPU_MODEL, "")
    if table is None:
        table = vendor_named(vendor).partitions.get(gpu_model)
        policy = gpu_partition_policy(node_labels)
    model = NodeModel(
        groups=tuple(_group(kind, by_kind[kind]) for kind in DeviceType if kind in by_kind),
        partitions=None if table is None else partition_table(table),
        honors_partitions=policy is GpuPartitionPolicy.HONOR,
        secondaries_planned=is_true(device.metadata.labels, SECONDARY_DEVICE_WELL_PLANNED),
        vendor=vendor,
        gpu_model=gpu_model,
    )
    return NodeDevices(
        model=models[models.number(model)],
        healthy=healthy,
        ids={kind: {m: info.id for m, info in infos.items()} for kind, infos in by_kind.items()},
        problems=tuple(error.within(subject=f"Device {device.key}") for error in problems),
    )


def _devices(device: Device, problems: list[InputError]) -> dict[DeviceType, dict[int, DeviceInfo]]:
    """Return the devices of known types by minor."""
    by_kind: dict[DeviceType, dict[int, DeviceInfo]] = {}
    for index, info in enumerate(device.spec.devices):
        kind = next((known for known in DeviceType if known == info.type), None)
        if kind is None:
            continue
        path = f"spec.devices[{index}].minor"
        minor, minors = info.minor, by_kind.setdefault(kind, {})
        if minor is None or not 0 <= minor <= MAX_MINOR:
            accepted = f"a number from 0 to {MAX_MINOR}"
            problems.append(InputError(f"must be {accepted}, got {minor}", path=path))
        elif minor in minors:
            accepted = f"unique among the {kind} devices"
            problems.append(InputError(f"must be {accepted}, got {minor} again", path=path))
        else:
            path = f"spec.devices[{index}].topology.nodeID"
            minors[minor] = _somewhere(info, path, problems)
    return {kind: infos for kind, infos in by_kind.items() if infos}


def _somewhere(info: DeviceInfo, path: str, problems: list[InputError]) -> DeviceInfo:
    """Return the device; on no NUMA node in particular if the report names one that can't be."""
    place = info.topology
    if place is None or NUMA_UNKNOWN <= place.node_id <= MAX_ZONE:
        return info
    accepted = f"a number from {NUMA_UNKNOWN} to {MAX_ZONE}"
    problems.append(InputError(f"must be {accepted}, got {place.node_id}", path=path))
    return replace(info, topology=replace(place, node_id=NUMA_UNKNOWN))


def _partitions(device: Device, known: int, problems: list[InputError]) -> GpuPartitionTable | None:
    try:
        table = read_gpu_partitions(device.metadata)
        if table is not None:
            check_partitions(table, known)
    except InputError as error:
        problems.append(error)
        return None
    return table


def _group(kind: DeviceType, infos: Mapping[int, DeviceInfo]) -> DeviceGroup:
    devices = (_device(kind, minor, info) for minor, info in sorted(infos.items()))
    return DeviceGroup(kind, tuple(devices))


def _device(kind: DeviceType, minor: int, info: DeviceInfo) -> ModelDevice:
    return ModelDevice(
        minor=minor,
        total=amounts_of(kind, info.resources),
        numa=info.topology.node_id if info.topology else None,
        pcie=info.topology.pcie_id if info.topology else None,
        labels=_labels(info.labels),
        groups=tuple(_functions(info)),
    )


def _functions(info: DeviceInfo) -> Iterator[VirtualFunctions]:
    for group in info.vf_groups:
        yield VirtualFunctions(_labels(group.labels), group.vfs)


def _labels(labels: Mapping[str, str]) -> Labels:
    return tuple(sorted(labels.items()))
