"""The figures of a quota that others see: in annotations, in metrics and at the debug endpoint.

Source: koordinator pkg/scheduler/plugins/elasticquota/core/quota_summary.go.
"""

from dataclasses import dataclass

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.domain.quota.amounts import NOTHING, Amounts
from koordinator.domain.quota.tree import QuotaTree


@dataclass(frozen=True, slots=True)
class QuotaFigures:
    """Amounts of the resources that the quota limits, and of others that are not 0.

    ``self_`` is of pods of the quota itself, the same without it also of all below it.
    """

    min: Amounts
    max: Amounts
    weight: Amounts
    scaled_min: Amounts  # the part of the minimum that there is
    runtime: Amounts  # what may be used now
    request: Amounts  # at least the minimum of a quota that does not lend
    child_request: Amounts
    used: Amounts
    allocated: Amounts  # 0 unless usage is guaranteed, as ``guaranteed``
    guaranteed: Amounts
    non_preemptible_request: Amounts
    non_preemptible_used: Amounts
    self_request: Amounts
    self_used: Amounts
    self_non_preemptible_request: Amounts
    self_non_preemptible_used: Amounts


def figures_of(tree: QuotaTree, name: str) -> QuotaFigures:
    """Return the figures of a quota, or of the root; KeyError if there is no such quota.

    The root has no limits and asks nobody: nothing is its runtime, child request and guarantee.
    """
    node = tree.node(name)
    is_root = name == ROOT_QUOTA

    def shown(amounts: Amounts) -> Amounts:
        others = {resource: amount for resource, amount in amounts.items() if amount}
        return {resource: amounts.get(resource, 0) for resource in node.max} | others

    return QuotaFigures(
        min=node.min,
        max=node.max,
        weight=node.weight,
        scaled_min=tree.scaled_min(name),
        runtime=NOTHING if is_root else tree.runtime(name),
        request=shown(node.request),
        child_request=NOTHING if is_root else shown(node.child_request),
        used=shown(node.used),
        allocated=shown(node.allocated),
        guaranteed=NOTHING if is_root else shown(node.guaranteed),
        non_preemptible_request=shown(node.non_preemptible_request),
        non_preemptible_used=shown(node.non_preemptible_used),
        self_request=shown(node.self_request),
        self_used=shown(node.self_used),
        self_non_preemptible_request=shown(node.self_non_preemptible_request),
        self_non_preemptible_used=shown(node.self_non_preemptible_used),
    )
