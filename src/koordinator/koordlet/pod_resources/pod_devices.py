"""Devices of a pod under the resource names that the kubelet would report.

Source: koordinator pkg/koordlet/statesinformer/impl/states_pod_resources.go,
``fillPodDevicesAllocatedByKoord``.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from koordinator.api.annotations.devices import DeviceAllocation, DeviceAllocations
from koordinator.api.device import DeviceType
from koordinator.api.resource_names import FPGA, NVIDIA_GPU, RDMA

MOST_DEVICES: Final = 1024  # of one type, virtual functions included; no machine has more
#: Resource names by type; device plugins report devices of other types.
NAMES: Final[Mapping[str, str]] = MappingProxyType(
    {DeviceType.GPU: NVIDIA_GPU, DeviceType.RDMA: RDMA, DeviceType.FPGA: FPGA}
)


def pod_devices(allocated: DeviceAllocations) -> dict[str, tuple[str, ...]]:
    """Return ids by resource name, sorted by name.

    Virtual functions and whole RDMA cards are listed by PCI address, GPUs by UUID.
    """
    by_name = {NAMES[kind]: _ids(devices) for kind, devices in allocated.items() if kind in NAMES}
    return {name: ids for name, ids in sorted(by_name.items()) if ids}


def _ids(devices: Iterable[DeviceAllocation]) -> tuple[str, ...]:
    ids = []
    for device in devices:
        functions = device.extension.vfs if device.extension is not None else ()
        ids += [vf.bus_id for vf in functions] or [device.id]
    return tuple(dict.fromkeys(each for each in ids if each))[:MOST_DEVICES]
