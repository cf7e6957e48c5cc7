"""Carries evictions out, and remembers who is leaving.

Source: koordinator pkg/koordlet/qosmanager/plugins/util/evictor.go, evict.go
``DefaultEvictionExecutor``; helpers/kill.go.
"""

import logging
from collections.abc import Sequence

from koordinator.cluster.port import Cluster
from koordinator.foundation.errors import ClusterError, NotFoundError
from koordinator.koordlet.app.events import EVICTED, NOT_EVICTED, pod_event
from koordinator.koordlet.app.outbox import Outbox
from koordinator.koordlet.executor import Executor
from koordinator.koordlet.intents import EvictPod
from koordinator.koordlet.qos.eviction import Task, choose_victims

log = logging.getLogger(__name__)

REMEMBERED_S = 120.0


class EvictionManager:
    """One per resource, with its own time to cool down.

    By default the processes of a victim's containers are ended at once, which needs no API server;
    ``only_by_api`` asks the API server instead, which asks disruption budgets.
    """

    def __init__(
        self, executor: Executor, outbox: Outbox, *, cool_s: float, only_by_api: bool
    ) -> None:
        self.count = 0
        self._executor = executor
        self._outbox = outbox
        self._cool_s = cool_s
        self._only_by_api = only_by_api
        self._cool_until_s = 0.0
        self._leaving: dict[str, float] = {}  # uid -> since when

    def is_cooling(self, now_s: float) -> bool:
        """Whether the last eviction is too fresh for another one."""
        return now_s < self._cool_until_s

    def carry_out(self, tasks: Sequence[Task], now_s: float) -> None:
        """Evict whom the tasks need to go."""
        self._leaving = {u: s for u, s in tuple(self._leaving.items()) if now_s - s < REMEMBERED_S}
        victims = choose_victims(tasks, self._leaving)
        for victim in victims:
            log.warning(
                "evicting",
                extra={"pod": f"{victim.namespace}/{victim.name}", "why": victim.message},
            )
            self.count += 1
            if self._only_by_api:
                self._leaving[victim.uid] = now_s
                self._ask(victim, now_s)
            else:
                self._executor.kill(victim, now_s)
                self._tell(victim, EVICTED, victim.message, now_s)
        if victims:
            self._cool_until_s = now_s + self._cool_s

    def _ask(self, victim: EvictPod, now_s: float) -> None:
        def evict(cluster: Cluster) -> None:
            try:
                cluster.evict(victim.namespace, victim.name, uid=victim.uid)
            except NotFoundError:
                return
            except ClusterError as error:
                self._leaving.pop(victim.uid, None)  # it may be chosen again
                note = f"{victim.message}: {error}"
                cluster.report([pod_event(victim, NOT_EVICTED, note, now_s)])
                raise
            cluster.report([pod_event(victim, EVICTED, victim.message, now_s)])

        self._executor.note_eviction(victim, "", now_s)
        self._outbox.put(f"eviction of {victim.uid}", evict)

    def _tell(self, victim: EvictPod, reason: str, note: str, now_s: float) -> None:
        event = pod_event(victim, reason, note, now_s)
        self._outbox.put(f"event of {victim.uid}", lambda cluster: cluster.report([event]))
