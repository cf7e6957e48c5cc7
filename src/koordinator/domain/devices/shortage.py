"""Reasons why a node's devices don't fit a pod, worded as in the original.

Source: koordinator pkg/scheduler/plugins/deviceshare: allocator_gpu.go, device_allocator.go,
devicehandler_default.go, topology_hint.go.
"""

from dataclasses import dataclass
from typing import Final

from koordinator.api.device import DeviceType


@dataclass(frozen=True, slots=True)
class DeviceShortage:
    """A reason; ``resolvable``: removing pods from the node might help."""

    reason: str
    resolvable: bool = True


NO_PARTITION_TABLE: Final = DeviceShortage("node(s) missing GPU Partition Table", resolvable=False)
NO_PARTITION_OF_SIZE: Final = DeviceShortage(
    "node(s) Unsupported number of GPU requests", resolvable=False
)
NO_PARTITION: Final = DeviceShortage("Insufficient Partitioned GPU Devices")
NO_TOPOLOGY: Final = DeviceShortage("node(s) missing GPU Device Topology Tree", resolvable=False)
SEVERAL_SHARES: Final = DeviceShortage("node(s) Unsupported Multi-Shared GPU", resolvable=False)
NO_SCOPE: Final = DeviceShortage("Insufficient Topology Scoped GPU Devices")
NO_GPU: Final = DeviceShortage("Insufficient GPU Devices")
NO_TEMPLATE: Final = DeviceShortage("no matched GPU shared resource template", resolvable=False)
NOT_JOINT: Final = DeviceShortage("node(s) Device Joint-Allocate rules violation")
NO_NUMA_NODE: Final = DeviceShortage("Insufficient NUMA Scoped Devices", resolvable=False)

#: Reasons where enough devices may exist, but no combination that may be allocated together.
NOT_TOGETHER: Final = frozenset(
    one.reason
    for one in (NO_PARTITION_OF_SIZE, NO_PARTITION, NO_SCOPE, NO_GPU, NOT_JOINT, NO_NUMA_NODE)
)

NO_DEVICE: Final = {kind: DeviceShortage(f"Insufficient {kind} devices") for kind in DeviceType}
NOT_REPORTED: Final = {
    kind: DeviceShortage(f"Insufficient {kind} devices", resolvable=False) for kind in DeviceType
}
NO_VIRTUAL_FUNCTION: Final = {
    kind: DeviceShortage(f"Insufficient {kind} VirtualFunctions", resolvable=False)
    for kind in DeviceType
}
