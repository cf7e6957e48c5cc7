"""Validation of a quota against its parent, its children and its siblings.

Unlike in the original, a quota may not become its own ancestor.

Source: koordinator pkg/webhook/elasticquota/quota_topology.go, quota_topology_check.go
``validateQuotaTopology``, pod_check.go.
"""

from collections.abc import Iterable

from koordinator.api.annotations.quota import GUARANTEED, SHARED_WEIGHT
from koordinator.api.core import ResourceList
from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
from koordinator.api.labels import QUOTA_ALLOW_FORCE_UPDATE, QUOTA_PARENT, QUOTA_TREE_ID, is_true
from koordinator.api.syntax import invalid_value
from koordinator.domain.quota.spec import QuotaTopology
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity

_PARENT = f"metadata.labels[{QUOTA_PARENT}]"
_TREE_ID = f"metadata.labels[{QUOTA_TREE_ID}]"
_ZERO = Quantity(0)
_INCLUDED = "not all included in"


class QuotaInputError(InputError):
    """A refusal for which the Go original has a message; ``original`` is that message.

    The text of the error itself names object, field and expected values.
    """

    def __init__(
        self, original: str, problem: str, *, source: str = "", subject: str = "", path: str = ""
    ) -> None:
        self.original = original
        super().__init__(problem, source=source, subject=subject, path=path)

    def within(self, *, source: str = "", subject: str = "", path: str = "") -> "QuotaInputError":
        """Return the same refusal with missing parts filled in, as ``InputError.within`` does."""
        return refused_as(self.original, super().within(source=source, subject=subject, path=path))


def refused_as(original: str, error: InputError) -> QuotaInputError:
    """Return ``error`` with the message ``original`` of the Go original."""
    return QuotaInputError(
        original, error.problem, source=error.source, subject=error.subject, path=error.path
    )


def message_for_clients(error: InputError) -> str:
    """Return the webhook's answer: the original's message, if there is one, then this project's."""
    return f"{error.original}; {error}" if isinstance(error, QuotaInputError) else str(error)


def original_of_amounts(quota: ElasticQuota) -> str:
    """Return the original's message for inconsistent amounts within one quota.

    Empty if the original does not refuse them. Raises InputError for weights that can't be parsed.
    """
    name, spec = quota.metadata.name, quota.spec
    weights = SHARED_WEIGHT.read(quota.metadata) or {}
    for bound, amounts, dimension in (
        ("quota.Spec.Max", spec.max, "dimensions"),
        ("quota.Spec.Min", spec.min, "dimensions"),
        (f"quota.Annotation[{SHARED_WEIGHT.key}]", weights, "dimension"),
    ):
        if negative := [resource for resource, amount in amounts.items() if amount.nanos < 0]:
            return f"{name} {bound}'s value < 0, in {dimension} :[{' '.join(negative)}]"
    for resource, least in spec.min.items():
        most = spec.max.get(resource)
        if most is None:
            return (
                f"resourceKey {resource} of quota {name} is included in min, "
                "which is not included in max"
            )
        if least > most:
            return f"resourceKey {resource} of quota {name} min {least} > max {most}"
    return ""


@dataclass(frozen=True, slots=True)
class PlaceRules:
    """Feature gates of the manager."""

    guarantees_usage: bool = False  # ElasticQuotaGuaranteeUsage
    allows_fewer_resources: bool = False  # ElasticQuotaEnableUpdateResourceKey: than the parent's


def check_place(quota: ElasticQuota, topology: QuotaTopology, rules: PlaceRules) -> None:
    """Raise InputError, without subject, unless the quota fits where its labels place it."""
    if quota.metadata.name == ROOT_QUOTA:
        return
    parent = None if quota.parent == ROOT_QUOTA else topology.get(quota.parent)
    children = topology.children(quota.metadata.name)
    _check_tree(quota, parent, children)
    if quota.parent == ROOT_QUOTA and not quota.is_parent:
        return
    if quota.parent != ROOT_QUOTA:
        _check_parent(quota, parent, topology)
    _check_resources(quota, parent, children, rules)
    if is_true(quota.metadata.labels, QUOTA_ALLOW_FORCE_UPDATE) or quota.is_tree_root:
        return
    _check_minimums(quota, parent, children, topology)
    if rules.guarantees_usage and quota.tree_id:
        _check_guarantee(quota, topology)


def check_above(quota: ElasticQuota, topology: QuotaTopology, rules: PlaceRules) -> None:
    """Raise InputError, without subject, if the quota's parent is missing or unsuitable."""
    if quota.parent == ROOT_QUOTA:
        return
    parent = topology.get(quota.parent)
    _check_parent(quota, parent, topology)
    _check_tree(quota, parent, ())
    _check_resources(quota, parent, (), rules)


def check_below(quota: ElasticQuota, topology: QuotaTopology) -> None:
    """Raise InputError, without subject, if the children's minimums exceed the quota's."""
    if is_true(quota.metadata.labels, QUOTA_ALLOW_FORCE_UPDATE) or quota.is_tree_root:
        return
    _check_children_minimums(quota, topology.children(quota.metadata.name))


def check_move(old: ElasticQuota, new: ElasticQuota, topology: QuotaTopology) -> None:
    """Raise InputError, without subject, if the new parent has no room for the usage.

    The original does not check a move.
    """
    parent = None if new.parent in (old.parent, ROOT_QUOTA) else topology.get(new.parent)
    if parent is None or is_true(new.metadata.labels, QUOTA_ALLOW_FORCE_UPDATE):
        return
    taken = parent.status.used
    for resource, used in sorted(old.status.used.items()):
        most = parent.spec.max.get(resource)
        if most is not None and used.nanos and taken.get(resource, _ZERO) + used > most:
            free = f"{most} of {resource}, of which {taken.get(resource, _ZERO)} is used"
            accepted = f"a parent with {used} available for the used amount: this one has {free}"
            raise invalid_value(_PARENT, new.parent, accepted)


def _check_tree(
    quota: ElasticQuota, parent: ElasticQuota | None, children: Iterable[ElasticQuota]
) -> None:
    for other in (*([parent] if parent else ()), *children):
        if other.tree_id != quota.tree_id:
            role = "parent" if other is parent else "child"
            accepted = f"{other.tree_id!r}, the tree of its {role} {other.metadata.name}"
            original = (
                f"{quota.metadata.name} tree id is different from {role} {other.metadata.name}, "
                f"[{quota.tree_id}] vs [{other.tree_id}]"
            )
            raise refused_as(original, invalid_value(_TREE_ID, quota.tree_id, accepted))


def _check_parent(
    quota: ElasticQuota, parent: ElasticQuota | None, topology: QuotaTopology
) -> None:
    name = quota.metadata.name
    original = f"{name} has parentName {quota.parent} but "
    if parent is None:
        error = invalid_value(_PARENT, quota.parent, "the name of an existing quota")
        raise refused_as(original + "not find parentInfo in quotaInfoMap", error)
    if not parent.is_parent:
        error = invalid_value(_PARENT, quota.parent, "a parent quota")
        raise refused_as(original + "the parentQuotaInfo's IsParent is false", error)
    if name == quota.parent or any(a.parent == name for a in topology.ancestors(quota)):
        raise invalid_value(
            _PARENT, quota.parent, "neither the quota itself nor a descendant of it"
        )


def _check_resources(
    quota: ElasticQuota,
    parent: ElasticQuota | None,
    children: Iterable[ElasticQuota],
    rules: PlaceRules,
) -> None:
    """Compare resource names: the same in max; in min only names that the parent has."""
    if parent is not None:
        other = f"its parent {parent.metadata.name}"
        if not _may_be_below(quota.spec.max, parent.spec.max, rules):
            error = _wrong_resources("spec.max", quota.spec.max, parent.spec.max, other)
            raise refused_as(_original_of_maximums(quota, parent, rules), error)
        if not quota.spec.min.keys() <= parent.spec.min.keys():
            error = _wrong_resources(
                "spec.min", quota.spec.min, parent.spec.min, f"{other} at most"
            )
            raise refused_as(_original_of_resources(quota, "min", _INCLUDED, parent), error)
    for child in children:
        other = f"its child {child.metadata.name}"
        if not _may_be_below(child.spec.max, quota.spec.max, rules):
            error = _wrong_resources("spec.max", quota.spec.max, child.spec.max, other)
            raise refused_as(_original_of_maximums(child, quota, rules), error)
        if not child.spec.min.keys() <= quota.spec.min.keys():
            error = _wrong_resources(
                "spec.min", quota.spec.min, child.spec.min, f"{other} at least"
            )
            raise refused_as(_original_of_resources(child, "min", _INCLUDED, quota), error)


def _may_be_below(below: ResourceList, above: ResourceList, rules: PlaceRules) -> bool:
    if rules.allows_fewer_resources:
        return below.keys() <= above.keys()
    return below.keys() == above.keys()


def _wrong_resources(
    path: str, resources: ResourceList, wanted: ResourceList, other: str
) -> InputError:
    return invalid_value(path, sorted(resources), f"the resources of {other}: {sorted(wanted)}")


def _original_of_maximums(below: ElasticQuota, above: ElasticQuota, rules: PlaceRules) -> str:
    if rules.allows_fewer_resources:
        return _original_of_resources(below, "max", _INCLUDED, above)
    return _original_of_resources(above, "max", "not the same with", below)


def _original_of_resources(
    first: ElasticQuota, amounts: str, relation: str, second: ElasticQuota
) -> str:
    return (
        "failed to check sub and parent group quotaKey, err: checkSubAndParentGroupQuotaKey "
        f"failed: {first.metadata.name}'s {amounts} keys are {relation} {second.metadata.name}'s"
    )


def _check_minimums(
    quota: ElasticQuota,
    parent: ElasticQuota | None,
    children: Iterable[ElasticQuota],
    topology: QuotaTopology,
) -> None:
    """Check that the children's minimums sum up to at most the parent's minimum."""
    least = quota.spec.min
    if parent is not None:
        siblings = _sum(
            sibling.spec.min
            for sibling in topology.children(parent.metadata.name)
            if sibling.metadata.name != quota.metadata.name
        )
        for resource, amount in least.items():
            taken, minimum = siblings.get(resource, _ZERO), parent.spec.min.get(resource, _ZERO)
            if taken + amount > minimum:
                accepted = (
                    f"what its parent {parent.metadata.name} has, {minimum}, less the minimums of "
                    f"the parent's other children, {taken}"
                )
                original = (
                    "checkMinQuotaSum all brothers' MinQuota > parent MinQuota, parent: "
                    f"{parent.metadata.name}"
                )
                error = invalid_value(f"spec.min[{resource}]", str(amount), accepted)
                raise refused_as(original, error)
    _check_children_minimums(quota, children)


def _check_children_minimums(quota: ElasticQuota, children: Iterable[ElasticQuota]) -> None:
    least = quota.spec.min
    for resource, amount in _sum(child.spec.min for child in children).items():
        if amount > least.get(resource, _ZERO):
            accepted = f"at least the sum of its children's minimums, {amount}"
            original = (
                "checkMinQuotaSum all children's MinQuota > current MinQuota, current: "
                f"{quota.metadata.name}"
            )
            shown = str(least.get(resource, _ZERO))
            raise refused_as(original, invalid_value(f"spec.min[{resource}]", shown, accepted))


def _check_guarantee(quota: ElasticQuota, topology: QuotaTopology) -> None:
    """Check that an ancestor can guarantee the additional minimum of the quota."""
    needed, child = _largest(quota.spec.min, _guaranteed(quota)), quota
    if _covers(_guaranteed(quota), quota.spec.min):
        return
    for parent in topology.ancestors(quota):
        siblings = topology.children(parent.metadata.name)
        others = [s for s in siblings if s.metadata.name != child.metadata.name]
        needed = _largest(parent.spec.min, _sum([needed, *map(_guaranteed, others)]))
        if _covers(_guaranteed(parent), needed):
            return
        child = parent
    shown = ", ".join(f"{name} {amount}" for name, amount in sorted(quota.spec.min.items()))
    accepted = f"what the root {child.metadata.name} of its tree can guarantee beside the others"
    original = (
        f"tree root quota {child.metadata.name} can't guarantee for min {quota.metadata.name}"
    )
    raise refused_as(original, invalid_value("spec.min", shown, accepted))


def _guaranteed(quota: ElasticQuota) -> ResourceList:
    """Return the amounts that the scheduler reported; empty if they can't be parsed."""
    try:
        return GUARANTEED.read(quota.metadata) or {}
    except InputError:
        return {}


def _covers(available: ResourceList, needed: ResourceList) -> bool:
    return all(amount <= available.get(resource, _ZERO) for resource, amount in needed.items())


def _largest(first: ResourceList, second: ResourceList) -> ResourceList:
    return first | {name: max(first.get(name, _ZERO), second[name]) for name in second}


def _sum(lists: Iterable[ResourceList]) -> ResourceList:
    total: ResourceList = {}
    for amounts in lists:
        for resource, amount in amounts.items():
            total[resource] = total.get(resource, _ZERO) + amount
    return total
