"""Ledger of the quotas of an ElasticQuotaTree.

A unit counts in the quota that it names or else the quota of its namespace, and in all ancestors.
All units together are limited by ``max``, units that can't be preempted also by ``min`` where it is
set.  ``max-jobs`` in either limits the number of units.  The attribute
``alibabacloud.com/lendlimit`` limits how much of its unused ``min`` a quota lends to its siblings.

Source: koord-queue, pkg/framework/plugins/elasticquota.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import field
from typing import Final

from koordinator.api.codec import decode
from koordinator.api.core import ResourceList
from koordinator.api.elastic_quota import ElasticQuotaTree, QuotaTreeNode
from koordinator.domain.amounts import (
    NOTHING,
    Amounts,
    add,
    amounts_of,
    exceeded,
    named_by,
    plus,
    to_text,
)
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.manager.queue_units.ledgers import PREFIXES, UnitResources, marked, times_rate

TREE_NAMESPACE: Final = "kube-system"  # trees in other namespaces are ignored
ROOT: Final = "root"
MOST_PREEMPTIBLE: Final = "max-preempible-jobs"  # sic; a label of the tree, with a prefix
_MOST_JOBS: Final = tuple(f"{prefix}max-jobs" for prefix in PREFIXES)
_PREEMPT_POLICY: Final = "preempt-policy"
_PREEMPTS: Final = "PreemptLowerPriority"
_LEND_LIMIT: Final = "alibabacloud.com/lendlimit"


@dataclass(slots=True)
class TreeQuota:
    """A quota of the tree, with its usage by units."""

    name: str
    full_name: str
    parent: "TreeQuota | None" = None
    children: list["TreeQuota"] = field(default_factory=list)
    min: Amounts = field(default_factory=dict)
    max: Amounts = field(default_factory=dict)
    min_jobs: int | None = None
    max_jobs: int | None = None
    kept: Amounts = field(default_factory=dict)  # the part of ``min`` that it does not lend
    keeps_something: bool = False  # whether it or a descendant has ``kept``
    preempts: bool = False
    used: dict[str, int] = field(default_factory=dict)
    firm: dict[str, int] = field(default_factory=dict)  # usage by units that can't be preempted
    jobs: int = 0
    preemptible_jobs: int = 0

    @property
    def path(self) -> "Iterator[TreeQuota]":
        """The quota and its ancestors."""
        at: TreeQuota | None = self
        while at is not None:
            yield at
            at = at.parent

    def count(self, unit: UnitResources, times: int) -> None:
        """Add a unit to the quota and its ancestors, or subtract it with ``times`` -1."""
        amounts = {name: amount * times for name, amount in unit.amounts.items()}
        for quota in self.path:
            add(quota.used, amounts)
            quota.jobs += times
            if unit.is_preemptible:
                quota.preemptible_jobs += times
            else:
                add(quota.firm, amounts)


class UnitQuotaTree:
    """The quotas of a tree by name and by namespace."""

    def __init__(self, tree: ElasticQuotaTree | None, oversell_rate: float = 1.0) -> None:
        """Create the tree; limits are multiplied by ``oversell_rate``."""
        self.quotas: dict[str, TreeQuota] = {}  # by full name
        self._by_name: dict[str, list[TreeQuota]] = {}
        self._by_namespace: dict[str, list[TreeQuota]] = {}
        self._rate = oversell_rate
        self.most_preemptible: int | None = None
        if tree is not None:
            label = marked(tree.metadata.labels, MOST_PREEMPTIBLE)
            if label.isascii() and label.isdigit():
                self.most_preemptible = int(label)
            self._add(tree.spec.root, None)

    def quota_named(self, name: str) -> TreeQuota | str:
        """Return a quota by name or full name, such as root/a, or the reason why there is none."""
        quotas = self._by_name.get(name, [])
        if len(quotas) > 1:
            return f"there is more than one quota {name}"
        exact = quotas[0] if quotas else self.quotas.get(name)
        return exact or f"there is no quota {name}"

    def quota_of_namespace(self, namespace: str) -> TreeQuota | str:
        """Return the quota that lists a namespace, or the reason why there is none."""
        quotas = self._by_namespace.get(namespace, [])
        if len(quotas) > 1:
            return f"more than one quota has namespace {namespace}"
        if quotas:
            return quotas[0]
        return f"the job names no quota, and no quota has namespace {namespace}"

    def _add(self, node: QuotaTreeNode, parent: TreeQuota | None) -> None:
        name = ROOT if parent is None else node.name
        full_name = name if parent is None else f"{parent.full_name}/{name}"
        least, most = amounts_of(node.min), amounts_of(node.max)
        quota = TreeQuota(name, full_name, parent)
        quota.min_jobs, quota.max_jobs = (self._jobs(each) for each in (least, most))
        quota.min, quota.max = times_rate(least, self._rate), times_rate(most, self._rate)
        quota.kept = _kept(node, least)
        quota.preempts = node.attributes.get(_PREEMPT_POLICY) == _PREEMPTS
        self._by_name.setdefault(name, []).append(quota)
        self.quotas.setdefault(full_name, quota)
        for namespace in dict.fromkeys(node.namespaces):
            self._by_namespace.setdefault(namespace, []).append(quota)
        if parent is not None:
            parent.children.append(quota)
        for child in node.children:
            self._add(child, quota)
        quota.keeps_something = bool(quota.kept) or any(
            child.keeps_something for child in quota.children
        )

    def _jobs(self, amounts: dict[str, int]) -> int | None:
        """Remove the limit of the number of jobs from the amounts, and return it."""
        limits = [amounts.pop(name) for name in _MOST_JOBS if name in amounts]
        return times_rate({ROOT: min(limits)}, self._rate)[ROOT] if limits else None


def chosen_tree(trees: Iterable[ElasticQuotaTree]) -> ElasticQuotaTree | None:
    """Return the tree in effect: the oldest in kube-system."""
    counting = [tree for tree in trees if tree.metadata.namespace == TREE_NAMESPACE]
    return min(
        counting,
        key=lambda it: (to_epoch_s(it.metadata.creation_timestamp), it.metadata.name),
        default=None,
    )


class TreeLedger:
    """Ledger of the quotas of a tree."""

    def __init__(self, tree: UnitQuotaTree, *, checks_oversold: bool = False) -> None:
        """Create a ledger; with ``checks_oversold``, quotas below their minimum go first."""
        self._tree, self._checks_oversold = tree, checks_oversold
        self._waiting: dict[str, set[str]] = {}

    def expect(self, unit: UnitResources) -> None:
        """Register a pending unit in its quota."""
        self._waiting.setdefault(unit.quota, set()).add(unit.key)

    def take(self, unit: UnitResources) -> None:
        """Add a unit to its quota and its ancestors; a unit of a deleted quota is ignored."""
        self._waiting.get(unit.quota, set()).discard(unit.key)
        quota = self._tree.quotas.get(unit.quota)
        if quota is not None:
            quota.count(unit, 1)

    def release(self, unit: UnitResources) -> None:
        """Subtract a unit from its quota and its ancestors."""
        quota = self._tree.quotas.get(unit.quota)
        if quota is not None:
            quota.count(unit, -1)

    def is_satisfiable(self, unit: UnitResources) -> bool:
        """Return whether the quota exists."""
        return unit.quota in self._tree.quotas

    def preempts(self, unit: UnitResources) -> bool:
        """Return whether the quota permits preemption."""
        quota = self._tree.quotas.get(unit.quota)
        return quota is not None and quota.preempts

    def shortfall(self, unit: UnitResources) -> str:
        """Return why a unit exceeds its quota or an ancestor; empty if it fits."""
        quota = self._tree.quotas.get(unit.quota)
        if quota is None:
            return f"there is no quota {unit.quota}"
        requested = {resource: amount for resource, amount in unit.amounts.items() if amount > 0}
        return (
            self._oversold_problem(quota, requested)
            or self._job_count_problem(quota, unit)
            or self._limit_problem(quota, unit, requested)
        )

    def _oversold_problem(self, quota: TreeQuota, requested: Amounts) -> str:
        if not self._checks_oversold or _is_below_minimum(quota, requested):
            return ""
        for other in self._tree.quotas.values():
            if other is quota or other.children or not self._waiting.get(other.full_name):
                continue
            if _is_below_minimum(other, requested):
                return (
                    f"quota {quota.full_name} has reached its minimum, and units are pending in "
                    f"quota {other.full_name}, which is below its minimum"
                )
        return ""

    def _job_count_problem(self, quota: TreeQuota, unit: UnitResources) -> str:
        most = self._tree.most_preemptible
        root = list(quota.path)[-1]
        if unit.is_preemptible and most is not None and root.preemptible_jobs >= most:
            return f"the quota tree has {root.preemptible_jobs} preemptible jobs of at most {most}"
        for level in quota.path:
            for limit in (level.max_jobs, None if unit.is_preemptible else level.min_jobs):
                if limit is not None and level.jobs >= limit:
                    return f"quota {level.full_name} has {level.jobs} jobs of at most {limit}"
        return ""

    def _limit_problem(self, quota: TreeQuota, unit: UnitResources, requested: Amounts) -> str:
        below: TreeQuota | None = None
        for level in quota.path:
            limits = [("limit", _used_without(level, below), level.max)]
            if not unit.is_preemptible:
                limits.insert(0, ("minimum", level.firm, level.min))
            for label, used, limit in limits:
                over = exceeded(named_by(plus(used, requested), requested), limit)
                if over:
                    return (
                        f"quota {level.full_name} has no room: requested {to_text(requested)}, "
                        f"used {to_text(named_by(used, requested))}, {label} {to_text(limit)}; "
                        f"insufficient {', '.join(over)}"
                    )
            below = level
        return ""


def _used_without(quota: TreeQuota, child: TreeQuota | None) -> Amounts:
    """Return the usage of a quota, plus the unused amounts that siblings of ``child`` keep."""
    if child is None or not quota.keeps_something:
        return quota.used
    total = dict(quota.used)
    for other in quota.children:
        if other is not child:
            add(total, _kept_unused(other))
    return total


def _kept_unused(quota: TreeQuota) -> Amounts:
    """Return the unused amounts that a quota and its descendants do not lend."""
    if not quota.keeps_something:
        return NOTHING
    total: dict[str, int] = {}
    for child in quota.children:
        add(total, _kept_unused(child))
    for name, amount in quota.kept.items():
        total[name] = max(total.get(name, 0), amount - quota.used.get(name, 0))
    return total


def _is_below_minimum(quota: TreeQuota, requested: Amounts) -> bool:
    """Return whether the usage is below the minimum of every requested resource."""
    names = [name for name in quota.min if name in requested]
    return bool(names) and all(quota.used.get(name, 0) < quota.min[name] for name in names)


def _kept(node: QuotaTreeNode, least: Mapping[str, int]) -> Amounts:
    """Return the part of its minimum that a quota does not lend; nothing by default."""
    text = node.attributes.get(_LEND_LIMIT)
    if text is None:
        return NOTHING
    try:
        lent = amounts_of(decode(text.encode(), ResourceList))
    except InputError:
        return NOTHING
    return {name: max(amount - lent.get(name, 0), 0) for name, amount in least.items()}
