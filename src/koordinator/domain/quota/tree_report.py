"""Serializable report of all quotas and their usage for ``koord quota tree`` and pages."""

from collections.abc import Container, Iterable, Sequence
from typing import Any

from koordinator.api.annotations.quota import QueuePolicy
from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.kubescheduler import ElasticQuotaArgs
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.domain.amounts import Amounts, add, amounts_of, to_quantities
from koordinator.domain.pod_requests import pod_requests
from koordinator.domain.quota.figures import Loan, figures_of, loans
from koordinator.domain.quota.spec import quota_pod
from koordinator.domain.quota.topology import QuotaTopology
from koordinator.domain.quota.tree import QuotaTree
from koordinator.domain.quota.trees import QuotaRules, QuotaTrees
from koordinator.domain.quota.warnings import warning_about
from koordinator.domain.transforms import as_offered, as_scheduled
from koordinator.foundation.errors import InputError

_OVER = ("Succeeded", "Failed")


def counted_quotas(
    objects: Iterable[KubeObject], rules: QuotaRules
) -> tuple[QuotaTrees, list[str]]:
    """Build the quota trees with the usage of pods; return them with warnings."""
    trees, total, warnings = QuotaTrees(rules), dict[str, int](), list[str]()
    topology = QuotaTopology()
    for obj in objects:
        if isinstance(obj, Node):
            add(total, amounts_of(as_offered(obj).node.status.allocatable))
        elif isinstance(obj, ElasticQuota):
            topology.put(obj)
            try:
                trees.put(obj)
            except InputError as error:
                warnings.append(str(error))
        elif isinstance(obj, Pod) and obj.status.phase not in _OVER:
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
