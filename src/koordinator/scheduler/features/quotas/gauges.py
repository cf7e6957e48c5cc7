"""What metrics show of a quota."""

from dataclasses import dataclass

from koordinator.api.annotations.quota import UNSCHEDULABLE_RESOURCE
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.domain.quota import QuotaFigures
from koordinator.domain.quota.amounts import NOTHING, Amounts, amounts_of
from koordinator.foundation.errors import InputError


@dataclass(frozen=True, slots=True)
class QuotaGauges:
    """The figures of a quota, and what it is called."""

    name: str
    tree: str
    is_parent: bool
    parent: str
    figures: QuotaFigures
    unschedulable: Amounts  # of the nodes of a tree whose root this is


def gauges_of(quota: ElasticQuota, figures: QuotaFigures) -> QuotaGauges:
    """Return what is shown of a quota with these figures."""
    try:
        found = UNSCHEDULABLE_RESOURCE.read(quota.metadata) if quota.is_tree_root else None
    except InputError:
        found = None
    return QuotaGauges(
        quota.metadata.name,
        quota.tree_id,
        quota.is_parent,
        quota.parent,
        figures,
        NOTHING if found is None else amounts_of(found),
    )
