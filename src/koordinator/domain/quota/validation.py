"""When a quota may be created, changed or deleted, and which pods may use it.

All checks raise InputError with the object, the field and what is accepted there.  ``pods`` are the
names of pods that use the quota.

Source: koordinator pkg/webhook/elasticquota/quota_topology.go, pod_check.go.  Unlike there,
namespaces must be readable, and an update of nothing but the weights is checked too.
"""

from collections.abc import Sequence

from koordinator.api.annotations.quota import (
    MAX_STRICT_CHECK_RESOURCE_KEYS,
    NAMESPACES,
    SHARED_WEIGHT,
)
from koordinator.api.codec import subject_of
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.labels import (
    QUOTA_IS_PARENT,
    QUOTA_NAME,
    QUOTA_PARENT,
    QUOTA_PREEMPTIBLE,
    QUOTA_TREE_ID,
)
from koordinator.api.pod import Pod
from koordinator.api.quota_validation import validate_elastic_quota
from koordinator.api.syntax import refusal
from koordinator.domain.quota.place_validation import PlaceRules, check_place
from koordinator.domain.quota.queue_terms import QUEUE_KEYS, check_queue_terms
from koordinator.domain.quota.topology import QuotaTopology
from koordinator.foundation.errors import InputError

_BUILT_IN = frozenset((ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA))
_FIXED = frozenset((ROOT_QUOTA, SYSTEM_QUOTA))
_LABELS_READ = (QUOTA_PARENT, QUOTA_IS_PARENT, QUOTA_TREE_ID)
_ANNOTATIONS_READ = (
    NAMESPACES.key,
    SHARED_WEIGHT.key,
    MAX_STRICT_CHECK_RESOURCE_KEYS.key,
    *QUEUE_KEYS,
)
_SHOWN = 2  # names in a message


def check_new_quota(quota: ElasticQuota, topology: QuotaTopology, rules: PlaceRules) -> None:
    """Raise InputError unless a quota may be created."""
    try:
        other = topology.get(quota.metadata.name)
        if other is not None:
            accepted = f"a name that no other quota has, whatever its namespace: {other.key} has it"
            raise refusal("metadata.name", quota.metadata.name, accepted)
        _check_itself(quota, topology)
        check_place(quota, topology, rules)
    except InputError as error:
        raise error.within(subject=subject_of(quota)) from None


def check_changed_quota(
    old: ElasticQuota,
    new: ElasticQuota,
    topology: QuotaTopology,
    rules: PlaceRules,
    pods: Sequence[str],
) -> None:
    """Raise InputError unless a quota may change so; what no rule reads may always change."""
    if _as_read(old) == _as_read(new):
        return
    try:
        if new.metadata.name in _FIXED:
            raise refusal("metadata.name", new.metadata.name, "the name of a quota of yours")
        _check_itself(new, topology)
        _check_change(old, new, topology, pods)
        check_place(new, topology, rules)
    except InputError as error:
        raise error.within(subject=subject_of(new)) from None


def check_deleted_quota(quota: ElasticQuota, topology: QuotaTopology, pods: Sequence[str]) -> None:
    """Raise InputError unless a quota may be deleted: nobody needs it any more."""
    children = [child.metadata.name for child in topology.children(quota.metadata.name)]
    problem = ""
    if quota.metadata.name in _BUILT_IN:
        problem = "found a deletion of a built-in quota; accepted is one of a quota of yours"
    elif children:
        problem = f"found {_listed(children, 'child quota')}; accepted is a deletion of these first"
    elif pods:
        problem = f"found {_listed(pods, 'pod')}; accepted is a deletion of these first"
    if problem:
        raise InputError(problem, subject=subject_of(quota))


def check_pod_quota(pod: Pod, quota: ElasticQuota | None, *, parents_take_pods: bool) -> None:
    """Raise InputError if a pod would be in a quota that has children (or may have) instead.

    ``parents_take_pods`` is the gate SupportParentQuotaSubmitPod.
    """
    if quota is not None and quota.is_parent and not parents_take_pods:
        name = quota.metadata.name
        raise refusal(
            f"metadata.labels[{QUOTA_NAME}]", name, f"a quota below {name}, which is a parent"
        ).within(subject=subject_of(pod))


def check_changed_pod(old: Pod, new: Pod) -> None:
    """Raise InputError if it changes whether the pod is preemptible within its quota."""
    before = old.metadata.labels.get(QUOTA_PREEMPTIBLE, "")
    after = new.metadata.labels.get(QUOTA_PREEMPTIBLE, "")
    if before != after:
        raise refusal(
            f"metadata.labels[{QUOTA_PREEMPTIBLE}]",
            after,
            f"what the pod was created with: {before!r}",
        ).within(subject=subject_of(new))


def _as_read(quota: ElasticQuota) -> object:
    """Return all of a quota that the rules read, and that may not be broken by an update."""
    labels, annotations = quota.metadata.labels, quota.metadata.annotations
    return (
        quota.spec,
        [labels.get(key, "") for key in _LABELS_READ],
        [annotations.get(key, "") for key in _ANNOTATIONS_READ],
    )


def _check_itself(quota: ElasticQuota, topology: QuotaTopology) -> None:
    for namespace in NAMESPACES.read(quota.metadata) or ():
        others = [name for name in topology.bound_to(namespace) if name != quota.metadata.name]
        if others:
            accepted = f"a namespace that is not bound to another quota, as it is to {others[0]}"
            raise refusal(NAMESPACES.path, namespace, accepted)
    validate_elastic_quota(quota)
    check_queue_terms(quota)
    most, used = quota.spec.max, quota.status.used
    for resource in MAX_STRICT_CHECK_RESOURCE_KEYS.read(quota.metadata) or ():
        if resource in used and (resource not in most or most[resource] < used[resource]):
            found = str(most[resource]) if resource in most else None
            accepted = f"at least what is used, {used[resource]}, as an annotation demands"
            raise refusal(f"spec.max[{resource}]", found, accepted)


def _check_change(
    old: ElasticQuota, new: ElasticQuota, topology: QuotaTopology, pods: Sequence[str]
) -> None:
    path = f"metadata.labels[{QUOTA_IS_PARENT}]"
    label = new.metadata.labels.get(QUOTA_IS_PARENT)
    children = [child.metadata.name for child in topology.children(new.metadata.name)]
    if old.is_parent and not new.is_parent and children:
        raise refusal(
            path, label, f"'true' for a quota that has {_listed(children, 'child quota')}"
        )
    if new.is_parent and not old.is_parent and pods:
        raise refusal(path, label, f"'false' for a quota that has {_listed(pods, 'pod')}")
    if new.tree_id != old.tree_id:
        path = f"metadata.labels[{QUOTA_TREE_ID}]"
        raise refusal(path, new.tree_id, f"the tree that it is in, {old.tree_id!r}")


def _listed(names: Sequence[str], kind: str) -> str:
    more = ", ..." if len(names) > _SHOWN else ""
    plural = "" if len(names) == 1 else "s"
    return f"{len(names)} {kind}{plural} ({', '.join(names[:_SHOWN])}{more})"
