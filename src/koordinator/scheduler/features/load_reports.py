"""Requeueing of pods at the expiry of a NodeMetric by which a node was too busy for them.

Only where ``enableScheduleWhenNodeMetricsExpired`` accepts such nodes: an expiry is no event of the
cluster.  The original leaves these pods to the periodic flush of its queue.
"""

from collections.abc import Sequence
from math import inf

from koordinator.scheduler.contract import Action, ClusterEvent
from koordinator.scheduler.loop.feature import Feature
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.plugins.load_aware import LoadAwareScheduling
from koordinator.scheduler.snapshot.load_ledger import LoadLedger


class LoadReportFeature(Feature):
    """Requeueing of pods that LoadAwareScheduling rejected, when reports expire."""

    def __init__(self, handle: SchedulerHandle, plugins: Sequence[LoadAwareScheduling]) -> None:
        self._handle = handle
        self._keys = {plugin.rules.key for plugin in plugins if plugin.accepts_expired}
        self._expired = 0  # number of expired reports when pods were requeued last

    @property
    def is_needed(self) -> bool:
        """Whether some profile accepts nodes whose report has expired."""
        return bool(self._keys)

    def wake(self) -> None:
        """Requeue the pods if a report has expired since the last call."""
        expired = sum(ledger.expired for ledger in self._ledgers())
        if expired != self._expired:
            self._expired = expired
            change = ClusterEvent("NodeMetric", Action.UPDATE)
            self._handle.queue.on_event(change, self._handle.clock.now_s())

    def next_wakeup_s(self, *, synced: bool) -> float | None:
        """Return when the next report expires."""
        next_s = min((ledger.next_expiry_s for ledger in self._ledgers()), default=inf)
        if not synced or next_s == inf:
            return None
        clock, wall_clock = self._handle.clock, self._handle.options.wall_clock
        return next_s if wall_clock is None else next_s - wall_clock.now_s() + clock.now_s()

    def _ledgers(self) -> list[LoadLedger]:
        charged = self._handle.state.load.charged
        return [charged[key] for key in self._keys & charged.keys()]
