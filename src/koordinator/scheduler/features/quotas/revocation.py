"""Revocation of overused quotas, and pods that are terminating.

Source: koordinator pkg/scheduler/plugins/elasticquota/quota_overuse_revoke.go; koordinator
pkg/features/scheduler_features.go, ElasticQuotaIgnoreTerminatingPod and
ElasticQuotaImmediateIgnoreTerminatingPod; pkg/scheduler/plugins/elasticquota.
"""

import logging
from collections.abc import Callable, Iterable

from koordinator.api.elastic_quota import SYSTEM_QUOTA
from koordinator.api.pod import Pod
from koordinator.api.policy import PodDisruptionBudget
from koordinator.cluster.port import Cluster
from koordinator.domain.amounts import add, exceeded, multiple
from koordinator.domain.quota import OveruseTimer, QuotaPod, QuotaTrees, pods_to_revoke, quota_pod
from koordinator.foundation.clock import Clock, to_epoch_s
from koordinator.foundation.errors import ClusterError, ConflictError, NotFoundError
from koordinator.scheduler.loop.outcomes import Evicted
from koordinator.scheduler.plugins.elastic_quota import ElasticQuotaPlugin
from koordinator.scheduler.preemption.single_node import covers
from koordinator.scheduler.snapshot import ClusterState, Snapshot

log = logging.getLogger(__name__)


class QuotaRevoke:
    """Overuse monitor of one plugin's quotas, if its arguments enable it."""

    def __init__(
        self, cluster: Cluster, clock: Clock, plugin: ElasticQuotaPlugin, state: ClusterState
    ) -> None:
        args = plugin.args
        self.is_enabled = args.monitor_all_quotas and args.enable_runtime_quota
        self._interval_s = args.revoke_pod_interval.total_seconds()
        self._delay_s = args.delay_evict_time.total_seconds()
        self._timer = OveruseTimer(self._delay_s)
        self._cluster = cluster
        self._clock = clock
        self._plugin = plugin
        self._state = state
        self._due_s = 0.0
        self._seen = -1  # ledger changes at the last check
        self._is_behind = False  # changes are pending until the next interval
        self._over: dict[str, float] = {}  # start of overuse by quota

    def next_wakeup_s(self) -> float | None:
        """Return when evictions may be due; None if no quota is overused."""
        if self._is_behind:
            return self._due_s
        since_s = min(self._over.values(), default=None)
        return None if since_s is None else since_s + self._delay_s + max(self._interval_s, 0.001)

    def step(self, now_s: float) -> list[Evicted]:
        """Evict pods of quotas that are due."""
        if not self.is_enabled:
            return []
        ledger = self._plugin.ledger(Snapshot(self._state))
        self._is_behind = now_s < self._due_s and ledger.changes != self._seen
        if now_s < self._due_s:
            return []
        self._due_s = now_s + self._interval_s
        if ledger.changes != self._seen:
            self._seen = ledger.changes
            over = _over(ledger.trees)
            for name in self._over.keys() - over:
                self._timer.forget(name)
            self._over = {name: self._over.get(name, now_s) for name in over}
        evicted: list[Evicted] = []
        for name in self._over:
            if self._timer.observe(name, now_s, is_over=True):
                self._over[name] = now_s
                evicted += self._revoke(ledger.trees, name)
        return evicted

    def _revoke(self, trees: QuotaTrees, name: str) -> list[Evicted]:
        tree = trees.tree_of(name)
        node = tree.node(name)
        used = dict(node.used)
        pods: dict[str, Pod] = {}
        for key in node.assigned:
            placed = self._state.pods.by_key.get(key)
            if placed is None or key in self._state.unbound:
                continue
            if placed.pod.metadata.deletion_timestamp is not None:  # it terminates anyway
                add(used, multiple(node.counted(node.pods[key]), -1))
            else:
                pods[key] = placed.pod
        budgets = list(self._state.objects.all(PodDisruptionBudget))
        may_evict = _within(budgets, pods)
        known = [quota_pod(pod, node.counted(node.pods[key])) for key, pod in pods.items()]
        evicted = []
        for victim in pods_to_revoke(known, used, tree.runtime(name), may_evict):
            if self._evict(pods[victim.key]):
                reason = f"Quota {name} exceeds its runtime quota"
                evicted.append(Evicted(victim.key, f"quota {name}", reason))
        return evicted

    def _evict(self, pod: Pod) -> bool:
        meta = pod.metadata
        try:
            self._cluster.evict(meta.namespace, meta.name, uid=meta.uid)
        except (NotFoundError, ConflictError):
            return False
        except ClusterError as error:  # e.g. a disruption budget without disruptions left
            log.warning("pod not evicted", extra={"pod": pod.key, "error": str(error)})
            return False
        return True


def _over(trees: QuotaTrees) -> set[str]:
    """Return the quotas whose usage exceeds their runtime."""
    over = set()
    for name in trees.names:
        if name != SYSTEM_QUOTA:
            tree = trees.tree_of(name)
            used = {resource: amount for resource, amount in tree.node(name).used.items() if amount}
            if used and exceeded(used, tree.runtime(name)):
                over.add(name)
    return over


def _within(
    budgets: Iterable[PodDisruptionBudget], pods: dict[str, Pod]
) -> Callable[[QuotaPod], bool]:
    """Return a predicate that allows evictions within the remaining budgets."""
    left = [(budget, [budget.status.disruptions_allowed]) for budget in budgets]

    def may_evict(pod: QuotaPod) -> bool:
        concerned = [rest for budget, rest in left if covers(budget, pods[pod.key])]
        allowed = all(rest[0] > 0 for rest in concerned)
        for rest in concerned if allowed else ():
            rest[0] -= 1
        return allowed

    return may_evict


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
