"""Exclusion of terminating pods from their quotas, by feature gates.

Source: koordinator pkg/features/scheduler_features.go, ElasticQuotaIgnoreTerminatingPod and
ElasticQuotaImmediateIgnoreTerminatingPod; pkg/scheduler/plugins/elasticquota.
"""

from koordinator.api.pod import Pod
from koordinator.foundation.clock import Clock, to_epoch_s
from koordinator.scheduler.plugins.elastic_quota import ElasticQuotaPlugin
from koordinator.scheduler.snapshot import ClusterState, Snapshot


class TerminatingPods:
    """Tracker of terminating pods; inactive without the gates."""

    def __init__(self, clock: Clock, state: ClusterState, plugin: ElasticQuotaPlugin) -> None:
        self._clock, self._state, self._plugin = clock, state, plugin
        self._due_s: dict[str, float] = {}  # time of exclusion by pod that still counts
        self._excluded: set[str] = set()

    def track(self, pod: Pod, *, deleted: bool) -> None:
        """Track a pod that may be terminating."""
        rules, key, meta = self._plugin.quotas, pod.key, pod.metadata
        if not rules.ignores_terminating:
            return
        if deleted or meta.deletion_timestamp is None:
            self._due_s.pop(key, None)
            if key in self._excluded:
                self._excluded.remove(key)
                self._ledger_leave_out(key, out=False)
        elif key not in self._excluded:
            grace_s = 0 if rules.at_once else meta.deletion_grace_period_seconds or 0
            at_s = 0.0 if rules.at_once else to_epoch_s(meta.deletion_timestamp)
            self._due_s[key] = at_s + grace_s

    def step(self) -> None:
        """Exclude the pods that are due."""
        now_s = self._clock.now_s()
        for key in [key for key, due_s in self._due_s.items() if due_s <= now_s]:
            del self._due_s[key]
            self._excluded.add(key)
            self._ledger_leave_out(key, out=True)

    def next_wakeup_s(self) -> float | None:
        """Return when the next exclusion is due."""
        return min(self._due_s.values(), default=None)

    def _ledger_leave_out(self, key: str, *, out: bool) -> None:
        self._plugin.ledger(Snapshot(self._state)).leave_out(key, self._state, out=out)
