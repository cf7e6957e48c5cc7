"""Quota data for job queues: rules, quota of a pod, and usage shares."""

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.domain.amounts import NOTHING, Amounts
from koordinator.domain.quota import QueueTerms
from koordinator.domain.quota.spec import NO_TERMS
from koordinator.scheduler.plugins.elastic_quota import (
    ElasticQuotaPlugin,
    QuotaLedger,
    as_quota_pod,
)
from koordinator.scheduler.rules.job_queues import QueueRules
from koordinator.scheduler.rules.job_queues.queue import ShareOf
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot


class QueuedQuotas:
    """View of the quota ledger for job queues."""

    def __init__(self, plugin: ElasticQuotaPlugin, state: ClusterState) -> None:
        self._plugin, self._state = plugin, state
        self.objects_at = -1  # version of the objects at the last read
        self._specs_at = -1

    def new_rules(self) -> dict[str, QueueRules] | None:
        """Return the rules of all quotas with queues; None if unchanged.

        Among the built-in quotas only the default one may have a queue, if its object requests it.
        """
        version = self._state.objects.version(ElasticQuota)
        if version == self.objects_at:
            return None
        self.objects_at = version
        ledger = self._ledger()
        if ledger.spec_changes == self._specs_at:
            return None
        self._specs_at = ledger.spec_changes
        rules: dict[str, QueueRules] = {}
        for name, quota in ledger.objects.items():
            terms = QueueTerms.of(quota)
            if name in (ROOT_QUOTA, SYSTEM_QUOTA) or (name == DEFAULT_QUOTA and terms == NO_TERMS):
                continue
            found = QueueRules.of(terms, self._plugin.args)
            if found is not None:
                rules[name] = found
        return rules

    def quota_for(self, pod_class: PodClass) -> str | None:
        """Return the quota of pods of a class."""
        return self._ledger().trees.quota_for(as_quota_pod(pod_class))

    @property
    def changes(self) -> int:
        """Number that grows with every change of usage."""
        return self._ledger().changes

    def share_of(self, quota: str) -> ShareOf:
        """Return a function of the dominant share of a quota that a namespace uses."""
        node = self._ledger().trees.tree_of(quota).node(quota)

        def share_of(namespace: str, more: Amounts) -> float:
            used = node.used_by.get(namespace, NOTHING)
            return max(
                (
                    (used.get(resource, 0) + more.get(resource, 0)) / most
                    for resource, most in node.max.items()
                    if most > 0
                ),
                default=0.0,
            )

        return share_of

    def _ledger(self) -> QuotaLedger:
        return self._plugin.ledger(Snapshot(self._state))
