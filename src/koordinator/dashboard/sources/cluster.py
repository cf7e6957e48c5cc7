"""Source for a real cluster, followed by a standby scheduler that never decides or writes."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from koordinator.api.kubescheduler import NO_GATES, FeatureGates, KubeSchedulerConfiguration
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.port import Cluster
from koordinator.dashboard.sources.contract import (
    Pause,
    SourceKind,
    SourcePhase,
    SourceStatus,
    TimelineMark,
)
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import ClusterError, Fault
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.loop import SchedulerOptions
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.scheduler.profile import build_profiles, watched_kinds
from koordinator.scheduler.snapshot import ClusterState

log = logging.getLogger(__name__)

#: Ended pods hold no resources; the API server filters them out of lists and watches.
SELECTORS: Mapping[type[KubeObject], str] = {Pod: "status.phase!=Succeeded,status.phase!=Failed"}
WAIT_S = 0.1  # for events, between two rounds of queries
LOST_AFTER_S = 15.0  # without a response of the API server


class LiveClusterSource:
    """Source that follows a cluster; ``cluster`` should reject writes.

    Its scheduler is a standby that never leads.  Explanations follow the configuration given here,
    not the one of the cluster's scheduler.
    """

    kind = SourceKind.CLUSTER

    def __init__(
        self,
        title: str,
        cluster: Cluster,
        configuration: KubeSchedulerConfiguration,
        clock: Clock,
        *,
        out_of_tree: Iterable[PluginSpec[Any]] = (),
        config_name: str = "",
        gates: FeatureGates = NO_GATES,
        answered_s: Callable[[], float] | None = None,
    ) -> None:
        """``answered_s`` returns the time of the API server's last response, by ``clock``."""
        self.title, self.configuration = title, configuration
        self._cluster, self._clock = cluster, clock
        self._answered_s = answered_s or clock.now_s
        state = ClusterState()
        built = build_profiles(
            configuration, state.axis, out_of_tree=out_of_tree, source=config_name, gates=gates
        )
        self._scheduler = build_scheduler(
            cluster,
            clock,
            built.profiles,
            state,
            watched_kinds(gates),
            field_selectors={**SELECTORS, **built.selectors},
            options=SchedulerOptions(report=False, answers_explanations=False).with_gates(gates),
            on_fault=_log_fault,
        )
        self._problem = ""

    @property
    def handle(self) -> SchedulerHandle | None:
        """The standby; None before its caches are synced."""
        return self._scheduler.handle if self._scheduler.is_synced else None

    @property
    def status(self) -> SourceStatus:
        """Status with the phase LOST while the API server does not respond."""
        phase = SourcePhase.LIVE if self._scheduler.is_synced else SourcePhase.LOADING
        return SourceStatus(
            phase=SourcePhase.LOST if self._problem else phase,
            now_s=self._clock.now_s(),
            problem=self._problem,
        )

    @property
    def devices(self) -> None:
        """None: the feed samples the devices."""

    @property
    def trail(self) -> None:
        """None: a standby decides nothing."""

    def marks(self) -> Sequence[TimelineMark]:
        """Return no marks: events of the cluster are not read."""
        return ()

    def follow(self, pause: Pause) -> None:
        """Apply watch events; continue after errors of the API server."""
        while True:
            self._step()
            if not pause(0.0):
                return
            self._cluster.wait(WAIT_S)

    def _step(self) -> None:
        try:
            self._scheduler.step(limit=0)
        except ClusterError as error:
            self._problem = str(error)
            return
        silent_s = self._clock.now_s() - self._answered_s()
        self._problem = (
            f"the API server has not responded for {silent_s:.0f} s; the page is that old"
            if silent_s > LOST_AFTER_S
            else ""
        )


def _log_fault(fault: Fault) -> None:
    log.warning("fault", extra={"fault": str(fault)})
