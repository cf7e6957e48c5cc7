"""Feature gates of the manager.

Source: koordinator pkg/features/features.go; koord-queue pkg/features/features.go.
"""

from enum import StrEnum
from typing import Final

from koordinator.foundation.errors import InputError
from koordinator.foundation.feature_gates import SOURCE, parse_feature_gates


class ManagerFeature(StrEnum):
    """Features that the flag ``--feature-gates`` turns on or off."""

    WEBHOOK_FRAMEWORK = "WebhookFramework"
    POD_MUTATING = "PodMutatingWebhook"
    POD_VALIDATING = "PodValidatingWebhook"
    QUOTA_MUTATING = "ElasticMutatingWebhook"
    QUOTA_VALIDATING = "ElasticValidatingWebhook"
    NODE_MUTATING = "NodeMutatingWebhook"
    NODE_VALIDATING = "NodeValidatingWebhook"
    CONFIG_MAP_VALIDATING = "ConfigMapValidatingWebhook"
    RESERVATION_MUTATING = "ReservationMutatingWebhook"
    BINDING = "BindingAdmissionWebhook"
    SKIP_RESOURCES = "ColocationProfileSkipMutatingResources"
    SKIP_PRIORITY = "ColocationProfileSkipValidatingPriority"
    MULTI_QUOTA_TREE = "MultiQuotaTree"
    QUOTA_GUARANTEE = "ElasticQuotaGuaranteeUsage"
    QUOTA_FEWER_KEYS = "ElasticQuotaEnableUpdateResourceKey"
    PARENT_QUOTA_PODS = "SupportParentQuotaSubmitPod"
    PROFILE_CONTROLLER = "ColocationProfileController"
    SYNC_GPU_SHARED = "EnableSyncGPUSharedResource"
    VALIDATE_DEVICES = "ValidatePodDeviceResource"
    ENHANCED_VALIDATOR = "EnablePodEnhancedValidator"
    NO_EXTENDED_SPEC = "DisableExtendedResourceSpec"
    NO_DEVICE_SPEC = "DisableDeviceResourceSpec"
    QUOTA_ADMISSION = "EnableQuotaAdmission"
    QUOTA_ADMISSION_ON_UPDATE = "EnableQuotaAdmissionOnUpdate"
    QUOTA_IGNORES_OVERHEAD = "ElasticQuotaIgnorePodOverhead"
    QUOTA_TRANSFORMS_POD = "ElasticQuotaEvaluationTransformPod"
    NO_DEFAULT_QUOTA = "DisableDefaultQuota"
    REPLACE_RESOURCES = "ReplaceResourcesTransformer"
    PRIORITY_TRANSFORMER = "PriorityTransformer"  # no effect: priorities are always resolved
    TREE_QUEUES = "ElasticQuotaTreeBuildQueueForQuota"  # of koord-queue, as the next
    TREE_AVAILABLE_QUOTAS = "ElasticQuotaTreeCheckAvailableQuota"
    STRICT_TENANCY = "StrictTenancy"  # ours: the original has no rules between namespaces
    PREEMPTION_TRANSFORMER = "PreemptionPolicyTransformer"  # no effect: the policy is not read


#: The original's defaults and SYNC_GPU_SHARED: the pod webhook adds a request for ``gpu.shared``
#: to every pod that requests a GPU, so nodes must advertise it.
DEFAULT_GATES: Final = frozenset(
    (
        ManagerFeature.WEBHOOK_FRAMEWORK,
        ManagerFeature.POD_MUTATING,
        ManagerFeature.POD_VALIDATING,
        ManagerFeature.QUOTA_MUTATING,
        ManagerFeature.QUOTA_VALIDATING,
        ManagerFeature.SYNC_GPU_SHARED,
        ManagerFeature.TREE_QUEUES,
    )
)
_ALPHA: Final = frozenset((*ManagerFeature,)) - DEFAULT_GATES | {ManagerFeature.SYNC_GPU_SHARED}
#: Gates of the descheduler; the original lists the gates of all its components together.
OF_DESCHEDULER: Final = frozenset(("DisablePVCReservation",))

#: Gates of koord-queue for behaviour that is always on here.
ALWAYS_ON: Final = frozenset(
    (
        "ElasticQuota",
        "ElasticQuotaTreeDecoupledQueue",
        "MaximumExecutionTime",
        "QueueUnitActive",
        "QueueUnitConditions",
        "QueueUnitRequeueState",
    )
)


def parse_gates(text: str) -> frozenset[ManagerFeature]:
    """Return the gates that are on after ``A=true,B=false``.

    Raises InputError for an unknown gate, a value that is no boolean, and a fixed gate that is
    set to its other value.
    """
    gates = set(DEFAULT_GATES)
    for name, is_on in parse_feature_gates(text, alpha=_ALPHA, beta=DEFAULT_GATES - _ALPHA).items():
        if name in OF_DESCHEDULER:
            if is_on:
                problem = f"{name}: this is a gate of the descheduler and must be {name}=false here"
                raise InputError(problem, source=SOURCE)
            continue
        if name in ALWAYS_ON:
            if not is_on:
                problem = f"{name}: can't be disabled, must be {name}=true"
                raise InputError(problem, source=SOURCE)
            continue
        try:
            gate = ManagerFeature(name)
        except ValueError:
            accepted = ", ".join(sorted([*ManagerFeature, *OF_DESCHEDULER, *ALWAYS_ON]))
            raise InputError(f"must be one of {accepted}, got {name!r}", source=SOURCE) from None
        (gates.add if is_on else gates.discard)(gate)
    return frozenset(gates)
