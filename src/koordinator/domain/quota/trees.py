"""All quota trees of a cluster, and the assignment of pods to quotas.

A tree has the capacity that its root quota states; the default tree has the rest of the cluster.
The result does not depend on the order of events.

Source: koordinator pkg/scheduler/plugins/elasticquota: quota_handler.go, ``handlerQuotaWhenRoot``;
plugin_helper.go, ``getPodAssociateQuotaNameAndTreeID``, ``migrateDefaultQuotaGroupsPod``.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Self

from msgspec import Struct

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.kubescheduler import NO_GATES, ElasticQuotaArgs, FeatureGates
from koordinator.api.kubescheduler.gates import (
    DISABLE_DEFAULT_QUOTA,
    GUARANTEE_USAGE,
    IGNORE_POD_OVERHEAD,
    IGNORE_TERMINATING_POD,
    IGNORE_TERMINATING_POD_AT_ONCE,
    MULTI_QUOTA_TREE,
)
from koordinator.domain.amounts import NOTHING, Amounts, add, amounts_of, multiple, plus
from koordinator.domain.quota.spec import QuotaPod, QuotaSpec
from koordinator.domain.quota.tree import QuotaTree
from koordinator.foundation.lazy_dataclass import dataclass

DEFAULT_TREE = ""

#: ``(label, "")`` or ``("", namespace)``: the selector that determines the quota of a pod
_Selector = tuple[str, str]


@dataclass(frozen=True, slots=True)
class QuotaRules:
    """Plugin arguments and feature gates that apply to all quotas."""

    system_max: Amounts  # of SYSTEM_QUOTA unless its object overrides it
    default_max: Amounts
    scales_min: bool = True  # enableMinQuotaScale
    guarantees_usage: bool = False  # ElasticQuotaGuaranteeUsage: usage is never lent
    has_trees: bool = False  # MultiQuotaTree; without, all quotas are in the default tree
    has_default_quota: bool = True  # not DisableDefaultQuota; without, only labelled pods count
    counts_overhead: bool = True  # not ElasticQuotaIgnorePodOverhead
    ignores_terminating: bool = False  # ElasticQuotaIgnoreTerminatingPod, after the grace period
    at_once: bool = False  # ElasticQuotaImmediateIgnoreTerminatingPod: on deletion

    @classmethod
    def of(cls, args: ElasticQuotaArgs, gates: FeatureGates = NO_GATES) -> Self:
        """Derive the rules from plugin arguments and feature gates."""
        return cls(
            system_max=amounts_of(args.system_quota_group_max),
            default_max=amounts_of(args.default_quota_group_max),
            scales_min=args.enable_min_quota_scale,
            guarantees_usage=GUARANTEE_USAGE in gates,
            has_trees=MULTI_QUOTA_TREE in gates,
            has_default_quota=DISABLE_DEFAULT_QUOTA not in gates,
            counts_overhead=IGNORE_POD_OVERHEAD not in gates,
            ignores_terminating=bool(
                {IGNORE_TERMINATING_POD, IGNORE_TERMINATING_POD_AT_ONCE} & gates.enabled
            ),
            at_once=IGNORE_TERMINATING_POD_AT_ONCE in gates,
        )


class _QuotaEntry(Struct, eq=False):  # a struct: one is made per pod
    pod: QuotaPod
    is_assigned: bool = False
    quota: str | None = None  # None: no quota limits it


class QuotaTrees:
    """The quota trees of a cluster."""

    def __init__(self, rules: QuotaRules) -> None:
        self._rules = rules
        self._unshared = {SYSTEM_QUOTA: rules.system_max, DEFAULT_QUOTA: rules.default_max}
        self._default_tree = self._new_tree(self._unshared)
        self._trees = {DEFAULT_TREE: self._default_tree}
        self._specs: dict[str, QuotaSpec] = {}  # without unshared quotas
        self._bound: defaultdict[str, set[str]] = defaultdict(set)  # quotas by namespace
        #: names of root quotas that state the capacity of their tree, by tree
        self._tree_roots: defaultdict[str, set[str]] = defaultdict(set)
        self._total: Amounts = NOTHING
        self._entries: dict[str, _QuotaEntry] = {}
        self._pods_by_selector: defaultdict[_Selector, set[str]] = defaultdict(set)  # keys of pods

    def __contains__(self, name: str) -> bool:
        """Return whether there is a quota of that name; False for the root."""
        return name in self._specs or name in self._unshared

    @property
    def names(self) -> list[str]:
        """The names of all quotas of all trees, without the root."""
        return [*self._unshared, *self._specs]

    @property
    def tree_ids(self) -> list[str]:
        """The ids of all trees; the default tree is ``""``."""
        return [*self._trees]

    def tree(self, tree_id: str) -> QuotaTree:
        """Return a tree, which callers must not modify; raise KeyError if there is none."""
        return self._trees[tree_id]

    def tree_of(self, name: str) -> QuotaTree:
        """Return the tree of a quota; raise KeyError if there is no such quota."""
        if name == ROOT_QUOTA or name in self._unshared:
            return self._default_tree
        return self._trees[self._tree_id(self._specs[name])]

    def set_total(self, total: Amounts) -> None:
        """Set the sum of the allocatable resources of all nodes."""
        self._total = total
        self._share_total()

    def has_total_of_nodes(self, name: str) -> bool:
        """Return whether the tree of a quota shares the total of all nodes, not one of its own."""
        return self.tree_of(name) is self._default_tree

    @contextmanager
    def added_to_total(self, amounts: Amounts) -> Iterator[None]:
        """Add amounts to the total within the context."""
        before = self._total
        self.set_total(plus(before, amounts))
        try:
            yield
        finally:
            self.set_total(before)

    def put(self, quota: ElasticQuota) -> None:
        """Add or update a quota, and move pods whose quota changes.

        The object of the root is ignored; only the maximum of unshared quotas is read. Raises
        InputError, without changing anything, if the quota would become its own ancestor.
        """
        spec = QuotaSpec.of(quota)
        if spec.name == ROOT_QUOTA:
            return
        if spec.name in self._unshared:
            self._default_tree.put(spec)
            return
        old = self._specs.get(spec.name)
        if old == spec:
            return
        tree_id = self._tree_id(spec)
        tree = self._trees.get(tree_id) or self._new_tree()
        tree.put(spec)
        self._trees[tree_id] = tree
        selectors = _selectors_of(spec)
        if old is not None:
            selectors |= _selectors_of(old)
            self._unindex(old)
            if self._tree_id(old) != tree_id:
                self._leave_tree(old)
        self._index(spec)
        self._share_total()
        self._assign_all(selectors)

    def remove(self, quota: ElasticQuota) -> None:
        """Remove a quota if it exists, and move its pods to their new quotas."""
        meta = quota.metadata
        if meta.name in self._unshared:
            most = self._unshared[meta.name]
            self._default_tree.put(QuotaSpec(name=meta.name, parent=ROOT_QUOTA, max=most))
            return
        old = self._specs.get(meta.name)
        if old is None or old.namespace != meta.namespace:
            return
        self._unindex(old)
        self._leave_tree(old)
        self._share_total()
        self._assign_all(_selectors_of(old))

    def quota_for(self, pod: QuotaPod) -> str | None:
        """Return the name of the quota that limits a pod, None if there is none.

        The label decides. Without a label: the quota of that namespace that has the namespace's
        name, else the first by name of the quotas bound to the namespace, else the default quota.
        """
        if pod.quota_label in self:
            return pod.quota_label
        if not self._rules.has_default_quota:
            return None
        if pod.quota_label:
            return DEFAULT_QUOTA
        spec = self._specs.get(pod.namespace)
        if spec is not None and spec.namespace == pod.namespace:
            return spec.name
        return min(self._bound.get(pod.namespace, ()), default=DEFAULT_QUOTA)

    def quota_of(self, key: str) -> str | None:
        """Return the quota of a tracked pod; None if it has none or the pod is unknown."""
        entry = self._entries.get(key)
        return None if entry is None else entry.quota

    def put_pod(self, pod: QuotaPod) -> str | None:
        """Add an unassigned pod, or update a tracked one; return its quota."""
        entry = self._entries.get(pod.key)
        if entry is None:
            entry = self._entries[pod.key] = _QuotaEntry(pod)
        else:
            self._drop_pod(entry.pod)
            entry.pod = pod
        self._pods_by_selector[_selector_of(pod)].add(pod.key)
        if entry.quota is not None and entry.quota == self.quota_for(pod):
            self.tree_of(entry.quota).put_pod(entry.quota, pod)
        else:
            self._assign(entry)
        return entry.quota

    def add_alike(self, pods: Sequence[QuotaPod]) -> str | None:
        """Add unassigned pods that differ in their keys only; return their quota.

        None of them may be tracked.
        """
        quota = self.quota_for(pods[0])
        self._entries |= {pod.key: _QuotaEntry(pod, quota=quota) for pod in pods}
        self._pods_by_selector[_selector_of(pods[0])].update([pod.key for pod in pods])
        if quota is not None:
            self.tree_of(quota).add_alike(quota, pods)
        return quota

    def remove_pod(self, key: str) -> None:
        """Remove a pod if it is tracked."""
        entry = self._entries.pop(key, None)
        if entry is None:
            return
        self._drop_pod(entry.pod)
        if entry.quota is not None:
            self.tree_of(entry.quota).remove_pod(entry.quota, key)

    def assign(self, key: str) -> None:
        """Count a tracked pod as used; raise KeyError if it is unknown."""
        entry = self._entries[key]
        entry.is_assigned = True
        if entry.quota is not None:
            self.tree_of(entry.quota).assign(entry.quota, key)

    def assign_alike(self, keys: Sequence[str]) -> None:
        """Count tracked, unassigned pods that differ in their keys only as used."""
        quota = self._entries[keys[0]].quota
        for key in keys:
            self._entries[key].is_assigned = True
        if quota is not None:
            self.tree_of(quota).assign_alike(quota, keys)

    def unassign(self, key: str) -> None:
        """Stop counting a pod as used, if it is tracked."""
        entry = self._entries.get(key)
        if entry is None:
            return
        entry.is_assigned = False
        if entry.quota is not None:
            self.tree_of(entry.quota).unassign(entry.quota, key)

    def _assign_all(self, selectors: Iterable[_Selector]) -> None:
        for selector in selectors:
            for key in self._pods_by_selector.get(selector, ()):
                self._assign(self._entries[key])

    def _assign(self, entry: _QuotaEntry) -> None:
        """Move a pod to the quota that limits it now."""
        quota = self.quota_for(entry.pod)
        if quota == entry.quota:
            return
        if entry.quota is not None:
            self.tree_of(entry.quota).remove_pod(entry.quota, entry.pod.key)
        entry.quota = quota
        if quota is not None:
            tree = self.tree_of(quota)
            tree.put_pod(quota, entry.pod)
            if entry.is_assigned:
                tree.assign(quota, entry.pod.key)

    def _drop_pod(self, pod: QuotaPod) -> None:
        selector = _selector_of(pod)
        self._pods_by_selector[selector].remove(pod.key)
        if not self._pods_by_selector[selector]:
            del self._pods_by_selector[selector]

    def _leave_tree(self, spec: QuotaSpec) -> None:
        """Remove a quota from its tree; its pods have no quota until they are settled."""
        tree_id = self._tree_id(spec)
        tree = self._trees[tree_id]
        for pod in tree.remove(spec.name):
            self._entries[pod.key].quota = None
        if tree.is_empty:
            del self._trees[tree_id]

    def _index(self, spec: QuotaSpec) -> None:
        self._specs[spec.name] = spec
        for namespace in spec.bound_namespaces:
            self._bound[namespace].add(spec.name)
        if spec.tree_total is not None and self._tree_id(spec) != DEFAULT_TREE:
            self._tree_roots[spec.tree_id].add(spec.name)

    def _unindex(self, spec: QuotaSpec) -> None:
        del self._specs[spec.name]
        for namespace in set(spec.bound_namespaces):
            self._bound[namespace].remove(spec.name)
            if not self._bound[namespace]:
                del self._bound[namespace]
        roots = self._tree_roots.get(spec.tree_id, set())
        roots.discard(spec.name)
        if not roots:
            self._tree_roots.pop(spec.tree_id, None)

    def _share_total(self) -> None:
        """Set the total of every tree; of several roots of a tree the first by name counts."""
        rest = dict(self._total)
        for tree_id, tree in self._trees.items():
            root = min(self._tree_roots.get(tree_id, ()), default=None)
            if root is not None:
                spec = self._specs[root]
                total = spec.tree_total or NOTHING
                if spec.takes_from_default_tree:
                    add(rest, multiple(total, -1))
                tree.set_total(total)
            elif tree is not self._default_tree:
                tree.set_total(NOTHING)
        self._default_tree.set_total(rest)

    def _tree_id(self, spec: QuotaSpec) -> str:
        return spec.tree_id if self._rules.has_trees else DEFAULT_TREE

    def _new_tree(self, unshared: Mapping[str, Amounts] | None = None) -> QuotaTree:
        return QuotaTree(
            unshared,
            scales_min=self._rules.scales_min,
            guarantees_usage=self._rules.guarantees_usage,
        )


def _selector_of(pod: QuotaPod) -> _Selector:
    return (pod.quota_label, "") if pod.quota_label else ("", pod.namespace)


def _selectors_of(spec: QuotaSpec) -> set[_Selector]:
    """Return the selectors that may lead to a quota."""
    by_namespace = {*spec.bound_namespaces, spec.namespace}
    return {(spec.name, ""), *(("", namespace) for namespace in by_namespace)}
