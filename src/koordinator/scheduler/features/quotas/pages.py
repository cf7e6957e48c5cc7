"""Pages of quotas under /apis/v1/plugins/ElasticQuota.

Source: koordinator pkg/scheduler/plugins/elasticquota/plugin_service.go, core/quota_summary.go.
"""

from typing import Any

from koordinator.api.elastic_quota import ROOT_QUOTA
from koordinator.domain.amounts import to_texts
from koordinator.domain.quota import QuotaTree, figures_of
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.plugins.elastic_quota import QuotaLedger


def quota_page(ledger: QuotaLedger, name: str, *, with_pods: bool) -> dict[str, Any]:
    """Return the page of a quota.  Raises NotFoundError."""
    if name not in ledger.trees:
        raise NotFoundError(f"cannot find quota {name}")
    tree_id = next((t for t in ledger.trees.tree_ids if name in ledger.trees.tree(t)), "")
    return _summary(ledger, ledger.trees.tree(tree_id), tree_id, name, with_pods=with_pods)


def quotas_page(ledger: QuotaLedger, tree_id: str | None, *, with_pods: bool) -> dict[str, Any]:
    """Return the quotas of a tree, or all (None), by name.  Raises NotFoundError."""
    if tree_id is not None and tree_id not in ledger.trees.tree_ids:
        raise NotFoundError(f"cannot find quota tree {tree_id}")
    return {
        name: _summary(ledger, ledger.trees.tree(one), one, name, with_pods=with_pods)
        for one in (ledger.trees.tree_ids if tree_id is None else [tree_id])
        for name in sorted(ledger.trees.tree(one).names)
    }


def _summary(
    ledger: QuotaLedger, tree: QuotaTree, tree_id: str, name: str, *, with_pods: bool
) -> dict[str, Any]:
    figures, node = figures_of(tree, name), tree.node(name)
    spec = node.spec
    shown = {
        "max": figures.max,
        "min": figures.min,
        "autoScaleMin": figures.scaled_min,
        "used": figures.used,
        "nonPreemptibleUsed": figures.non_preemptible_used,
        "request": figures.request,
        "nonPreemptibleRequest": figures.non_preemptible_request,
        "sharedWeight": figures.weight,
        "runtime": figures.runtime,
        "childRequest": figures.child_request,
        "allocated": figures.allocated,
        "guaranteed": figures.guaranteed,
        "selfUsed": figures.self_used,
        "selfNonPreemptibleUsed": figures.self_non_preemptible_used,
        "selfRequest": figures.self_request,
        "selfNonPreemptibleRequest": figures.self_non_preemptible_request,
    }
    pods = sorted(node.pods.items()) if with_pods else ()
    return {
        "name": name,
        "parentName": spec.parent if spec else ROOT_QUOTA,
        "isParent": spec.is_parent if spec else False,
        "runtimeVersion": ledger.changes,
        "allowLentResource": node.lends,
        "tree": tree_id,
        **{key: to_texts(amounts) for key, amounts in shown.items()},
        "podCache": {
            key: {"isAssigned": key in node.assigned, "resource": to_texts(node.counted(pod))}
            for key, pod in pods
        },
    }
