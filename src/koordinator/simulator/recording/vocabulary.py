"""Vocabulary of words that anonymous recordings keep, as they are structure and not secret.

Kinds, fields, enumerations, and the keys of labels, annotations and resources come from
``koordinator.api``; words of Kubernetes that are plain text there are listed here.
"""

import pkgutil
from enum import StrEnum
from functools import cache
from importlib import import_module
from types import ModuleType

import koordinator.api
import koordinator.api.annotations
from koordinator.api import labels
from koordinator.api.annotations import devices, gang, node, pod_qos, quota, scheduling
from koordinator.api.annotations import reservation as reservations
from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.registry import KINDS

#: Labels and annotations whose text is a number, an amount or a duration.
NUMERIC = frozenset(
    (
        labels.POD_PRIORITY,
        labels.LIGHTWEIGHT_MIN_AVAILABLE,
        labels.RESERVATION_ORDER,
        labels.CPU_RECLAIM_RATIO,
        labels.MEMORY_RECLAIM_RATIO,
        labels.MID_STATIC_CPU_RESERVED_RATIO,
        labels.MID_STATIC_MEMORY_RESERVED_RATIO,
        gang.MIN_AVAILABLE,
        gang.TOTAL_NUMBER,
        gang.WAITING_TIME,
        gang.NETWORK_TOPOLOGY_INDEX,
        gang.BIND_GANG_MEMBER_COUNT,
        gang.FORMER_BIND_GANG_MEMBER_COUNT,
        quota.QUEUE_DEPTH,
        scheduling.EVICTION_COST,
        scheduling.POD_DELETION_COST,
        devices.GPU_MINORS,
        node.CPU_NORMALIZATION_RATIO,
        node.NETWORK_BANDWIDTH,
        reservations.PRE_ALLOCATABLE_PRIORITY,
        pod_qos.EVICTION_PRIORITY,
        pod_qos.ESTIMATED_SECONDS_AFTER_SCHEDULED,
        pod_qos.ESTIMATED_SECONDS_AFTER_INITIALIZED,
    )
)
_PROSE = frozenset((gang.QUEUE_REASON, scheduling.EVICT_REASON))
_KUBERNETES = """
    true false True False Unknown default kube-system kube-public kube-node-lease koordinator-system
    default-scheduler koord-scheduler system-cluster-critical system-node-critical
    koord-prod koord-mid koord-batch koord-free koordinator-root-quota koordinator-default-quota
    koordinator-system-quota kubernetes.io k8s.io koordinator.sh latest
    v1 apps/v1 batch/v1 apps batch policy/v1 storage.k8s.io
    Deployment ReplicaSet StatefulSet DaemonSet Job CronJob ReplicationController Node Namespace
    Pending Running Succeeded Failed Available Bound Released Lost Active Terminating
    Waiting Expired Ready PreScheduling Scheduling Scheduled Finished
    In NotIn Exists DoesNotExist Gt Lt Equal
    NoSchedule PreferNoSchedule NoExecute Always OnFailure Never IfNotPresent
    TCP UDP SCTP Guaranteed Burstable BestEffort PreemptLowerPriority
    DoNotSchedule ScheduleAnyway Honor Ignore IfHealthyBudget AlwaysAllow
    Immediate WaitForFirstConsumer Retain Recycle Delete Block Filesystem
    ReadWriteOnce ReadOnlyMany ReadWriteMany ReadWriteOncePod Memory HugePages
    PodScheduled Initialized ContainersReady PodReadyToStartContainers DisruptionTarget
    MemoryPressure DiskPressure PIDPressure NetworkUnavailable Unschedulable SchedulerError
    SchedulingGated PreemptionByScheduler DeletionByTaintManager EvictionByEvictionAPI
    TerminationByKubelet Allocated Synced
    InternalIP ExternalIP Hostname InternalDNS ExternalDNS amd64 arm64 linux windows
    metadata.name metadata.namespace 0.0.0.0 127.0.0.1 ::
    cpu memory pods ephemeral-storage storage gpu rdma fpga xpu npu
    nvidia huawei cambricon metax baidu kunlun HAMi-core static none
    prod mid batch free LSE LSR LS BE SYSTEM koord-system
    none pod container restricted single-numa-node best-effort Restricted SingleNUMANode
    SingleNUMANodePodLevel SingleNUMANodeContainerLevel RestrictedPodLevel RestrictedContainerLevel
    BestEffortPodLevel BestEffortContainerLevel topologyManagerPolicy topologyManagerScope
    TopologyManagerPolicy TopologyManagerScope NodeTopologyPolicy Required Preferred Exclusive
    FullPCPUs SpreadByPCPUs ConstrainedBurst PCPULevel NUMANodeLevel None Default ReservedCPUsOnly
    MostAllocated LeastAllocated BalancedAllocation Distribute RequestsOrLimits
    ApplyForAll RequestAndUsage SamePCIe PCIe NUMANode NumaNode Numa Machine DeviceLevel
    PCIExpressLevel PCIe-SWITCH NVLink HCCS Restrict BindingNumaNode
    MustGather PreferGather NonStrict Strict only-waiting waiting-and-running once-satisfied
    ClusterNetworkTopology NodeTopologyLayer full-pcpus-only distribute-cpus-across-numa
    distribute-cpus-across-cores align-by-socket p50 p90 p95 p99 avg max evictByRealLimit
    evictByAllocatable backfill fifo fair-share kubernetes.io/hostname kubernetes.io/os
    kubernetes.io/arch kubernetes.io/metadata.name topology.kubernetes.io/region
    topology.kubernetes.io/zone failure-domain.beta.kubernetes.io/region
    failure-domain.beta.kubernetes.io/zone node.kubernetes.io/instance-type
    node.kubernetes.io/not-ready node.kubernetes.io/unreachable node.kubernetes.io/unschedulable
    node.kubernetes.io/memory-pressure node.kubernetes.io/disk-pressure
    node.kubernetes.io/pid-pressure node.kubernetes.io/network-unavailable
    node.kubernetes.io/out-of-service node.cloudprovider.kubernetes.io/uninitialized
    node-role.kubernetes.io/control-plane node-role.kubernetes.io/master koordinator.sh/node-pool
    node.kubernetes.io/exclude-from-external-load-balancers
    storage.alpha.kubernetes.io/migrated-plugins pv.kubernetes.io/bind-completed
    pv.kubernetes.io/bound-by-controller volume.kubernetes.io/selected-node
    volume.beta.kubernetes.io/storage-class storageclass.kubernetes.io/is-default-class
    storageclass.beta.kubernetes.io/is-default-class kubernetes.io/config.source
    kubernetes.io/no-provisioner kubernetes.io/aws-ebs kubernetes.io/gce-pd kubernetes.io/azure-disk
    kubernetes.io/cinder kubernetes.io/vsphere-volume kubernetes.io/portworx-volume
    kubernetes.io/azure-file kubernetes.io/rbd ebs.csi.aws.com pd.csi.storage.gke.io
    disk.csi.azure.com file.csi.azure.com cinder.csi.openstack.org
    huawei.com/Ascend310P amd.com/gpu
"""


@cache
def vocabulary() -> frozenset[str]:
    """Return the words."""
    words = {*_KUBERNETES.split(), *NUMERIC}
    for kind in KINDS:
        words |= {kind.KIND, kind.API_VERSION, kind.API_VERSION.partition("/")[0]}
    for module in _modules(koordinator.api):
        for name, value in vars(module).items():
            if isinstance(value, str) and name.isupper():
                words.add(value)
            elif isinstance(value, type) and issubclass(value, StrEnum):
                words |= {str(each.value) for each in value}
    return frozenset(words) | annotation_types().keys()


@cache
def annotation_types() -> dict[str, object]:
    """Return the types of annotations that are JSON, by key; ``str`` for those that are text.

    Leaves out prose and annotations that do not affect decisions.
    """
    types: dict[str, object] = {}
    for module in _modules(koordinator.api.annotations):
        for name, value in vars(module).items():
            if isinstance(value, AnnotationCodec):
                types[value.key] = value.type
                if value.former_key:
                    types[value.former_key] = value.type
            elif isinstance(value, str) and name.isupper() and "/" in value:
                types.setdefault(value, str)
    types |= dict.fromkeys((word for word in _KUBERNETES.split() if "/" in word), str)
    return {key: kind for key, kind in types.items() if key not in _PROSE}


def _modules(package: ModuleType) -> list[ModuleType]:
    """Return the modules of a package and of those in it."""
    prefix = f"{package.__name__}."
    infos = pkgutil.walk_packages(package.__path__, prefix)
    return [import_module(each.name) for each in infos]
