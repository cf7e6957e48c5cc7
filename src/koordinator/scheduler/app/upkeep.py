"""What is kept current besides pods: PodGroups, quotas, topologies, and places in queues.

It is looked at once after every step; each part says when it wants to be looked at again.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from koordinator.cluster.port import Cluster
from koordinator.domain.gangs import GangBook
from koordinator.foundation.clock import Clock
from koordinator.scheduler.app.gang_reports import GangReports
from koordinator.scheduler.app.isolation import Isolation
from koordinator.scheduler.app.job_queues import JobQueues
from koordinator.scheduler.app.network_reports import NetworkReports
from koordinator.scheduler.app.outcomes import Evicted
from koordinator.scheduler.app.queue_places import QueuePlaces
from koordinator.scheduler.app.quota_revoke import QuotaRevoke
from koordinator.scheduler.app.quota_status import QuotaStatus
from koordinator.scheduler.app.reporter import Reporter
from koordinator.scheduler.app.reservations import ReservationKeeper
from koordinator.scheduler.plugins.elastic_quota import ElasticQuotaPlugin
from koordinator.scheduler.snapshot import ClusterState

if TYPE_CHECKING:  # what measures is not loaded where nobody asks for figures
    from koordinator.scheduler.app.gauges import QuotaGauges
    from koordinator.scheduler.app.metrics import Metrics


class Upkeep:
    """``report``: objects are written; otherwise only pods of overused quotas are evicted."""

    def __init__(
        self,
        cluster: Cluster,
        clock: Clock,
        state: ClusterState,
        reporter: Reporter,
        *,
        gangs: Sequence[GangBook],
        queues: JobQueues,
        keeper: ReservationKeeper | None,
        quotas: ElasticQuotaPlugin | None,
        message_of: Callable[[str], str],
        metrics: "Metrics | None",
        report: bool,
        writes_network: bool | None,
        isolation: Isolation,
    ) -> None:
        """``writes_network``: None leaves it to whether some gang plugin looks at the network."""
        self._clock, self._report, self._isolation = clock, report, isolation
        self._keeper = keeper
        self._places = QueuePlaces(queues, state, gangs, reporter, message_of)
        self.gangs = GangReports(
            cluster, clock, state, gangs, reporter, places=self._places, enabled=report
        )
        writes = writes_network
        if writes is None:
            writes = any(book.gathers for book in gangs)
        self._network = NetworkReports(cluster, clock, state, reporter, enabled=report and writes)
        self._revoke = self._status = None
        if quotas is not None:
            self._revoke = QuotaRevoke(cluster, clock, quotas, state)
        if quotas is not None and report:
            self._status = QuotaStatus(cluster, clock, reporter, quotas, state, metrics=metrics)

    def settle(self) -> None:
        """Forget what has ended; writes nothing."""
        with self._isolation.barrier("queue places"):
            self._places.settle()

    def _follow(self) -> None:
        """Forget of what is to be written whatever has gone: for a replica that doesn't lead."""
        self.gangs.follow()
        if self._status is not None:
            self._status.follow()
        if self._keeper is not None:
            self._keeper.follow()

    def step(self, *, leads: bool = True) -> list[Evicted]:
        """Write what is due; return the pods that were evicted because their quota is overused.

        Who does not lead writes nothing.
        """
        barrier = self._isolation.barrier
        evicted: list[Evicted] = []
        if not leads:
            with barrier("following"):
                self._follow()
            return evicted
        if self._report:
            with barrier("queue places"):
                self._places.step(self._clock)
        with barrier("PodGroup status"):
            self.gangs.write()
        with barrier("network topology"):
            self._network.write()
        if self._revoke is not None:
            with barrier("quota overuse revoke"):
                evicted = self._revoke.step()
        if self._status is not None:
            with barrier("ElasticQuota status"):
                self._status.step()
        return evicted

    def finish(self) -> None:
        """Write at once what would be written of quotas in the next seconds."""
        if self._status is not None:
            self._status.step(finish=True)

    def next_wakeups(self) -> list[float]:
        """Return when something is to do although nothing happens."""
        due = [self.gangs.next_wakeup_s(), self._network.next_write_s()]
        if self.gangs.is_behind:
            due.append(self._clock.now_s())
        if self._revoke is not None:
            due.append(self._revoke.next_wakeup_s())
        if self._status is not None:
            due.append(self._status.next_wakeup_s())
        if self._report:
            due.append(self._places.next_wakeup_s())
        return [due_s for due_s in due if due_s is not None]

    def quota_gauges(self) -> "Mapping[str, QuotaGauges]":
        """Return the figures of every quota, for metrics."""
        return dict(self._status.gauges) if self._status is not None else {}
