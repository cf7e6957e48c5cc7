"""Rules and accounting of one's own on top of quotas.

A hook is any object with some of these methods; it is told of everything, so that it can keep what
it needs, and what it is told is undone in the same way:

=================  =================================================================================
``quota_changed``  ``(old, new: ElasticQuota | None) -> None``: a quota has come, changed or gone;
                   a change of nothing but what the scheduler reports is none
``pod_changed``    ``(quota: str, old, new: QuotaPod | None) -> None``: a pod that has a node, or is
                   about to, has come into a quota, changed or gone from it
``check_pod``      ``(quota: str, pod: QuotaPod) -> str``: why a pod may not use the quota now,
                   though there is room; empty: it may
``report``         ``(quota: ElasticQuota) -> ElasticQuota``: the object with what else it should
                   say; called whenever its status is looked at
=================  =================================================================================

Source: koordinator pkg/scheduler/plugins/elasticquota/core/hook_plugin.go.  Different here: what is
told before and after the change of a quota there is told once, with both versions.
"""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from koordinator.api.annotations.quota import REPORTED
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.domain.quota.spec import QuotaPod
from koordinator.domain.quota.trees import QuotaTrees

#: Makes a hook of its key, the text of its arguments, and the quotas, which it may read.
HookFactory = Callable[[str, str, QuotaTrees], object]


class HookTimer(Protocol):
    """Measures calls of hooks."""

    def now_s(self) -> float:
        """Return the time."""
        ...

    def hook_called(self, plugin: str, operation: str, took_s: float) -> None:
        """Note a call."""
        ...


class QuotaHooks:
    """The hooks of one set of quotas, by key, in the order of the configuration."""

    def __init__(self, hooks: Sequence[tuple[str, object]] = ()) -> None:
        self.timer: HookTimer | None = None
        self._hooks = tuple(hooks)
        self._told: dict[str, tuple[str, QuotaPod]] = {}  # pods that have nodes, by key

    def __bool__(self) -> bool:
        """Return whether there are any."""
        return bool(self._hooks)

    def quota_changed(self, old: ElasticQuota | None, new: ElasticQuota | None) -> bool:
        """Tell of a quota, unless all that changed is what was reported; False if so."""
        if not self._hooks or old is new:
            return False
        if old is not None and new is not None and _as_given(old) == _as_given(new):
            return False
        for key, hook in self._having("quota_changed"):
            self._call(key, hook, "quota_changed", old, new)
        return True

    def pod_is(self, key: str, quota: str | None, pod: QuotaPod | None) -> None:
        """Tell where a pod that has a node counts now; None: it counts nowhere."""
        now = (quota, pod) if quota is not None and pod is not None else None
        before = self._told.get(key)
        if now == before:
            return
        if now is None:
            del self._told[key]
        else:
            self._told[key] = now
        if before is not None and now is not None and before[0] == now[0]:
            self._pod_changed(now[0], before[1], now[1])
            return
        if before is not None:
            self._pod_changed(before[0], before[1], None)
        if now is not None:
            self._pod_changed(now[0], None, now[1])

    def why_not(self, quota: str, pod: QuotaPod) -> str:
        """Return the first reason against a pod; empty if there is none."""
        for key, hook in self._having("check_pod"):
            reason = self._call(key, hook, "check_pod", quota, pod)
            if reason:
                return f"CheckPod failed for hook plugin {key}, err: {reason}"
        return ""

    def how_many(self, quota: str, pod: QuotaPod, most: int) -> int:
        """Return how many pods like this one may come one after the other, at most ``most``.

        Found out by letting them come, and taking them back.
        """
        count = 0
        while count < most and not self.why_not(quota, pod):
            self._pod_changed(quota, None, pod)
            count += 1
        for _ in range(count):
            self._pod_changed(quota, pod, None)
        return count

    def reported(self, quota: ElasticQuota) -> ElasticQuota:
        """Return the object with what hooks want it to say."""
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
    """Return what others than the scheduler say of a quota."""
    meta = quota.metadata
    annotations = {key: text for key, text in meta.annotations.items() if key not in REPORTED}
    return quota.key, meta.uid, quota.spec, meta.labels, annotations
