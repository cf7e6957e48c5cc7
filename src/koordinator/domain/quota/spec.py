"""What an ElasticQuota says, in amounts.

Source: koordinator apis/extension/elastic_quota.go; pkg/scheduler/plugins/elasticquota/core/
quota_info.go, ``NewQuotaInfoFromQuota``; pkg/util/transformer/elastic_quota_transformer.go.
"""

from dataclasses import dataclass, field
from typing import Final, Self

from koordinator.api.annotations.quota import TOTAL_RESOURCE, bound_namespaces, shared_weight
from koordinator.api.core import ResourceList
from koordinator.api.elastic_quota import DEFAULT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.labels import QUOTA_IGNORE_DEFAULT_TREE, is_true
from koordinator.api.resource_names import CURRENT_BATCH_NAMES
from koordinator.domain.quota.amounts import Amounts, amounts_of
from koordinator.domain.quota.queue_terms import NO_TERMS, QueueTerms
from koordinator.foundation.errors import InputError

_BUILT_IN: Final = (DEFAULT_QUOTA, SYSTEM_QUOTA)


@dataclass(frozen=True, slots=True)
class QuotaSpec:
    """An ElasticQuota as the scheduler reads it.  Only resources that ``max`` names are limited."""

    name: str
    parent: str
    max: Amounts
    min: Amounts = field(default_factory=dict)
    weight: Amounts = field(default_factory=dict)
    lends: bool = True
    is_parent: bool = False
    tree_id: str = ""
    namespace: str = ""
    bound_namespaces: tuple[str, ...] = ()  # whose unlabelled pods use the quota
    tree_total: Amounts | None = None  # of a tree whose root this is
    takes_from_default_tree: bool = True  # of what the root of a tree has, the default tree has not
    queue: QueueTerms = NO_TERMS

    @classmethod
    def of(cls, quota: ElasticQuota) -> Self:
        """Return what the object says.

        Admission refuses broken rules, but what is stored must be read: negative amounts count as
        0, minimums up to the maximum, unreadable annotations not at all.
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
        """Return whether messages about pods of a namespace may have the limit and the usage.

        ``used`` is the quota that the pods use: this one, or one below it.  Figures sum up the pods
        of other tenants.  They are for the quota's own namespace and for those bound to it.  Unless
        ``is_strict``, they are also for pods that use it by their label if it is bound to no other
        namespace, and those of a parent of the same namespace as well.  The built-in quotas belong
        to no tenant.
        """
        if namespace in (self.namespace, *self.bound_namespaces) or self.name in _BUILT_IN:
            return True
        if is_strict or self.namespace != used.namespace:
            return False
        if self.name != used.name:
            return used.shows_figures_to(namespace, used)
        return not self.bound_namespaces and self.name != self.namespace


def _amounts(resources: ResourceList) -> dict[str, int]:
    """Return amounts under the current names of resources."""
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
