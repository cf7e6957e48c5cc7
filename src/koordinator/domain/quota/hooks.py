"""Hooks for custom rules and accounting on top of quotas.

A hook is any object with some of these methods. Every change is reported to it, and every reported
change is reverted by a later call with the opposite arguments:

=================  =================================================================================
``quota_changed``  ``(old, new: ElasticQuota | None) -> None``: a quota was added, updated or
                   removed; not called if only the figures that the scheduler reports changed
``pod_changed``    ``(quota: str, old, new: QuotaPod | None) -> None``: an assigned or reserved pod
                   was added to a quota, updated or removed from it
``check_pod``      ``(quota: str, pod: QuotaPod) -> str``: reason to reject a pod although the quota
                   has room; empty to accept it
``report``         ``(quota: ElasticQuota) -> ElasticQuota``: the object with additional
                   annotations; called whenever the status of the quota is computed
=================  =================================================================================

Source: koordinator pkg/scheduler/plugins/elasticquota/core/hook_plugin.go.  Different here: one
call with both versions replaces the calls before and after the change of a quota.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from koordinator.api.annotations.quota import REPORTED
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.domain.quota.spec import QuotaPod
from koordinator.domain.quota.trees import QuotaTrees

#: Creates a hook from its key, its arguments as text, and the quotas (read-only).
HookFactory = Callable[[str, str, QuotaTrees], object]


class HookTimer(Protocol):
    """Timer and recorder of hook calls.

    Rule R1: the scheduler, which implements it, is above ``domain``.
    """

    def now_s(self) -> float:
        """Return the time in seconds."""
        ...

    def hook_called(self, plugin: str, operation: str, took_s: float) -> None:
        """Record a call and its duration."""
        ...


class QuotaHooks:
    """Hooks by key, in the order of the configuration."""

    def __init__(self, hooks: Sequence[tuple[str, object]] = ()) -> None:
        self.timer: HookTimer | None = None
        self._hooks = tuple(hooks)
        #: quota and version last reported for each assigned pod, by key
        self._reported: dict[str, tuple[str, QuotaPod]] = {}

    def __bool__(self) -> bool:
        """Return whether there are any hooks."""
        return bool(self._hooks)

    def quota_changed(self, old: ElasticQuota | None, new: ElasticQuota | None) -> bool:
        """Report a change of a quota; return False if only reported figures changed."""
        if not self._hooks or old is new:
            return False
        if old is not None and new is not None and _as_given(old) == _as_given(new):
            return False
        for key, hook in self._having("quota_changed"):
            self._call(key, hook, "quota_changed", old, new)
        return True

    def pod_is(self, key: str, quota: str | None, pod: QuotaPod | None) -> None:
        """Report the quota that counts an assigned pod now; None if no quota counts it."""
        now = (quota, pod) if quota is not None and pod is not None else None
        before = self._reported.get(key)
        if now == before:
            return
        if now is None:
            del self._reported[key]
        else:
            self._reported[key] = now
        if before is not None and now is not None and before[0] == now[0]:
            self._pod_changed(now[0], before[1], now[1])
            return
        if before is not None:
            self._pod_changed(before[0], before[1], None)
        if now is not None:
            self._pod_changed(now[0], None, now[1])

    def why_not(self, quota: str, pod: QuotaPod) -> str:
        """Return the first hook's reason to reject a pod; empty if all accept it."""
        for key, hook in self._having("check_pod"):
            reason = self._call(key, hook, "check_pod", quota, pod)
            if reason:
                return f"CheckPod failed for hook plugin {key}, err: {reason}"
        return ""

    def how_many(self, quota: str, pod: QuotaPod, most: int) -> int:
        """Return how many identical pods the hooks accept, at most ``most``.

        Pods are added one by one until a hook rejects the next one, then all are removed.
        """
        count = 0
        while count < most and not self.why_not(quota, pod):
            self._pod_changed(quota, None, pod)
            count += 1
        for _ in range(count):
            self._pod_changed(quota, pod, None)
        return count

    def reported(self, quota: ElasticQuota) -> ElasticQuota:
        """Return the object with the annotations that hooks add."""
        for key, hook in self._having("report"):
            quota = self._call(key, hook, "report", quota)
        return quota

    def _pod_changed(self, quota: str, old: QuotaPod | None, new: QuotaPod | None) -> None:
        for key, hook in self._having("pod_changed"):
            self._call(key, hook, "pod_changed", quota, old, new)

    def _having(self, method: str) -> Sequence[tuple[str, object]]:
        return [(key, hook) for key, hook in self._hooks if hasattr(hook, method)]

    def _call(self, key: str, hook: object, method: str, *args: object) -> Any:
        timer = self.timer
        began_s = timer.now_s() if timer is not None else 0.0
        answer = getattr(hook, method)(*args)
        if timer is not None:
            timer.hook_called(key, method, timer.now_s() - began_s)
        return answer


def _as_given(quota: ElasticQuota) -> object:
    """Return the fields of a quota that the scheduler does not write."""
    meta = quota.metadata
    annotations = {key: text for key, text in meta.annotations.items() if key not in REPORTED}
    return quota.key, meta.uid, quota.spec, meta.labels, annotations
