"""How much units may ask for in the quotas of an ElasticQuotaTree.

A unit counts in the quota that it names, or in that of its namespace, and in all above it.  One
that may be preempted has room up to ``max``; one that may not has room up to ``min``, where that is
named, and up to ``max`` together with the others.  ``max-jobs`` in either limits their number.  The
attribute ``alibabacloud.com/lendlimit`` of a quota keeps what it does not lend of its ``min``
from its siblings.

Source: koord-queue, pkg/framework/plugins/elasticquota.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from koordinator.api.codec import decode
from koordinator.api.core import ResourceList
from koordinator.api.quota_tree import ElasticQuotaTree, QuotaTreeNode
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
from koordinator.manager.queue_units.accounts import UnitClaim, times_rate
from koordinator.manager.queue_units.queues import PREFIXES, marked

TREE_NAMESPACE: Final = "kube-system"  # trees elsewhere don't count
ROOT: Final = "root"
MOST_PREEMPTIBLE: Final = "max-preempible-jobs"  # sic; a label of the tree, with a prefix
_MOST_JOBS: Final = tuple(f"{prefix}max-jobs" for prefix in PREFIXES)
_PREEMPT_POLICY: Final = "preempt-policy"
_PREEMPTS: Final = "PreemptLowerPriority"
_LEND_LIMIT: Final = "alibabacloud.com/lendlimit"


@dataclass(slots=True)
class TreeQuota:
    """A quota of the tree, with what units hold of it."""

    name: str
    full_name: str
    parent: "TreeQuota | None" = None
    children: list["TreeQuota"] = field(default_factory=list)
    min: Amounts = field(default_factory=dict)
    max: Amounts = field(default_factory=dict)
    min_jobs: int | None = None
    max_jobs: int | None = None
    kept: Amounts = field(default_factory=dict)  # what it does not lend
    keeps_something: bool = False  # it or a quota below it
    preempts: bool = False
    used: dict[str, int] = field(default_factory=dict)
    firm: dict[str, int] = field(default_factory=dict)  # by units that can't be preempted
    jobs: int = 0
    preemptible_jobs: int = 0

    @property
    def path(self) -> "Iterator[TreeQuota]":
        """The quota and those above it."""
        at: TreeQuota | None = self
        while at is not None:
            yield at
            at = at.parent

    def count(self, claim: UnitClaim, times: int) -> None:
        """Count a claim, or take it back with -1."""
        amounts = {name: amount * times for name, amount in claim.amounts.items()}
        for quota in self.path:
            add(quota.used, amounts)
            quota.jobs += times
            if claim.is_preemptible:
                quota.preemptible_jobs += times
            else:
                add(quota.firm, amounts)


class UnitQuotaTree:
    """The quotas of a tree by name and by namespace."""

    def __init__(self, tree: ElasticQuotaTree | None, oversell_rate: float = 1.0) -> None:
        """``oversell_rate``: how many times its limits a quota lets in."""
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
        """Return a quota, or why there is none; a full name, such as root/a, will do."""
        found = self._by_name.get(name, [])
        if len(found) > 1:
            return f"there is more than one quota {name}"
        exact = found[0] if found else self.quotas.get(name)
        return exact or f"there is no quota {name}"

    def quota_of_namespace(self, namespace: str) -> TreeQuota | str:
        """Return the quota that has a namespace, or why there is none."""
        found = self._by_namespace.get(namespace, [])
        if len(found) > 1:
            return f"more than one quota has namespace {namespace}"
        return found[0] if found else f"it names no quota, and none has namespace {namespace}"

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
        """Take the number of jobs out of the amounts."""
        said = [amounts.pop(name) for name in _MOST_JOBS if name in amounts]
        return times_rate({ROOT: min(said)}, self._rate)[ROOT] if said else None


def chosen_tree(trees: Iterable[ElasticQuotaTree]) -> ElasticQuotaTree | None:
    """Return the tree that counts: the oldest in kube-system."""
    counting = [tree for tree in trees if tree.metadata.namespace == TREE_NAMESPACE]
    return min(
        counting,
        key=lambda it: (to_epoch_s(it.metadata.creation_timestamp), it.metadata.name),
        default=None,
    )


class TreeAccount:
    """What units hold of the quotas of a tree."""

    def __init__(self, tree: UnitQuotaTree, *, checks_oversold: bool = False) -> None:
        """``checks_oversold``: who has its minimum waits for those that lack theirs."""
        self._tree, self._checks_oversold = tree, checks_oversold
        self._waiting: dict[str, set[str]] = {}

    def expect(self, claim: UnitClaim) -> None:
        """Note that a unit waits in its quota."""
        self._waiting.setdefault(claim.quota, set()).add(claim.key)

    def take(self, claim: UnitClaim) -> None:
        """Count what a unit holds in its quota and above; of a quota that is gone, nowhere."""
        self._waiting.get(claim.quota, set()).discard(claim.key)
        quota = self._tree.quotas.get(claim.quota)
        if quota is not None:
            quota.count(claim, 1)

    def release(self, claim: UnitClaim) -> None:
        """Take back what was counted."""
        quota = self._tree.quotas.get(claim.quota)
        if quota is not None:
            quota.count(claim, -1)

    def can_have_room(self, claim: UnitClaim) -> bool:
        """Return whether its quota is there."""
        return claim.quota in self._tree.quotas

    def preempts(self, claim: UnitClaim) -> bool:
        """Return whether its quota says that it preempts."""
        quota = self._tree.quotas.get(claim.quota)
        return quota is not None and quota.preempts

    def why_not(self, claim: UnitClaim) -> str:
        """Return why there is no room; empty: there is."""
        quota = self._tree.quotas.get(claim.quota)
        if quota is None:
            return f"there is no quota {claim.quota}"
        asked = {resource: amount for resource, amount in claim.amounts.items() if amount > 0}
        return (
            self._why_others_first(quota, asked)
            or self._why_too_many(quota, claim)
            or self._why_no_room(quota, claim, asked)
        )

    def _why_others_first(self, quota: TreeQuota, asked: Amounts) -> str:
        if not self._checks_oversold or _lacks_minimum(quota, asked):
            return ""
        for other in self._tree.quotas.values():
            if other is quota or other.children or not self._waiting.get(other.full_name):
                continue
            if _lacks_minimum(other, asked):
                return (
                    f"quota {quota.full_name} has its minimum, and units wait in "
                    f"{other.full_name}, which lacks its own"
                )
        return ""

    def _why_too_many(self, quota: TreeQuota, claim: UnitClaim) -> str:
        most = self._tree.most_preemptible
        root = list(quota.path)[-1]
        if claim.is_preemptible and most is not None and root.preemptible_jobs >= most:
            return f"there are {root.preemptible_jobs} preemptible jobs, as many as there may be"
        for level in quota.path:
            for limit in (level.max_jobs, None if claim.is_preemptible else level.min_jobs):
                if limit is not None and level.jobs >= limit:
                    return f"quota {level.full_name} has {level.jobs} jobs of at most {limit}"
        return ""

    def _why_no_room(self, quota: TreeQuota, claim: UnitClaim, asked: Amounts) -> str:
        below: TreeQuota | None = None
        for level in quota.path:
            used = _seen_from(level, below)
            limits = [("the most", used, level.max)]
            if not claim.is_preemptible:
                limits.insert(0, ("the minimum", level.firm, level.min))
            for called, held, limit in limits:
                over = exceeded(named_by(plus(held, asked), asked), limit)
                if over:
                    return (
                        f"quota {level.full_name} has no room: it asks for {to_text(asked)}, used "
                        f"is {to_text(named_by(held, asked))}, {called} is {to_text(limit)}: "
                        f"too little {', '.join(over)}"
                    )
            below = level
        return ""


def _seen_from(quota: TreeQuota, child: TreeQuota | None) -> Amounts:
    """Return what is used of a quota, and what children beside this one keep for themselves."""
    if child is None or not quota.keeps_something:
        return quota.used
    total = dict(quota.used)
    for other in quota.children:
        if other is not child:
            add(total, _kept_unused(other))
    return total


def _kept_unused(quota: TreeQuota) -> Amounts:
    """Return what a quota or those below it keep beyond what is used."""
    if not quota.keeps_something:
        return NOTHING
    total: dict[str, int] = {}
    for child in quota.children:
        add(total, _kept_unused(child))
    for name, amount in quota.kept.items():
        total[name] = max(total.get(name, 0), amount - quota.used.get(name, 0))
    return total


def _lacks_minimum(quota: TreeQuota, asked: Amounts) -> bool:
    """Return whether less is used than the minimum of every resource that is asked for."""
    names = [name for name in quota.min if name in asked]
    return bool(names) and all(quota.used.get(name, 0) < quota.min[name] for name in names)


def _kept(node: QuotaTreeNode, least: Mapping[str, int]) -> Amounts:
    """Return what a quota does not lend of its minimum; nothing if it doesn't say, or not well."""
    text = node.attributes.get(_LEND_LIMIT)
    if text is None:
        return NOTHING
    try:
        lent = amounts_of(decode(text.encode(), ResourceList))
    except InputError:
        return NOTHING
    return {name: max(amount - lent.get(name, 0), 0) for name, amount in least.items()}
