"""Validation of quotas and of the operations on them, with warnings.

The scheduler tolerates such quotas (``QuotaSpec.of``); this module reports them to users. The rules
are the same as in admission, except that a quota may name fewer resources than its parent.

Source: koordinator pkg/webhook/elasticquota/quota_topology.go, pod_check.go. Unlike there,
namespaces must be readable, an update of nothing but the weights is checked too, and a quota
can't move to a parent without room for what it uses; koordinator
pkg/webhook/elasticquota/quota_topology.go, ``fillQuotaDefaultInformation``.
"""

from collections.abc import Callable, Sequence

from msgspec.structs import replace

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
from koordinator.api.syntax import invalid_value
from koordinator.api.validation import validate_elastic_quota
from koordinator.domain.quota.place_validation import (
    PlaceRules,
    QuotaInputError,
    check_above,
    check_below,
    check_move,
    check_place,
    original_of_amounts,
    refused_as,
)
from koordinator.domain.quota.spec import QUEUE_KEYS, QuotaTopology, check_queue_terms
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
_BOUND_BY_UPDATE = (
    "UpdadteQuota, quota {} update namespaces, but namespace {}"  # typo of the original
)

_READ = (NAMESPACES.key, SHARED_WEIGHT.key, *QUEUE_KEYS)
_RULES = PlaceRules(allows_fewer_resources=True)


def check_new_quota(quota: ElasticQuota, topology: QuotaTopology, rules: PlaceRules) -> None:
    """Raise InputError unless a quota may be created."""
    try:
        other = topology.get(quota.metadata.name)
        if other is not None:
            accepted = f"unique across namespaces: {other.key} has the same name"
            error = invalid_value("metadata.name", quota.metadata.name, accepted)
            raise refused_as(f"AddQuota quota already exist:{quota.metadata.name}", error)
        _check_namespaces(quota, topology, "AddQuota quota {}'s annotation namespace {}")
        _check_itself(quota)
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
    """Raise InputError unless a quota may change; fields that no rule reads may always change."""
    if is_unchanged(old, new):
        return
    try:
        if new.metadata.name in _FIXED:
            error = invalid_value(
                "metadata.name", new.metadata.name, "the name of a quota that is not built in"
            )
            raise refused_as(f"invalid quota {new.metadata.name}", error)
        _check_namespaces(new, topology, _BOUND_BY_UPDATE)
        _check_itself(new)
        _check_change(old, new, topology, pods)
        check_move(old, new, topology)
        check_place(new, topology, rules)
    except InputError as error:
        raise error.within(subject=subject_of(new)) from None


def check_deleted_quota(quota: ElasticQuota, topology: QuotaTopology, pods: Sequence[str]) -> None:
    """Raise InputError if a quota is built in or still has children or pods."""
    name = quota.metadata.name
    children = [child.metadata.name for child in topology.children(name)]
    if name in _BUILT_IN:
        problem = "a built-in quota must not be deleted"
        original = f"can not delete quotaGroup :{name}"
    elif children:
        problem = (
            f"must not have child quotas when it is deleted, got {_listed(children, 'child quota')}"
        )
        original = f"delete quota failed, quota {name} has {len(children)} child quotas"
    elif pods:
        problem = f"must not have pods when it is deleted, got {_listed(pods, 'pod')}"
        bare = [pod.rpartition("/")[2] for pod in pods[:_SHOWN]]
        named = ", ".join([*bare, "..."] if len(pods) > _SHOWN else bare)
        original = f"delete quota failed, quota {name} has {len(pods)} child pods: {named}"
    else:
        return
    raise QuotaInputError(original, problem, subject=subject_of(quota))


def check_pod_quota(pod: Pod, quota: ElasticQuota | None, *, parents_take_pods: bool) -> None:
    """Raise InputError if a pod selects a parent quota.

    ``parents_take_pods`` is the gate SupportParentQuotaSubmitPod, which allows it.
    """
    if quota is not None and quota.is_parent and not parents_take_pods:
        name = quota.metadata.name
        original = (
            "pod can not be linked to a parentQuotaGroup,"
            f"quota:{name}, pod:{pod.metadata.name or pod.metadata.generate_name}"
        )
        error = invalid_value(
            f"metadata.labels[{QUOTA_NAME}]", name, f"a quota below {name}, which is a parent"
        )
        raise refused_as(original, error).within(subject=subject_of(pod))


def check_changed_pod(old: Pod, new: Pod) -> None:
    """Raise InputError if the update changes the pod's preemptible label."""
    before = old.metadata.labels.get(QUOTA_PREEMPTIBLE, "")
    after = new.metadata.labels.get(QUOTA_PREEMPTIBLE, "")
    if before != after:
        accepted = f"the value at creation, {before!r}"
        error = invalid_value(f"metadata.labels[{QUOTA_PREEMPTIBLE}]", after, accepted)
        original = "Preemptible label is forbidden modify now."
        raise refused_as(original, error).within(subject=subject_of(new))


def is_unchanged(old: ElasticQuota, new: ElasticQuota) -> bool:
    """Return whether an update leaves everything that the rules read unchanged."""
    return _as_read(old) == _as_read(new)


def _as_read(quota: ElasticQuota) -> object:
    """Return the parts of a quota that the rules read and an update must not break."""
    labels, annotations = quota.metadata.labels, quota.metadata.annotations
    return (
        quota.spec,
        [labels.get(key, "") for key in _LABELS_READ],
        [annotations.get(key, "") for key in _ANNOTATIONS_READ],
    )


def _check_namespaces(quota: ElasticQuota, topology: QuotaTopology, original: str) -> None:
    """Check that no namespace is bound to another quota; ``original`` is a format string."""
    for namespace in NAMESPACES.read(quota.metadata) or ():
        others = [name for name in topology.bound_to(namespace) if name != quota.metadata.name]
        if others:
            accepted = f"a namespace that is not bound to another quota, as it is to {others[0]}"
            begun = original.format(quota.metadata.name, namespace)
            raise refused_as(
                f"{begun} is already bound to quota {others[0]}",
                invalid_value(NAMESPACES.path, namespace, accepted),
            )


def _check_itself(quota: ElasticQuota) -> None:
    try:
        validate_elastic_quota(quota)
    except InputError as error:
        original = original_of_amounts(quota)
        raise refused_as(original, error) if original else error from None
    check_queue_terms(quota)
    name, most, used = quota.metadata.name, quota.spec.max, quota.status.used
    for resource in MAX_STRICT_CHECK_RESOURCE_KEYS.read(quota.metadata) or ():
        if resource in used and (resource not in most or most[resource] < used[resource]):
            shown = str(most[resource]) if resource in most else None
            accepted = f"at least the used amount, {used[resource]}, as an annotation demands"
            original = (
                f"resourceKey {resource} of quota {name} max {shown} < used {used[resource]}"
                if shown
                else f"resourceKey {resource} of quota {name} is included in used, which is not "
                "included in max but should check max >= used"
            )
            raise refused_as(original, invalid_value(f"spec.max[{resource}]", shown, accepted))


def _check_change(
    old: ElasticQuota, new: ElasticQuota, topology: QuotaTopology, pods: Sequence[str]
) -> None:
    path = f"metadata.labels[{QUOTA_IS_PARENT}]"
    name, label = new.metadata.name, new.metadata.labels.get(QUOTA_IS_PARENT)
    children = [child.metadata.name for child in topology.children(new.metadata.name)]
    if old.is_parent and not new.is_parent and children:
        accepted = f"'true' for a quota that has {_listed(children, 'child quota')}"
        raise refused_as(
            f"quota has children, isParent is forbidden to modify as false, quotaName:{name}",
            invalid_value(path, label, accepted),
        )
    if new.is_parent and not old.is_parent and pods:
        accepted = f"'false' for a quota that has {_listed(pods, 'pod')}"
        raise refused_as(
            f"quota has bound pods, isParent is forbidden to modify as true, quotaName: {name}",
            invalid_value(path, label, accepted),
        )
    if new.tree_id != old.tree_id:
        accepted = f"its current tree, {old.tree_id!r}"
        raise refused_as(
            f"{name} tree id changed [{old.tree_id}] vs [{new.tree_id}]",
            invalid_value(f"metadata.labels[{QUOTA_TREE_ID}]", new.tree_id, accepted),
        )


def _listed(names: Sequence[str], kind: str) -> str:
    more = ", ..." if len(names) > _SHOWN else ""
    plural = "" if len(names) == 1 else "s"
    return f"{len(names)} {kind}{plural} ({', '.join(names[:_SHOWN])}{more})"


def with_quota_defaults(quota: ElasticQuota, topology: QuotaTopology) -> ElasticQuota:
    """Return the quota with parent, tree and weights set; the same object if none is missing.

    The parent defaults to the root, the tree to the parent's tree. The weights cover exactly the
    resources of ``spec.max`` and default to its amounts. Raises InputError if the parent does not
    exist or the weights can't be parsed.
    """
    if quota.metadata.name == ROOT_QUOTA:
        return quota
    try:
        labels = dict(quota.metadata.labels)
        labels[QUOTA_PARENT] = quota.parent
        if not quota.tree_id and quota.parent != ROOT_QUOTA:
            parent = topology.get(quota.parent)
            if parent is None:
                path = f"metadata.labels[{QUOTA_PARENT}]"
                error = invalid_value(path, quota.parent, "the name of an existing quota")
                original = f"fill quota {quota.metadata.name} failed, parent not exist"
                raise refused_as(original, error)
            if parent.tree_id:
                labels[QUOTA_TREE_ID] = parent.tree_id
        weights = SHARED_WEIGHT.read(quota.metadata)
    except InputError as error:
        raise error.within(subject=subject_of(quota)) from None
    annotations = dict(quota.metadata.annotations)
    if weights is None or weights.keys() != quota.spec.max.keys():
        known = weights or {}
        wanted = {name: known.get(name, most) for name, most in quota.spec.max.items()}
        annotations |= SHARED_WEIGHT.entry(wanted)
    if (labels, annotations) == (quota.metadata.labels, quota.metadata.annotations):
        return quota
    meta = replace(quota.metadata, labels=labels, annotations=annotations)
    return replace(quota, metadata=meta)


class QuotaWarnings:
    """Warnings by key of the object; a quota is checked after it or its neighbours changed."""

    def __init__(self) -> None:
        self.texts: dict[str, str] = {}
        self._topology = QuotaTopology()
        self._unseen: dict[str, None] = {}  # names

    def put(self, quota: ElasticQuota) -> None:
        """Add or update a quota."""
        known = self._topology.get(quota.metadata.name)
        if known is not None and _as_stored(known) == _as_stored(quota):
            return  # only reported figures changed
        self._note_neighbours(quota.metadata.name)
        self._topology.put(quota)
        self._note_neighbours(quota.metadata.name)

    def remove(self, quota: ElasticQuota) -> list[str]:
        """Remove a quota; return the names of its children, which have no parent now."""
        name = quota.metadata.name
        self._note_neighbours(name)
        self._topology.remove(name)
        self._unseen.pop(name, None)
        self.texts.pop(quota.key, None)
        return [child.metadata.name for child in self._topology.children(name)]

    def check(self, limit: int) -> None:
        """Check at most ``limit`` quotas that changed since their last check."""
        for name in list(self._unseen)[:limit]:
            del self._unseen[name]
            quota = self._topology.get(name)
            if quota is None:
                continue
            text = warning_about(quota, self._topology)
            if text:
                self.texts[quota.key] = text
            else:
                self.texts.pop(quota.key, None)

    @property
    def is_behind(self) -> bool:
        """Whether quotas are waiting to be checked."""
        return bool(self._unseen)

    def _note_neighbours(self, name: str) -> None:
        """Schedule a check of a quota, its parent and its children."""
        quota = self._topology.get(name)
        if quota is None:
            return
        self._unseen[name] = None
        self._unseen[quota.parent] = None
        self._unseen.update({child.metadata.name: None for child in self._topology.children(name)})


def _as_stored(quota: ElasticQuota) -> object:
    """Return all parts of a quota that the rules read."""
    annotations = quota.metadata.annotations
    return quota.key, quota.spec, quota.metadata.labels, [annotations.get(key) for key in _READ]


def warning_about(quota: ElasticQuota, topology: QuotaTopology) -> str:
    """Return what admission would reject about a quota; empty if nothing.

    Rules that compare a quota with its siblings are left out.
    """
    checks: list[Callable[[], object]] = [
        lambda: validate_elastic_quota(quota),
        lambda: check_queue_terms(quota),
        lambda: NAMESPACES.read(quota.metadata),
    ]
    if quota.metadata.name != ROOT_QUOTA:
        checks += [
            lambda: check_above(quota, topology, _RULES),
            lambda: check_below(quota, topology),
        ]
    problems = []
    for check in checks:
        try:
            check()
        except InputError as error:
            problems.append(str(error))
    return f"{subject_of(quota)}: {'; '.join(problems)}" if problems else ""
