"""Quota rules for a pod: admission, preemption within its quota, and revocation of overuse.

Lent amounts are reclaimed by revocation alone: preemption never crosses quotas.

Unlike in the original, overuse counts in every resource even if the last pod does not request it;
pods that free nothing of the exceeded resources stay, and so do pods whose eviction would be
rejected.  Victims of preemption are selected only if the quota, and its ancestors if they are
checked, has room for the pod afterwards.

Source: koordinator pkg/scheduler/plugins/elasticquota/plugin.go, ``PreFilter``;
plugin_helper.go, ``checkQuotaRecursive``; quota_overuse_revoke.go; preempt.go, ``canPreempt``,
``SelectVictimsOnNode``.
"""

from collections.abc import Callable, Iterable

from koordinator.api.elastic_quota import DEFAULT_QUOTA
from koordinator.domain.amounts import Amounts, add, exceeded, multiple, named_by, plus, to_text
from koordinator.domain.quota.shares import UNLIMITED
from koordinator.domain.quota.spec import QuotaPod, by_importance
from koordinator.domain.quota.tree import QuotaNode, QuotaTree
from koordinator.foundation.lazy_dataclass import dataclass


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


class OveruseTimer:
    """Start times of overuse by quota."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._since_s: dict[str, float] = {}

    def observe(self, name: str, now_s: float, *, is_over: bool) -> bool:
        """Return whether pods are to be evicted: the quota exceeds its limit for the delay.

        The timer restarts then, and whenever the quota is within its limit.
        """
        since_s = self._since_s.setdefault(name, now_s)
        is_due = is_over and now_s - since_s > self._delay_s
        if is_due or not is_over:
            self._since_s[name] = now_s
        return is_due

    def forget(self, name: str) -> None:
        """Forget a removed quota."""
        self._since_s.pop(name, None)


def pods_to_revoke(
    pods: Iterable[QuotaPod],
    used: Amounts,
    limit: Amounts,
    may_evict: Callable[[QuotaPod], bool],
) -> list[QuotaPod]:
    """Return the pods to evict so that usage is within the limit, most important first.

    Candidates are taken in ascending importance while a resource that they request is exceeded.
    Then candidates that fit again are spared, the most important first. If evicting all candidates
    does not suffice, all are evicted. ``may_evict`` checks disruption budgets; pods that are not
    preemptible are never evicted.
    """
    used = dict(used)
    removed: list[QuotaPod] = []
    for pod in sorted(pods, key=by_importance, reverse=True):
        over = exceeded(used, limit)
        if not over:
            break
        if (
            pod.is_preemptible
            and any(pod.requests.get(resource, 0) > 0 for resource in over)
            and may_evict(pod)
        ):
            add(used, multiple(pod.requests, -1))
            removed.append(pod)
    removed.reverse()
    if exceeded(used, limit):
        return removed
    revoked = []
    for pod in removed:
        with_pod = plus(used, pod.requests)
        if exceeded(with_pod, limit):
            revoked.append(pod)
        else:
            used = with_pod
    return revoked


@dataclass(frozen=True, slots=True)
class QuotaHeadroom:
    """Room for a pod after other pods of its quota are removed."""

    request: Amounts
    levels: tuple[tuple[Amounts, Amounts], ...]  # (used, limit) of the quota, then of its ancestors
    fits_protected: bool  # False: the minimum is exceeded; evictions don't change that

    def fits_without(self, victims: Iterable[QuotaPod]) -> bool:
        """Return whether ``why_not`` would admit the pod without the victims."""
        change = dict(self.request)
        for victim in victims:
            add(change, multiple(victim.requests, -1))
        (used, limit), *above = self.levels
        return (
            self.fits_protected
            and not exceeded(_after(used, change), limit)
            and not any(
                exceeded(named_by(_after(used, change), self.request), limit)
                for used, limit in above
            )
        )


def headroom_for(tree: QuotaTree, name: str, pod: QuotaPod, rules: AdmissionRules) -> QuotaHeadroom:
    """Return the room for an unassigned pod in its quota; raise KeyError if there is none."""
    node = tree.node(name)
    request = node.counted(pod)
    names = tree.path(name) if rules.checks_parents else (name,)
    protected = plus(node.non_preemptible_used, request)
    return QuotaHeadroom(
        request=request,
        levels=tuple((tree.node(level).used, limit_of(tree, level, rules)) for level in names),
        fits_protected=pod.is_preemptible or not exceeded(protected, node.min),
    )


def _after(used: Amounts, change: Amounts) -> dict[str, int]:
    """Return the usage after a change, restricted to the resources that count."""
    counted = used.keys() | {name for name, amount in change.items() if amount > 0}
    return {name: used.get(name, 0) + change.get(name, 0) for name in counted}


def is_allowed_victim(
    victim: QuotaPod,
    victim_quota: str | None,
    preemptor: QuotaPod,
    preemptor_quota: str | None,
    *,
    spares_default_quota: bool = True,
) -> bool:
    """Return whether a pod may be evicted for another one.

    The victim must be preemptible, of lower priority and in the same quota, which must not be the
    default quota if that is spared (``disableDefaultQuotaPreemption``).
    """
    return (
        victim.is_preemptible
        and victim.priority < preemptor.priority
        and victim_quota == preemptor_quota
        and not (spares_default_quota and victim_quota == DEFAULT_QUOTA)
    )
