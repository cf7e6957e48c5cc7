"""Feature gates of the webhooks, and the binding of pods.

Source: koordinator pkg/features/features.go; koord-queue pkg/features/features.go; koordinator
pkg/webhook/pod/validating/binding_admission.go.
"""

from collections.abc import Callable
from enum import StrEnum
from typing import Final

from koordinator.api.labels import BINDING_ADMISSION_BYPASS
from koordinator.foundation.errors import InputError
from koordinator.foundation.feature_gates import SOURCE, parse_feature_gates
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.manager.admission.lookup import (
    AdmissionOperation,
    AdmissionRequest,
    Denial,
    Lookup,
)

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

_EVERYWHERE = "*"
_FORBIDDEN = 403


class ManagerFeature(StrEnum):
    """Features that the flag ``--feature-gates`` turns on or off."""

    WEBHOOK_FRAMEWORK = "WebhookFramework"  # serves webhooks at all
    #: colocation profiles, and the annotations that koordlet needs
    POD_MUTATING = "PodMutatingWebhook"
    POD_VALIDATING = "PodValidatingWebhook"  # checks pods
    QUOTA_MUTATING = "ElasticMutatingWebhook"  # defaults of ElasticQuotas
    QUOTA_VALIDATING = "ElasticValidatingWebhook"  # checks ElasticQuotas and their tree
    NODE_MUTATING = "NodeMutatingWebhook"  # amplifies the allocatable resources of nodes
    #: rejects labels by which two strategies select a node
    NODE_VALIDATING = "NodeValidatingWebhook"
    CONFIG_MAP_VALIDATING = "ConfigMapValidatingWebhook"  # checks slo-controller-config
    RESERVATION_MUTATING = "ReservationMutatingWebhook"  # colocation profiles of reservations
    BINDING = "BindingAdmissionWebhook"  # only users of --binding-admission-… may bind pods
    #: profiles do not rename cpu and memory
    SKIP_RESOURCES = "ColocationProfileSkipMutatingResources"
    SKIP_PRIORITY = "ColocationProfileSkipValidatingPriority"  # the priority of a pod may change
    MULTI_QUOTA_TREE = "MultiQuotaTree"  # pods of a quota tree stay on its nodes
    QUOTA_GUARANTEE = "ElasticQuotaGuaranteeUsage"  # minima of a quota tree must cover what it uses
    QUOTA_FEWER_KEYS = "ElasticQuotaEnableUpdateResourceKey"  # a quota may drop resources
    PARENT_QUOTA_PODS = "SupportParentQuotaSubmitPod"  # pods may use a quota that has children
    #: applies colocation profiles to pods that exist
    PROFILE_CONTROLLER = "ColocationProfileController"
    SYNC_GPU_SHARED = "EnableSyncGPUSharedResource"  # nodes advertise gpu.shared
    VALIDATE_DEVICES = "ValidatePodDeviceResource"  # checks requests of GPUs
    ENHANCED_VALIDATOR = "EnablePodEnhancedValidator"  # requires the labels that a ConfigMap lists
    #: pods get no annotation with their batch requests
    NO_EXTENDED_SPEC = "DisableExtendedResourceSpec"
    NO_DEVICE_SPEC = "DisableDeviceResourceSpec"  # requests of GPUs stay as written
    #: rejects pods beyond the max, or the admission annotation, of their quota
    QUOTA_ADMISSION = "EnableQuotaAdmission"
    #: also pods that move to another quota
    QUOTA_ADMISSION_ON_UPDATE = "EnableQuotaAdmissionOnUpdate"
    #: quotas do not count the overhead of pods
    QUOTA_IGNORES_OVERHEAD = "ElasticQuotaIgnorePodOverhead"
    #: quotas count resources as renamed by an annotation
    QUOTA_TRANSFORMS_POD = "ElasticQuotaEvaluationTransformPod"
    NO_DEFAULT_QUOTA = "DisableDefaultQuota"  # pods without a quota label have no quota
    #: resources of pods count as renamed by an annotation
    REPLACE_RESOURCES = "ReplaceResourcesTransformer"
    PRIORITY_TRANSFORMER = "PriorityTransformer"  # no effect: priorities are always resolved
    #: of koord-queue: makes a Queue for each quota of a tree
    TREE_QUEUES = "ElasticQuotaTreeBuildQueueForQuota"
    #: of koord-queue: a job may use only quotas that its namespace lists
    TREE_AVAILABLE_QUOTAS = "ElasticQuotaTreeCheckAvailableQuota"
    STRICT_TENANCY = "StrictTenancy"  # rules between namespaces; not in the original
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
                problem = f"{name}: cannot be disabled, must be {name}=true"
                raise InputError(problem, source=SOURCE)
            continue
        try:
            gate = ManagerFeature(name)
        except ValueError:
            accepted = ", ".join(sorted([*ManagerFeature, *OF_DESCHEDULER, *ALWAYS_ON]))
            raise InputError(f"must be one of {accepted}, got {name!r}", source=SOURCE) from None
        (gates.add if is_on else gates.discard)(gate)
    return frozenset(gates)


class BindingDecision(StrEnum):
    """Reason why a binding is allowed or denied; the values are labels of the original's metric."""

    USER = "allowed_username"
    EXCLUDED = "excluded_ns"
    OUT_OF_SCOPE = "out_of_scope"
    LABEL = "bypass_label"
    ANNOTATION = "bypass_annotation"
    DRY_RUN = "dry_run"
    DENIED = "denied"


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingRules:
    """The flags ``--binding-admission-…``; without user names, every binding is allowed."""

    user_names: tuple[str, ...] = ()  # substrings of user names
    dry_run: bool = False
    namespaces: tuple[str, ...] = ()  # empty: no namespace is checked
    excluded_namespaces: tuple[str, ...] = ("kube-system",)
    bypass_labels: tuple[str, ...] = (BINDING_ADMISSION_BYPASS,)
    bypass_annotations: tuple[str, ...] = ()


def validate_binding(
    request: AdmissionRequest,
    lookup: Lookup,
    rules: BindingRules,
    decided: Callable[[str], object],
) -> None:
    """Raise Denial if the user may not bind this pod; call ``decided`` with the reason.

    ``decided`` is not called for requests that the rules do not cover.
    """
    decision = _decision(request, lookup, rules)
    if decision is not None:
        decided(decision)
    if decision is BindingDecision.DENIED:
        raise Denial("binding denied: username is not in the allowed list", _FORBIDDEN)


def _decision(
    request: AdmissionRequest, lookup: Lookup, rules: BindingRules
) -> BindingDecision | None:
    """Return the decision on a request; None if the rules do not cover it or the pod is unknown."""
    if request.operation != AdmissionOperation.CREATE or not rules.user_names:
        return None
    by_user_and_place = _by_user_and_place(request, rules)
    if by_user_and_place is not None:
        return by_user_and_place
    pod = lookup.pod(request.namespace, request.name)
    if pod is None or not rules.namespaces:
        return None
    if any(key in pod.metadata.labels for key in rules.bypass_labels):
        return BindingDecision.LABEL
    if any(key in pod.metadata.annotations for key in rules.bypass_annotations):
        return BindingDecision.ANNOTATION
    return BindingDecision.DRY_RUN if rules.dry_run else BindingDecision.DENIED


def _by_user_and_place(request: AdmissionRequest, rules: BindingRules) -> BindingDecision | None:
    """Return the reason for which any pod may be bound; None if that depends on the pod."""
    if any(name in request.user for name in rules.user_names):
        return BindingDecision.USER
    if request.namespace in rules.excluded_namespaces:
        return BindingDecision.EXCLUDED
    if rules.namespaces and not {_EVERYWHERE, request.namespace} & {*rules.namespaces}:
        return BindingDecision.OUT_OF_SCOPE
    return None
