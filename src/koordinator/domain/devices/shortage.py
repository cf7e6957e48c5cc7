"""Why a node's devices are no good for a pod, in the words of the original.

Source: koordinator pkg/scheduler/plugins/deviceshare: allocator_gpu.go, device_allocator.go,
devicehandler_default.go, topology_hint.go.
"""

from dataclasses import dataclass
from typing import Final

from koordinator.api.device import DeviceType


@dataclass(frozen=True, slots=True)
class Shortage:
    """``resolvable``: it could help to remove pods from the node."""

    reason: str
    resolvable: bool = True


NO_PARTITION_TABLE: Final = Shortage("node(s) missing GPU Partition Table", resolvable=False)
NO_PARTITION_OF_SIZE: Final = Shortage(
    "node(s) Unsupported number of GPU requests", resolvable=False
)
NO_PARTITION: Final = Shortage("Insufficient Partitioned GPU Devices")
NO_TOPOLOGY: Final = Shortage("node(s) missing GPU Device Topology Tree", resolvable=False)
SEVERAL_SHARES: Final = Shortage("node(s) Unsupported Multi-Shared GPU", resolvable=False)
NO_SCOPE: Final = Shortage("Insufficient Topology Scoped GPU Devices")
NO_GPU: Final = Shortage("Insufficient GPU Devices")
NO_TEMPLATE: Final = Shortage("no matched GPU shared resource template", resolvable=False)
NOT_JOINT: Final = Shortage("node(s) Device Joint-Allocate rules violation")
NO_NUMA_NODE: Final = Shortage("Insufficient NUMA Scoped Devices", resolvable=False)

#: There may be enough devices, but not such as may be taken together.
NOT_TOGETHER: Final = frozenset(
    one.reason
    for one in (NO_PARTITION_OF_SIZE, NO_PARTITION, NO_SCOPE, NO_GPU, NOT_JOINT, NO_NUMA_NODE)
)

NO_DEVICE: Final = {kind: Shortage(f"Insufficient {kind} devices") for kind in DeviceType}
NOT_REPORTED: Final = {
    kind: Shortage(f"Insufficient {kind} devices", resolvable=False) for kind in DeviceType
}
NO_VIRTUAL_FUNCTION: Final = {
    kind: Shortage(f"Insufficient {kind} VirtualFunctions", resolvable=False) for kind in DeviceType
}
