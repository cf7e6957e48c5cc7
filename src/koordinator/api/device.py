"""The devices of a node: GPUs and other accelerators, RDMA cards, FPGAs.

Source: koordinator apis/scheduling/v1alpha1/device_types.go.
"""

from enum import StrEnum
from typing import ClassVar

from msgspec import field

from koordinator.api.core import ResourceList
from koordinator.api.crd import CustomResource, StandardCondition
from koordinator.api.meta import ApiStruct, Int32
from koordinator.api.resource_validation import check_amounts

HEALTHY = "Healthy"  # whether the device can be allocated; a driver's error code is the reason
NUMA_UNKNOWN = -1  # as a node id


class DeviceType(StrEnum):
    """The types that Koordinator schedules.  NPUs, MLUs and the like count as GPUs."""

    GPU = "gpu"
    RDMA = "rdma"
    FPGA = "fpga"


class DeviceTopology(ApiStruct, frozen=True, kw_only=True):
    """Location of a device; unknown ids are -1."""

    socket_id: Int32 = field(name="socketID")  # CPU socket of the device
    node_id: Int32 = field(name="nodeID")  # the NUMA node
    pcie_id: str = field(name="pcieID")  # PCIe switch of the device
    bus_id: str = field(name="busID", default="")  # address on the PCI bus


class VirtualFunction(ApiStruct, frozen=True, kw_only=True):
    """A slice of an SR-IOV card."""

    minor: Int32  # number of the function
    bus_id: str = field(name="busID", default="")  # address on the PCI bus


class VirtualFunctionGroup(ApiStruct, frozen=True, kw_only=True):
    """Virtual functions that are alike."""

    labels: dict[str, str] = {}  # labels that selectors of virtual functions match
    vfs: tuple[VirtualFunction, ...] = ()  # functions of the group


class DeviceInfo(ApiStruct, frozen=True, kw_only=True):
    """A device: ``id`` is its UUID (of RDMA its bus address), ``minor`` its number on the node."""

    type: str = ""  # a DeviceType
    labels: dict[str, str] = {}  # labels that device selectors match
    id: str = ""  # identifier that the vendor gives, such as the UUID of a GPU
    minor: Int32 | None = None  # number of the device on the node
    #: physical number of the device, where the vendor gives one
    module_id: Int32 | None = field(name="moduleID", default=None)
    health: bool = False  # whether the device works; others are not allocated
    resources: ResourceList = {}  # amounts of the whole device
    topology: DeviceTopology | None = None  # place of the device in the machine
    #: virtual functions of a network card, by labels
    vf_groups: tuple[VirtualFunctionGroup, ...] = ()
    conditions: tuple[StandardCondition, ...] = ()  # reasons for the health


class DeviceSpec(ApiStruct, frozen=True, kw_only=True):
    """All devices of the node."""

    devices: tuple[DeviceInfo, ...] = ()  # all devices of the node


class DeviceHolder(ApiStruct, frozen=True, kw_only=True):
    """A pod and the devices that it holds."""

    name: str = ""  # name of the pod
    namespace: str = ""  # namespace of the pod
    uuid: str = ""  # UID of the pod
    minors: tuple[Int32, ...] = ()  # minor numbers of the devices of the pod


class DeviceTypeAllocation(ApiStruct, frozen=True, kw_only=True):
    """Allocations of the devices of one type."""

    type: str = ""  # type of the devices
    entries: tuple[DeviceHolder, ...] = ()  # pods with these devices


class DeviceStatus(ApiStruct, frozen=True, kw_only=True):
    """In the schema only: no component writes it."""

    #: devices allocated to pods, by type; no component writes it
    allocations: tuple[DeviceTypeAllocation, ...] = ()


class Device(CustomResource, frozen=True, kw_only=True):
    """All devices of the node of the same name."""

    API_VERSION: ClassVar[str] = "scheduling.koordinator.sh/v1alpha1"
    KIND: ClassVar[str] = "Device"
    PLURAL: ClassVar[str] = "devices"
    NAMESPACED: ClassVar[bool] = False

    spec: DeviceSpec = DeviceSpec()
    status: DeviceStatus = DeviceStatus()


def validate_device(device: Device) -> None:
    """Raise InputError for a negative or broken amount."""
    for index, info in enumerate(device.spec.devices):
        check_amounts(info.resources, f"spec.devices[{index}].resources")


KINDS = (Device,)
