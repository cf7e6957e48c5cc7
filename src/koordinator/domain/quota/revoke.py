"""Overuse revocation: pods evicted from a quota that exceeds its limit for too long.

This is the only way to reclaim lent amounts: preemption never crosses quotas.

Source: koordinator pkg/scheduler/plugins/elasticquota/quota_overuse_revoke.go.  Unlike there, every
resource counts even if the last pod does not request it, pods that free nothing of the exceeded
resources stay, and so do pods whose eviction would be rejected.
"""

from collections.abc import Callable, Iterable

from koordinator.domain.amounts import Amounts, add, exceeded, multiple, plus
from koordinator.domain.quota.spec import QuotaPod, by_importance


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
