"""Review of quotas, and of pods that would exceed one.

The annotation ``child-request`` of a quota holds the requests of all its pods.  Admission adds
each pod that it admits; the scheduler, which sees the pods, corrects the sum.

Source: koordinator pkg/webhook/quotaevaluate/evaluator.go, ``checkRequest``; pkg/webhook/
elasticquota/quota_handler.go; koordinator pkg/webhook/elasticquota.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations.quota import ADMISSION, CHILD_REQUEST, bound_namespaces
from koordinator.api.codec import apply_merge_patch, decode, merge_patch
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.labels import QUOTA_NAME
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod, is_terminal
from koordinator.api.slo_config import CONFIG_NAMESPACE
from koordinator.domain.amounts import (
    Amounts,
    amounts_of,
    exceeded,
    named_by,
    plus,
    to_quantities,
    to_texts,
)
from koordinator.domain.pod_requests import pod_requests
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
from koordinator.domain.quota.spec import QuotaSpec, QuotaTopology
from koordinator.domain.transforms import replaced_resources
from koordinator.foundation.errors import ClusterError, ConflictError, InputError
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.admission.lookup import (
    AdmissionOperation,
    AdmissionRequest,
    Denial,
    Lookup,
    QuotaChange,
)
from koordinator.manager.admission.metadata import check_annotations
from koordinator.manager.admission.tenancy import check_quota_tenancy

#: Resources that are checked; a quota that limits none of them is skipped.
COUNTED: Final = frozenset(
    (
        "cpu",
        "memory",
        "ephemeral-storage",
        "requests.cpu",
        "requests.memory",
        "requests.ephemeral-storage",
        "kubernetes.io/batch-cpu",
        "kubernetes.io/batch-memory",
        "kubernetes.io/mid-cpu",
        "kubernetes.io/mid-memory",
        "koordinator.sh/gpu",
        "nvidia.com/gpu",
        "koordinator.sh/gpu.shared",
        "koordinator.sh/gpu-memory-ratio",
    )
)
_EXEMPT: Final = frozenset(("", DEFAULT_QUOTA, SYSTEM_QUOTA, ROOT_QUOTA))


def charge_pod(
    operation: str,
    old: Pod | None,
    pod: Pod,
    lookup: Lookup,
    gates: AbstractSet[ManagerFeature],
    *,
    quota: str,
    old_quota: str,
    is_dry_run: bool = False,
) -> None:
    """Charge a pod to its quota; raise Denial if the quota would be exceeded.

    ``quota`` and ``old_quota`` are the names of the quotas of the new and of the old pod.  A pod
    that is resized within its quota is charged for the increase of its requests.
    """
    if ManagerFeature.QUOTA_ADMISSION not in gates or quota in _EXEMPT:
        return
    usage = _usage(pod, gates)
    if operation != AdmissionOperation.CREATE:
        if quota == old_quota and old is not None:
            before = _usage(old, gates)
            more = {name: amount - before.get(name, 0) for name, amount in usage.items()}
            usage = {name: amount for name, amount in more.items() if amount > 0}
        elif ManagerFeature.QUOTA_ADMISSION_ON_UPDATE not in gates:
            return
    if not usage:
        return
    quotas = lookup.quotas_named(quota)
    if not quotas:
        raise Denial(f"elastic quota {quota} not found")
    if len(quotas) > 1:
        raise Denial(f"more than one elastic quota {quota} found")
    try:
        is_strict, namespace = ManagerFeature.STRICT_TENANCY in gates, pod.metadata.namespace
        lookup.charge_quota(
            quotas[0],
            lambda stored: charged(stored, usage, namespace, is_strict=is_strict),
            is_dry_run=is_dry_run,
        )
    except ConflictError:
        raise Denial(f"elastic quota {quota} is changed by others; try again", 503) from None
    except ClusterError as error:
        raise Denial(
            f"elastic quota {quota} cannot be charged now: {error}; try again", 503
        ) from None


def charged(
    quota: ElasticQuota, usage: Amounts, namespace: str, *, is_strict: bool
) -> ElasticQuota:
    """Return the quota charged with the usage of a pod; the same object if the quota limits none.

    Raises Denial if the limit would be exceeded, InputError for annotations that can't be parsed.
    """
    limit = amounts_of(quota.spec.max)
    if COUNTED.isdisjoint(limit):
        return quota
    requested = {name: amount for name, amount in named_by(usage, limit).items() if amount}
    if not requested:
        return quota
    ceiling = amounts_of(ADMISSION.read(quota.metadata) or {}) or limit
    used = amounts_of(CHILD_REQUEST.read(quota.metadata) or {})
    after = plus(used, requested)
    if over := exceeded(named_by(after, requested), ceiling):
        text = f"exceeded quota: {quota.key}, requested: {_listed(requested, over)}"
        spec = QuotaSpec.of(quota)
        if spec.shows_figures_to(namespace, spec, is_strict=is_strict):
            text += f", used: {_listed(used, over)}, limited: {_listed(ceiling, over)}"
        raise Denial(text, 403)
    annotations = {
        **quota.metadata.annotations,
        **CHILD_REQUEST.entry(to_quantities(after)),
    }
    return replace(quota, metadata=replace(quota.metadata, annotations=annotations))


def _usage(pod: Pod, gates: AbstractSet[ManagerFeature]) -> Amounts:
    if is_terminal(pod):
        return {}
    if ManagerFeature.QUOTA_TRANSFORMS_POD in gates:
        pod = replaced_resources(pod)
    overhead = ManagerFeature.QUOTA_IGNORES_OVERHEAD not in gates
    return pod_requests(pod.spec, overhead=overhead)


def _listed(amounts: Amounts, names: list[str]) -> str:
    texts = to_texts({name: amounts.get(name, 0) for name in names})
    return ",".join(f"{name}={texts[name]}" for name in names)


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
        f"concurrent changes of quotas cannot be read from the API server: {error}; try again", 503
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
