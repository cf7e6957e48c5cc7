"""Figures of a quota that its metrics show; apart from them, since their client is optional."""

from koordinator.api.annotations.quota import UNSCHEDULABLE_RESOURCE
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.domain.amounts import NOTHING, Amounts, amounts_of
from koordinator.domain.quota import QuotaFigures
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class QuotaGauges:
    """Figures and labels of a quota."""

    name: str
    tree: str
    is_parent: bool
    parent: str
    figures: QuotaFigures
    unschedulable: Amounts  # unschedulable amounts, for the root of a tree


def gauges_of(quota: ElasticQuota, figures: QuotaFigures) -> QuotaGauges:
    """Return the gauges of a quota."""
    try:
        unschedulable = UNSCHEDULABLE_RESOURCE.read(quota.metadata) if quota.is_tree_root else None
    except InputError:
        unschedulable = None
    return QuotaGauges(
        quota.metadata.name,
        quota.tree_id,
        quota.is_parent,
        quota.parent,
        figures,
        NOTHING if unschedulable is None else amounts_of(unschedulable),
    )
