"""Job queues of quotas, and their rules.

The rules are in ``scheduler.rules.job_queues``; this module keeps the queues in step with pods and
quotas.  A pod behind the front stays gated, at no cost, until ``take_ungated`` returns it.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from koordinator.api.elastic_quota import DEFAULT_QUOTA, ROOT_QUOTA, SYSTEM_QUOTA, ElasticQuota
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import PodGroup
from koordinator.domain.amounts import NOTHING, Amounts, add
from koordinator.domain.gangs import GangCache
from koordinator.domain.quota import QueueTerms
from koordinator.domain.quota.spec import NO_TERMS
from koordinator.foundation.clock import Clock, to_epoch_s
from koordinator.scheduler.contract import Action, EventHint, Refusal
from koordinator.scheduler.plugins.elastic_quota import (
    ElasticQuotaPlugin,
    QuotaLedger,
)
from koordinator.scheduler.rules.job_queues import JobQueueCache, QueuedJob, QueueRules, ShareOf
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot

GATE = "JobQueue"
EVENTS = (EventHint("Pod", Action.UPDATE),)  # an update may change the quota of the pod


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
            queue_rules = self.rules_of(quota)
            if queue_rules is not None:
                rules[name] = queue_rules
        return rules

    def rules_of(self, quota: ElasticQuota) -> QueueRules | None:
        """Return the rules of the queue of a quota; None if it has no queue."""
        name, terms = quota.metadata.name, QueueTerms.of(quota)
        if name in (ROOT_QUOTA, SYSTEM_QUOTA) or (name == DEFAULT_QUOTA and terms == NO_TERMS):
            return None
        return QueueRules.of(terms, self._plugin.args)

    def quota_for(self, pod_class: PodClass) -> str | None:
        """Return the quota of pods of a class."""
        ledger = self._ledger()
        return ledger.trees.quota_for(ledger.quota_pod(pod_class))

    def request_of(self, pod_class: PodClass) -> Amounts:
        """Return the amounts that pods of a class request from their quota."""
        return self._ledger().quota_pod(pod_class).requests

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


class JobQueues:
    """Job queues of the quotas of one plugin."""

    def __init__(
        self,
        clock: Clock,
        state: ClusterState,
        quotas: QueuedQuotas,
        gangs: Sequence[GangCache],
    ) -> None:
        self.cache = JobQueueCache()
        self.moved: dict[str, None] = {}  # quotas whose queue positions changed
        self.finished: dict[str, None] = {}  # jobs that left their queues
        self._clock, self._state, self._quotas, self._gangs = clock, state, quotas, gangs
        self._usage_at = -1  # version of usage at the last computation of shares
        self._freed: list[str] = []  # pods whose gates must be evaluated again

    @property
    def is_empty(self) -> bool:
        """Whether no quota has a queue."""
        return not self.cache.queues

    def in_order(self, quota: str) -> Iterable[QueuedJob]:
        """Return the jobs in the queue of a quota, the next one first."""
        queue = self.cache.queues.get(quota)
        if queue is None:
            return ()
        return queue.in_order(self._quotas.share_of(quota))

    def refusal(self, pod: Pod) -> Refusal | None:
        """Return why a pod that no other gate holds must wait; None if it need not."""
        self._read_rules()
        if not self.cache.queues:
            return None
        known = self._state.unbound.get(pod.key)
        if known is None:
            return None
        quota = self._quotas.quota_for(known[1])
        gangs = self._gangs_of(pod)
        job_id = pod.key if gangs is None else _group_id(gangs, pod)
        if quota not in self.cache.queues or (gangs is not None and gangs.has_begun(pod)):
            self._leave(job_id)
            return None
        self.cache.put(quota, self._job(job_id, pod, gangs))
        if self.cache.may_be_tried(job_id):
            return None
        return Refusal(f"waits for its turn in the queue of quota {quota}")

    def job_for(self, pod: Pod) -> QueuedJob | None:
        """Return the queued job of a pod, also if another pod represents it; None without one."""
        gangs = self._gangs_of(pod)
        return self.cache.job(pod.key if gangs is None else _group_id(gangs, pod))

    def may_be_tried(self, pod: Pod) -> bool:
        """Return whether no other job has overtaken a pod that passed the gate."""
        job = self.cache.job_of(pod.key)
        return job is None or self.cache.may_be_tried(job.id)

    def take_ungated(self) -> list[str]:
        """Return the pods that have reached the front of their queues."""
        self._read_rules()
        ready, self._freed = self._freed, []
        if not self.cache.queues:
            return ready
        self._note_usage(self._quotas)
        for quota in list(self.cache.stale):
            self.moved[quota] = None
            for job in self.cache.advance(quota, self._quotas.share_of(quota)):
                ready.append(self._representative(job.id) or job.pod)
        return ready

    def started(self, pod: Pod) -> None:
        """Remove the job of a placed pod from its queue."""
        if self.is_empty:
            return
        gangs = self._gangs_of(pod)
        self._leave(pod.key if gangs is None else _group_id(gangs, pod))

    def removed(self, key: str) -> None:
        """Handle a pod that left the queue; another member may represent its gang."""
        job = self.cache.job_of(key)
        if job is None:
            return
        other = self._representative(job.id) or self._any_pending(job.id)
        if other and other != key:
            self.cache.put(self.cache.quota_of(job.id), replace(job, pod=other))
        else:
            self._leave(job.id)

    def lost_member(self, pod: Pod) -> None:
        """Handle a deleted member: an incomplete gang leaves the queue."""
        for gangs in self._gangs if self.cache.queues else ():
            gang = gangs.gang_of(pod)
            if gang is not None and gang.terms is not None and gangs.shortage(pod):
                self._leave(gang.terms.group_id)

    def _leave(self, job_id: str) -> None:
        if self.cache.leave(job_id) is not None:
            self.finished[job_id] = None

    def _job(self, job_id: str, pod: Pod, gangs: GangCache | None) -> QueuedJob:
        known, priority = self.cache.job(job_id), pod.spec.priority or 0
        if known is not None:
            arrived_s, sequence = known.arrived_s, known.sequence
        else:
            arrived_s, sequence = self._arrived_s(pod, gangs), self.cache.next_sequence()
        members = [pod.key] if gangs is None else gangs.attempt(pod).members
        request: dict[str, int] = {}
        for key in members:
            pending = self._state.unbound.get(key)
            if pending is not None:
                add(request, self._quotas.request_of(pending[1]))
        namespace = pod.metadata.namespace
        return QueuedJob(job_id, pod.key, namespace, priority, arrived_s, sequence, request)

    def _arrived_s(self, pod: Pod, gangs: GangCache | None) -> float:
        """Return the creation time of the job, which keeps its position over restarts."""
        gang = gangs.gang_of(pod) if gangs is not None else None
        group = self._state.objects.get(PodGroup, gang.id) if gang is not None else None
        meta = pod.metadata if group is None else group.metadata
        return to_epoch_s(meta.creation_timestamp, self._clock.now_s())

    def _gangs_of(self, pod: Pod) -> GangCache | None:
        for gangs in self._gangs:
            gang = gangs.gang_of(pod) if gangs.is_member(pod) else None
            if gang is not None and gang.terms is not None:
                return gangs
        return None

    def _representative(self, group_id: str) -> str:
        return next((key for g in self._gangs if (key := g.representative(group_id))), "")

    def _any_pending(self, group_id: str) -> str:
        """Return a member that can represent its group next; empty without one."""
        pending_pods = (
            g.gangs[one].pending
            for g in self._gangs
            for one in group_id.split(",")
            if one in g.gangs
        )
        return next((key for pending in pending_pods for key in pending), "")

    def _read_rules(self) -> None:
        if self._state.objects.versions[ElasticQuota] == self._quotas.objects_at:
            return
        rules = self._quotas.new_rules()
        if rules is None:
            return
        waiting = [job.id for queue in self.cache.queues.values() for job in queue.jobs.values()]
        self._freed += self.cache.set_rules(rules)
        for job_id in waiting:
            job = self.cache.job(job_id)
            if job is None:
                self.finished[job_id] = None
            elif self._is_elsewhere(job):
                self._freed.append(job.pod)

    def _is_elsewhere(self, job: QueuedJob) -> bool:
        """Return whether a queued job belongs to another quota now."""
        pending = self._state.unbound.get(job.pod)
        quota = self.cache.quota_of(job.id)
        return pending is not None and self._quotas.quota_for(pending[1]) != quota

    def _note_usage(self, quotas: QueuedQuotas) -> None:
        """Mark queues ordered by usage as stale if usage changed."""
        shared = [name for name, q in self.cache.queues.items() if q.is_shared and len(q)]
        if shared and quotas.changes != self._usage_at:
            self._usage_at = quotas.changes
            self.cache.stale.update(dict.fromkeys(shared))


def _group_id(gangs: GangCache, pod: Pod) -> str:
    gang = gangs.gang_of(pod)
    return gang.terms.group_id if gang is not None and gang.terms is not None else pod.key
