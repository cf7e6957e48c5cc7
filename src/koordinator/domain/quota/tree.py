"""Quota tree: requests and usage summed up to the root, runtime quota computed down from it.

A change updates the ancestors of a quota, up to the first one whose sums do not change. The runtime
of a quota is computed on demand, one group of siblings after the other from the root down, and only
for groups and resources that changed.

Quotas may be added in any order: until their parent exists, children get their minimum.

Source: koordinator pkg/scheduler/plugins/elasticquota/core/group_quota_manager.go, with
``recursiveUpdateGroupTreeWithDeltaRequest``, ``recursiveUpdateGroupTreeWithDeltaAllocated``;
quota_info.go, ``QuotaCalculateInfo``.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field
from itertools import pairwise

from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
from koordinator.api.labels import QUOTA_PARENT
from koordinator.api.syntax import invalid_value
from koordinator.domain.amounts import NOTHING, Amounts, add, multiple
from koordinator.domain.quota.shares import UNLIMITED, Siblings
from koordinator.domain.quota.spec import QuotaPod, QuotaSpec
from koordinator.foundation.lazy_dataclass import dataclass


def _nothing() -> Amounts:
    return NOTHING


@dataclass(slots=True, eq=False)
class QuotaNode:
    """A quota, the root, or a placeholder for a missing parent (root and placeholder: no spec).

    Fields with the prefix ``self_`` count the node's own pods; the fields without it also count the
    pods of descendants.
    """

    name: str
    spec: QuotaSpec | None = None  # set by ``set_spec``
    #: the amounts of ``spec``, empty without one
    max: Amounts = field(default_factory=_nothing)
    min: Amounts = field(default_factory=_nothing)
    weight: Amounts = field(default_factory=_nothing)
    lends: bool = True
    parent: "QuotaNode | None" = None
    children: "dict[str, QuotaNode]" = field(default_factory=dict)
    #: groups of the children by resource; None: not built since the children changed
    sharing: dict[str, Siblings] | None = None
    #: index in the groups of the parent, valid while ``parent.sharing`` is set; -1: in none
    place: int = -1

    pods: dict[str, QuotaPod] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)  # keys of pods with a node; subset of ``pods``
    #: usage of the assigned pods by namespace
    used_by: dict[str, dict[str, int]] = field(default_factory=dict)

    self_request: dict[str, int] = field(default_factory=dict)
    self_used: dict[str, int] = field(default_factory=dict)
    self_non_preemptible_request: dict[str, int] = field(default_factory=dict)
    self_non_preemptible_used: dict[str, int] = field(default_factory=dict)

    child_request: dict[str, int] = field(default_factory=dict)  # own pods + children's limited
    request: dict[str, int] = field(default_factory=dict)  # at least the minimum unless it lends
    limited_request: dict[str, int] = field(default_factory=dict)  # at most the maximum
    non_preemptible_request: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    non_preemptible_used: dict[str, int] = field(default_factory=dict)
    allocated: dict[str, int] = field(default_factory=dict)  # own pods + children's guaranteed
    guaranteed: dict[str, int] = field(default_factory=dict)  # at least the minimum

    def set_spec(self, spec: QuotaSpec | None) -> None:
        """Set the specification; None makes the node a placeholder."""
        self.spec = spec
        self.max = NOTHING if spec is None else spec.max
        self.min = NOTHING if spec is None else spec.min
        self.weight = NOTHING if spec is None else spec.weight

    def ancestors(self) -> "Iterator[QuotaNode]":
        """Yield the node and its ancestors, the lowest first."""
        node: QuotaNode | None = self
        while node is not None:
            yield node
            node = node.parent

    def counted(self, pod: QuotaPod) -> dict[str, int]:
        """Return the pod's requests for the resources that the quota limits."""
        limited = self.max
        return {name: amount for name, amount in pod.requests.items() if name in limited}

    def add_request(self, amounts: Amounts, non_preemptible: Amounts) -> dict[str, int]:
        """Add to the request; return the changes of the limited request by resource."""
        if non_preemptible:
            add(self.non_preemptible_request, non_preemptible)
        changes, requested = {}, self.child_request
        for resource, amount in amounts.items():  # ``add``, without a call for each pod
            requested[resource] = requested.get(resource, 0) + amount
            if change := self._limit_request(resource):
                changes[resource] = change
                if siblings := self._siblings(resource):
                    siblings.set_request(self.place, self.limited_request[resource])
        return changes

    def add_used(self, amounts: Amounts, non_preemptible: Amounts) -> None:
        """Add to the usage."""
        used = self.used
        for resource, amount in amounts.items():  # ``add``, without a call for each pod
            used[resource] = used.get(resource, 0) + amount
        if non_preemptible:
            add(self.non_preemptible_used, non_preemptible)

    def add_allocated(self, amounts: Amounts) -> dict[str, int]:
        """Add to the allocation; return the changes of the guaranteed amount by resource."""
        add(self.allocated, amounts)
        changes = {}
        for resource in amounts:
            if change := self._raise_guaranteed(resource):
                changes[resource] = change
                if siblings := self._siblings(resource):
                    siblings.set_guaranteed(self.place, self.guaranteed[resource])
        return changes

    def recount(self, *, guarantees: bool) -> None:
        """Recompute all sums from pods and children; allocations only with ``guarantees``."""
        self._recount_pods()
        self.child_request = dict(self.self_request)
        self.used = dict(self.self_used)
        self.non_preemptible_request = dict(self.self_non_preemptible_request)
        self.non_preemptible_used = dict(self.self_non_preemptible_used)
        self.allocated = dict(self.self_used) if guarantees else {}
        for child in self.children.values():
            add(self.child_request, child.limited_request)
            add(self.used, child.used)
            add(self.non_preemptible_request, child.non_preemptible_request)
            add(self.non_preemptible_used, child.non_preemptible_used)
            add(self.allocated, child.guaranteed)
        self.request, self.limited_request, self.guaranteed = {}, {}, {}
        for resource in self.child_request.keys() | self.min.keys():
            self._limit_request(resource)
        if guarantees:
            for resource in self.allocated.keys() | self.min.keys():
                self._raise_guaranteed(resource)

    def _recount_pods(self) -> None:
        self.self_request, self.self_used, self.used_by = {}, {}, {}
        self.self_non_preemptible_request, self.self_non_preemptible_used = {}, {}
        for key, pod in self.pods.items():
            amounts = self.counted(pod)
            add(self.self_request, amounts)
            if not pod.is_preemptible:
                add(self.self_non_preemptible_request, amounts)
            if key in self.assigned:
                add(self.self_used, amounts)
                add(self.used_by.setdefault(pod.namespace, {}), amounts)
                if not pod.is_preemptible:
                    add(self.self_non_preemptible_used, amounts)

    def _limit_request(self, resource: str) -> int:
        """Recompute the request of a resource; return the change of the limited request."""
        requested = self.child_request.get(resource, 0)
        if not self.lends:
            requested = max(requested, self.min.get(resource, 0))
        limited = min(requested, self.max.get(resource, requested))
        change = limited - self.limited_request.get(resource, 0)
        self.request[resource] = requested
        self.limited_request[resource] = limited
        return change

    def _raise_guaranteed(self, resource: str) -> int:
        """Recompute the guaranteed amount of a resource; return its change."""
        guaranteed = max(self.allocated.get(resource, 0), self.min.get(resource, 0))
        change = guaranteed - self.guaranteed.get(resource, 0)
        self.guaranteed[resource] = guaranteed
        return change

    def _siblings(self, resource: str) -> Siblings | None:
        """Return the group that shares a resource; None if the node is in no group yet."""
        if self.place < 0 or self.parent is None or self.parent.sharing is None:
            return None
        return self.parent.sharing.get(resource) if resource in self.max else None


class QuotaTree:
    """Quotas below one root.

    Every method raises KeyError for a name that is no quota of the tree.
    """

    def __init__(
        self,
        unshared: Mapping[str, Amounts] | None = None,
        *,
        scales_min: bool = True,
        guarantees_usage: bool = False,
    ) -> None:
        """Create a tree that contains only the ``unshared`` quotas, by name with their maximum.

        The unshared quotas (of system pods and of pods without a quota) are beside the tree: their
        usage is subtracted from the total before the other quotas share it.
        """
        self._scales_min = scales_min
        self._guarantees_usage = guarantees_usage
        self._root = QuotaNode(ROOT_QUOTA)
        self._total: Amounts = NOTHING
        self._unshared = {name: QuotaNode(name) for name in unshared or {}}
        #: includes placeholders for missing parents
        self._nodes = {ROOT_QUOTA: self._root, **self._unshared}
        for name, most in (unshared or {}).items():
            self.put(QuotaSpec(name=name, parent=ROOT_QUOTA, max=most))

    def __contains__(self, name: str) -> bool:
        """Return whether there is a quota of that name; False for the root."""
        node = self._nodes.get(name)
        return node is not None and node.spec is not None

    @property
    def names(self) -> list[str]:
        """The names of all quotas without the root, in no particular order."""
        return [name for name in self._nodes if name in self]

    @property
    def is_empty(self) -> bool:
        """Whether the tree contains only the root."""
        return len(self._nodes) == 1

    def node(self, name: str) -> QuotaNode:
        """Return the node of a quota or of the root; callers must not modify it."""
        node = self._nodes[name]
        if node.spec is None and node is not self._root:
            raise KeyError(name)
        return node

    def path(self, name: str) -> tuple[str, ...]:
        """Return the names of the quota and its ancestors, without the root."""
        return tuple(node.name for node in self.node(name).ancestors() if node.spec is not None)

    @property
    def total(self) -> Amounts:
        """The total to share, including the usage of unshared quotas."""
        return self._total

    def without_requests(self, name: str) -> "QuotaTree":
        """Return a copy in which only the pods of one quota exist."""
        copy = QuotaTree(
            {unshared: node.max for unshared, node in self._unshared.items()},
            scales_min=self._scales_min,
            guarantees_usage=self._guarantees_usage,
        )
        copy.set_total(self._total)
        for node in self._nodes.values():
            if node.spec is not None:
                copy.put(node.spec)
        own = self.node(name)
        for key, pod in own.pods.items():
            copy.put_pod(name, pod)
            if key in own.assigned:
                copy.assign(name, key)
        return copy

    def set_total(self, total: Amounts) -> None:
        """Set the total to share, including the usage of unshared quotas.

        For a resource that is missing from it, quotas below the root get their minimum.
        """
        self._total = total

    def put(self, spec: QuotaSpec) -> None:
        """Add or update a quota; it keeps its pods and children when its parent changes.

        Raises InputError, without changing anything, if the quota would become its own ancestor.
        """
        if spec.name in self._unshared:
            spec = QuotaSpec(name=spec.name, parent=ROOT_QUOTA, max=spec.max)
        node = self._nodes.get(spec.name) or QuotaNode(spec.name)
        if node.spec == spec:
            return
        self._check_parent(spec)
        self._detach(node)
        self._nodes[spec.name] = node
        node.set_spec(spec)
        node.lends = spec.lends and not self._guarantees_usage
        node.recount(guarantees=self._guarantees_usage)
        self._attach(node, spec.parent)

    def remove(self, name: str) -> list[QuotaPod]:
        """Remove a quota and its pods from the tree; return the pods.

        Children remain with their usage below a placeholder for the removed quota.
        """
        node = self.node(name)
        pods = [*node.pods.values()]
        node.pods.clear()
        node.assigned.clear()
        self._detach(node)
        node.set_spec(None)
        node.recount(guarantees=self._guarantees_usage)
        self._drop_if_unused(node)
        return pods

    def put_pod(self, name: str, pod: QuotaPod) -> None:
        """Add an unassigned pod to a quota, or update a pod of the quota."""
        node = self.node(name)
        old = node.pods.get(pod.key)
        if old is None:
            node.pods[pod.key] = pod
            self._count_request(node, pod, 1)
        elif (old.requests, old.is_preemptible) == (pod.requests, pod.is_preemptible):
            node.pods[pod.key] = pod
        else:
            was_assigned = self.remove_pod(name, pod.key)
            self.put_pod(name, pod)
            if was_assigned:
                self.assign(name, pod.key)

    def add_alike(self, name: str, pods: Sequence[QuotaPod]) -> None:
        """Add new, unassigned pods that differ in their keys only to a quota."""
        node = self.node(name)
        node.pods |= {pod.key: pod for pod in pods}
        self._count_request(node, pods[0], len(pods))

    def remove_pod(self, name: str, key: str) -> bool:
        """Remove a pod of the quota; return whether it was assigned."""
        node = self.node(name)
        was_assigned = key in node.assigned
        self.unassign(name, key)
        self._count_request(node, node.pods.pop(key), -1)
        return was_assigned

    def assign(self, name: str, key: str) -> None:
        """Count a pod of the quota as used, unless it is already."""
        node = self.node(name)
        if key not in node.assigned:
            self._count_used(node, node.pods[key], 1)
            node.assigned.add(key)

    def assign_alike(self, name: str, keys: Sequence[str]) -> None:
        """Count unassigned pods of the quota that differ in their keys only as used."""
        node = self.node(name)
        self._count_used(node, node.pods[keys[0]], len(keys))
        node.assigned.update(keys)

    def unassign(self, name: str, key: str) -> None:
        """Stop counting a pod of the quota as used."""
        node = self.node(name)
        if key in node.assigned:
            self._count_used(node, node.pods[key], -1)
            node.assigned.remove(key)

    def runtime(self, name: str) -> dict[str, int]:
        """Return the current limit of the quota for the resources of its maximum.

        The runtime of the root is the total to share; the runtime of an unshared quota is its
        maximum.
        """
        node = self.node(name)
        if node is self._root:
            return {resource: self._shared_total(resource) or 0 for resource in self._total}
        if name in self._unshared:
            return dict(node.max)
        way = [*node.ancestors()]
        return {resource: self._share(way, resource) or 0 for resource in node.max}

    def has_headroom(self, name: str, request: Amounts) -> bool:
        """Return whether usage plus request are within the quota's runtime."""
        node = self.node(name)
        if name in self._unshared:
            used = node.used
            for resource, most in node.max.items():
                if used.get(resource, 0) + request.get(resource, 0) > most:
                    return False
            return True
        used, way = node.used, [*node.ancestors()]
        for resource in node.max:
            wanted = used.get(resource, 0) + request.get(resource, 0)
            if wanted > (self._share(way, resource) or 0):
                return False
        return True

    def scaled_min(self, name: str) -> dict[str, int]:
        """Return the minimum of a quota, scaled to the parent's share if scaling is enabled."""
        node = self.node(name)
        if node.parent is None or name in self._unshared:
            return dict(node.min)
        sharing, above = self._sharing(node.parent), [*node.parent.ancestors()]
        return {
            resource: sharing[resource].scaled_min(node.place, self._share(above, resource))
            for resource in node.min
        }

    def _share(self, way: list[QuotaNode], resource: str) -> int | None:
        """Return the share of the first node of ``path``, None if it is unknown.

        ``path`` holds the node and its ancestors, nearest first. A quota that does not limit a
        resource passes an unlimited amount on.
        """
        total = self._shared_total(resource) if way[-1] is self._root else None
        for parent, node in pairwise(reversed(way)):
            if resource in node.max:
                total = self._sharing(parent)[resource].share(node.place, total)
            else:
                total = UNLIMITED
        return total

    def _shared_total(self, resource: str) -> int | None:
        """Return the amount that quotas below the root share, None if it is unknown."""
        if resource not in self._total:
            return None
        unshared = sum(node.used.get(resource, 0) for node in self._unshared.values())
        return max(self._total[resource] - unshared, 0)

    def _sharing(self, parent: QuotaNode) -> dict[str, Siblings]:
        if parent.sharing is None:
            children = [parent.children[name] for name in sorted(parent.children)]
            for place, child in enumerate(children):
                child.place = place
            resources = {resource for child in children for resource in child.max}
            parent.sharing = {
                resource: self._siblings(children, resource) for resource in resources
            }
        return parent.sharing

    def _siblings(self, children: list[QuotaNode], resource: str) -> Siblings:
        """Build the group of one resource; children that don't limit it request nothing."""
        limited = [child if resource in child.max else _UNLIMITED_CHILD for child in children]
        return Siblings(
            request=[child.limited_request.get(resource, 0) for child in limited],
            least=[child.min.get(resource, 0) for child in limited],
            guaranteed=[child.guaranteed.get(resource, 0) for child in limited]
            if self._guarantees_usage
            else [],
            weight=[child.weight.get(resource, 0) for child in limited],
            lends=[child.lends for child in limited],
            scales=self._scales_min,
        )

    def _check_parent(self, spec: QuotaSpec) -> None:
        above = self._nodes.get(spec.parent)
        ancestors = [node.name for node in above.ancestors()] if above else [spec.parent]
        if spec.name in ancestors:
            raise invalid_value(
                f"metadata.labels[{QUOTA_PARENT}]",
                spec.parent,
                "neither the quota itself nor a descendant of it",
            ).within(subject=f"{ElasticQuota.KIND} {spec.namespace}/{spec.name}")

    def _attach(self, node: QuotaNode, parent_name: str) -> None:
        parent = self._nodes.setdefault(parent_name, QuotaNode(parent_name))
        node.parent = parent
        if node.name not in self._unshared:
            parent.children[node.name] = node
            parent.sharing = None
        self._change_sums(parent, node, 1)

    def _detach(self, node: QuotaNode) -> None:
        """Detach the node and its descendants from the parent."""
        parent = node.parent
        if parent is None:
            return
        if node.name not in self._unshared:
            del parent.children[node.name]
            parent.sharing = None
        self._change_sums(parent, node, -1)
        node.parent = None
        node.place = -1
        self._drop_if_unused(parent)

    def _drop_if_unused(self, node: QuotaNode) -> None:
        if node.spec is None and node is not self._root and not node.children:
            del self._nodes[node.name]

    def _change_sums(self, parent: QuotaNode, child: QuotaNode, times: int) -> None:
        """Add (``times`` 1) or subtract (-1) a child's sums in the parent and its ancestors."""
        _add_request(
            parent,
            multiple(child.limited_request, times),
            multiple(child.non_preemptible_request, times),
        )
        self._add_used(
            parent,
            multiple(child.used, times),
            multiple(child.non_preemptible_used, times),
            multiple(child.guaranteed, times),
        )

    @staticmethod
    def _count_request(node: QuotaNode, pod: QuotaPod, times: int) -> None:
        counted = node.counted(pod)
        amounts = counted if times == 1 else multiple(counted, times)
        protected = NOTHING if pod.is_preemptible else amounts
        requested = node.self_request
        for resource, amount in amounts.items():
            requested[resource] = requested.get(resource, 0) + amount
        if protected:
            add(node.self_non_preemptible_request, protected)
        _add_request(node, amounts, protected)

    def _count_used(self, node: QuotaNode, pod: QuotaPod, times: int) -> None:
        counted = node.counted(pod)
        amounts = counted if times == 1 else multiple(counted, times)
        protected = NOTHING if pod.is_preemptible else amounts
        total, used = node.self_used, node.used_by.setdefault(pod.namespace, {})
        for resource, amount in amounts.items():
            total[resource] = total.get(resource, 0) + amount
            used[resource] = used.get(resource, 0) + amount
        if not any(used.values()):
            del node.used_by[pod.namespace]
        if protected:
            add(node.self_non_preemptible_used, protected)
        self._add_used(node, amounts, protected, amounts)

    def _add_used(
        self, lowest: QuotaNode, amounts: Amounts, protected: Amounts, allocated: Amounts
    ) -> None:
        node: QuotaNode | None = lowest
        while node is not None:
            node.add_used(amounts, protected)
            if self._guarantees_usage:
                allocated = node.add_allocated(allocated)
            node = node.parent


def _add_request(lowest: QuotaNode, amounts: Amounts, protected: Amounts) -> None:
    node: QuotaNode | None = lowest
    while node is not None:
        amounts = node.add_request(amounts, protected)
        if not amounts and not protected:
            break
        node = node.parent


#: Placeholder for a child in the group of a resource that the child does not limit.
_UNLIMITED_CHILD = QuotaNode("")
