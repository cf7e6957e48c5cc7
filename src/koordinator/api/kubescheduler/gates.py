"""Feature gates of koord-scheduler and kube-scheduler that change something here.

Koordinator's gates are off by default, except ``ON_BY_DEFAULT``; Kubernetes' gates have the
defaults of the reproduced release.
Source: koordinator pkg/features/scheduler_features.go, features.go; k8s.io/component-base
featuregate/feature_gate.go ``unsafeSetFromMap``.
"""

from collections.abc import Mapping
from typing import Final, Self

from koordinator.api.kube_version import DEFAULT_LEVEL, V1_37, KubeVersion
from koordinator.api.kubescheduler.kubernetes_gates import (
    GateSpec,
    kubernetes_gates,
    served_levels,
)
from koordinator.foundation.errors import InputError
from koordinator.foundation.feature_gates import SOURCE, parse_feature_gates
from koordinator.foundation.lazy_dataclass import dataclass

#: Quotas may form several trees, each with nodes of its own.
MULTI_QUOTA_TREE: Final = "MultiQuotaTree"
#: What a quota uses belongs to its guaranteed amount and is not lent.
GUARANTEE_USAGE: Final = "ElasticQuotaGuaranteeUsage"
#: Pods without a quota label have no quota.
DISABLE_DEFAULT_QUOTA: Final = "DisableDefaultQuota"
#: Quotas do not count the overhead of pods.
IGNORE_POD_OVERHEAD: Final = "ElasticQuotaIgnorePodOverhead"
#: Quotas do not count a pod whose grace period is over.
IGNORE_TERMINATING_POD: Final = "ElasticQuotaIgnoreTerminatingPod"
#: Quotas do not count a pod from its deletion on.
IGNORE_TERMINATING_POD_AT_ONCE: Final = "ElasticQuotaImmediateIgnoreTerminatingPod"
#: Preemption within a quota prefers victims whose disruption budgets allow it.
POD_DISRUPTION_BUDGET: Final = "PodDisruptionBudget"
#: Waiting members of a gang get a condition that names the member without a node.
GANG_PENDING_PODS_CONDITION: Final = "GangPendingPodsConditionPatch"
#: Pods get the annotations and labels that vendors' device plugins read.
DEVICE_PLUGIN_ADAPTION: Final = "DevicePluginAdaption"

#: Only labels of reservations count for reservation affinity, not labels of nodes.
OMIT_NODE_LABELS: Final = "OmitNodeLabelsForReservation"
#: A reservation of devices has their cores and memory among its amounts.
RESIZE_POD: Final = "ResizePod"
#: Pods forget a reservation that is deleted.
CLEAN_EXPIRED_ALLOCATED: Final = "CleanExpiredReservationAllocated"

#: Not in the original: reservations are for pods of the namespaces that they name, and no pod
#: ignores them unless its namespace may.
STRICT_TENANCY: Final = "StrictTenancy"

#: More important pods keep the places to which other schedulers have nominated them.
CROSS_SCHEDULER_NOMINATION: Final = "CrossSchedulerNomination"
#: Only pods with the label ``preemption-policy`` may preempt.
PREEMPTION_POLICY_TRANSFORMER: Final = "PreemptionPolicyTransformer"

#: A pod without priority gets the default of its Koordinator priority class.
PRIORITY_TRANSFORMER: Final = "PriorityTransformer"
#: The annotation ``replace-resources`` renames and removes resources of a pod.
REPLACE_RESOURCES_TRANSFORMER: Final = "ReplaceResourcesTransformer"
#: Of Kubernetes: parts of dynamic resource allocation.
DRA_DEVICE_TAINTS: Final = "DRADeviceTaints"
#: Before 1.35 the gate above covers rules as well.
DRA_DEVICE_TAINT_RULES: Final = "DRADeviceTaintRules"
DRA_PARTITIONABLE_DEVICES: Final = "DRAPartitionableDevices"
DRA_CONSUMABLE_CAPACITY: Final = "DRAConsumableCapacity"
DRA_BINDING_CONDITIONS: Final = "DRADeviceBindingConditions"
DRA_EXTENDED_RESOURCE: Final = "DRAExtendedResource"
DRA_FRACTIONAL_RANGES: Final = "DRAFractionalCapacityRange"
DRA_LIST_ATTRIBUTES: Final = "DRAListTypeAttributes"
#: Devices take resources of their nodes.  The API of 1.36, which differs, is not read.
DRA_NODE_ALLOCATABLE: Final = "DRANodeAllocatableResources"
DRA_WORKLOAD_CLAIMS: Final = "DRAWorkloadResourceClaims"
DRA_FILTER_TIMEOUT: Final = "DRASchedulerFilterTimeout"

#: Of Kubernetes: the status of whole pods counts while they are resized.
POD_LEVEL_RESIZE: Final = "InPlacePodLevelResourcesVerticalScaling"
#: Of Kubernetes: pods whose resize is deferred preempt less important pods of their nodes.
RESIZE_PREEMPTION: Final = "InPlacePodVerticalScalingSchedulerPreemption"
#: Of Kubernetes: features of a kubelet that its node declares.
NODE_DECLARED_FEATURES: Final = "NodeDeclaredFeatures"
#: Of Kubernetes: nodes are scored by the capacity that is left for volumes.
STORAGE_CAPACITY_SCORING: Final = "StorageCapacityScoring"
#: Of Kubernetes: a driver may request that its pods avoid nodes without it.
VOLUME_LIMIT_SCALING: Final = "VolumeLimitScaling"

#: Of Kubernetes: Workloads of pods and their gangs.  From 1.37 on the first gate covers both.
GENERIC_WORKLOAD: Final = "GenericWorkload"
#: Of Kubernetes: PodGroups state a preemption policy, which all their pods must have.
POD_GROUP_PREEMPTION_POLICY: Final = "PodGroupPreemptionPolicy"
#: Of Kubernetes: trees of PodGroups.
COMPOSITE_POD_GROUPS: Final = "CompositePodGroup"
GANG_SCHEDULING: Final = "GangScheduling"
WORKLOAD_AWARE_PREEMPTION: Final = "WorkloadAwarePreemption"
TOPOLOGY_PLACEMENTS: Final = "TopologyAwareWorkloadScheduling"

#: Gates of koord-scheduler that switch nothing here, and why.
WITHOUT_EFFECT: Final[Mapping[str, str]] = {
    "SkipFilterWithNominatedPods": (
        "filters are asked without nominated pods as well: all nodes at once, which costs nothing"
    ),
    **dict.fromkeys(
        (
            "CSIStorageCapacity",
            "CompatibleCSIStorageCapacity",
            "CompatiblePodDisruptionBudget",
            "DisableCSIStorageCapacityInformer",
            "DisableDynamicResourceAllocationInformer",
            "DisablePodDisruptionBudgetInformer",
            "GenericEphemeralVolume",
        ),
        "a kind that the API server does not have is left out",
    ),
    **dict.fromkeys(
        (
            "DynamicSchedulerCheck",
            "ElasticQuotaEnableUpdateResourceKey",
            "EnableBatchScheduleNodeSnapshot",
            "EnableInlineBatchSchedule",
            "LazyReservationRestore",
            "SkipReservationFitsNode",
            "SupportParentQuotaSubmitPod",
            "SyncBarrier",
        ),
        "there is one behaviour here",
    ),
}

OF_KOORDINATOR: Final = frozenset(
    (
        MULTI_QUOTA_TREE,
        GUARANTEE_USAGE,
        DISABLE_DEFAULT_QUOTA,
        IGNORE_POD_OVERHEAD,
        IGNORE_TERMINATING_POD,
        IGNORE_TERMINATING_POD_AT_ONCE,
        POD_DISRUPTION_BUDGET,
        GANG_PENDING_PODS_CONDITION,
        DEVICE_PLUGIN_ADAPTION,
        OMIT_NODE_LABELS,
        RESIZE_POD,
        CLEAN_EXPIRED_ALLOCATED,
        STRICT_TENANCY,
        CROSS_SCHEDULER_NOMINATION,
        PREEMPTION_POLICY_TRANSFORMER,
        PRIORITY_TRANSFORMER,
        REPLACE_RESOURCES_TRANSFORMER,
    )
)
OF_KUBERNETES: Final = frozenset(
    (
        DRA_DEVICE_TAINTS,
        DRA_DEVICE_TAINT_RULES,
        DRA_PARTITIONABLE_DEVICES,
        DRA_CONSUMABLE_CAPACITY,
        DRA_BINDING_CONDITIONS,
        DRA_EXTENDED_RESOURCE,
        DRA_FRACTIONAL_RANGES,
        DRA_LIST_ATTRIBUTES,
        DRA_NODE_ALLOCATABLE,
        DRA_WORKLOAD_CLAIMS,
        DRA_FILTER_TIMEOUT,
        GENERIC_WORKLOAD,
        GANG_SCHEDULING,
        WORKLOAD_AWARE_PREEMPTION,
        TOPOLOGY_PLACEMENTS,
        COMPOSITE_POD_GROUPS,
        POD_GROUP_PREEMPTION_POLICY,
        POD_LEVEL_RESIZE,
        RESIZE_PREEMPTION,
        NODE_DECLARED_FEATURES,
        STORAGE_CAPACITY_SCORING,
        VOLUME_LIMIT_SCALING,
    )
)
GATES: Final = OF_KOORDINATOR | OF_KUBERNETES

ON_BY_DEFAULT: Final = frozenset((POD_DISRUPTION_BUDGET, GANG_PENDING_PODS_CONDITION))
_BETA: Final = frozenset((GANG_PENDING_PODS_CONDITION,))
_ALPHA: Final = OF_KOORDINATOR - ON_BY_DEFAULT


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates that are on, and the release of Kubernetes whose behaviour is reproduced."""

    enabled: frozenset[str] = ON_BY_DEFAULT
    level: KubeVersion = DEFAULT_LEVEL
    without_effect: tuple[tuple[str, str], ...] = ()  # gates that switch nothing, and why

    @classmethod
    def parse(cls, text: str, level: KubeVersion = DEFAULT_LEVEL, *, source: str = SOURCE) -> Self:
        """Parse a flag such as ``MultiQuotaTree=true,Other=false`` at a level.

        Raises InputError for a value that is neither true nor false, for an unknown gate,
        for a change of a locked one, and for one that is on while one that it needs is off;
        ``source`` is the name of the flag.
        """
        known = kubernetes_gates(level)
        settings = parse_feature_gates(
            text,
            alpha=_ALPHA | {name for name, spec in known.items() if spec.stage == "A"},
            beta=_BETA | {name for name, spec in known.items() if spec.stage == "B"},
            source=source,
        )
        without_effect = [
            (name, why)
            for name in sorted(settings)
            if (why := _refuse_or_explain(name, settings, level, source))
        ]
        is_on = {name: settings.get(name, spec.is_on) for name, spec in known.items()}
        _check_needs(known, is_on, source)
        if level >= V1_37:
            is_on[GANG_SCHEDULING] = is_on[GENERIC_WORKLOAD]
        else:
            is_on[DRA_NODE_ALLOCATABLE] = False
        if DRA_DEVICE_TAINT_RULES not in known:
            is_on[DRA_DEVICE_TAINT_RULES] = is_on[DRA_DEVICE_TAINTS]
        is_on |= {name: settings.get(name, name in ON_BY_DEFAULT) for name in OF_KOORDINATOR}
        enabled = frozenset(name for name in GATES if is_on.get(name))
        return cls(enabled, level, tuple(without_effect))

    def __contains__(self, name: str) -> bool:
        """Return whether a gate is on."""
        return name in self.enabled


def _refuse_or_explain(
    name: str, settings: Mapping[str, bool], level: KubeVersion, source: str
) -> str:
    """Return why a gate that a user names switches nothing; empty if it does.

    Raises InputError for one that is not known or locked.
    """
    if name in OF_KOORDINATOR:
        return ""
    if name in WITHOUT_EFFECT:
        return WITHOUT_EFFECT[name]
    spec = kubernetes_gates(level).get(name)
    if spec is None:
        levels = served_levels(name)
        if not levels:
            raise InputError(f"unrecognized feature gate: {name}", source=source)
        if level >= V1_37 and name == GANG_SCHEDULING:
            return f"from Kubernetes {V1_37} on {GENERIC_WORKLOAD} stands for it"
        return f"Kubernetes {level} has no such gate; {levels[0]} to {levels[-1]} have"
    if spec.is_locked and settings[name] != spec.is_on:
        raise InputError(
            f"cannot set feature gate {name} to {_go_bool(settings[name])}, "
            f"feature is locked to {_go_bool(spec.is_on)}",
            source=source,
        )
    if name == DRA_NODE_ALLOCATABLE and level < V1_37:
        return f"it is supported from Kubernetes {V1_37} on"
    return "" if name in OF_KUBERNETES else "there is one behaviour here"


def _check_needs(known: Mapping[str, GateSpec], is_on: Mapping[str, bool], source: str) -> None:
    for name, spec in known.items():
        off = [needed for needed in spec.needs if not is_on.get(needed, True)]
        if off and is_on[name]:
            raise InputError(
                f"{name} is enabled, but depends on features that are disabled: [{' '.join(off)}]",
                source=source,
            )


def _go_bool(value: bool) -> str:
    return "true" if value else "false"


def check_gate_names(text: str, source: str = SOURCE) -> None:
    """Raise InputError for a flag that can't be meant at any level."""
    for name in parse_feature_gates(text, source=source):
        if not (name in OF_KOORDINATOR or name in WITHOUT_EFFECT or served_levels(name)):
            raise InputError(f"unrecognized feature gate: {name}", source=source)


#: What holds where no gate is named.
NO_GATES: Final = FeatureGates.parse("")
