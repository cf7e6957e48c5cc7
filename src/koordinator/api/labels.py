"""Keys of labels, and the readings of those that are more than text.

Source: koordinator apis/extension; apis/slo/v1alpha1/pod.go; pkg/descheduler/controllers/migration.
"""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

_MAX_INT32 = 2**31 - 1
_INTEGER = re.compile(r"[+-]?[0-9]{1,19}")

# Of pods.
POD_QOS_CLASS: Final = "koordinator.sh/qosClass"  # QoS class of the pod: LSE, LSR, LS, BE or SYSTEM
POD_PRIORITY: Final = "koordinator.sh/priority"  # order within a band; a number
POD_PRIORITY_CLASS: Final = "koordinator.sh/priority-class"  # a PriorityBand
#: true: the webhook mutates updates of the pod too
POD_MUTATING_UPDATE: Final = "pod.koordinator.sh/mutating-update"
#: true: the webhook does not require the labels that a ConfigMap lists
POD_SKIP_ENHANCED_VALIDATION: Final = "pod.koordinator.sh/skip-enhanced-validation"
#: true: the webhook does not check the binding
BINDING_ADMISSION_BYPASS: Final = "koordinator.sh/binding-admission-bypass"
#: true: the runtime proxy of the original skips the pod
SKIP_HOOK_SERVER: Final = "runtimeproxy.koordinator.sh/skip-hookserver"
COMPONENT: Final = "app.kubernetes.io/component"  # node-manager is a NodeManager of YARN
NODE_MANAGER: Final = "node-manager"

# Of any object.
MANAGED_BY: Final = "app.kubernetes.io/managed-by"  # component that manages the object
CREATED_BY: Final = "app.kubernetes.io/created-by"  # component that created the object

# Of ConfigMaps.
#: kind of ConfigMap that the webhook validates
CONFIG_MAP_TYPE: Final = "koordinator.sh/configmap-type"

# Of pods, for the scheduler.
#: name of the scheduler; goes before spec.schedulerName
SCHEDULER_NAME: Final = "scheduling.koordinator.sh/scheduler-name"
#: policy that replaces spec.preemptionPolicy
PREEMPTION_POLICY: Final = "scheduling.koordinator.sh/preemption-policy"
#: true: reservations, and preemption for whole jobs, do not evict the pod
DISABLE_PREEMPTIBLE: Final = "scheduling.koordinator.sh/disable-preemptible"
#: an OperatingMode; Reservation holds the pod's room for others
OPERATING_MODE: Final = "scheduling.koordinator.sh/operating-mode"
#: true: the pod may use what reservations keep
RESERVATION_IGNORED: Final = "scheduling.koordinator.sh/reservation-ignored"
#: true: a reservation may take the place of the pod; clusterLabelKey of Reservation names it
PRE_ALLOCATABLE: Final = "pod.koordinator.sh/is-pre-allocatable"
POD_GROUP: Final = "pod-group.scheduling.sigs.k8s.io"  # the PodGroup; a bare domain, no slash
#: deprecated: use gang.scheduling.koordinator.sh/name; a gang without object
LIGHTWEIGHT_POD_GROUP: Final = "pod-group.scheduling.sigs.k8s.io/name"
#: deprecated: use gang.scheduling.koordinator.sh/min-available; members that a gang without object
#: needs
LIGHTWEIGHT_MIN_AVAILABLE: Final = "pod-group.scheduling.sigs.k8s.io/min-available"
VGPU_NODE: Final = "hami.io/vgpu-node"  # node whose HAMi devices the pod uses

# Of pods, for koordlet and the descheduler.
#: true: koordlet may evict the pod although its class is not BE
EVICTION_ENABLED: Final = "koordinator.sh/eviction-enabled"
#: how a migration evicts the pod: Eviction, Delete or SoftEviction; also of its job
EVICT_POLICY: Final = "koordinator.sh/evict-policy"
CORE_SCHED_GROUP_ID: Final = "koordinator.sh/core-sched-group-id"  # group of pods that share cores
CORE_SCHED_POLICY: Final = "koordinator.sh/core-sched-policy"  # a CoreSchedPolicy

# Of pods and nodes.
#: isolation of shared GPUs, such as HAMi-core
GPU_ISOLATION_PROVIDER: Final = "koordinator.sh/gpu-isolation-provider"

# Of ScheduleExplanations.
#: object to explain; reserved
QUESTIONED_OBJECT_KEY: Final = "scheduling.koordinator.sh/questioned-object-key"
#: label of the domains; reserved
TOPOLOGY_KEY_TO_EXPLAIN: Final = "scheduling.koordinator.sh/topology-key-to-explain"

# Of reservations.
#: order of use among reservations, lower first
RESERVATION_ORDER: Final = "scheduling.koordinator.sh/reservation-order"
#: true: the reservation must take the place of a running pod
PRE_ALLOCATION_REQUIRED: Final = "scheduling.koordinator.sh/pre-allocation-required"

# Of quotas and their profiles.
#: true: other quotas are below it, and it holds no pods
QUOTA_IS_PARENT: Final = "quota.scheduling.koordinator.sh/is-parent"
QUOTA_PARENT: Final = "quota.scheduling.koordinator.sh/parent"  # name of the parent quota
#: false: what it does not use is not lent
QUOTA_ALLOW_LENT: Final = "quota.scheduling.koordinator.sh/allow-lent-resource"
#: true: the webhook accepts changes that would break a rule
QUOTA_ALLOW_FORCE_UPDATE: Final = "quota.scheduling.koordinator.sh/allow-force-update"
#: true: the quota is the root of its tree
QUOTA_IS_ROOT: Final = "quota.scheduling.koordinator.sh/is-root"
QUOTA_TREE_ID: Final = "quota.scheduling.koordinator.sh/tree-id"  # tree that the quota belongs to
QUOTA_PROFILE: Final = "quota.scheduling.koordinator.sh/profile"  # profile that made the quota
#: true: the nodes of the tree do not count for the default one
QUOTA_IGNORE_DEFAULT_TREE: Final = "quota.scheduling.koordinator.sh/ignore-default-tree"

# Of pods, for quotas.
QUOTA_NAME: Final = "quota.scheduling.koordinator.sh/name"  # quota that the pod uses
#: false: the pod is no victim within its quota, and its requests must fit into the minimum
QUOTA_PREEMPTIBLE: Final = "quota.scheduling.koordinator.sh/preemptible"

# Of nodes.
HOSTNAME: Final = "kubernetes.io/hostname"  # host name
ZONE: Final = "topology.kubernetes.io/zone"  # zone
CPU_BIND_POLICY: Final = "node.koordinator.sh/cpu-bind-policy"  # a NodeCpuBindPolicy
#: a NumaAllocateStrategy
NUMA_ALLOCATE_STRATEGY: Final = "node.koordinator.sh/numa-allocate-strategy"
NUMA_TOPOLOGY_POLICY: Final = "node.koordinator.sh/numa-topology-policy"  # a NumaTopologyPolicy
#: true: koordlet subtracts the node's reservation by NUMA node
ENABLE_NUMA_RESERVATION: Final = "node.koordinator.sh/enable-numa-reservation"
#: whether the CPUs of the node are normalized
CPU_NORMALIZATION_ENABLED: Final = "node.koordinator.sh/cpu-normalization-enabled"
#: replaces cpuReclaimThresholdPercent, as a fraction
CPU_RECLAIM_RATIO: Final = "node.koordinator.sh/cpu-reclaim-ratio"
#: replaces memoryReclaimThresholdPercent, as a fraction
MEMORY_RECLAIM_RATIO: Final = "node.koordinator.sh/memory-reclaim-ratio"
#: replaces midStaticCPUReservedPercent, as a fraction
MID_STATIC_CPU_RESERVED_RATIO: Final = "node.koordinator.sh/mid-static-cpu-reserved-ratio"
#: replaces midStaticMemoryReservedPercent
MID_STATIC_MEMORY_RESERVED_RATIO: Final = "node.koordinator.sh/mid-static-memory-reserved-ratio"

# Of Device objects, copied to nodes.
GPU_VENDOR: Final = "node.koordinator.sh/gpu-vendor"  # a GpuVendor
GPU_MODEL: Final = "node.koordinator.sh/gpu-model"  # model of the GPUs
GPU_DRIVER_VERSION: Final = "node.koordinator.sh/gpu-driver-version"  # version of the driver
GPU_PARTITION_POLICY: Final = "node.koordinator.sh/gpu-partition-policy"  # a GpuPartitionPolicy
#: true: NICs are shared out among the GPUs by topology
SECONDARY_DEVICE_WELL_PLANNED: Final = "node.koordinator.sh/secondary-device-well-planned"

# Of colocation profiles.
#: true: the controller applies the profile to existing pods
CONTROLLER_MANAGED: Final = "config.koordinator.sh/controller-managed"

HAMI_CORE: Final = "HAMi-core"  # the GPU isolation provider, in upper or lower case


class OperatingMode(StrEnum):
    """Use of a pod: it runs, or holds its resources for others as a reservation does."""

    RUNNABLE = "Runnable"
    RESERVATION = "Reservation"


class GpuVendor(StrEnum):
    """Vendor of the accelerators of a node."""

    NVIDIA = "nvidia"
    HUAWEI = "huawei"
    CAMBRICON = "cambricon"
    METAX = "metax"
    BAIDU = "baidu"
    KUNLUN = "kunlun"  # what the device daemon writes for Baidu's


class GpuPartitionPolicy(StrEnum):
    """Allocation of GPUs by partition, required or preferred."""

    HONOR = "Honor"
    PREFER = "Prefer"


class CoreSchedPolicy(StrEnum):
    """With which other pods a pod may share cores."""

    DEFAULT = ""  # as the node is configured
    NONE = "none"
    EXCLUSIVE = "exclusive"


def gpu_isolation_provider(labels: Mapping[str, str]) -> str:
    """Return the GPU isolation provider of a pod or node, in its usual spelling; empty if none."""
    provider = labels.get(GPU_ISOLATION_PROVIDER, "")
    return HAMI_CORE if provider.lower() == HAMI_CORE.lower() else provider


def is_true(entries: Mapping[str, str], key: str) -> bool:
    """Return whether a label or an annotation has the value ``true``."""
    return entries.get(key) == "true"


def parse_int32(text: str) -> int | None:
    """Return the number that a label or an annotation spells; None if it has not 32 bits."""
    number = int(text) if _INTEGER.fullmatch(text) else _MAX_INT32 + 1
    return number if -_MAX_INT32 - 1 <= number <= _MAX_INT32 else None


def gpu_partition_policy(labels: Mapping[str, str]) -> GpuPartitionPolicy:
    """Return the policy of a Device or node; what isn't Honor is Prefer."""
    is_honor = labels.get(GPU_PARTITION_POLICY) == GpuPartitionPolicy.HONOR
    return GpuPartitionPolicy.HONOR if is_honor else GpuPartitionPolicy.PREFER


def core_sched_policy(labels: Mapping[str, str]) -> CoreSchedPolicy:
    """Return the policy of a pod; an unknown policy means the policy of the node."""
    text = labels.get(CORE_SCHED_POLICY, "")
    return next((policy for policy in CoreSchedPolicy if policy == text), CoreSchedPolicy.DEFAULT)


def reservation_order(labels: Mapping[str, str]) -> int:
    """Return the order of a reservation, smaller first; 0 if it has none."""
    try:
        return int(labels.get(RESERVATION_ORDER, "0"))
    except ValueError:
        return 0


def is_preemptible(labels: Mapping[str, str]) -> bool:
    """Return whether a pod may be a victim at all; a quota may still protect it."""
    return not is_true(labels, DISABLE_PREEMPTIBLE)


def is_quota_preemptible(labels: Mapping[str, str]) -> bool:
    """Return whether a pod may be a victim within its quota, whose minimum it needs otherwise."""
    return labels.get(QUOTA_PREEMPTIBLE) != "false"
