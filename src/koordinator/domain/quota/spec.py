"""Quota specification read from objects, and the topology of quotas.

Source: koordinator apis/extension/elastic_quota.go; pkg/scheduler/plugins/elasticquota/core/
quota_info.go, ``NewQuotaInfoFromQuota``; pkg/util/transformer/elastic_quota_transformer.go;
koordinator pkg/scheduler/plugins/elasticquota/core/quota_info.go, ``PodInfo``; kubernetes
pkg/scheduler/util/utils.go, ``MoreImportantPod``; koordinator
pkg/webhook/elasticquota/quota_topology.go, quota_handler.go.
"""

from collections.abc import Iterator, Mapping
from dataclasses import field
from math import inf
from typing import Final, Self

from koordinator.api.annotations.codec import annotation_path
from koordinator.api.annotations.quota import (
    QUEUE_DEPTH,
    QUEUE_ORDER,
    QUEUE_POLICY,
    TOTAL_RESOURCE,
    bound_namespaces,
    shared_weight,
)
from koordinator.api.annotations.quota import QueueOrder as Order
from koordinator.api.annotations.quota import QueuePolicy as Policy
from koordinator.api.core import ResourceList
from koordinator.api.elastic_quota import DEFAULT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.labels import (
    QUOTA_IGNORE_DEFAULT_TREE,
    QUOTA_NAME,
    is_quota_preemptible,
    is_true,
    parse_int32,
)
from koordinator.api.pod import Pod
from koordinator.api.resource_names import CURRENT_BATCH_NAMES
from koordinator.api.syntax import invalid_value
from koordinator.domain.amounts import Amounts, amounts_of
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

QUEUE_KEYS = (QUEUE_POLICY, QUEUE_ORDER, QUEUE_DEPTH)

_BUILT_IN: Final = (DEFAULT_QUOTA, SYSTEM_QUOTA)


@dataclass(frozen=True, slots=True)
class QueueTerms:
    """Queueing settings of a quota; None where an annotation is missing or can't be parsed."""

    policy: Policy | None = None
    order: Order | None = None
    depth: int | None = None

    @classmethod
    def of(cls, quota: ElasticQuota) -> "QueueTerms":
        """Parse the annotations; an annotation that can't be parsed counts as missing."""
        annotations = quota.metadata.annotations
        depth = parse_int32(annotations.get(QUEUE_DEPTH, ""))
        return cls(
            next((one for one in Policy if one == annotations.get(QUEUE_POLICY)), None),
            next((one for one in Order if one == annotations.get(QUEUE_ORDER)), None),
            depth if depth is not None and depth > 0 else None,
        )


NO_TERMS = QueueTerms()


def check_queue_terms(quota: ElasticQuota) -> None:
    """Raise InputError, without subject, if an annotation about the queue can't be parsed."""
    read = QueueTerms.of(quota)
    for key, value, accepted in (
        (QUEUE_POLICY, read.policy, f"one of {', '.join(Policy)}"),
        (QUEUE_ORDER, read.order, f"one of {', '.join(Order)}"),
        (QUEUE_DEPTH, read.depth, "a whole number above 0"),
    ):
        text = quota.metadata.annotations.get(key, "")
        if text and value is None:
            raise invalid_value(annotation_path(key), text, accepted)


@dataclass(frozen=True, slots=True)
class QuotaSpec:
    """Parsed ElasticQuota.  Only resources that ``max`` names are limited."""

    name: str
    parent: str
    max: Amounts
    min: Amounts = field(default_factory=dict)
    weight: Amounts = field(default_factory=dict)
    lends: bool = True
    is_parent: bool = False
    tree_id: str = ""
    namespace: str = ""
    bound_namespaces: tuple[str, ...] = ()  # namespaces whose unlabelled pods use the quota
    tree_total: Amounts | None = None  # capacity of the tree, if this quota is its root
    #: whether the capacity of this tree is subtracted from the default tree
    takes_from_default_tree: bool = True
    queue: QueueTerms = NO_TERMS

    @classmethod
    def of(cls, quota: ElasticQuota) -> Self:
        """Parse an ElasticQuota without rejecting invalid fields.

        Admission rejects invalid objects, but stored objects must still be usable: a negative
        amount counts as 0, a minimum is capped at the maximum, and an annotation that can't be
        parsed is ignored.
        """
        most = _amounts(quota.spec.max)
        least = _amounts(quota.spec.min)
        return cls(
            name=quota.metadata.name,
            parent=quota.parent,
            max=most,
            min={name: min(least[name], most[name]) for name in least if name in most},
            weight=_amounts(shared_weight(quota)),
            lends=quota.lends,
            is_parent=quota.is_parent,
            tree_id=quota.tree_id,
            namespace=quota.metadata.namespace,
            bound_namespaces=bound_namespaces(quota),
            tree_total=_tree_total(quota),
            takes_from_default_tree=not is_true(quota.metadata.labels, QUOTA_IGNORE_DEFAULT_TREE),
            queue=QueueTerms.of(quota),
        )

    def shows_figures_to(self, namespace: str, used: Self, *, is_strict: bool = False) -> bool:
        """Return whether messages for pods of a namespace may contain limit and usage.

        ``used`` is the quota of the pods: this quota or a descendant. Figures include the pods of
        other tenants, so they are visible to the quota's own namespace and to its bound namespaces.
        Unless ``is_strict``, they are also visible to pods that select the quota by label when it
        is bound to no other namespace, and the figures of a parent in the same namespace are
        visible too. The built-in quotas belong to no tenant.
        """
        if namespace in (self.namespace, *self.bound_namespaces) or self.name in _BUILT_IN:
            return True
        if is_strict or self.namespace != used.namespace:
            return False
        if self.name != used.name:
            return used.shows_figures_to(namespace, used)
        return not self.bound_namespaces and self.name != self.namespace


def _amounts(resources: ResourceList) -> dict[str, int]:
    """Return amounts keyed by the current resource names."""
    return {
        CURRENT_BATCH_NAMES.get(name, name): max(amount, 0)
        for name, amount in amounts_of(resources).items()
    }


def _tree_total(quota: ElasticQuota) -> Amounts | None:
    if not quota.is_tree_root:
        return None
    try:
        total = TOTAL_RESOURCE.read(quota.metadata)
    except InputError:
        return None
    return None if total is None else amounts_of(total)


@dataclass(slots=True)  # making a frozen one takes three times as long
class QuotaPod:
    """A pod that exists and has not terminated.  Read only."""

    key: str
    namespace: str
    requests: Amounts
    quota_label: str = ""  # quota in the pod's label; empty if it has none
    is_preemptible: bool = True  # False: fits into the minimum, never evicted
    priority: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    started_s: float = inf  # since the epoch; infinity before the start


def quota_pod(pod: Pod, requests: Amounts) -> QuotaPod:
    """Convert a pod; ``requests`` is the result of ``pod_requests``."""
    labels = pod.metadata.labels
    return QuotaPod(
        key=pod.key,
        namespace=pod.metadata.namespace,
        requests=requests,
        quota_label=labels.get(QUOTA_NAME, ""),
        is_preemptible=is_quota_preemptible(labels),
        priority=pod.spec.priority or 0,
        labels=labels,
        started_s=to_epoch_s(pod.status.start_time, default=inf),
    )


def by_importance(pod: QuotaPod) -> tuple[int, float, str]:
    """Return a sort key: higher priority first, then the earlier start, then the key."""
    return -pod.priority, pod.started_s, pod.key


class QuotaTopology:
    """Quotas by name.  A name identifies a quota across namespaces."""

    def __init__(self) -> None:
        self._quotas: dict[str, ElasticQuota] = {}
        self._children: dict[str, set[str]] = {}
        self._bound: dict[str, set[str]] = {}

    def put(self, quota: ElasticQuota) -> None:
        """Add a quota, or replace the quota with that name."""
        self.remove(quota.metadata.name)
        name = quota.metadata.name
        self._quotas[name] = quota
        self._children.setdefault(quota.parent, set()).add(name)
        for namespace in bound_namespaces(quota):
            self._bound.setdefault(namespace, set()).add(name)

    def remove(self, name: str) -> None:
        """Remove a quota if it exists."""
        quota = self._quotas.pop(name, None)
        if quota is None:
            return
        _remove(self._children, quota.parent, name)
        for namespace in set(bound_namespaces(quota)):
            _remove(self._bound, namespace, name)

    def get(self, name: str) -> ElasticQuota | None:
        """Return the quota with that name, None if there is none."""
        return self._quotas.get(name)

    def children(self, name: str) -> list[ElasticQuota]:
        """Return the quotas whose parent has that name, in order of name."""
        return [self._quotas[child] for child in sorted(self._children.get(name, ()))]

    def ancestors(self, quota: ElasticQuota) -> Iterator[ElasticQuota]:
        """Yield the existing ancestors, nearest first; stop at a cycle."""
        seen = {quota.metadata.name}
        parent = self._quotas.get(quota.parent)
        while parent is not None and parent.metadata.name not in seen:
            yield parent
            seen.add(parent.metadata.name)
            parent = self._quotas.get(parent.parent)

    def bound_to(self, namespace: str) -> list[str]:
        """Return the names of the quotas bound to a namespace, in order."""
        return sorted(self._bound.get(namespace, ()))


def _remove(names_by: dict[str, set[str]], key: str, name: str) -> None:
    """Remove a name from its set, and drop the set when it is empty."""
    names_by[key].remove(name)
    if not names_by[key]:
        del names_by[key]
