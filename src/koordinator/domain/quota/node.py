"""One quota in its tree: its pods, its children, and the sums over both.

Source: koordinator pkg/scheduler/plugins/elasticquota/core/quota_info.go, ``QuotaCalculateInfo``;
group_quota_manager.go, ``recursiveUpdateGroupTreeWithDeltaRequest``,
``recursiveUpdateGroupTreeWithDeltaAllocated``.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

from koordinator.domain.quota.amounts import NOTHING, Amounts, add, named_by
from koordinator.domain.quota.pods import QuotaPod
from koordinator.domain.quota.siblings import Siblings
from koordinator.domain.quota.spec import QuotaSpec


@dataclass(slots=True, eq=False)
class QuotaNode:
    """A quota, the root, or the place of a parent that is not there yet (both without ``spec``).

    ``self_`` is of the node's own pods, the same without it of these and of everything below.
    """

    name: str
    spec: QuotaSpec | None = None
    lends: bool = True
    parent: "QuotaNode | None" = None
    children: "dict[str, QuotaNode]" = field(default_factory=dict)
    sharing: dict[str, Siblings] | None = None  # of the children, by resource; None: to be made
    place: int = -1  # in the parent's ``sharing``, while that is known; -1: takes no part

    pods: dict[str, QuotaPod] = field(default_factory=dict)
    assigned: set[str] = field(default_factory=set)  # keys of pods that have a node
    #: what these use, by namespace
    used_by: dict[str, dict[str, int]] = field(default_factory=dict)

    self_request: dict[str, int] = field(default_factory=dict)
    self_used: dict[str, int] = field(default_factory=dict)
    self_non_preemptible_request: dict[str, int] = field(default_factory=dict)
    self_non_preemptible_used: dict[str, int] = field(default_factory=dict)

    child_request: dict[str, int] = field(default_factory=dict)  # own pods and children's limited
    request: dict[str, int] = field(default_factory=dict)  # at least the minimum if it doesn't lend
    limited_request: dict[str, int] = field(default_factory=dict)  # at most the maximum
    non_preemptible_request: dict[str, int] = field(default_factory=dict)
    used: dict[str, int] = field(default_factory=dict)
    non_preemptible_used: dict[str, int] = field(default_factory=dict)
    allocated: dict[str, int] = field(default_factory=dict)  # own pods and children's guaranteed
    guaranteed: dict[str, int] = field(default_factory=dict)  # at least the minimum

    @property
    def max(self) -> Amounts:
        return self.spec.max if self.spec else NOTHING

    @property
    def min(self) -> Amounts:
        return self.spec.min if self.spec else NOTHING

    @property
    def weight(self) -> Amounts:
        return self.spec.weight if self.spec else NOTHING

    def way_up(self) -> "Iterator[QuotaNode]":
        """Return the node and its ancestors."""
        node: QuotaNode | None = self
        while node is not None:
            yield node
            node = node.parent

    def counted(self, pod: QuotaPod) -> dict[str, int]:
        """Return the pod's requests of the resources that the quota limits."""
        return named_by(pod.requests, self.max)

    def add_request(self, amounts: Amounts, non_preemptible: Amounts) -> dict[str, int]:
        """Add to what is requested; returns by how much that changes what the parent sees."""
        add(self.child_request, amounts)
        add(self.non_preemptible_request, non_preemptible)
        changes = {}
        for resource in amounts:
            if change := self._limit_request(resource):
                changes[resource] = change
                if siblings := self._siblings(resource):
                    siblings.set_request(self.place, self.limited_request[resource])
        return changes

    def add_used(self, amounts: Amounts, non_preemptible: Amounts) -> None:
        """Add to what is used."""
        add(self.used, amounts)
        add(self.non_preemptible_used, non_preemptible)

    def add_allocated(self, amounts: Amounts) -> dict[str, int]:
        """Add to what is allocated; returns by how much that changes what is guaranteed."""
        add(self.allocated, amounts)
        changes = {}
        for resource in amounts:
            if change := self._raise_guaranteed(resource):
                changes[resource] = change
                if siblings := self._siblings(resource):
                    siblings.set_guaranteed(self.place, self.guaranteed[resource])
        return changes

    def recount(self, *, guarantees: bool) -> None:
        """Set all sums from pods and children; what is allocated only if that is guaranteed."""
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
        """Set what is requested; returns by how much that changes what the parent sees."""
        asked = self.child_request.get(resource, 0)
        if not self.lends:
            asked = max(asked, self.min.get(resource, 0))
        limited = min(asked, self.max.get(resource, asked))
        change = limited - self.limited_request.get(resource, 0)
        self.request[resource] = asked
        self.limited_request[resource] = limited
        return change

    def _raise_guaranteed(self, resource: str) -> int:
        """Set what is guaranteed; returns by how much that changes it."""
        guaranteed = max(self.allocated.get(resource, 0), self.min.get(resource, 0))
        change = guaranteed - self.guaranteed.get(resource, 0)
        self.guaranteed[resource] = guaranteed
        return change

    def _siblings(self, resource: str) -> Siblings | None:
        """Return the group in which the node shares a resource; None if it does not, or not yet."""
        if self.place < 0 or self.parent is None or self.parent.sharing is None:
            return None
        return self.parent.sharing.get(resource) if resource in self.max else None
