"""Whether a quota has room for one more pod, and the message if it hasn't.

Source: koordinator pkg/scheduler/plugins/elasticquota/plugin.go, ``PreFilter``; plugin_helper.go,
``checkQuotaRecursive``.
"""

from dataclasses import dataclass

from koordinator.domain.amounts import Amounts, exceeded, named_by, plus, to_text
from koordinator.domain.quota.shares import UNLIMITED
from koordinator.domain.quota.spec import QuotaPod
from koordinator.domain.quota.tree import QuotaNode, QuotaTree


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """Arguments of the ElasticQuota plugin."""

    uses_runtime: bool = True  # enableRuntimeQuota; without, quotas are limited by their maximum
    checks_parents: bool = False  # enableCheckParentQuota
    is_strict: bool = False  # gate StrictTenancy


def limit_of(tree: QuotaTree, name: str, rules: AdmissionRules) -> Amounts:
    """Return what pods of a quota may use together."""
    return tree.runtime(name) if rules.uses_runtime else tree.node(name).max


def why_not(tree: QuotaTree, name: str, pod: QuotaPod, rules: AdmissionRules) -> str:
    """Return why a pod that isn't assigned can't be now; empty if it can.

    A quota that uses too much of any resource takes no pod at all, but an ancestor only none that
    wants more of that resource.
    """
    if (
        pod.is_preemptible
        and rules.uses_runtime
        and not rules.checks_parents
        and tree.has_headroom(name, pod.requests)
    ):
        return ""  # as nearly always
    node = tree.node(name)
    request = node.counted(pod)
    used, limit = node.used, limit_of(tree, name, rules)
    if over := exceeded(plus(used, request), limit):
        return (
            f"Insufficient quotas, quotaName: {name}, "
            f"{_figures(node, node, pod, rules, runtime=limit, used=used)}{_excess(request, over)}"
        )
    used = node.non_preemptible_used
    if not pod.is_preemptible and (over := exceeded(plus(used, request), node.min)):
        figures = _figures(node, node, pod, rules, min=node.min, nonPreemptibleUsed=used)
        return (
            f"Insufficient non-preemptible quotas, quotaName: {name}, "
            f"{figures}{_excess(request, over)}"
        )
    return _why_not_above(tree, name, pod, request, rules) if rules.checks_parents else ""


def how_many(tree: QuotaTree, name: str, pod: QuotaPod, rules: AdmissionRules) -> int:
    """Return how many pods like one that can be assigned can be so, one after the other.

    Those that use what is guaranteed to them may raise the limit as they go: then it is at least so
    many.
    """
    node = tree.node(name)
    request = node.counted(pod)
    names = tree.path(name) if rules.checks_parents else (name,)
    levels = [(tree.node(level).used, limit_of(tree, level, rules)) for level in names]
    if not pod.is_preemptible:
        levels.append((node.non_preemptible_used, node.min))
    headrooms = [
        (limit[resource] - used.get(resource, 0)) // amount
        for used, limit in levels
        for resource, amount in request.items()
        if amount > 0 and resource in limit
    ]
    return max(min(headrooms, default=UNLIMITED), 0)


def _why_not_above(
    tree: QuotaTree, name: str, pod: QuotaPod, request: Amounts, rules: AdmissionRules
) -> str:
    names = tree.path(name)
    for level, ancestor in enumerate(names[1:], start=1):
        node, limit = tree.node(ancestor), limit_of(tree, ancestor, rules)
        used = node.used
        if over := exceeded(named_by(plus(used, request), request), limit):
            way = " ".join(reversed(names[: level + 1]))
            figures = _figures(node, tree.node(name), pod, rules, runtime=limit, used=used)
            return f"Insufficient quotas, quotaNameTopo: [{way}], {figures}{_excess(request, over)}"
    return ""


def _figures(
    node: QuotaNode, own: QuotaNode, pod: QuotaPod, rules: AdmissionRules, **amounts: Amounts
) -> str:
    """Return amounts of a quota as text; empty if they are another tenant's."""
    if node.spec is not None and own.spec is not None:
        is_strict = rules.is_strict
        if not node.spec.shows_figures_to(pod.namespace, own.spec, is_strict=is_strict):
            return ""
    return "".join(f"{name}: {to_text(each)}, " for name, each in amounts.items())


def _excess(request: Amounts, over: list[str]) -> str:
    return f"pod's request: {to_text(request)}, exceedDimensions: [{' '.join(over)}]"
