"""Feature gates, under the names and with the defaults of the original.

Source: koordinator pkg/features/koordlet_features.go; pkg/koordlet/runtimehooks/config.go.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from koordinator.foundation.errors import InputError
from koordinator.foundation.feature_gates import SOURCE, parse_feature_gates

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
#: Gates of the original without an effect here, with the reason.
MEANINGLESS: Final = MappingProxyType(
    {
        "Libpfm4": "counters are named by their hardware ids, which needs no library",
    }
)
_OWN: Final = frozenset({"GPUResourceSlices", "DRAConsumableCapacity"})


def parse_gates(text: str) -> dict[str, bool]:
    """Parse the value of the flag; AllAlpha and AllBeta cover the original's gates.

    Raises InputError.
    """
    return parse_feature_gates(text, alpha=OFF - _OWN, beta=ON)


def gates_of(stated: Mapping[str, bool]) -> frozenset[str]:
    """Return the enabled gates.  Raises InputError for an unknown gate."""
    for name in stated:
        if name not in ON | OFF | MEANINGLESS.keys():
            raise InputError(
                f"unknown feature gate {name!r}; known gates: {', '.join(sorted(ON | OFF))}",
                source=SOURCE,
            )
    chosen = {**dict.fromkeys(ON, True), **stated}
    return frozenset(name for name, is_on in chosen.items() if is_on and name not in MEANINGLESS)
