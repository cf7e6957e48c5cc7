"""Quota check of new pods at admission: feature gate EnableQuotaAdmission.

The annotation ``child-request`` of a quota holds the requests of all its pods.  Admission adds
each pod that it admits; the scheduler, which sees the pods, corrects the sum.

Source: koordinator pkg/webhook/quotaevaluate/evaluator.go, ``checkRequest``; pkg/webhook/
elasticquota/quota_handler.go.
"""

from collections.abc import Set as AbstractSet
from typing import Final

from msgspec.structs import replace

from koordinator.api.annotations.quota import ADMISSION, CHILD_REQUEST
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.pod import Pod
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
from koordinator.domain.pod_transformers import replaced_resources
from koordinator.domain.quota.spec import QuotaSpec
from koordinator.foundation.errors import ClusterError, ConflictError
from koordinator.manager.admission.gates import ManagerFeature
from koordinator.manager.admission.lookup import Lookup
from koordinator.manager.admission.request import AdmissionOperation, Denial

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
_OVER: Final = ("Succeeded", "Failed")


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
            usage = _growth(_usage(old, gates), usage)
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
            f"elastic quota {quota} can't be charged now: {error}; try again", 503
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
    if pod.status.phase in _OVER:
        return {}
    if ManagerFeature.QUOTA_TRANSFORMS_POD in gates:
        pod = replaced_resources(pod)
    overhead = ManagerFeature.QUOTA_IGNORES_OVERHEAD not in gates
    return pod_requests(pod.spec, overhead=overhead)


def _growth(before: Amounts, after: Amounts) -> Amounts:
    """Return the positive increase of each resource."""
    more = {name: amount - before.get(name, 0) for name, amount in after.items()}
    return {name: amount for name, amount in more.items() if amount > 0}


def _listed(amounts: Amounts, names: list[str]) -> str:
    texts = to_texts({name: amounts.get(name, 0) for name in names})
    return ",".join(f"{name}={texts[name]}" for name in names)
