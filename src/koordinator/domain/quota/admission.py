"""Admission of pods by quotas, with the messages of the original.

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

    uses_runtime: bool = True  # enableRuntimeQuota; False: the maximum limits
    checks_parents: bool = False  # enableCheckParentQuota
    is_strict: bool = False  # gate StrictTenancy


def limit_of(tree: QuotaTree, name: str, rules: AdmissionRules) -> Amounts:
    """Return the limit of a quota: its runtime, or its maximum without ``uses_runtime``."""
    return tree.runtime(name) if rules.uses_runtime else tree.node(name).max


def why_not(tree: QuotaTree, name: str, pod: QuotaPod, rules: AdmissionRules) -> str:
    """Return the reason why an unassigned pod is not admitted; empty if it is.

    A quota that exceeds its limit for any resource admits no pod. An ancestor rejects only pods
    that request the exceeded resource.
    """
    if (
        pod.is_preemptible
        and rules.uses_runtime
        and not rules.checks_parents
        and tree.has_headroom(name, pod.requests)
    ):
        return ""  # fast path: no message has to be built
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
    """Return how many identical pods can be assigned one after the other.

    The first of them must be admissible. With guaranteed usage the limit may grow with each pod;
    then the result is a lower bound.
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
    """Format amounts of a quota; empty if they belong to another tenant."""
    if node.spec is not None and own.spec is not None:
        is_strict = rules.is_strict
        if not node.spec.shows_figures_to(pod.namespace, own.spec, is_strict=is_strict):
            return ""
    return "".join(f"{name}: {to_text(each)}, " for name, each in amounts.items())


def _excess(request: Amounts, over: list[str]) -> str:
    return f"pod's request: {to_text(request)}, exceedDimensions: [{' '.join(over)}]"
