"""The scheduler as a process of a cluster: connection, election, endpoints, and the loop.

The loop runs in the main thread and owns all of the scheduler's data.  Threads beside it: the
network's, one that keeps the lease, and the server's, whose questions are answered between steps.
Source of names and ports: kubernetes cmd/kube-scheduler/app.

The export of traces by OTLP over HTTP requires ``koordinator[tracing]``.
"""

import logging
import ssl
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from koordinator.api.kube_version import NEWEST, KubeVersion
from koordinator.api.kubescheduler import FeatureGates, KubeSchedulerConfiguration
from koordinator.api.kubescheduler.gates import GATES
from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cli.component.election import Election, run_terms
from koordinator.cli.component.page_servers import REVIEWS_PER_S
from koordinator.cli.component.process import (
    LONGEST_WAIT_S,
    ComponentProcess,
    LeaseTerms,
    run_component,
)
from koordinator.cli.input.configuration import ExtenderRequests, extender_connector, plugins_for
from koordinator.cli.input.live import gates_of_component, level_of_server
from koordinator.cli.scheduler.flags import SchedulerFlags
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import InputError, not_installed
from koordinator.process.authorization import Authorizer
from koordinator.process.certificates import (
    context_of_directory,
    context_of_files,
    self_signed_context,
)
from koordinator.process.endpoints import (
    Endpoints,
    ReplaceableApplication,
    application,
    configz,
    thread_stacks,
)
from koordinator.process.guard import Guard
from koordinator.process.health import PING, Check, shutdown_check
from koordinator.process.http_server import HttpServer
from koordinator.process.logs import RotatedFile, set_verbosity
from koordinator.process.loop_calls import LoopCalls
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.extenders import ExtenderService, build_extenders
from koordinator.scheduler.features.audit import AUDIT_FILE, Audit
from koordinator.scheduler.features.auditor import AuditorMetrics, WorkloadAuditor
from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.scheduler.loop import Scheduler, SchedulerOptions
from koordinator.scheduler.profile import build_profiles, watched_kinds
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator.policies import shipped_configuration

log = logging.getLogger(__name__)

INTERVAL_S: Final = 30.0


class UnservedPods:
    """Warns once for each scheduler name of the installed configuration that is not served."""

    def __init__(self, served: Iterable[str]) -> None:
        known = {profile.scheduler_name for profile in shipped_configuration().profiles}
        self._unserved = known - set(served)
        self._next_s = 0.0

    def check_waiting_pods(self, waiting: Iterable[Pod], now_s: float) -> None:
        """Look through the pods without a node, but not more often than twice a minute."""
        if not self._unserved or now_s < self._next_s:
            return
        self._next_s = now_s + INTERVAL_S
        names = (pod.spec.scheduler_name for pod in waiting)
        counts = Counter(name for name in names if name in self._unserved)
        for name, count in sorted(counts.items()):
            self._unserved.discard(name)
            log.warning(
                "pods wait for a scheduler name that the configuration does not serve",
                extra={
                    "schedulerName": name,
                    "pods": count,
                    "remedy": "--config with a profile of that name, such as --config koordinator "
                    "for koord-scheduler",
                },
            )


#: Pods that have ended hold nothing: the server keeps them to itself.
SELECTORS: Mapping[type[KubeObject], str] = {Pod: "status.phase!=Succeeded,status.phase!=Failed"}
BINDS_UNDER_WAY = 512  # decided ahead of the API server: less than a second of its work
#: How long one thread may keep another waiting.  The network should not wait for a decision.
SWITCH_S = 0.001
STEP = 1024  # pods decided between two looks at everything else
STEP_OUTSIDE = 16  # the same with extenders, whose calls take milliseconds
NAP_S = 0.05
LEVEL_RETRY_S = 0.5  # until the API server reports its version
LEAD_AT_ONCE_S = 1.0  # a free lease is taken faster than this


def run(configuration: KubeSchedulerConfiguration, flags: SchedulerFlags) -> None:
    """Schedule until a signal comes.

    Raises InputError for invalid arguments.
    """
    stated = flags.connection.kubeconfig or configuration.client_connection.kubeconfig
    run_component(
        "koord-scheduler",
        "koord_scheduler",
        flags.process,
        replace(flags.connection, kubeconfig=stated),
        lambda parts: _Process(configuration, flags, parts),
        switch_s=SWITCH_S,
        follows_corrections=True,
    )


class _Process:
    """The parts of the scheduler, put together."""

    def __init__(
        self,
        configuration: KubeSchedulerConfiguration,
        flags: SchedulerFlags,
        parts: ComponentProcess,
    ) -> None:
        self._configuration, self._flags = configuration, flags
        self._writes_network = flags.writes_network
        self._parts, self._clock = parts, parts.clock
        self._loop_calls = LoopCalls()
        self._audit = self._build_audit()
        self._traces = build_pod_traces(
            flags.tracing_endpoint,
            flags.tracing_sampling_ratio,
            "koord-scheduler",
            self._clock,
            parts.cleanup,
        )
        connection = configuration.client_connection
        self._connect = partial(parts.connect, burst=connection.burst)
        lease = LeaseTerms.of(configuration.leader_election)
        self._election = Election(parts, lease, burst=connection.burst)
        self._election.show_master_status()
        self._extenders = self._build_extenders()
        self._check_configuration()
        self._pages = ReplaceableApplication(application(self._endpoints()))
        self._is_synced: Callable[[], bool] = bool  # set when there is a scheduler

    def run(self) -> None:
        self._serve()
        level = self._level()
        if level is None:
            return  # stopped before the API server answered
        self._gates = self._gates_at(level)
        labels = ("priority", *self._flags.auditor.labels)
        self._auditor_metrics = AuditorMetrics(self._parts.registry, labels)
        self._metrics = SchedulerMetrics(self._parts.registry, self._gates.level)
        self._parts.cleanup.callback(self._loop_calls.close)
        self._election.start()
        self._election.wait_until_leading(LEAD_AT_ONCE_S)
        run_terms(
            self._parts,
            self._election,
            self._begin_term,
            self._turn,
            warm_up=Scheduler.warm_up,
            finish=Scheduler.finish,
        )
        self._election.leave()

    def _begin_term(self, connections: ExitStack) -> Scheduler:
        """Return a new scheduler with a connection of its own."""
        self._cluster = self._connect(
            may_write=self._election.may_act,
            lateness_s=self._election.lateness_s,
            qps=self._configuration.client_connection.qps,
            cleanup=connections,
        )
        self._parts.end_wait = self._cluster.wake
        self._scheduler = scheduler = self._build_scheduler(self._gates)
        names = sorted(scheduler.cycles)
        log.info("scheduling pods", extra={"schedulerNames": ", ".join(names)})
        self._unserved = UnservedPods(names)
        self._is_synced = lambda: scheduler.is_synced
        self._pages.replace(application(self._endpoints(scheduler)))
        connections.callback(self._end_term)
        if self._configuration.delay_cache_until_active:
            self._wait_to_lead()
        return scheduler

    def _end_term(self) -> None:
        """Drop all references to the scheduler, before the next one lists the cluster again."""
        self._parts.end_wait = lambda: None
        self._is_synced = bool
        self._pages.replace(application(self._endpoints()))
        self._metrics.unwatch()
        for each in (self._audit, self._traces):
            if each is not None:
                each.unwatch()
        del self._scheduler, self._cluster

    def _turn(self, leads: bool) -> None:
        """Schedule pods or, as a standby, update the mirror; run calls of servers."""
        most = STEP_OUTSIDE if self._configuration.extenders else STEP
        outcomes = self._scheduler.step(limit=most if leads else 0)
        self._loop_calls.run_pending()
        if self._scheduler.is_synced:
            unbound = self._scheduler.state.unbound
            self._unserved.check_waiting_pods(
                (pod for pod, _ in unbound.values()), self._clock.now_s()
            )
        if self._scheduler.is_saturated:
            self._parts.stopping.wait(NAP_S)  # many answers at once cost less than one by one
        elif not outcomes:
            self._cluster.wait(self._parts.wait_s(self._scheduler.next_wakeup_s()))

    def _wait_to_lead(self) -> None:
        while not (self._parts.stopping.is_set() or self._election.is_lost):
            self._parts.heartbeat.beat()
            if self._election.wait_until_leading(LONGEST_WAIT_S):
                return

    # -- parts -------------------------------------------------------------------------------

    def _check_configuration(self) -> None:
        """Raise InputError for what no level accepts, before the API server is asked."""
        build_profiles(
            self._configuration,
            ClusterState().axis,
            out_of_tree=plugins_for(self._configuration, self._flags.plugin),
            gates=FeatureGates(GATES, NEWEST),
            source=self._flags.config,
        )

    def _level(self) -> KubeVersion | None:
        """Wait for the version of the API server; return the level, or None if stopped."""
        flags = self._flags.level
        level = flags.emulated()
        with ExitStack() as connections:
            cluster = self._connect(cleanup=connections)
            while level is None and not self._parts.stopping.is_set():
                self._parts.heartbeat.beat()
                level = level_of_server(cluster, flags.stated(), LONGEST_WAIT_S)
                if level is None:
                    self._parts.stopping.wait(LEVEL_RETRY_S)
        return level

    def _gates_at(self, level: KubeVersion) -> FeatureGates:
        gates = gates_of_component(self._flags.feature_gates, level)
        log.info("reproducing Kubernetes", extra={"version": str(level)})
        return gates

    def _build_scheduler(self, gates: FeatureGates) -> Scheduler:
        flags, configuration = self._flags, self._configuration
        state = ClusterState()
        built = build_profiles(
            configuration,
            state.axis,
            out_of_tree=plugins_for(configuration, flags.plugin),
            gates=gates,
            source=flags.config,
        )
        options = SchedulerOptions(
            initial_backoff_s=configuration.pod_initial_backoff_seconds,
            max_backoff_s=configuration.pod_max_backoff_seconds,
            max_unschedulable_s=flags.max_unschedulable_s,
            run_limit=BINDS_UNDER_WAY,
            in_flight=BINDS_UNDER_WAY,
            writes_network=self._writes_network,
            answers_explanations=True,
            wall_clock=self._parts.wall_clock,
        ).with_gates(gates)
        return build_scheduler(
            self._cluster,
            self._clock,
            built.profiles,
            state,
            watched_kinds(gates),
            field_selectors={**SELECTORS, **built.selectors},
            options=options,
            metrics=self._metrics,
            audit=self._audit,
            auditor=self._build_auditor(),
            on_fault=self._parts.faults,
            extenders=self._extenders,
            observers=[self._traces] if self._traces is not None else [],
        )

    def _build_extenders(self) -> tuple[ExtenderService, ...]:
        requests = ExtenderRequests(self._parts.registry)
        return build_extenders(
            self._configuration,
            self._clock,
            extender_connector(self._parts.cleanup, requests, self._parts.heartbeat.beat),
            source=self._flags.config,
            may_bind=self._election.may_act,
            on_ignored=requests.ignored,
        )

    def _build_audit(self) -> Audit | None:
        flags = self._flags
        if flags.audit_dir is not None:
            kept = RotatedFile(flags.audit_dir, AUDIT_FILE)
            self._parts.cleanup.callback(kept.close)
            return Audit(kept.write)
        return Audit() if flags.audit else None

    def _build_auditor(self) -> WorkloadAuditor | None:
        flags = self._flags.auditor
        if not flags.is_on:
            return None
        return WorkloadAuditor(self._auditor_metrics, flags.limits, flags.labels)

    def _serve(self) -> None:
        serving = self._flags.serving
        app, servers = self._pages, []
        if serving.secure_port:
            reviewer = self._connect(
                qps=REVIEWS_PER_S, timeout_s=10.0, kubeconfig=serving.reviewing_kubeconfig
            )
            guarded = Guard(app, Authorizer(reviewer, self._clock, serving.always_allowed))
            servers.append(
                HttpServer(guarded, serving.bind_address, serving.secure_port, self._tls())
            )
        if serving.port:
            servers.append(HttpServer(app, serving.address, serving.port))
        self._parts.start(servers)

    def _tls(self) -> ssl.SSLContext:
        serving, names = self._flags.serving, ("localhost", "127.0.0.1", "koord-scheduler")
        if serving.tls_cert_file is not None and serving.tls_private_key_file is not None:
            return context_of_files(
                serving.tls_cert_file, serving.tls_private_key_file, serving.terms
            )
        if serving.cert_dir is not None:
            return context_of_directory(
                serving.cert_dir, "koord-scheduler", names, self._clock, serving.terms
            )
        return self_signed_context(names, self._clock, serving.terms)

    def _endpoints(self, scheduler: Scheduler | None = None) -> Endpoints:
        configuration = self._configuration
        alive = [PING, self._parts.heartbeat.check, *self._election.checks()]
        synced = Check("sched-handler-sync", self._not_synced)
        return Endpoints(
            health={
                "healthz": alive,
                "livez": alive,
                "readyz": [*alive, synced, shutdown_check(self._parts.stopping)],
            },
            metrics={"/metrics": self._parts.registry},
            pages={
                "/configz": configz(lambda: configuration),
                "/debug/threads": thread_stacks,
            },
            services=scheduler.pages(self._loop_calls.call) if scheduler is not None else {},
            is_leader=self._election.may_act,
            flags={"v": set_verbosity},
            on_fault=self._parts.faults,
        )

    def _not_synced(self) -> str:
        return "" if self._is_synced() else "the cluster has not been taken in yet"


if TYPE_CHECKING:
    from koordinator.scheduler.features.traces import PodTraces

ENDPOINT_FLAG: Final = "--tracing-endpoint"
_EXAMPLE: Final = "http://collector:4318/v1/traces"


def build_pod_traces(
    endpoint: str, sampling_ratio: float, service: str, clock: Clock, cleanup: ExitStack
) -> "PodTraces | None":
    """Return the tracing of pods; None without an endpoint.

    Spans are exported in a thread, and the last ones at the end.  Raises InputError for a wrong
    endpoint, and without the libraries.
    """
    if not endpoint:
        return None
    if urlsplit(endpoint).scheme not in ("http", "https"):
        raise InputError(
            f"must be an http or https URL such as {_EXAMPLE}, got {endpoint!r}",
            source=ENDPOINT_FLAG,
        )
    try:
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import (  # noqa: PLC0415 -- an extra
            OTLPSpanExporter,
        )
        from opentelemetry.sdk.resources import Resource  # noqa: PLC0415 -- as above
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415 -- as above
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415 -- as above
        from opentelemetry.sdk.trace.sampling import TraceIdRatioBased  # noqa: PLC0415 -- as above

        from koordinator.scheduler.features.traces import PodTraces  # noqa: PLC0415 -- as above
    except ModuleNotFoundError as error:
        text = f"{error.name} {not_installed('tracing')}"
        raise InputError(text, source=ENDPOINT_FLAG) from None

    provider = TracerProvider(
        sampler=TraceIdRatioBased(sampling_ratio),
        resource=Resource.create({"service.name": service}),
        shutdown_on_exit=False,
    )
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint)))
    cleanup.callback(provider.shutdown)
    return PodTraces(provider.get_tracer("koordinator.scheduler"), clock)
