"""Figures of quotas, and the report of a quota tree.

Source: koordinator pkg/scheduler/plugins/elasticquota/core/quota_summary.go; koordinator
pkg/scheduler/plugins/elasticquota/controller.go, ``updateElasticQuotaStatusIfChanged``.
"""

from collections.abc import Container, Iterable, Sequence
from typing import Any

from msgspec.structs import replace

from koordinator.api.annotations.codec import AnnotationCodec
from koordinator.api.annotations.quota import (
    ALLOCATED,
    CHILD_REQUEST,
    GUARANTEED,
    NON_PREEMPTIBLE_REQUEST,
    NON_PREEMPTIBLE_USED,
    REQUEST,
    RUNTIME,
    QueuePolicy,
)
from koordinator.api.core import ResourceList
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.kubescheduler import ElasticQuotaArgs
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod, is_terminal
from koordinator.domain.amounts import NOTHING, Amounts, add, amounts_of, to_quantities
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.quota.spec import QuotaTopology, quota_pod
from koordinator.domain.quota.tree import QuotaTree
from koordinator.domain.quota.trees import QuotaRules, QuotaTrees
from koordinator.domain.quota.validation import warning_about
from koordinator.domain.transforms import as_scheduled, transform_node
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class QuotaFigures:
    """Amounts of the resources that the quota limits, and non-zero amounts of other resources.

    Fields with the prefix ``self_`` count the pods of the quota itself; the field without the
    prefix also counts the pods of its descendants.
    """

    min: Amounts
    max: Amounts
    weight: Amounts
    scaled_min: Amounts  # the minimum scaled to the parent's share
    runtime: Amounts  # the current limit
    request: Amounts  # at least the minimum of a quota that does not lend
    child_request: Amounts
    used: Amounts
    allocated: Amounts  # 0 unless usage is guaranteed; so is ``guaranteed``
    guaranteed: Amounts
    non_preemptible_request: Amounts
    non_preemptible_used: Amounts
    self_request: Amounts
    self_used: Amounts
    self_non_preemptible_request: Amounts
    self_non_preemptible_used: Amounts


def figures_of(tree: QuotaTree, name: str) -> QuotaFigures:
    """Return the figures of a quota or of the root; raise KeyError if there is no such quota.

    The root has no limits and requests nothing: its runtime, child request and guarantee are empty.
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


def with_status(quota: ElasticQuota, figures: QuotaFigures) -> ElasticQuota:
    """Return the quota with its figures; the same object if they are already reported.

    A missing resource counts as 0, so an unused quota is not written.
    """
    reported = {
        RUNTIME: figures.runtime,
        REQUEST: figures.request,
        CHILD_REQUEST: figures.child_request,
        GUARANTEED: figures.guaranteed,
        ALLOCATED: figures.allocated,
        NON_PREEMPTIBLE_REQUEST: figures.non_preemptible_request,
        NON_PREEMPTIBLE_USED: figures.non_preemptible_used,
    }
    annotations = dict(quota.metadata.annotations)
    for annotation, amounts in reported.items():
        quantities = to_quantities(amounts)
        if not _is_up_to_date(quota, annotation, quantities):
            annotations |= annotation.entry(quantities)
    if annotations != quota.metadata.annotations:
        quota = replace(quota, metadata=replace(quota.metadata, annotations=annotations))
    used = to_quantities(figures.used)
    if _without_zeros(quota.status.used) != _without_zeros(used):
        quota = replace(quota, status=replace(quota.status, used=used))
    return quota


def _is_up_to_date(
    quota: ElasticQuota, annotation: AnnotationCodec[ResourceList], quantities: ResourceList
) -> bool:
    try:
        annotated = annotation.read(quota.metadata) or {}
    except InputError:
        return False
    return _without_zeros(annotated) == _without_zeros(quantities)


def _without_zeros(quantities: ResourceList) -> ResourceList:
    return {name: quantity for name, quantity in quantities.items() if quantity.nanos}


@dataclass(frozen=True, slots=True)
class Loan:
    """An amount of a resource that a quota uses beyond its minimum.

    ``lender`` is the sibling whose minimum is unused; it is empty if no sibling is guaranteed the
    amount.
    """

    borrower: str
    lender: str
    resource: str
    amount: int


def loans(tree: QuotaTree, parent: str) -> list[Loan]:
    """Return the loans among the children of a quota or of the root.

    The unused minimums of siblings are consumed first, in order of name. The scheduler does not
    record which unused amount was lent to which quota, so this attribution is one of several valid
    ones. Raises KeyError if there is no such quota.
    """
    children = [tree.node(name) for name in sorted(tree.node(parent).children) if name in tree]
    lent = []
    for resource in sorted({name for child in children for name in child.max}):
        left = {
            child.name: child.min.get(resource, 0) - child.used.get(resource, 0)
            for child in children
            if child.lends
        }
        for child in children:
            beyond = child.used.get(resource, 0) - child.min.get(resource, 0)
            for lender, rest in left.items():
                if beyond > 0 and rest > 0:
                    amount = min(beyond, rest)
                    left[lender] -= amount
                    beyond -= amount
                    lent.append(Loan(child.name, lender, resource, amount))
            if beyond > 0:
                lent.append(Loan(child.name, "", resource, beyond))
    return lent


def counted_quotas(
    objects: Iterable[KubeObject], rules: QuotaRules
) -> tuple[QuotaTrees, list[str]]:
    """Build the quota trees with the usage of pods; return them with warnings."""
    trees, total, warnings = QuotaTrees(rules), dict[str, int](), list[str]()
    topology = QuotaTopology()
    for obj in objects:
        if isinstance(obj, Node):
            add(total, amounts_of(transform_node(obj).node.status.allocatable))
        elif isinstance(obj, ElasticQuota):
            topology.put(obj)
            try:
                trees.put(obj)
            except InputError as error:
                warnings.append(str(error))
        elif isinstance(obj, Pod) and not is_terminal(obj):
            pod = as_scheduled(obj)
            requests = pod_requests(pod.spec, overhead=rules.counts_overhead)
            trees.put_pod(quota_pod(pod, requests))
            if pod.spec.node_name:
                trees.assign(pod.key)
    trees.set_total(total)
    quotas = (topology.get(name) for name in trees.names)
    warnings += [text for quota in quotas if quota and (text := warning_about(quota, topology))]
    return trees, warnings


def quotas_as_data(
    trees: QuotaTrees, args: ElasticQuotaArgs, shown: Container[str] | None = None
) -> dict[str, Any]:
    """Return all trees in the documented JSON shape of ``koord quota tree``.

    With ``shown``, the report contains only these quotas and their trees; ``shown`` must include
    the ancestors of every quota in it.
    """
    data = [
        {
            "id": tree_id,
            "total": quantities(quota_tree.runtime(ROOT_QUOTA)),
            "quotas": _children(quota_tree, ROOT_QUOTA, args, shown),
        }
        for tree_id in sorted(trees.tree_ids)
        for quota_tree in [trees.tree(tree_id)]
    ]
    return {"trees": [tree for tree in data if shown is None or tree["quotas"]]}


def _children(
    tree: QuotaTree, parent: str, args: ElasticQuotaArgs, shown: Container[str] | None
) -> list[dict[str, Any]]:
    lent = loans(tree, parent)
    return [
        _quota(tree, name, lent, args, shown)
        for name in children_of(tree, parent)
        if shown is None or name in shown
    ]


def _quota(
    tree: QuotaTree,
    name: str,
    lent: Sequence[Loan],
    args: ElasticQuotaArgs,
    shown: Container[str] | None,
) -> dict[str, Any]:
    figures, node = figures_of(tree, name), tree.node(name)
    return {
        "name": name,
        "min": quantities(figures.min),
        "max": quantities(figures.max),
        "runtime": quantities(figures.runtime),
        "used": quantities(figures.used),
        "request": quantities(figures.request),
        "borrows": [
            {"from": loan.lender, "resource": loan.resource, "amount": loan_amount(loan)}
            for loan in lent
            if loan.borrower == name
        ],
        "waitingPods": len(node.pods) - len(node.assigned),
        "queuePolicy": queue_policy(tree, name, args),
        "children": _children(tree, name, args, shown),
    }


def queue_policy(tree: QuotaTree, name: str, args: ElasticQuotaArgs) -> str:
    """Return the queueing policy of a quota; built-in quotas have none by default."""
    spec = tree.node(name).spec
    if spec is None or (name in (SYSTEM_QUOTA, DEFAULT_QUOTA) and spec.queue.policy is None):
        return QueuePolicy.NONE
    return spec.queue.policy or args.default_queue_policy


def children_of(tree: QuotaTree, parent: str) -> list[str]:
    """Return the children in order of name; the root's are followed by unshared quotas."""
    names = [name for name in sorted(tree.node(parent).children) if name in tree]
    if parent == ROOT_QUOTA:
        unshared = (n for n in tree.names if tree.node(n).parent is tree.node(ROOT_QUOTA))
        names += sorted(set(unshared) - set(names))
    return names


def quantities(amounts: Amounts) -> dict[str, str]:
    return {name: quantity.canonical() for name, quantity in to_quantities(amounts).items()}


def loan_amount(loan: Loan) -> str:
    return quantities({loan.resource: loan.amount})[loan.resource]
