"""Statuses of ElasticQuota objects, and creation of the built-in quotas.

A quota is updated soon after it changed, and all of them in turn, because the requests of one
change the runtime of others.  Updates and writes are limited per second.

Source: koordinator pkg/scheduler/plugins/elasticquota (controller.go; quota_handler.go for the
built-in quotas).
"""

import logging
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING

from koordinator.api.core import ResourceList
from koordinator.api.elastic_quota import (
    DEFAULT_QUOTA,
    ROOT_QUOTA,
    SYSTEM_QUOTA,
    ElasticQuota,
    ElasticQuotaSpec,
)
from koordinator.api.labels import QUOTA_ALLOW_LENT, QUOTA_IS_PARENT
from koordinator.api.meta import ObjectMeta
from koordinator.cluster.port import Cluster
from koordinator.domain.quota import figures_of, with_status
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.features.quotas.gauges import QuotaGauges, gauges_of
from koordinator.scheduler.loop.reporter import Patches, Reporter
from koordinator.scheduler.plugins.elastic_quota import ElasticQuotaPlugin, QuotaLedger
from koordinator.scheduler.snapshot import ClusterState, Snapshot

if TYPE_CHECKING:  # the metrics client is optional
    from koordinator.scheduler.features.quotas.metrics import QuotaMetrics

INTERVAL_S = 1.0  # as the original
LOOKS = 500  # updates per interval, about 30 ms of the loop
CHECKS = 100  # checked rules per interval
WRITES = 200  # per interval

log = logging.getLogger(__name__)


class QuotaStatus:
    """Writer of the statuses of one plugin's quotas."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        reporter: Reporter,
        plugin: ElasticQuotaPlugin,
        state: ClusterState,
        *,
        metrics: "QuotaMetrics | None" = None,
    ) -> None:
        self._cluster = cluster
        self._clock = clock
        self._reporter = reporter
        self._plugin = plugin
        self._state = state
        self._metrics = metrics
        self.gauges: dict[str, QuotaGauges] = {}  # by quota, if there are metrics
        self._has_built_in = False
        self._patches = Patches(cluster, clock)
        self._due_s = 0.0
        self._waiting: dict[str, None] = {}  # quotas to update, in order
        self._round: Iterator[str] = iter(())
        self._round_at = -1  # ledger changes at the last full round
        self._reported: dict[str, str] = {}  # warnings by key of the object

    def step(self, now_s: float) -> float:
        """Write a part of the due statuses; return when the next part is due."""
        if now_s < self._due_s:
            return self._due_s
        ledger = self._begin(now_s)
        self._collect(ledger)
        self._write(ledger, LOOKS, WRITES)
        return self._due_s

    def finish(self, now_s: float) -> None:
        """Write the statuses of all quotas."""
        ledger = self._begin(now_s)
        self._waiting = dict.fromkeys(ledger.objects)
        self._write(ledger, len(self._waiting), len(self._waiting))

    def _begin(self, now_s: float) -> QuotaLedger:
        """Begin an interval: create the built-in quotas, and report warnings."""
        self._due_s = now_s + INTERVAL_S
        ledger = self._plugin.ledger(Snapshot(self._state))
        if not self._has_built_in:
            self._has_built_in = True
            self._create_built_in(ledger)
            ledger = self._plugin.ledger(Snapshot(self._state))
        self._report_warnings(ledger)
        return ledger

    def follow(self) -> None:
        """Drop pending notices: the leading replica reports them."""
        ledger = self._plugin.ledger(Snapshot(self._state))
        ledger.take_notices()
        ledger.forget_touched()

    def next_wakeup_s(self) -> float | None:
        """Return when the next retry is due."""
        again_s = self._patches.next_wakeup_s()
        return None if again_s is None else max(again_s, self._due_s)

    def _collect(self, ledger: QuotaLedger) -> None:
        """Queue changed quotas with their ancestors, then the next ones of the round."""
        trees = ledger.trees
        for key in self._patches.overdue(self._clock.now_s()):
            name = key.partition("/")[2]
            if name in ledger.objects:
                self._waiting[name] = None
            else:
                self._patches.confirm(key)
        for name in sorted(ledger.take_touched()):
            if name not in ledger.objects:
                self.gauges.pop(name, None)
            if name in trees:
                self._waiting.update(dict.fromkeys((*trees.tree_of(name).path(name), ROOT_QUOTA)))
        headroom = LOOKS - len(self._waiting)
        if headroom <= 0:
            return
        batch = list(islice(self._round, headroom))
        if not batch and self._round_at != ledger.changes:
            self._round_at = ledger.changes
            self._round = iter(list(ledger.objects))
            batch = list(islice(self._round, headroom))
        self._waiting.update(dict.fromkeys(batch))

    def _write(self, ledger: QuotaLedger, looks: int, writes: int) -> None:
        now_s = self._metrics.now_s if self._metrics is not None else float
        began_s = now_s()
        for name in list(islice(self._waiting, looks)):
            if writes <= 0:
                break
            at_s = now_s()
            writes -= self._update(ledger, name)
            del self._waiting[name]
            if self._metrics is not None:
                self._metrics.status_updated(now_s() - at_s)
        if self._metrics is not None:
            self._metrics.processed("update_status", now_s() - began_s)

    def _update(self, ledger: QuotaLedger, name: str) -> int:
        """Write a quota's figures if they changed; return the number of writes."""
        quota = ledger.objects.get(name)
        if quota is None or (name != ROOT_QUOTA and name not in ledger.trees):
            self.gauges.pop(name, None)
            return 0
        if quota.key not in self._reported:
            self._reporter.write_validity(quota, "")
        figures = figures_of(ledger.trees.tree_of(name), name)
        if self._metrics is not None:
            self.gauges[name] = gauges_of(quota, figures)
        new = ledger.hooks.reported(with_status(quota, figures))
        if new is not quota and new != quota:
            return int(self._patches.send(quota, new))
        self._patches.confirm(quota.key)
        return 0

    def _create_built_in(self, ledger: QuotaLedger) -> None:
        args = self._plugin.args
        system, default = args.system_quota_group_max, args.default_quota_group_max
        labels = {QUOTA_IS_PARENT: "true", QUOTA_ALLOW_LENT: "false"}
        for name, most, own in (
            (ROOT_QUOTA, {}, labels),
            (SYSTEM_QUOTA, system, {}),
            (DEFAULT_QUOTA, default, {}),
        ):
            if name not in ledger.objects:
                self._create(name, most, own)

    def _create(self, name: str, most: ResourceList, labels: dict[str, str]) -> None:
        namespace = self._plugin.args.quota_group_namespace
        quota = ElasticQuota(
            metadata=ObjectMeta(name=name, namespace=namespace, labels=labels),
            spec=ElasticQuotaSpec(max=most),
        )
        try:
            self._state.objects.put(self._cluster.create(quota))
        except ClusterError as error:  # the quota applies without its object, too
            log.info("quota not created", extra={"quota": quota.key, "error": str(error)})

    def _report_warnings(self, ledger: QuotaLedger) -> None:
        """Report invalid objects once, in the log and as an event."""
        ledger.rules_broken.check(CHECKS)
        for changed, text in ledger.take_notices():
            log.warning("quota changed in use", extra={"quota": changed.key, "what": text})
            self._reporter.warn(changed, text)
        warnings = {**ledger.rules_broken.texts, **ledger.warnings}
        for key, warning in warnings.items():
            if self._reported.get(key) != warning:
                log.warning("quota is not as it should be", extra={"complaint": warning})
                quota = self._state.objects.get(ElasticQuota, key)
                if quota is not None:
                    self._reporter.warn_once(quota, warning)
                    self._reporter.write_validity(quota, warning)
        self._reported = warnings
