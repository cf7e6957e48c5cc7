"""Features for quotas: job queues, statuses and revocation of overuse.

Pages of quotas are under /apis/v1/plugins/ElasticQuota.

Source: koordinator pkg/scheduler/plugins/elasticquota/plugin_service.go, core/quota_summary.go.
"""

from collections.abc import Iterable, Mapping, Sequence
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar

from koordinator.api.elastic_quota import ROOT_QUOTA, ElasticQuota
from koordinator.api.pod import Pod
from koordinator.cluster.port import WatchEvent
from koordinator.domain.amounts import to_texts
from koordinator.domain.gangs import GangCache
from koordinator.domain.quota import QuotaTree, figures_of
from koordinator.foundation.errors import NotFoundError
from koordinator.scheduler.contract import (
    EventHint,
    Refusal,
)
from koordinator.scheduler.features.quotas.gauges import QuotaGauges
from koordinator.scheduler.features.quotas.places import QueuePlaces
from koordinator.scheduler.features.quotas.queues import EVENTS, GATE, JobQueues, QueuedQuotas
from koordinator.scheduler.features.quotas.revocation import QuotaRevoke, TerminatingPods
from koordinator.scheduler.features.quotas.status import QuotaStatus
from koordinator.scheduler.loop.feature import CallInLoop, Feature, StatePage, Step
from koordinator.scheduler.loop.feature_kinds import GateFeature, GateReport
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.plugins.elastic_quota import ElasticQuotaPlugin, QuotaLedger
from koordinator.scheduler.queue import QueuedPod
from koordinator.scheduler.rules.job_queues import JobQueueCache
from koordinator.scheduler.snapshot import Snapshot

if TYPE_CHECKING:  # the metrics client is optional
    from koordinator.scheduler.features.quotas.metrics import QuotaMetrics


class JobQueueFeature(GateFeature):
    """Job queues of quotas as a gate, with reports of positions."""

    gate: ClassVar[str] = GATE
    gate_events: ClassVar[tuple[EventHint, ...]] = EVENTS

    def __init__(
        self,
        handle: SchedulerHandle,
        plugin: ElasticQuotaPlugin,
        gangs: Sequence[GangCache],
        metrics: "QuotaMetrics | None" = None,
    ) -> None:
        self._handle = handle
        quotas = QueuedQuotas(plugin, handle.state)
        self._queues = JobQueues(handle.clock, handle.state, quotas, gangs)
        self.places = QueuePlaces(
            self._queues, handle.state, gangs, handle.reporter, self._message_of
        )
        self.is_idle = True  # until a quota has a queue
        self._quotas = quotas
        if metrics is not None:
            metrics.watch_queues(self._lengths)

    @property
    def cache(self) -> JobQueueCache:
        """Job queues of all quotas."""
        return self._queues.cache

    def on_object_event(self, event: WatchEvent) -> None:
        """End the idleness with the first quota that has a queue."""
        quota = event.object
        if (
            self.is_idle
            and isinstance(quota, ElasticQuota)
            and self._quotas.rules_of(quota) is not None
        ):
            self.is_idle = False
            self._handle.hooks.refresh()

    def on_left_queue(self, pod: Pod, *, deleted: bool) -> None:
        """Remove a pod's job from its queue, unless another pod represents it now."""
        if deleted:
            self._queues.lost_member(pod)
        self._queues.removed(pod.key)

    def pre_enqueue(self, pod: Pod) -> Refusal | None:
        """Return the refusal of a pod that waits in a queue; None if it may be tried."""
        return self._queues.refusal(pod)

    def gate_report(self, pod: Pod) -> GateReport | None:
        """Return the position of a pod's job in its queue, and the first job."""
        job = self._queues.job_for(pod)
        if job is None or self._queues.cache.may_be_tried(job.id):
            return None
        return self.places.report(job)

    def take_ungated(self) -> Iterable[str]:
        """Return the pods that have reached the front of their queues."""
        return self._queues.take_ungated()

    def send_behind_gates(self, pods: Sequence[QueuedPod]) -> Sequence[QueuedPod]:
        """Return the pods that newer jobs have overtaken since they passed the gate."""
        if not self._queues.cache.queues:
            return ()
        return [queued for queued in pods if not self._queues.may_be_tried(queued.pod)]

    def on_placed(self, pods: Sequence[QueuedPod]) -> None:
        """Remove the jobs of placed pods from their queues."""
        if self._queues.cache.queues:
            for queued in pods:
                self._queues.started(queued.pod)

    def steps(self) -> Sequence[Step]:
        """Return the step that reports queue positions."""
        return (Step("queue places", self._report_places),)

    def follow(self) -> None:
        """Drop finished jobs."""
        self.places.drop_finished()

    def _report_places(self, now_s: float) -> None:
        self.places.drop_finished()
        if self._handle.options.report:
            self.places.step(now_s)

    def next_wakeup_s(self, *, synced: bool) -> float | None:
        """Return when the next report is due."""
        return self.places.next_wakeup_s() if synced and self._handle.options.report else None

    def validate(self) -> None:
        """Raise BugError unless queues and jobs are consistent."""
        self.cache.validate()

    def _message_of(self, key: str) -> str:
        queued = self._handle.queue.get(key)
        return queued.message if queued is not None else ""

    def _lengths(self) -> Mapping[str, int]:
        return {name: len(queue) for name, queue in list(self.cache.queues.items())}


class TerminatingPodFeature(Feature):
    """Exclusion of terminating pods from quotas, by feature gates."""

    def __init__(self, handle: SchedulerHandle, plugin: ElasticQuotaPlugin) -> None:
        self._terminating = TerminatingPods(handle.clock, handle.state, plugin)

    def on_pod_event(self, pod: Pod, previous: Pod | None, *, deleted: bool) -> Sequence[str]:  # noqa: ARG002 -- what it is now counts
        """Track a pod that may be terminating."""
        self._terminating.track(pod, deleted=deleted)
        return ()

    def after_events(self) -> None:
        """Exclude the pods that are due."""
        self._terminating.step()

    def next_wakeup_s(self, *, synced: bool) -> float | None:  # noqa: ARG002 -- always
        """Return when the next pod is excluded."""
        return self._terminating.next_wakeup_s()


class QuotaFeature(Feature):
    """Statuses of ElasticQuota objects, and revocation of overuse."""

    def __init__(
        self,
        handle: SchedulerHandle,
        plugin: ElasticQuotaPlugin,
        metrics: "QuotaMetrics | None" = None,
    ) -> None:
        self._handle, self._plugin = handle, plugin
        cluster, clock, state = handle.cluster, handle.clock, handle.state
        self._revoke = QuotaRevoke(cluster, clock, plugin, state)
        self._status = (
            QuotaStatus(cluster, clock, handle.reporter, plugin, state, metrics=metrics)
            if handle.options.report
            else None
        )
        if metrics is not None:
            metrics.watch_quotas(self._gauges)
            self._ledger().hooks.timer = metrics

    def steps(self) -> Sequence[Step]:
        """Return the eviction of pods of overused quotas, and the writing of statuses."""
        revoke = (Step("quota overuse revoke", self._revoke_overuse),)
        if self._status is None:
            return revoke
        return (*revoke, Step("ElasticQuota status", self._status.step))

    def _revoke_overuse(self, now_s: float) -> float | None:
        for outcome in self._revoke.step(now_s):
            self._handle.attempts.note_eviction(outcome)
        return None if self._revoke.is_enabled else inf

    def follow(self) -> None:
        """Drop the notices about quotas; the leader reports them."""
        if self._status is not None:
            self._status.follow()

    def finish(self) -> None:
        """Write all statuses immediately."""
        if self._status is not None:
            self._status.finish(self._handle.clock.now_s())

    def next_wakeup_s(self, *, synced: bool) -> float | None:
        """Return when the next write or eviction is due."""
        if not synced:
            return None
        status = self._status
        due = [self._revoke.next_wakeup_s(), status.next_wakeup_s() if status is not None else None]
        return min((due_s for due_s in due if due_s is not None), default=None)

    def pages(self, in_loop: CallInLoop) -> Mapping[str, StatePage]:
        """Return the pages of quotas."""

        def one(given: Mapping[str, str]) -> object:
            with_pods, name = given.get("includePods") == "true", given["name"]
            return in_loop(lambda: _quota_page(self._ledger(), name, with_pods=with_pods))

        def every(given: Mapping[str, str]) -> object:
            with_pods, tree = given.get("includePods") == "true", given.get("tree") or None
            return in_loop(lambda: _quotas_page(self._ledger(), tree, with_pods=with_pods))

        return {"/plugins/ElasticQuota/quotas/{name}": one, "/plugins/ElasticQuota/quotas": every}

    def _gauges(self) -> Mapping[str, QuotaGauges]:
        return dict(self._status.gauges) if self._status is not None else {}

    def _ledger(self) -> QuotaLedger:
        return self._plugin.ledger(Snapshot(self._handle.state))


def _quota_page(ledger: QuotaLedger, name: str, *, with_pods: bool) -> dict[str, Any]:
    """Return the page of a quota.  Raises NotFoundError."""
    if name not in ledger.trees:
        raise NotFoundError(f"cannot find quota {name}")
    tree_id = next((t for t in ledger.trees.tree_ids if name in ledger.trees.tree(t)), "")
    return _summary(ledger, ledger.trees.tree(tree_id), tree_id, name, with_pods=with_pods)


def _quotas_page(ledger: QuotaLedger, tree_id: str | None, *, with_pods: bool) -> dict[str, Any]:
    """Return the quotas of a tree, or all (None), by name.  Raises NotFoundError."""
    if tree_id is not None and tree_id not in ledger.trees.tree_ids:
        raise NotFoundError(f"cannot find quota tree {tree_id}")
    return {
        name: _summary(ledger, ledger.trees.tree(one), one, name, with_pods=with_pods)
        for one in (ledger.trees.tree_ids if tree_id is None else [tree_id])
        for name in sorted(ledger.trees.tree(one).names)
    }


def _summary(
    ledger: QuotaLedger, tree: QuotaTree, tree_id: str, name: str, *, with_pods: bool
) -> dict[str, Any]:
    figures, node = figures_of(tree, name), tree.node(name)
    spec = node.spec
    shown = {
        "max": figures.max,
        "min": figures.min,
        "autoScaleMin": figures.scaled_min,
        "used": figures.used,
        "nonPreemptibleUsed": figures.non_preemptible_used,
        "request": figures.request,
        "nonPreemptibleRequest": figures.non_preemptible_request,
        "sharedWeight": figures.weight,
        "runtime": figures.runtime,
        "childRequest": figures.child_request,
        "allocated": figures.allocated,
        "guaranteed": figures.guaranteed,
        "selfUsed": figures.self_used,
        "selfNonPreemptibleUsed": figures.self_non_preemptible_used,
        "selfRequest": figures.self_request,
        "selfNonPreemptibleRequest": figures.self_non_preemptible_request,
    }
    pods = sorted(node.pods.items()) if with_pods else ()
    return {
        "name": name,
        "parentName": spec.parent if spec else ROOT_QUOTA,
        "isParent": spec.is_parent if spec else False,
        "runtimeVersion": ledger.changes,
        "allowLentResource": node.lends,
        "tree": tree_id,
        **{key: to_texts(amounts) for key, amounts in shown.items()},
        "podCache": {
            key: {"isAssigned": key in node.assigned, "resource": to_texts(node.counted(pod))}
            for key, pod in pods
        },
    }
