"""Options and feature gates of the agent, under the names and with the defaults of the original.

Source: koordinator pkg/features/koordlet_features.go; pkg/koordlet/runtimehooks/config.go.
"""

from collections.abc import Mapping
from dataclasses import field
from types import MappingProxyType
from typing import Final

from koordinator.foundation.errors import InputError
from koordinator.foundation.feature_gates import SOURCE, parse_feature_gates
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.port import HOST, Roots
from koordinator.koordlet.adjustments import UnpreparedPolicy
from koordinator.koordlet.prediction.models import PredictionOptions

ON: Final = frozenset(
    {
        "BECPUSuppress",  # limits the CPUs of best-effort pods to what other pods leave
        "CPUBurst",  # CPU burst, and larger quotas of throttled containers
        "RdtResctrl",  # caches and memory bandwidth by QoS class
        "NodeTopologyReport",  # writes the NodeResourceTopology
        "GroupIdentity",  # precedence on CPUs by QoS class
        "CPUSetAllocator",  # CPUs of containers, as the scheduler chose them
        "BatchResource",  # CPU and memory limits of pods that request batch resources
    }
)
OFF: Final = frozenset(
    {
        "AuditEvents",  # writes the audit log
        "AuditEventsHTTPHandler",  # serves the audit log at /events
        "BECPUManager",  # gives best-effort pods CPUs of the scheduler; only quotas suppress
        "BECPUEvict",  # evicts best-effort pods that get too few of the CPUs they request
        "BEMemoryEvict",  # evicts best-effort pods when the memory of the node is used up
        "CPUEvict",  # evicts pods by priority when the CPU of the node is used up
        "MemoryEvict",  # evicts pods by priority when the memory of the node is used up
        "CPUAllocatableEvict",  # evicts pods when requested batch-cpu or mid-cpu is not offered
        "MemoryAllocatableEvict",  # the same for batch-memory and mid-memory
        "SystemConfig",  # kernel settings of the node, from systemStrategy
        "CgroupReconcile",  # memory QoS of pods and QoS classes
        "Accelerators",  # reports GPUs and other accelerators in the Device
        "RDMADevices",  # reports RDMA cards in the Device
        "CPICollector",  # measures cycles per instruction
        "PSICollector",  # measures pressure stall information
        "ResctrlCollector",  # measures caches and bandwidth, with --enable-resctrl-collector
        "BlkIOReconcile",  # limits and weights of disks
        "ColdPageCollector",  # measures cold memory
        "HugePageReport",  # reports huge pages in the NodeResourceTopology
        "PerCPUMetric",  # metrics that list the CPUs of a pool one by one
        "NodeMetricPromMetrics",  # exports the usage in the NodeMetric as metrics
        "CPUNormalization",  # quotas scaled by the ratio of the node's CPU model
        "CoreSched",  # cookies of core scheduling
        "Resctrl",  # caches and memory bandwidth of single pods, by their annotation
        "OOMScoreAdj",  # OOM scores of containers, by annotations of their pods
        "GPUEnvInject",  # passes the allocated GPUs to the containers
        "RDMADeviceInject",  # passes the allocated RDMA cards to the containers
        "GPUResourceSlices",  # offers the GPUs to ResourceClaims, too
        "DRAConsumableCapacity",  # with GPUResourceSlices: offers shares of GPUs
        "HamiCoreVGPUMonitor",  # keeps a region of HAMi-core per container, for koord vgpu-monitor
        "PodResourcesProxy",  # serves the PodResources API of the kubelet, with devices of koordlet
        "TCNetworkQoS",  # shapes the traffic of the node with tc
        "TerwayQoS",  # writes the bandwidths for Alibaba's network plugin
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


@dataclass(frozen=True, slots=True, kw_only=True)
class KoordletOptions:
    """Options of the agent, in seconds unless the name has a unit.

    Names and defaults follow the original's flags.
    """

    node_name: str
    roots: Roots = HOST
    gates: frozenset[str] = field(default_factory=lambda: gates_of({}))
    ticks_per_s: float = 100.0
    collect_interval_s: float = 1.0
    system_outdated_s: float = 10.0
    pressure_interval_s: float = 10.0
    cold_page_interval_s: float = 5.0
    cpi_interval_s: float = 60.0
    cpi_window_s: float = 10.0
    resctrl_interval_s: float = 10.0
    suppress_interval_s: float = 1.0
    cpu_evict_interval_s: float = 1.0
    memory_evict_interval_s: float = 1.0
    reconcile_interval_s: float = 1.0
    hooks_interval_s: float = 10.0
    topology_interval_s: float = 3.0
    hardware_interval_s: float = 60.0
    cpu_evict_cool_s: float = 20.0
    memory_evict_cool_s: float = 4.0
    forced_update_s: float = 60.0
    pod_retention_s: float = 300.0
    monitors_resctrl: bool = False
    reports_usage: bool = True
    evicts_only_by_api: bool = False
    longest_grace_s: int = 30
    keeps_quota_of_bound_pods: bool = False
    xpu_folder: str = ""
    only_described_xpus: bool = False
    audit_folder: str = ""
    audit_bytes: int = 16 << 20
    checkpoint_folder: str = ""
    kubelet_cgroup_root: tuple[str, ...] | None = None
    unprepared_containers: UnpreparedPolicy = UnpreparedPolicy.REPORT
    prediction: PredictionOptions = field(default_factory=PredictionOptions)
