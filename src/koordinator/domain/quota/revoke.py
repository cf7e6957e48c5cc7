"""Which pods are evicted from a quota that uses more than it may for too long.

What a quota lent comes back only so: pods of other quotas are never preempted.

Source: koordinator pkg/scheduler/plugins/elasticquota/quota_overuse_revoke.go.  Unlike there, a
resource that the last pod looked at does not request still counts, pods that free nothing of what
is short stay, and so do pods whose eviction would be refused.
"""

from collections.abc import Callable, Iterable

from koordinator.domain.amounts import Amounts, add, exceeded, multiple, plus
from koordinator.domain.quota.spec import QuotaPod, by_importance


class OveruseTimer:
    """Since when each quota has been using more than it may."""

    def __init__(self, delay_s: float) -> None:
        self._delay_s = delay_s
        self._since_s: dict[str, float] = {}

    def observe(self, name: str, now_s: float, *, is_over: bool) -> bool:
        """Return whether pods are to be evicted now: over for longer than the delay.

        Then, and whenever the quota is not over, the time starts again.
        """
        since_s = self._since_s.setdefault(name, now_s)
        is_due = is_over and now_s - since_s > self._delay_s
        if is_due or not is_over:
            self._since_s[name] = now_s
        return is_due

    def forget(self, name: str) -> None:
        """Forget a quota that is gone."""
        self._since_s.pop(name, None)


def pods_to_revoke(
    pods: Iterable[QuotaPod],
    used: Amounts,
    limit: Amounts,
    may_evict: Callable[[QuotaPod], bool],
) -> list[QuotaPod]:
    """Return the pods to evict so that at most the limit is used, most important first.

    Pods go from the least important on, as long as too much is used and if they use any of that;
    then those that fit again stay, the most important first.  If all of them together are not
    enough, all of them go.  ``may_evict`` says whether a disruption budget allows it; pods that are
    not preemptible always stay.
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
