"""Whether the quota of a new pod has room for it: gate EnableQuotaAdmission.

What all pods of a quota ask for stands in its annotation ``child-request``, to which each pod that
is let in is added at once; the scheduler, which knows the pods, corrects it.

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

#: A quota that limits none of these is not looked at.
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
    """Add a pod to what its quota has let in; raise Denial if there is no room.

    ``quota`` and ``old_quota`` are the names of the quotas that it is in and was in.  Of a pod
    that is resized and stays in its quota, what it asks for in addition is added.
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
    found = lookup.quotas_named(quota)
    if not found:
        raise Denial(f"elastic quota {quota} not found")
    if len(found) > 1:
        raise Denial(f"more than one elastic quota {quota} found")
    try:
        is_strict, namespace = ManagerFeature.STRICT_TENANCY in gates, pod.metadata.namespace
        lookup.charge_quota(
            found[0],
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
    """Return the quota with the usage of one more pod; the same object if nothing of it counts.

    Raises Denial if that is too much, InputError for annotations that can't be read.
    """
    limit = amounts_of(quota.spec.max)
    if COUNTED.isdisjoint(limit):
        return quota
    asked = {name: amount for name, amount in named_by(usage, limit).items() if amount}
    if not asked:
        return quota
    ceiling = amounts_of(ADMISSION.read(quota.metadata) or {}) or limit
    used = amounts_of(CHILD_REQUEST.read(quota.metadata) or {})
    after = plus(used, asked)
    if over := exceeded(named_by(after, asked), ceiling):
        text = f"exceeded quota: {quota.key}, requested: {_listed(asked, over)}"
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
    """Return what is asked for now in addition."""
    more = {name: amount - before.get(name, 0) for name, amount in after.items()}
    return {name: amount for name, amount in more.items() if amount > 0}


def _listed(amounts: Amounts, names: list[str]) -> str:
    texts = to_texts({name: amounts.get(name, 0) for name in names})
    return ",".join(f"{name}={texts[name]}" for name in names)
