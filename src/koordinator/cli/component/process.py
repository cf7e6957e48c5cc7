"""Parts of every component's process: clocks, metrics, connections, election and servers.

A component defines its name, its main loop and its pages.  Start, liveness and end of a process
are the same for all components and are defined here.
Source of the names of metrics: kubernetes component-base, client-go, controller-runtime.
"""

import logging
import sys
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final, Protocol

import numpy as np
from prometheus_client import (
    CollectorRegistry,
    Counter,
    Histogram,
    PlatformCollector,
    ProcessCollector,
)

from koordinator.cli.component.flags import ConnectionFlags, ProcessFlags
from koordinator.cluster.kubernetes.connection import find_connection
from koordinator.cluster.kubernetes.credentials import Credentials
from koordinator.cluster.leader_election import LeaderElector
from koordinator.foundation.clock import Clock, FollowingClock, SystemClock
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.process.leadership import Heartbeat, Leadership, unique_identity
from koordinator.process.logs import set_up_logging
from koordinator.process.termination import FaultMetrics, StopEvent, stop_on_signals

if TYPE_CHECKING:
    from koordinator.api.kubescheduler.config import LeaderElectionConfiguration
    from koordinator.cluster.kubernetes.cluster import KubernetesCluster
    from koordinator.cluster.kubernetes.kubelet_pods import KubeletSource
    from koordinator.process.http_server import HttpServer

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0)


class RequestMetrics:
    """Metrics of requests to API servers, by verb, host and status."""

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

_QUICKLY: Final = 10.0  # seconds of a clock correction that are applied per second

LONGEST_WAIT_S = 0.5  # between checks of signals, the lease and calls of servers


class Runnable(Protocol):
    """Assembled component."""

    def run(self) -> None:
        """Work until the process is asked to stop."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTerms:
    """Lease of a component, and its durations."""

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
        """Return a lease with the durations of controller-runtime."""
        return LeaseTerms(
            namespace=namespace,
            name=name,
            lease_duration_s=15.0,
            renew_deadline_s=10.0,
            retry_period_s=2.0,
        )

    @staticmethod
    def of(election: "LeaderElectionConfiguration") -> "LeaseTerms | None":
        """Return the lease of a configuration; None if leader election is disabled."""
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
    """Parts of a process that all components share.

    Callbacks in ``cleanup`` run at the end.  With ``follows_corrections`` the clocks follow when
    the clock of the machine is set: ``clock``, which measures deadlines, slowly and never back;
    ``wall_clock`` quickly.  Leases and heartbeats use ``steady_clock``, which never jumps.
    """

    def __init__(
        self,
        name: str,
        metrics_prefix: str,
        *,
        process: ProcessFlags,
        connection: ConnectionFlags,
        stopping: StopEvent,
        cleanup: ExitStack,
        follows_corrections: bool = False,
    ) -> None:
        self._name = name
        self.stopping, self.cleanup = stopping, cleanup
        #: Ends the wait of the main loop; set by the component.
        self.end_wait: Callable[[], None] = lambda: None
        stopping.on_set = self.wake
        self.steady_clock = SystemClock()
        self.clock: Clock = self.steady_clock
        #: Clock that is compared with times in API objects.
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

    def wake(self) -> None:
        """End the wait of the main loop, when the process comes to lead or has to stop."""
        self.end_wait()

    def connect(
        self,
        *,
        may_write: Callable[[], bool] = lambda: True,
        lateness_s: float | None = None,
        qps: float = 0.0,
        burst: int,
        timeout_s: float = 30.0,
        kubelet: "KubeletSource | None" = None,
        kubeconfig: str = "",
        cleanup: ExitStack | None = None,
    ) -> "KubernetesCluster":
        """Return a client of the cluster that is closed at the end; ``qps`` 0 means no limit.

        ``cleanup`` closes it; by default the process does.
        ``lateness_s`` is the time for which a write stays allowed after ``may_write``.
        ``kubelet`` is the source of watched pods, by default the API server.  ``kubeconfig``
        overrides the component's own connection.
        Raises InputError if no cluster is configured.
        """
        # The node agent answers the container runtime before it loads the client of the API server.
        from koordinator.cluster.kubernetes.cluster import KubernetesCluster  # noqa: PLC0415

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
        (self.cleanup if cleanup is None else cleanup).callback(cluster.close)
        return cluster

    def create_candidate(self, lease: LeaseTerms, cluster: "KubernetesCluster") -> Leadership:
        """Return a candidate for a lease with a new identity, not started yet."""
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

    def start(self, servers: "Iterable[HttpServer]") -> None:
        """Start the servers, and stop them at the end."""
        for server in servers:
            server.start()
            self.cleanup.callback(server.stop)
            log.info("serving", extra={"port": server.port})

    def wait_s(self, wakeup_s: float | None) -> float:
        """Return how long the loop may wait; ``wakeup_s`` is the time of its next work, if any."""
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
    """Set up logging, build a component, and run it until a signal stops it.

    ``name`` is its user agent, ``metrics_prefix`` the prefix of its fault counters, ``switch_s``
    the thread switch interval of the interpreter; ``follows_corrections`` as for
    ``ComponentProcess``.  Raises InputError if no cluster is configured.
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
