"""Feature gates of koord-scheduler that change something here.

All but those in ``ON_BY_DEFAULT`` are off unless switched on.
Source: koordinator pkg/features/scheduler_features.go.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Self

from koordinator.foundation.errors import InputError
from koordinator.foundation.feature_gates import SOURCE, parse_feature_gates

MULTI_QUOTA_TREE: Final = "MultiQuotaTree"
GUARANTEE_USAGE: Final = "ElasticQuotaGuaranteeUsage"
DISABLE_DEFAULT_QUOTA: Final = "DisableDefaultQuota"

IGNORE_POD_OVERHEAD: Final = "ElasticQuotaIgnorePodOverhead"
IGNORE_TERMINATING_POD: Final = "ElasticQuotaIgnoreTerminatingPod"
IGNORE_TERMINATING_POD_AT_ONCE: Final = "ElasticQuotaImmediateIgnoreTerminatingPod"
POD_DISRUPTION_BUDGET: Final = "PodDisruptionBudget"  # of preemption in a quota; on by default
GANG_PENDING_PODS_CONDITION: Final = "GangPendingPodsConditionPatch"  # on by default

DEVICE_PLUGIN_ADAPTION: Final = "DevicePluginAdaption"  # spelt as in the original

#: Labels of nodes don't count for reservation affinity, only those of reservations.
OMIT_NODE_LABELS: Final = "OmitNodeLabelsForReservation"
#: A reservation of devices has their cores and memory among its amounts.
RESIZE_POD: Final = "ResizePod"
#: Pods forget a reservation that is deleted.
CLEAN_EXPIRED_ALLOCATED: Final = "CleanExpiredReservationAllocated"

#: More important pods keep the places to which other schedulers have nominated them.
CROSS_SCHEDULER_NOMINATION: Final = "CrossSchedulerNomination"
#: The label ``preemption-policy`` says who preempts; without it nobody does.
PREEMPTION_POLICY_TRANSFORMER: Final = "PreemptionPolicyTransformer"

#: A pod without priority has the one that stands for its Koordinator priority class.
PRIORITY_TRANSFORMER: Final = "PriorityTransformer"
#: The annotation ``replace-resources`` renames and removes resources of a pod.
REPLACE_RESOURCES_TRANSFORMER: Final = "ReplaceResourcesTransformer"
#: Of Kubernetes, off there, too: what of dynamic resource allocation is not settled yet.
DRA_DEVICE_TAINTS: Final = "DRADeviceTaints"
DRA_DEVICE_TAINT_RULES: Final = "DRADeviceTaintRules"
DRA_PARTITIONABLE_DEVICES: Final = "DRAPartitionableDevices"
DRA_CONSUMABLE_CAPACITY: Final = "DRAConsumableCapacity"
DRA_BINDING_CONDITIONS: Final = "DRADeviceBindingConditions"
DRA_EXTENDED_RESOURCE: Final = "DRAExtendedResource"

#: Of Kubernetes, off there, too: the Workloads that pods name count, and their gangs.
GENERIC_WORKLOAD: Final = "GenericWorkload"
GANG_SCHEDULING: Final = "GangScheduling"

#: What a gate of the original would switch, where there is nothing to be switched here.
MEANINGLESS: Final[Mapping[str, str]] = {
    "SkipFilterWithNominatedPods": (
        "filters are asked without nominated pods as well: all nodes at once, which costs nothing"
    )
}

GATES: Final = frozenset(
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
        CROSS_SCHEDULER_NOMINATION,
        PREEMPTION_POLICY_TRANSFORMER,
        PRIORITY_TRANSFORMER,
        REPLACE_RESOURCES_TRANSFORMER,
        DRA_DEVICE_TAINTS,
        DRA_DEVICE_TAINT_RULES,
        DRA_PARTITIONABLE_DEVICES,
        DRA_CONSUMABLE_CAPACITY,
        DRA_BINDING_CONDITIONS,
        DRA_EXTENDED_RESOURCE,
        GENERIC_WORKLOAD,
        GANG_SCHEDULING,
    )
)

_NEEDS: Final = {
    GANG_SCHEDULING: GENERIC_WORKLOAD,
    DRA_DEVICE_TAINT_RULES: DRA_DEVICE_TAINTS,
}
ON_BY_DEFAULT: Final = frozenset((POD_DISRUPTION_BUDGET, GANG_PENDING_PODS_CONDITION))
_BETA: Final = frozenset((GANG_PENDING_PODS_CONDITION,))
_ALPHA: Final = GATES - ON_BY_DEFAULT


@dataclass(frozen=True, slots=True)
class FeatureGates:
    """The gates that are on; ``without_effect`` are names that mean nothing here."""

    enabled: frozenset[str] = ON_BY_DEFAULT
    without_effect: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return what a flag such as ``MultiQuotaTree=true,Other=false`` says.

        Raises InputError for a value that is neither true nor false, and for a gate without the
        one that it needs.
        """
        said = parse_feature_gates(text, alpha=_ALPHA, beta=_BETA)
        for gate, needed in _NEEDS.items():
            if said.get(gate) and not said.get(needed):
                raise InputError(
                    f"{gate} is on, but {needed}, which it needs, is off; "
                    f"accepted is {needed}=true,{gate}=true",
                    source=SOURCE,
                )
        return cls(
            frozenset(name for name in GATES if said.get(name, name in ON_BY_DEFAULT)),
            tuple(sorted(said.keys() - GATES)),
        )

    def __contains__(self, name: str) -> bool:
        """Return whether a gate is on."""
        return name in self.enabled


NO_GATES: Final = FeatureGates()
