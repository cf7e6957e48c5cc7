"""The descheduler as a process of a cluster: connection, election, endpoints, and the loop.

The loop runs in the main thread and owns the mirror.  Threads beside it: the network's, one that
keeps the lease, and the servers'.  Who loses the lease ends, as the original does: the next one to
lead takes the jobs in flight over from the cluster.
Source of names and ports: koordinator cmd/koord-descheduler/app.
"""

import gc
import logging
import threading
from collections.abc import Callable
from contextlib import ExitStack

import numpy as np
from prometheus_client import CollectorRegistry, Gauge, PlatformCollector, ProcessCollector

from koordinator.cli.descheduler_flags import DeschedulerFlags
from koordinator.cli.descheduler_plugins import descheduler_plugins_for
from koordinator.cli.page_servers import REVIEWS_PER_S, page_servers
from koordinator.cli.rest_metrics import RequestMetrics
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.kubernetes.connection import find_connection
from koordinator.cluster.kubernetes.credentials import Credentials
from koordinator.cluster.leader_election import LeaderElector
from koordinator.descheduler.app import Descheduler
from koordinator.descheduler.configuration import DeschedulerConfiguration, parse_socket_address
from koordinator.descheduler.metrics import DeschedulerMetrics
from koordinator.foundation.clock import Clock, SystemClock
from koordinator.foundation.errors import ClusterError
from koordinator.process.configz import configz
from koordinator.process.endpoints import Endpoints, application, probes, thread_stacks
from koordinator.process.faults import FaultMetrics
from koordinator.process.health import PING, Check, leader_election_check, shutdown_check
from koordinator.process.heartbeat import Heartbeat
from koordinator.process.http_server import HttpServer
from koordinator.process.leadership import Leadership, unique_identity
from koordinator.process.logs import set_up_logging, set_verbosity
from koordinator.process.termination import stop_on_signals

log = logging.getLogger(__name__)

NAME = "koord-descheduler"
LONGEST_WAIT_S = 0.5  # between two looks at signals and the lease


def run(configuration: DeschedulerConfiguration, flags: DeschedulerFlags) -> None:
    """Deschedule until a signal comes.

    Raises InputError for what the user got wrong, and ClusterError when leadership is lost.
    """
    set_up_logging(flags.process.logging_format, flags.process.verbosity)
    stopping = stop_on_signals()
    with ExitStack() as cleanup:
        _Process(configuration, flags, stopping, cleanup).run()
    log.info("stopped")


class _Process:
    """The parts, put together.  What must be undone at the end is told to ``cleanup``."""

    def __init__(
        self,
        configuration: DeschedulerConfiguration,
        flags: DeschedulerFlags,
        stopping: threading.Event,
        cleanup: ExitStack,
    ) -> None:
        self._configuration, self._flags = configuration, flags
        self._stopping, self._cleanup = stopping, cleanup
        self._clock: Clock = SystemClock()
        self._heartbeat = Heartbeat(self._clock, flags.process.liveness_deadline_s)
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        PlatformCollector(registry=self._registry)
        self._requests = RequestMetrics(self._registry)
        self._faults = FaultMetrics("koord_descheduler", self._registry)
        self._credentials = Credentials(
            find_connection(
                flags.connection.kubeconfig or configuration.client_connection.kubeconfig,
                flags.connection.context,
            ),
            self._clock,
        )
        self._leadership = self._build_leadership()
        self._cluster = self._connect(
            may_write=self._may_act, qps=configuration.client_connection.qps
        )
        self._descheduler = Descheduler(
            self._cluster,
            self._clock,
            configuration,
            out_of_tree=descheduler_plugins_for(configuration),
            source=flags.source,
            gates=flags.gates,
            metrics=DeschedulerMetrics(self._registry),
            on_fault=self._faults,
        )

    def run(self) -> None:
        self._serve()
        leadership = self._leadership
        if leadership is not None:
            leadership.start()
            # Whoever fails has to let the lease run out: of what it began, something may go on.
            self._cleanup.callback(leadership.stop, release=False)
        descheduler = self._descheduler
        descheduler.sync()
        led, frozen = leadership is None, False  # without a leader before there is nothing to miss
        while not self._stopping.is_set():
            self._heartbeat.beat()
            if leadership is not None and leadership.lost:
                raise ClusterError("leadership lost")
            leads = self._may_act()
            if leads and not led:
                descheduler.sync()  # what the last leader did just now may be on its way still
            led = leads
            if descheduler.is_synced and not frozen:
                gc.freeze()  # the cluster stays: no use in looking at it for garbage
                frozen = True
            if not descheduler.step(leads=leads):
                self._cluster.wait(self._longest_wait_s(leads=leads))
        if leadership is not None:
            leadership.stop()

    def _may_act(self) -> bool:
        return self._leadership is None or self._leadership.holds()

    def _longest_wait_s(self, *, leads: bool) -> float:
        wakeup_s = self._descheduler.next_wakeup_s()
        if wakeup_s is None or not leads or not self._descheduler.is_synced:
            return LONGEST_WAIT_S
        return min(max(wakeup_s - self._clock.now_s(), 0.0), LONGEST_WAIT_S)

    # -- parts -------------------------------------------------------------------------------

    def _connect(
        self,
        *,
        may_write: Callable[[], bool] = lambda: True,
        qps: float = 0.0,
        timeout_s: float = 30.0,
    ) -> KubernetesCluster:
        cluster = KubernetesCluster(
            self._credentials,
            self._clock,
            may_write=may_write,
            qps=qps if qps > 0 else None,
            burst=self._configuration.client_connection.burst,
            timeout_s=timeout_s,
            observe=self._requests.observe,
            user_agent=NAME,
        )
        self._cleanup.callback(cluster.close)
        return cluster

    def _build_leadership(self) -> Leadership | None:
        election = self._configuration.leader_election
        if not election.leader_elect:
            return None
        renew_s = election.renew_deadline.total_seconds()
        elector = LeaderElector(
            self._connect(timeout_s=renew_s / 2),
            self._clock,
            np.random.default_rng(),
            identity=unique_identity(),
            namespace=election.resource_namespace,
            name=election.resource_name,
            lease_duration_s=election.lease_duration.total_seconds(),
            renew_deadline_s=renew_s,
            retry_period_s=election.retry_period.total_seconds(),
        )
        leadership = Leadership(elector, self._clock)
        master = Gauge(
            "leader_election_master_status",
            "Whether this process leads: 1, or waits to: 0.",
            ["name"],
            registry=self._registry,
        )
        master.labels(election.resource_name).set_function(lambda: float(leadership.holds()))
        return leadership

    def _serve(self) -> None:
        health = self._health()
        pages = Endpoints(
            health=health,
            metrics={"/metrics": self._registry},
            pages={
                "/configz": configz(lambda: self._configuration),
                "/debug/threads": thread_stacks,
            },
            flags={"v": set_verbosity},
            on_fault=self._faults,
        )
        configuration = self._configuration
        plain = parse_socket_address(configuration.metrics_bind_address, "metricsBindAddress")
        servers = page_servers(
            application(pages),
            self._flags.pages.settings(plain),
            lambda: self._connect(qps=REVIEWS_PER_S, timeout_s=10.0),
            self._clock,
            NAME,
        )
        if configuration.healthz_bind_address != configuration.metrics_bind_address:
            probed = parse_socket_address(configuration.healthz_bind_address, "healthzBindAddress")
            if probed is not None:
                servers.append(HttpServer(probes(health), *probed))
        for server in servers:
            server.start()
            self._cleanup.callback(server.stop)
            log.info("serving", extra={"port": server.port})

    def _health(self) -> dict[str, list[Check]]:
        alive = [PING, self._heartbeat.check]
        leadership = self._leadership
        if leadership is not None:
            election = self._configuration.leader_election
            lease = f"{election.resource_namespace}/{election.resource_name}"
            alive.append(leader_election_check(lease, leadership.overdue_s))
        synced = Check("cluster-sync", self._not_synced)
        ready = [*alive, synced, shutdown_check(self._stopping)]
        return {"healthz": alive, "livez": alive, "readyz": ready}

    def _not_synced(self) -> str:
        if self._descheduler.is_synced:
            return ""
        return "the cluster has not been taken in yet"
