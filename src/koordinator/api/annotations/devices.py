"""Annotations about GPUs and other devices: what pods want, what they got, what goes together.

Source: koordinator apis/extension/device_share.go; pkg/scheduler/plugins/deviceshare
device_plugin_adapter.go (keys of the vendors' device plugins).
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Any, Final

from msgspec import field
from msgspec.structs import replace

from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.codec import decode
from koordinator.api.core import ResourceList
from koordinator.api.meta import ApiStruct, LabelSelector, ObjectMeta
from koordinator.foundation.errors import InputError
from koordinator.foundation.quantity import Quantity

#: time of the allocation, in nanoseconds since the epoch
BIND_TIMESTAMP: Final = "scheduling.koordinator.sh/bind-timestamp"
#: of a Device object: sets of GPUs that can be allocated together, by the number of GPUs
GPU_PARTITIONS: Final = "scheduling.koordinator.sh/gpu-partitions"
#: minor numbers of the allocated GPUs, such as 0,1
GPU_MINORS: Final = "scheduling.koordinator.sh/gpu-minors"

# Read by device plugins of vendors.
#: time of the allocation of NPUs, in nanoseconds since the epoch
HUAWEI_PREDICATE_TIME: Final = "predicate-time"
#: minor numbers of the allocated NPUs, or minor number and template of a part of one
HUAWEI_NPU_CORE: Final = "huawei.com/npu-core"
HUAWEI_ASCEND_310P: Final = "huawei.com/Ascend310P"  # allocated cards of an Ascend 310P
#: false, until the device plugin of Cambricon has served the pod; misspelt by the vendor
CAMBRICON_ASSIGNED: Final = "CAMBRICON_DSMLU_ASSIGHED"
#: minor number, cores and units of memory of the allocated MLU
CAMBRICON_PROFILE: Final = "CAMBRICON_DSMLU_PROFILE"
#: of a node: pod that the device plugin of Cambricon serves next, and since when
CAMBRICON_LOCK: Final = "cambricon.com/dsmlu.lock"
#: of a node: pod that the device plugin of MetaX serves next, and since when
HAMI_LOCK: Final = "hami.io/mutex.lock"

_WIRE_PARTITIONS = AnnotationCodec(GPU_PARTITIONS, dict[int, Any])


class JointAllocateScope(StrEnum):
    """Scope within which devices of several types are allocated together."""

    SAME_PCIE = "SamePCIe"


class DeviceAllocateStrategy(StrEnum):
    """Every device of the node, or as many as requested."""

    APPLY_FOR_ALL = "ApplyForAll"
    REQUESTS_AS_COUNT = "RequestsAsCount"


class DeviceTopologyScope(StrEnum):
    """A part of the machine in which all devices of a pod have to be, the largest first."""

    NODE = "Node"
    NUMA_NODE = "NUMANode"
    PCIE = "PCIe"
    DEVICE = "Device"


class DeviceExclusivePolicy(StrEnum):
    """Device that a pod shares with no other pod."""

    DEVICE_LEVEL = "DeviceLevel"
    PCIE_LEVEL = "PCIeLevel"


class GpuPartitionAllocatePolicy(StrEnum):
    """Acceptance of partitions with a lower score."""

    RESTRICTED = "Restricted"
    BEST_EFFORT = "BestEffort"


class DeviceHint(ApiStruct, frozen=True, kw_only=True):
    """Preferences for devices of one type; a ``vf_selector``, even an empty one, requests VFs."""

    selector: LabelSelector | None = None  # labels of the devices
    vf_selector: LabelSelector | None = None  # labels of the VFs
    allocate_strategy: str = ""  # a DeviceAllocateStrategy
    #: part of the machine in which all devices are: a DeviceTopologyScope
    required_topology_scope: str = ""
    exclusive_policy: str = ""  # what no other such pod shares: a DeviceExclusivePolicy


class DeviceJointAllocate(ApiStruct, frozen=True, kw_only=True):
    """Types of devices that go together; without scope, if possible."""

    #: types of devices that are allocated together, such as gpu and rdma
    device_types: tuple[str, ...] = ()
    required_scope: str = ""  # a JointAllocateScope; any other text is none


class GpuPartitionSpec(ApiStruct, frozen=True, kw_only=True):
    """The partition that a pod wants; that it is there at all makes a partition table mandatory."""

    #: Restricted accepts only partitions of the highest score; BestEffort also others
    allocate_policy: str = GpuPartitionAllocatePolicy.BEST_EFFORT.value
    ring_bus_bandwidth: Quantity | None = None  # least bandwidth of the links within the partition


class GpuPartition(ApiStruct, frozen=True, kw_only=True):
    """GPUs that are linked to each other."""

    minors: tuple[int, ...]
    gpu_link_type: str = ""  # NVLink, HCCS, …
    ring_bus_bandwidth: Quantity | None = None
    allocation_score: int = 0


class AllocatedVirtualFunction(ApiStruct, frozen=True, kw_only=True):
    """A virtual function that a pod got."""

    minor: int = 0  # minor number of the VF
    bus_id: str = field(name="busID", default="")  # PCI address of the VF


class DeviceAllocationExtension(ApiStruct, frozen=True, kw_only=True):
    """Parts of an allocated device besides amounts."""

    vfs: tuple[AllocatedVirtualFunction, ...] = ()  # virtual functions of the device
    gpu_shared_resource_template: str = ""  # template of the part of an accelerator


class DeviceAllocation(ApiStruct, frozen=True, kw_only=True):
    """Amounts of one device that are allocated to a pod."""

    minor: int  # minor number of the device
    resources: ResourceList = {}  # allocated amounts by resource
    id: str = ""  # UUID of the device
    extension: DeviceAllocationExtension | None = None  # what goes beyond amounts


class MetaXAllocation(ApiStruct, frozen=True, kw_only=True):
    """Amounts of one MetaX card that are allocated to a pod; memory in MiB."""

    uuid: str  # UUID of the card
    compute: int  # percent of its computing power
    v_ram: int  # memory in MiB


class _WirePartition(ApiStruct, frozen=True, kw_only=True):
    """A partition as some producers spell it: with a score in quotes."""

    minors: tuple[int, ...]
    gpu_link_type: str = ""
    ring_bus_bandwidth: Quantity | None = None
    allocation_score: int | str = 0


DeviceAllocations = dict[str, tuple[DeviceAllocation, ...]]  # by DeviceType
GpuPartitionTable = dict[int, tuple[GpuPartition, ...]]  # by number of GPUs

#: allocated devices by type
ALLOCATED = AnnotationCodec("scheduling.koordinator.sh/device-allocated", DeviceAllocations)
ALLOCATE_HINTS = AnnotationCodec(
    "scheduling.koordinator.sh/device-allocate-hint", dict[str, DeviceHint]
)  # preferences by type of device
JOINT_ALLOCATE = AnnotationCodec(
    "scheduling.koordinator.sh/device-joint-allocate", DeviceJointAllocate
)  # types of devices that go together
GPU_PARTITION_SPEC = AnnotationCodec(
    "scheduling.koordinator.sh/gpu-partition-spec", GpuPartitionSpec
)  # partition of GPUs
METAX_ALLOCATED = AnnotationCodec(
    "metax-tech.com/gpu-devices-allocated", tuple[tuple[MetaXAllocation, ...], ...]
)  # allocated cards of MetaX

_PARTITIONS = AnnotationCodec(GPU_PARTITIONS, dict[str, tuple[GpuPartition, ...]])


def read_gpu_partitions(meta: ObjectMeta) -> GpuPartitionTable | None:
    """Return the partition table, None if there is none.

    Beyond what Koordinator writes, a score may be in quotes, a single partition may stand without
    its list, and partitions may be grouped by link type: ``{"1": {"NVLINK": [...]}}``.
    Raises InputError if the table can't be read; upstream takes that for no table.
    """
    by_size = _WIRE_PARTITIONS.read(meta)
    if by_size is None:
        return None
    return {
        size: tuple(_partitions(group, f"{_PARTITIONS.path}[{size}]"))
        for size, group in by_size.items()
        if group is not None
    }


def _partitions(value: object, path: str) -> Iterator[GpuPartition]:
    """Yield the partitions of one size: a list, a single one, or either of them by link type."""
    for each in value if isinstance(value, list) else (value,):
        if not isinstance(each, dict) or not each or "minors" in each:
            yield _partition(each, path)
            continue
        for link_type, linked in each.items():
            for partition in linked if isinstance(linked, list) else (linked,):
                given = _partition(partition, f"{path}[{link_type}]")
                yield given if given.gpu_link_type else replace(given, gpu_link_type=link_type)


def gpu_partitions_entry(table: GpuPartitionTable) -> dict[str, str]:
    """Return the annotation of a partition table."""
    return _PARTITIONS.entry({str(size): table[size] for size in table})


def _partition(value: object, path: str) -> GpuPartition:
    if not isinstance(value, dict):
        raise InputError(f"must be a partition with minors, got {value!r}", path=path)
    try:
        wire = decode(value, _WirePartition)
    except InputError as error:
        raise error.within(path=path) from None
    try:
        score = int(wire.allocation_score)
    except ValueError:
        raise InputError(
            f"allocationScore must be an integer, got {wire.allocation_score!r}",
            path=path,
        ) from None
    return GpuPartition(
        minors=wire.minors,
        gpu_link_type=wire.gpu_link_type,
        ring_bus_bandwidth=wire.ring_bus_bandwidth,
        allocation_score=score,
    )
