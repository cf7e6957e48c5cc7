"""ElasticQuotas and the pods that use them.

Source: koordinator pkg/webhook/elasticquota.
"""

from collections.abc import Set as AbstractSet

from koordinator.api.annotations.quota import bound_namespaces
from koordinator.api.codec import apply_merge_patch, decode, merge_patch
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod
from koordinator.domain.quota import (
    PlaceRules,
    check_changed_pod,
    check_changed_quota,
    check_deleted_quota,
    check_new_quota,
    check_pod_quota,
    message_for_clients,
    with_quota_defaults,
)
from koordinator.foundation.errors import InputError
from koordinator.manager.admission.annotations import check_annotations
from koordinator.manager.admission.gates import Gate
from koordinator.manager.admission.lookup import Lookup
from koordinator.manager.admission.request import AdmissionRequest, Denial, Operation


def mutate_quota(
    request: AdmissionRequest,
    lookup: Lookup,
    gates: AbstractSet[Gate],  # noqa: ARG001 -- the signature of a hook
) -> JsonObject:
    """Return the quota with parent, tree and weights.  Raises Denial."""
    if request.operation == Operation.DELETE:
        return request.obj
    try:
        quota = decode(request.obj, ElasticQuota)
        filled = with_quota_defaults(quota, lookup.quotas())
    except InputError as error:
        raise Denial(message_for_clients(error)) from None
    if filled is quota:
        return request.obj
    return apply_merge_patch(request.obj, merge_patch(quota, filled))


def validate_quota(request: AdmissionRequest, lookup: Lookup, gates: AbstractSet[Gate]) -> None:
    """Raise Denial unless a quota may be created, changed or deleted."""
    rules = PlaceRules(
        guarantees_usage=Gate.QUOTA_GUARANTEE in gates,
        allows_fewer_resources=Gate.QUOTA_FEWER_KEYS in gates,
    )
    topology = lookup.quotas()
    try:
        if request.operation == Operation.DELETE:
            quota = decode(request.old or request.obj, ElasticQuota)
            check_deleted_quota(quota, topology, _pods_of(quota, lookup))
            return
        new = decode(request.obj, ElasticQuota)
        if request.operation == Operation.CREATE:
            check_annotations(new, None)
            check_new_quota(new, topology, rules)
            return
        old = decode(request.old or {}, ElasticQuota)
        check_annotations(new, old)
        pods = _pods_of(new, lookup) if new.is_parent and not old.is_parent else []
        check_changed_quota(old, new, topology, rules, pods)
    except InputError as error:
        raise Denial(message_for_clients(error)) from None


def check_pod_in_quota(
    operation: str, old: Pod | None, new: Pod, lookup: Lookup, gates: AbstractSet[Gate]
) -> None:
    """Raise InputError if a pod may not be in its quota, or becomes preemptible or the reverse."""
    if old is not None:
        check_changed_pod(old, new)
    if operation != Operation.CREATE:
        return
    quotas = lookup.quotas()
    namespace = new.metadata.namespace
    name = new.metadata.labels.get(QUOTA_NAME, "")
    if not name:
        name = next(iter(quotas.bound_to(namespace)), namespace)
    check_pod_quota(new, quotas.get(name), parents_take_pods=Gate.PARENT_QUOTA_PODS in gates)


def _pods_of(quota: ElasticQuota, lookup: Lookup) -> list[str]:
    namespaces = bound_namespaces(quota)
    return list(lookup.pods_of_quota(quota.metadata.name, namespaces))
