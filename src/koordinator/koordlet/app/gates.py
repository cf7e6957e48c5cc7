"""Feature gates, under the names and with the defaults of the original.

Source: koordinator pkg/features/koordlet_features.go; pkg/koordlet/runtimehooks/config.go.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from koordinator.foundation.errors import InputError

ON: Final = frozenset(
    {
        "BECPUSuppress",
        "CPUBurst",
        "RdtResctrl",
        "NodeTopologyReport",
        "GroupIdentity",
        "CPUSetAllocator",
        "BatchResource",
    }
)
OFF: Final = frozenset(
    {
        "AuditEvents",
        "AuditEventsHTTPHandler",
        "BECPUManager",
        "BECPUEvict",
        "BEMemoryEvict",
        "CPUEvict",
        "MemoryEvict",
        "CPUAllocatableEvict",
        "MemoryAllocatableEvict",
        "SystemConfig",
        "CgroupReconcile",
        "Accelerators",
        "RDMADevices",
        "CPICollector",
        "PSICollector",
        "ResctrlCollector",
        "BlkIOReconcile",
        "ColdPageCollector",
        "HugePageReport",
        "PerCPUMetric",
        "NodeMetricPromMetrics",
        "CPUNormalization",
        "CoreSched",
        "Resctrl",
        "OOMScoreAdj",
        "GPUEnvInject",
        "RDMADeviceInject",
        "GPUResourceSlices",
        "DRAConsumableCapacity",
        "HamiCoreVGPUMonitor",
        "PodResourcesProxy",
        "TCNetworkQoS",
        "TerwayQoS",
    }
)
#: Of the original, and not here: they are accepted where they are off.  Why each is refused.
ABSENT: Final = MappingProxyType(
    {
        "Libpfm4": "counters are named by their hardware ids, which needs no library",
    }
)


def gates_of(stated: Mapping[str, bool]) -> frozenset[str]:
    """Return what is on.

    Raises InputError for a gate that nobody knows, and for one that can't be switched on here.
    """
    for name, is_on in stated.items():
        if name not in ON | OFF | ABSENT.keys():
            raise InputError(
                f"found {name!r}; accepted are {', '.join(sorted(ON | OFF))}", path="feature-gates"
            )
        if is_on and name in ABSENT:
            raise InputError(f"{name} can't be switched on: {ABSENT[name]}", path="feature-gates")
    chosen = {**dict.fromkeys(ON, True), **stated}
    return frozenset(name for name, is_on in chosen.items() if is_on)
