"""Annotations about CPUs and NUMA nodes: what pods want and got, what nodes have and keep.

Source: koordinator apis/extension/numa_aware.go, node_reservation.go, system_qos.go,
cpu_normalization.go.
"""

from enum import StrEnum
from typing import Final

from msgspec import field

from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.core import ResourceList
from koordinator.api.meta import ApiStruct

FULL_PCPUS_ONLY: Final = "full-pcpus-only"  # option of the kubelet's CPU manager
DISTRIBUTE_CPUS_ACROSS_NUMA: Final = "distribute-cpus-across-numa"


class CpuBindPolicy(StrEnum):
    """Choice of CPUs for pods with bound CPUs; only the middle two policies bind."""

    DEFAULT = "Default"
    FULL_PCPUS = "FullPCPUs"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"
    CONSTRAINED_BURST = "ConstrainedBurst"


class CpuExclusivePolicy(StrEnum):
    """Unit that a pod prefers not to share with pods of the same policy."""

    NONE = "None"
    PCPU_LEVEL = "PCPULevel"
    NUMA_NODE_LEVEL = "NUMANodeLevel"


class NodeCpuBindPolicy(StrEnum):
    """CPU bind policy that the label of a node applies to all pods."""

    NONE = "None"
    FULL_PCPUS_ONLY = "FullPCPUsOnly"
    SPREAD_BY_PCPUS = "SpreadByPCPUs"


class NumaAllocateStrategy(StrEnum):
    """Order in which NUMA nodes are filled; DistributeEvenly is read as LeastAllocated."""

    MOST_ALLOCATED = "MostAllocated"
    LEAST_ALLOCATED = "LeastAllocated"
    DISTRIBUTE_EVENLY = "DistributeEvenly"


class NumaTopologyPolicy(StrEnum):
    """Strictness with which all resources of a pod come from the same NUMA nodes."""

    NONE = ""
    BEST_EFFORT = "BestEffort"
    RESTRICTED = "Restricted"
    SINGLE_NUMA_NODE = "SingleNUMANode"


class NumaTopologyExclusive(StrEnum):
    """Separation of pods on one NUMA node from pods across several."""

    PREFERRED = "Preferred"
    REQUIRED = "Required"


class NodeReservationApplyPolicy(StrEnum):
    """Effect of a reservation: less allocatable amounts, or only CPUs excluded from binding."""

    DEFAULT = "Default"
    RESERVED_CPUS_ONLY = "ReservedCPUsOnly"


class NumaTopologySpec(ApiStruct, frozen=True, kw_only=True):
    """Requirements of a pod on its NUMA nodes."""

    numa_topology_policy: str = ""  # a NumaTopologyPolicy
    #: whether the pod stays off NUMA nodes of pods that span several, and the reverse
    single_numa_node_exclusive: str = field(name="singleNUMANodeExclusive", default="")


class CpuBindSpec(ApiStruct, frozen=True, kw_only=True):
    """CPU preferences of a pod; an unknown policy binds no CPUs."""

    #: bind policy without which the pod is not scheduled
    required_cpu_bind_policy: str = field(name="requiredCPUBindPolicy", default="")
    #: bind policy if none is required
    preferred_cpu_bind_policy: str = field(name="preferredCPUBindPolicy", default="")
    #: level on which pods of the same policy avoid each other
    preferred_cpu_exclusive_policy: str = field(name="preferredCPUExclusivePolicy", default="")


class NumaNodeResource(ApiStruct, frozen=True, kw_only=True):
    """Resources of one NUMA node that are allocated to a pod."""

    node: int  # id of the NUMA node
    resources: ResourceList = {}  # allocated amounts by resource


class CpuAllocation(ApiStruct, frozen=True, kw_only=True):
    """Allocated CPUs and NUMA resources; ``cpuset`` is a list such as 0-3,8."""

    cpuset: str = ""  # CPUs of the pod, such as 0-3,8
    numa_node_resources: tuple[NumaNodeResource, ...] = ()  # allocated amounts by NUMA node


class CpuInfo(ApiStruct, frozen=True, kw_only=True):
    """Location of a logical CPU; core ids count per socket."""

    id: int  # id of the logical CPU
    core: int  # id of the core within the socket
    socket: int  # id of the socket
    node: int  # id of the NUMA node


class CpuTopology(ApiStruct, frozen=True, kw_only=True):
    """All logical CPUs of a node."""

    detail: tuple[CpuInfo, ...] = ()  # logical CPUs of the node


class PodCpuAllocation(ApiStruct, frozen=True, kw_only=True):
    """CPUs that a pod holds on a node."""

    namespace: str = ""  # namespace of the pod
    name: str = ""  # name of the pod
    uid: str = ""  # UID of the pod
    cpuset: str = ""  # CPUs of the pod, such as 0-3,8
    managed_by_kubelet: bool = False  # whether the CPU manager of the kubelet chose them


class CpuSharedPool(ApiStruct, frozen=True, kw_only=True):
    """Shared CPUs of one NUMA node."""

    socket: int  # id of the socket
    node: int  # id of the NUMA node
    cpuset: str = ""  # shared CPUs, such as 0-3,8


class KubeletCpuManagerPolicy(ApiStruct, frozen=True, kw_only=True):
    """``policy`` is static or none."""

    policy: str = ""  # static or none
    options: dict[str, str] = {}  # options of the policy, such as full-pcpus-only
    reserved_cpus: str = field(name="reservedCPUs", default="")  # CPUs that the kubelet reserves


class NodeReservation(ApiStruct, frozen=True, kw_only=True):
    """Resources of a node kept from pods; a list of CPUs takes precedence over an amount."""

    resources: ResourceList = {}  # reserved amounts by resource
    #: reserved CPUs, such as 0-3; they go before an amount of CPU
    reserved_cpus: str = field(name="reservedCPUs", default="")
    apply_policy: str = ""  # a NodeReservationApplyPolicy; none is Default


class SystemQosResource(ApiStruct, frozen=True, kw_only=True):
    """CPUs for pods of QoS class SYSTEM."""

    cpuset: str = ""  # CPUs of the class, such as 0-3
    cpuset_exclusive: bool = True  # whether no other class uses these CPUs


class CpuBasicInfo(ApiStruct, frozen=True, kw_only=True):
    """The model of a node's CPUs and how they are set up."""

    cpu_model: str = ""  # model of the CPUs
    hyper_thread_enabled: bool = False  # whether hyper-threading is on
    turbo_enabled: bool = False  # whether turbo is on
    #: bit mask of the L3 cache ways that can be allocated
    cat_l3_cbm_mask: str = field(name="catL3CbmMask", default="")
    vendor_id: str = field(name="vendorID", default="")  # vendor of the CPUs


# Of pods.
NUMA_TOPOLOGY_SPEC = AnnotationCodec(
    "scheduling.koordinator.sh/numa-topology-spec", NumaTopologySpec
)  # NUMA requirements of the pod
#: CPU requirements of the pod
RESOURCE_SPEC = AnnotationCodec("scheduling.koordinator.sh/resource-spec", CpuBindSpec)
#: allocated CPUs and NUMA amounts
RESOURCE_STATUS = AnnotationCodec("scheduling.koordinator.sh/resource-status", CpuAllocation)

# Of nodes, copied to NodeResourceTopology objects.
#: amounts and CPUs that pods do not get
NODE_RESERVATION = AnnotationCodec("node.koordinator.sh/reservation", NodeReservation)
#: CPUs of QoS class SYSTEM
SYSTEM_QOS_RESOURCE = AnnotationCodec("node.koordinator.sh/system-qos-resource", SystemQosResource)

# Of NodeResourceTopology objects.
#: model of the CPUs
CPU_BASIC_INFO = AnnotationCodec("node.koordinator.sh/cpu-basic-info", CpuBasicInfo)
#: sockets, cores and NUMA nodes of the CPUs
CPU_TOPOLOGY = AnnotationCodec("node.koordinator.sh/cpu-topology", CpuTopology)
POD_CPU_ALLOCATIONS = AnnotationCodec(
    "node.koordinator.sh/pod-cpu-allocs", tuple[PodCpuAllocation, ...]
)  # CPUs that the kubelet gave to pods
CPU_SHARED_POOLS = AnnotationCodec(
    "node.koordinator.sh/cpu-shared-pools", tuple[CpuSharedPool, ...]
)  # CPUs of pods without CPUs of their own, by NUMA node
BE_CPU_SHARED_POOLS = AnnotationCodec(
    "node.koordinator.sh/be-cpu-shared-pools", tuple[CpuSharedPool, ...]
)  # CPUs of BE pods by NUMA node
KUBELET_CPU_MANAGER_POLICY = AnnotationCodec(
    "kubelet.koordinator.sh/cpu-manager-policy", KubeletCpuManagerPolicy
)  # CPU manager of the kubelet
