"""Rights of tenants: protected labels, annotations and keys of the scheduler.

A quota or pod may use objects of its own namespace, objects whose owner has agreed, and objects on
which the user of the request has the right, by a SubjectAccessReview of the API server.  The
original has no such checks.

They record the CPUs, devices and reservation allocated to a pod; a user who could set them would
take resources that were never allocated.  Mutation removes them from new pods, and validation
denies updates that change them.
"""

from collections.abc import Iterator
from typing import Final

from koordinator.api.annotations.devices import (
    ALLOCATED,
    BIND_TIMESTAMP,
    CAMBRICON_ASSIGNED,
    CAMBRICON_PROFILE,
    GPU_MINORS,
    HUAWEI_ASCEND_310P,
    HUAWEI_NPU_CORE,
    HUAWEI_PREDICATE_TIME,
    METAX_ALLOCATED,
)
from koordinator.api.annotations.numa import RESOURCE_STATUS
from koordinator.api.annotations.pod_qos import EXTENDED_RESOURCE_SPEC
from koordinator.api.annotations.quota import CHILD_NAMESPACES, bound_namespaces
from koordinator.api.annotations.reservation import ALLOCATED as RESERVATION_ALLOCATED
from koordinator.api.control_plane import ResourceAttributes
from koordinator.api.elastic_quota import (
    DEFAULT_QUOTA,
    ROOT_QUOTA,
    SYSTEM_QUOTA,
    ElasticQuota,
    ElasticQuotaProfile,
)
from koordinator.api.labels import (
    QUOTA_IS_ROOT,
    QUOTA_NAME,
    QUOTA_PARENT,
    RESERVATION_IGNORED,
    VGPU_NODE,
    is_true,
)
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.pod import Pod
from koordinator.domain.quota.spec import QuotaTopology
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.manager.admission.lookup import AdmissionRequest, Denial, Lookup

_BUILT_IN = frozenset((ROOT_QUOTA, SYSTEM_QUOTA, DEFAULT_QUOTA))
_EVERYWHERE = "*"
_FORBIDDEN, _UNAVAILABLE = 403, 503

ANNOTATIONS: Final = frozenset(
    (
        ALLOCATED.key,
        RESOURCE_STATUS.key,
        RESERVATION_ALLOCATED.key,
        EXTENDED_RESOURCE_SPEC.key,
        BIND_TIMESTAMP,
        GPU_MINORS,
        HUAWEI_PREDICATE_TIME,
        HUAWEI_NPU_CORE,
        HUAWEI_ASCEND_310P,
        CAMBRICON_ASSIGNED,
        CAMBRICON_PROFILE,
        METAX_ALLOCATED.key,
    )
)
LABELS: Final = frozenset((VGPU_NODE,))
_FORBIDDEN_KEYS = 403


def check_quota_tenancy(
    request: AdmissionRequest,
    old: ElasticQuota | None,
    new: ElasticQuota,
    quotas: QuotaTopology,
    lookup: Lookup,
    *,
    components: str,
    is_strict: bool,
) -> None:
    """Raise Denial if a quota claims objects of another tenant; only new claims are checked.

    ``components`` is the namespace of Koordinator, to which the built-in quotas belong.
    ``is_strict``: a quota directly below the root quota, which all tenants share, needs the right
    to update the root quota.
    """
    if request.is_of_component:
        return
    rights = _required_rights(old, new, quotas, lookup, components, is_strict=is_strict)
    for problem, right in rights:
        if not is_permitted(request, lookup, right):
            raise Denial(f"ElasticQuota {new.key}: {problem}", _FORBIDDEN)


def _required_rights(
    old: ElasticQuota | None,
    new: ElasticQuota,
    quotas: QuotaTopology,
    lookup: Lookup,
    components: str,
    *,
    is_strict: bool,
) -> Iterator[tuple[str, ResourceAttributes]]:
    """Yield each claim that the owner has not agreed to, and the right that would permit it."""
    name, own = new.metadata.name, new.metadata.namespace
    if old is None and name in _BUILT_IN and own != components:
        problem = f"metadata.name: must not be that of a built-in quota, got {name!r}"
        yield problem, _right(ElasticQuota, "create", components)
    if old is None and name != own and lookup.namespace(name) is not None:
        problem = (
            "metadata.name: must not be that of another namespace, whose pods would use it, got "
            f"{name!r}"
        )
        yield problem, _right(ElasticQuota, "create", name)
    # Only additions need a right: a user may keep, and must be able to remove, what others granted.
    known = set(bound_namespaces(old)) if old is not None else set()
    for namespace in dict.fromkeys(bound_namespaces(new)):
        if namespace not in known | {own} and not _namespace_agrees(namespace, name, lookup):
            problem = (
                "metadata.annotations[quota.scheduling.koordinator.sh/namespaces]: must be its own "
                f"namespace {own!r}, or one labelled {QUOTA_NAME}: {name}, or one in which the "
                f"user may create quotas, got {namespace!r}"
            )
            yield problem, _right(ElasticQuota, "create", namespace)
    if old is None or old.parent != new.parent:
        parent = quotas.get(new.parent)
        yield from _required_rights_on_parent(new, parent, components, is_strict=is_strict)
    if new.is_tree_root and not (old is not None and old.is_tree_root):
        problem = (
            f"metadata.labels[{QUOTA_IS_ROOT}]: must not be set by users who may not create "
            f"elasticquotaprofiles in namespace {own!r}"
        )
        yield problem, _right(ElasticQuotaProfile, "create", own)


def _required_rights_on_parent(
    new: ElasticQuota, parent: ElasticQuota | None, components: str, *, is_strict: bool
) -> Iterator[tuple[str, ResourceAttributes]]:
    own, path = new.metadata.namespace, f"metadata.labels[{QUOTA_PARENT}]"
    if new.parent in ("", ROOT_QUOTA) and not new.is_tree_root:
        if is_strict and own != components:
            problem = (
                f"{path}: must be a quota of namespace {own!r}, or one that admits it: the user "
                f"may not update quota {ROOT_QUOTA} in namespace {components!r}"
            )
            yield problem, _right(ElasticQuota, "update", components, ROOT_QUOTA)
        return
    if parent is None or parent.metadata.namespace == own or _admits(parent, own):
        return
    namespace = parent.metadata.namespace
    problem = (
        f"{path}: must be a quota of namespace {own!r}, or one whose annotation "
        f"{CHILD_NAMESPACES.key} names it, or one that the user may update, got {namespace}/"
        f"{new.parent}"
    )
    yield problem, _right(ElasticQuota, "update", namespace, new.parent)


def _admits(parent: ElasticQuota, namespace: str) -> bool:
    try:
        admitted = CHILD_NAMESPACES.read(parent.metadata) or ()
    except InputError:
        return False
    return namespace in admitted or _EVERYWHERE in admitted


def _namespace_agrees(namespace: str, quota: str, lookup: Lookup) -> bool:
    known = lookup.namespace(namespace)
    return known is not None and known.metadata.labels.get(QUOTA_NAME) == quota


def check_pod_tenancy(
    request: AdmissionRequest, old: Pod | None, new: Pod, quotas: QuotaTopology, lookup: Lookup
) -> None:
    """Raise Denial if a pod uses another tenant's quota, or ignores reservations without a right.

    Either the user or the pod's service account must have the right, since controllers create
    most pods.
    """
    if request.is_of_component:
        return
    before = old.metadata.labels if old is not None else {}
    labels, namespace = new.metadata.labels, request.namespace
    name = labels.get(QUOTA_NAME, "")
    quota = quotas.get(name)
    if quota is not None and name != before.get(QUOTA_NAME) and not _may_use(quota, namespace):
        quota_namespace = quota.metadata.namespace
        if not is_permitted(
            request, lookup, _right(ElasticQuota, "use", quota_namespace, name), new
        ):
            raise Denial(
                f"metadata.labels[{QUOTA_NAME}]: must be a quota of namespace {namespace!r}, or "
                f"one whose annotation namespaces names it, or one that the user or the service "
                f"account of the pod may use, got {quota_namespace}/{name}",
                _FORBIDDEN,
            )
    if is_true(labels, RESERVATION_IGNORED) and not is_true(before, RESERVATION_IGNORED):
        known = lookup.namespace(namespace)
        if known is None or not is_true(known.metadata.labels, RESERVATION_IGNORED):
            raise Denial(
                f"metadata.labels[{RESERVATION_IGNORED}]: must not be set in namespace "
                f"{namespace!r}, which has no label {RESERVATION_IGNORED}: true",
                _FORBIDDEN,
            )


def _may_use(quota: ElasticQuota, namespace: str) -> bool:
    return (
        quota.metadata.name == DEFAULT_QUOTA
        or quota.metadata.namespace == namespace
        or namespace in bound_namespaces(quota)
    )


def _right(kind: type[KubeObject], verb: str, namespace: str, name: str = "") -> ResourceAttributes:
    return ResourceAttributes(
        namespace=namespace,
        verb=verb,
        group=kind.API_VERSION.partition("/")[0],
        resource=kind.PLURAL,
        name=name,
    )


def is_permitted(
    request: AdmissionRequest, lookup: Lookup, access: ResourceAttributes, pod: Pod | None = None
) -> bool:
    """Return whether the user, or the service account of a pod, has access.

    Raises Denial if the API server is unavailable.
    """
    try:
        if lookup.permits(request.requester, access):
            return True
        return pod is not None and lookup.permits(request.service_account_of(pod), access)
    except ClusterError as error:
        problem = f"the API server cannot review the access of the user: {error}; try again"
        raise Denial(problem, _UNAVAILABLE) from None


def without_scheduler_keys(pod: JsonObject) -> JsonObject:
    """Return the pod without scheduler keys; the same object if it has none."""
    meta = pod.get("metadata") or {}
    changed = {
        part: {key: text for key, text in entries.items() if key not in keys}
        for part, keys in (("annotations", ANNOTATIONS), ("labels", LABELS))
        if keys & (entries := meta.get(part) or {}).keys()
    }
    return {**pod, "metadata": {**meta, **changed}} if changed else pod


def check_scheduler_keys(request: AdmissionRequest, old: Pod, new: Pod, lookup: Lookup) -> None:
    """Raise Denial if an update changes a scheduler key, unless the user may bind the pod."""
    changed = [
        f"metadata.{part}[{key}]"
        for part, keys, before, after in (
            ("annotations", ANNOTATIONS, old.metadata.annotations, new.metadata.annotations),
            ("labels", LABELS, old.metadata.labels, new.metadata.labels),
        )
        for key in sorted(keys)
        if before.get(key) != after.get(key)
    ]
    if not changed or request.is_of_component:
        return
    binding = ResourceAttributes(
        namespace=request.namespace, verb="create", resource="pods", subresource="binding"
    )
    if not is_permitted(request, lookup, binding):
        raise Denial(
            f"{changed[0]}: Forbidden: must not be changed by users who may not create "
            f"pods/binding in namespace {request.namespace!r}: the scheduler writes it",
            _FORBIDDEN_KEYS,
        )
