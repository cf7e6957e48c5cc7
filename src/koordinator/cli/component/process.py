"""What the process of every component is made of: clock, metrics, connection, election, servers.

A component says how it is called, what its loop does, and which pages it has; how a process
starts, is looked after and ends is the same for all and is here.
Source of the names of metrics: kubernetes component-base, client-go, controller-runtime.
"""

import logging
import sys
import threading
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from koordinator.api.kubescheduler.config import LeaderElectionConfiguration
from koordinator.cli.component.flags import ConnectionFlags, ProcessFlags
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.kubernetes.connection import find_connection
from koordinator.cluster.kubernetes.credentials import Credentials
from koordinator.cluster.kubernetes.kubelet_pods import KubeletSource
from koordinator.cluster.leader_election import LeaderElector
from koordinator.foundation.clock import Clock, FollowingClock, SystemClock
from koordinator.process.faults import FaultMetrics
from koordinator.process.heartbeat import Heartbeat
from koordinator.process.http_server import HttpServer
from koordinator.process.leadership import Leadership, unique_identity
from koordinator.process.logs import set_up_logging
from koordinator.process.termination import stop_on_signals

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class RequestMetrics:
    """What happened to requests, by verb, host and answer."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._requests = Counter(
            "rest_client_requests",
            "Number of HTTP requests, partitioned by status code, method, and host.",
            ["code", "method", "host"],
            registry=registry,
        )
        self._seconds = Histogram(
            "rest_client_request_duration_seconds",
            "Request latency in seconds. Broken down by verb, and host.",
            ["verb", "host"],
            buckets=_SECONDS,
            registry=registry,
        )

    def observe(self, verb: str, status: str, host: str, seconds: float) -> None:
        """Count one request."""
        self._requests.labels(status, verb, host).inc()
        self._seconds.labels(verb, host).observe(seconds)


log = logging.getLogger(__name__)

_QUICKLY: Final = 10.0  # seconds of a correction, per second

LONGEST_WAIT_S = 0.5  # between two looks at signals, the lease and questions


class Runnable(Protocol):
    """A component whose parts are put together."""

    def run(self) -> None:
        """Work until the component is told to stop."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """Which lease a component holds while it works, and how long it counts."""

    namespace: str
    name: str
    lease_duration_s: float
    renew_deadline_s: float
    retry_period_s: float

    @property
    def key(self) -> str:
        """``namespace/name``."""
        return f"{self.namespace}/{self.name}"

    @staticmethod
    def of_controller(namespace: str, name: str) -> "LeaseTerms":
        """Return a lease that counts as long as controller-runtime's."""
        return LeaseTerms(
            namespace=namespace,
            name=name,
            lease_duration_s=15.0,
            renew_deadline_s=10.0,
            retry_period_s=2.0,
        )

    @staticmethod
    def of(election: LeaderElectionConfiguration) -> "LeaseTerms | None":
        """Return what a configuration file says; None if its component works without a lease."""
        if not election.leader_elect:
            return None
        return LeaseTerms(
            namespace=election.resource_namespace,
            name=election.resource_name,
            lease_duration_s=election.lease_duration.total_seconds(),
            renew_deadline_s=election.renew_deadline.total_seconds(),
            retry_period_s=election.retry_period.total_seconds(),
        )


class ComponentProcess:
    """The parts that do not depend on what the component does.

    What must be undone at the end is told to ``cleanup``.  With ``follows_corrections`` the clocks
    follow when that of the machine is set: ``clock``, which deadlines are counted with, slowly and
    never back; ``wall_clock`` quickly.  Leases and heartbeats keep to ``steady_clock``.
    """

    def __init__(
        self,
        name: str,
        metrics_prefix: str,
        *,
        process: ProcessFlags,
        connection: ConnectionFlags,
        stopping: threading.Event,
        cleanup: ExitStack,
        follows_corrections: bool = False,
    ) -> None:
        self._name = name
        self.stopping, self.cleanup = stopping, cleanup
        self.steady_clock = SystemClock()
        self.clock: Clock = self.steady_clock
        #: What times of API objects are compared with.
        self.wall_clock: Clock = self.steady_clock
        if follows_corrections:
            self.clock = FollowingClock(back=0.5, forward=1.0)
            self.wall_clock = FollowingClock(back=_QUICKLY, forward=_QUICKLY)
        self.heartbeat = Heartbeat(self.steady_clock, process.liveness_deadline_s)
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        PlatformCollector(registry=self.registry)
        self.faults = FaultMetrics(metrics_prefix, self.registry)
        self._requests = RequestMetrics(self.registry)
        self._credentials = Credentials(
            find_connection(connection.kubeconfig, connection.context), self.clock
        )

    def connect(
        self,
        *,
        may_write: Callable[[], bool] = lambda: True,
        lateness_s: float | None = None,
        qps: float = 0.0,
        burst: int,
        timeout_s: float = 30.0,
        kubelet: KubeletSource | None = None,
        kubeconfig: str = "",
    ) -> KubernetesCluster:
        """Return a client of the cluster, closed at the end; ``qps`` 0 is no limit.

        ``lateness_s`` is how late a write that ``may_write`` allowed may be done.
        ``kubelet`` is where its watches find pods; None: at the API server.  ``kubeconfig`` names
        another way to a cluster than the component's own.
        Raises InputError if there is none.
        """
        credentials = self._credentials
        if kubeconfig:
            credentials = Credentials(find_connection(kubeconfig, ""), self.clock)
        cluster = KubernetesCluster(
            credentials,
            self.clock,
            may_write=may_write,
            lateness_s=lateness_s,
            qps=qps if qps > 0 else None,
            burst=burst,
            timeout_s=timeout_s,
            kubelet=kubelet,
            observe=self._requests.observe,
            user_agent=self._name,
        )
        self.cleanup.callback(cluster.close)
        return cluster

    def stand_for(self, lease: LeaseTerms, cluster: KubernetesCluster) -> Leadership:
        """Return a new candidate for a lease, under a new name, not started yet."""
        elector = LeaderElector(
            cluster,
            self.steady_clock,
            np.random.default_rng(),
            identity=unique_identity(),
            namespace=lease.namespace,
            name=lease.name,
            lease_duration_s=lease.lease_duration_s,
            renew_deadline_s=lease.renew_deadline_s,
            retry_period_s=lease.retry_period_s,
        )
        elector.wall_clock = self.wall_clock
        return Leadership(elector, self.steady_clock)

    def start(self, servers: Iterable[HttpServer]) -> None:
        """Serve from now to the end."""
        for server in servers:
            server.start()
            self.cleanup.callback(server.stop)
            log.info("serving", extra={"port": server.port})

    def wait_s(self, wakeup_s: float | None) -> float:
        """Return how long a loop may wait that has something to do at ``wakeup_s``, if at all."""
        if wakeup_s is None:
            return LONGEST_WAIT_S
        return min(max(wakeup_s - self.clock.now_s(), 0.0), LONGEST_WAIT_S)


def run_component(
    name: str,
    metrics_prefix: str,
    process: ProcessFlags,
    connection: ConnectionFlags,
    build: Callable[[ComponentProcess], Runnable],
    *,
    switch_s: float | None = None,
    follows_corrections: bool = False,
) -> None:
    """Log as the flags say, put a component together, and run it until a signal comes.

    ``name`` is its user agent, ``metrics_prefix`` what its counters of faults begin with;
    ``switch_s`` is how long one thread may keep another waiting; with ``follows_corrections`` its
    clocks follow when that of the machine is set.
    Raises InputError if there is no way to the cluster.
    """
    set_up_logging(process.logging_format, process.verbosity)
    if switch_s is not None:
        sys.setswitchinterval(switch_s)
    stopping = stop_on_signals()
    with ExitStack() as cleanup:
        parts = ComponentProcess(
            name,
            metrics_prefix,
            process=process,
            connection=connection,
            stopping=stopping,
            cleanup=cleanup,
            follows_corrections=follows_corrections,
        )
        build(parts).run()
    log.info("stopped")
