"""Mutation and validation of ElasticQuotas and of the quota of a pod.

Source: koordinator pkg/webhook/elasticquota.
"""

from collections.abc import Set as AbstractSet

from koordinator.api.annotations.quota import bound_namespaces
from koordinator.api.codec import apply_merge_patch, decode, merge_patch
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod
from koordinator.api.slo_config import CONFIG_NAMESPACE
from koordinator.domain.quota import (
    PlaceRules,
    check_changed_pod,
    check_changed_quota,
    check_deleted_quota,
    check_new_quota,
    check_pod_quota,
    is_unchanged,
    message_for_clients,
    with_quota_defaults,
)
from koordinator.domain.quota.topology import QuotaTopology
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.admission.lookup import Lookup, QuotaChange
from koordinator.manager.admission.metadata import check_annotations
from koordinator.manager.admission.quota_usage import charge_pod
from koordinator.manager.admission.request import AdmissionOperation, AdmissionRequest, Denial
from koordinator.manager.admission.tenancy import check_quota_tenancy


def mutate_quota(
    request: AdmissionRequest,
    lookup: Lookup,
    gates: AbstractSet[ManagerFeature],  # noqa: ARG001 -- the signature of a hook
) -> JsonObject:
    """Return the quota with default parent, tree and weights.  Raises Denial if it is invalid."""
    if request.operation == AdmissionOperation.DELETE:
        return request.obj
    try:
        quota = decode(request.obj, ElasticQuota)
        filled = lookup.decide_on_quota(
            quota, lambda quotas: (with_quota_defaults(quota, quotas), None)
        )
    except InputError as error:
        raise Denial(message_for_clients(error)) from None
    except ClusterError as error:
        raise _undecided(error) from None
    if filled is quota:
        return request.obj
    return apply_merge_patch(request.obj, merge_patch(quota, filled))


def validate_quota(
    request: AdmissionRequest,
    lookup: Lookup,
    gates: AbstractSet[ManagerFeature],
    components: str = CONFIG_NAMESPACE,
) -> None:
    """Raise Denial unless a quota may be created, changed or deleted.

    ``components`` is the namespace of Koordinator.
    """
    rules = PlaceRules(
        guarantees_usage=ManagerFeature.QUOTA_GUARANTEE in gates,
        allows_fewer_resources=ManagerFeature.QUOTA_FEWER_KEYS in gates,
    )
    try:
        new = decode(request.obj or {}, ElasticQuota)
        old = decode(request.old or {}, ElasticQuota)
        quota = old if request.operation == AdmissionOperation.DELETE and request.old else new

        def decide(quotas: QuotaTopology) -> tuple[None, QuotaChange | None]:
            change = _checked(request.operation, old, quota, quotas, lookup=lookup, rules=rules)
            if request.operation != AdmissionOperation.DELETE:
                check_quota_tenancy(
                    request,
                    old if request.old else None,
                    new,
                    quotas,
                    lookup,
                    components=components,
                    is_strict=ManagerFeature.STRICT_TENANCY in gates,
                )
            return None, None if request.is_dry_run else change

        lookup.decide_on_quota(quota, decide)
    except InputError as error:
        raise Denial(message_for_clients(error)) from None
    except ClusterError as error:
        raise _undecided(error) from None


def _checked(
    operation: str,
    old: ElasticQuota,
    new: ElasticQuota,
    quotas: QuotaTopology,
    *,
    lookup: Lookup,
    rules: PlaceRules,
) -> QuotaChange | None:
    """Return the change that later requests must see.  Raises InputError if it is not allowed."""
    if operation == AdmissionOperation.DELETE:
        check_deleted_quota(new, quotas, _pods_of(new, lookup))
        previous = new.metadata.resource_version
        return QuotaChange(
            operation=AdmissionOperation.DELETE, quota=new, previous_version=previous
        )
    if operation == AdmissionOperation.CREATE:
        check_annotations(new, None)
        check_new_quota(new, quotas, rules)
        return QuotaChange(operation=AdmissionOperation.CREATE, quota=new)
    check_annotations(new, old)
    if is_unchanged(old, new):  # for example, the scheduler updates the reported usage
        return None
    pods = _pods_of(new, lookup) if new.is_parent and not old.is_parent else []
    check_changed_quota(old, new, quotas, rules, pods)
    previous = old.metadata.resource_version
    return QuotaChange(operation=AdmissionOperation.UPDATE, quota=new, previous_version=previous)


def _undecided(error: ClusterError) -> Denial:
    return Denial(
        f"concurrent changes of quotas can't be read from the API server: {error}; try again", 503
    )


def check_pod_in_quota(
    operation: str,
    old: Pod | None,
    new: Pod,
    lookup: Lookup,
    gates: AbstractSet[ManagerFeature],
    *,
    is_dry_run: bool = False,
) -> None:
    """Raise InputError if the quota does not take the pod, or the update changes preemptibility.

    Raises Denial if the pod would exceed its quota and feature gate EnableQuotaAdmission is on.
    """
    if old is not None:
        check_changed_pod(old, new)
    quotas = lookup.quotas()
    name = _quota_of(new, quotas, gates)
    if operation == AdmissionOperation.CREATE:
        check_pod_quota(
            new, quotas.get(name), parents_take_pods=ManagerFeature.PARENT_QUOTA_PODS in gates
        )
    before = "" if old is None else _quota_of(old, quotas, gates)
    labelled = QUOTA_NAME in new.metadata.labels
    charged_name = name if labelled or quotas.get(name) is not None else ""
    charge_pod(
        operation,
        old,
        new,
        lookup,
        gates,
        quota=charged_name,
        old_quota=before,
        is_dry_run=is_dry_run,
    )


def _quota_of(pod: Pod, quotas: QuotaTopology, gates: AbstractSet[ManagerFeature]) -> str:
    """Return the name of a pod's quota, by its label or else by its namespace."""
    name = pod.metadata.labels.get(QUOTA_NAME, "")
    if name or ManagerFeature.NO_DEFAULT_QUOTA in gates:
        return name
    namespace = pod.metadata.namespace
    if quotas.get(namespace) is not None:
        return namespace
    return next(iter(quotas.bound_to(namespace)), namespace)


def _pods_of(quota: ElasticQuota, lookup: Lookup) -> list[str]:
    namespaces = bound_namespaces(quota)
    return list(lookup.pods_of_quota(quota.metadata.name, namespaces))
