"""The manager as a process of a cluster: connections, election, endpoints, webhooks, and the loop.

The loop runs in the main thread and owns the mirror.  Threads beside it: the network's, one that
keeps the lease, one that looks after certificate and webhook configurations, and the servers'.  The
webhook's server has a cluster instance of its own and decides in its own thread: a request waits
for no loop.  Every replica answers webhooks; only the leader writes to nodes.  A replica that loses
the lease steps down, continues to answer webhooks, and rejoins the election.
"""

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import partial

import numpy as np
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from koordinator.api.control_plane import (
    MANAGER_LEASE,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
)
from koordinator.cli.component.election import Election, run_leader_loop
from koordinator.cli.component.flags import parse_list
from koordinator.cli.component.page_servers import REVIEWS_PER_S, process_servers
from koordinator.cli.component.page_settings import PageSettings
from koordinator.cli.component.process import ComponentProcess, LeaseTerms, run_component
from koordinator.cli.manager.flags import ManagerFlags
from koordinator.cli.manager.serving_thread import ServingThread
from koordinator.cli.manager.visibility_pages import VisibilityServer
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import FaultHandler, NotFoundError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.manager.admission.hooks import (
    MUTATING_NAME,
    VALIDATING_NAME,
    AdmissionHook,
    Configuration,
    HookOptions,
    configuration_patch,
    enabled_hooks,
)
from koordinator.manager.admission.lookup import AdmissionRequest, Denial
from koordinator.manager.app import Manager, ManagerOptions
from koordinator.manager.lookups import WatchLookup
from koordinator.manager.metrics import BindingMetrics, ManagerMetrics, QuotaWeights
from koordinator.manager.mirror import Controller
from koordinator.manager.quota_view import QuotaRecord
from koordinator.process.admission_reviews import (
    Review,
    ReviewHandler,
    ReviewMetrics,
    ReviewResponse,
    review_application,
)
from koordinator.process.authorization import Authorizer
from koordinator.process.certificates import ReplaceableContext
from koordinator.process.connections import ConnectionLimits
from koordinator.process.health import PING, Check
from koordinator.process.http_server import HttpServer
from koordinator.process.loop_calls import LoopCalls
from koordinator.process.serving_secret import ServingSecret

log = logging.getLogger(__name__)

SERVICE = "koordinator-webhook-service"
SECRET = "koordinator-webhook-certs"  # noqa: S105 -- its name
SYNC_POLL_S = 0.1  # while the first reviews can't be answered yet
STEP = 256  # objects between two looks at signals and the lease
#: Thread switch interval.  A webhook request needs dozens of switches while the loop is busy; with
#: Python's default of 5 ms it would last some 200 ms.
SWITCH_S = 0.0002
#: An API server calls with as many connections as it has requests under way: 200 that write, and
#: there may be several.
WEBHOOK_LIMITS = ConnectionLimits(connections=1024)
_PERCENTS = 100
IS_LEADER = "koordinator_manager_is_leader"  # the gauge of the leader
#: Service accounts of those components that write what pods were given, and quotas.
COMPONENTS = ("koord-scheduler", "koord-manager", "koord-descheduler")
_ANY_ADDRESS = "::"


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerSettings:
    """Flags of the command line and their parsed values."""

    flags: ManagerFlags
    options: ManagerOptions
    hooks: HookOptions
    elects: bool
    shutdown_delay_s: float
    pages: PageSettings
    health_address: tuple[str, int] | None
    liveness_deadline_s: float
    visibility_port: int | None  # None: nothing is served there

    @staticmethod
    def of(flags: ManagerFlags, options: ManagerOptions, hooks: HookOptions) -> "ManagerSettings":
        """Return the settings of flags.  Raises InputError for a text that means nothing."""
        return ManagerSettings(
            flags=flags,
            options=options,
            hooks=hooks,
            elects=flags.controller.elects,
            shutdown_delay_s=flags.shutdown_delay_s,
            pages=flags.controller.page_settings,
            health_address=flags.controller.health_address,
            liveness_deadline_s=flags.process.liveness_deadline_s,
            visibility_port=_visibility_port(flags, options),
        )


def _visibility_port(flags: ManagerFlags, options: ManagerOptions) -> int | None:
    if not flags.queues.shows_queues:
        return None
    if Controller.QUEUE_UNITS not in options.working:
        log.warning("queue pages not served: no kind of jobs is held back")
        return None
    return flags.queues.visibility_port


def run(settings: ManagerSettings) -> None:
    """Run the manager until a signal stops it.  Raises InputError for invalid settings."""
    flags = settings.flags
    run_component(
        "koord-manager",
        "koord_manager",
        flags.process,
        flags.connection,
        lambda parts: _Process(settings, parts),
        switch_s=SWITCH_S,
        follows_corrections=True,
    )


class _Process:
    """The parts of the manager, put together."""

    def __init__(self, settings: ManagerSettings, parts: ComponentProcess) -> None:
        self._settings, self._parts, self._clock = settings, parts, parts.clock
        flags = settings.flags
        self._loop_calls = LoopCalls()
        self._connect = partial(parts.connect, burst=flags.rest_config_burst)
        lease = LeaseTerms.of_controller(flags.controller.leader_election_namespace, MANAGER_LEASE)
        self._election = Election(
            parts, lease if settings.elects else None, burst=flags.rest_config_burst
        )
        self._election.show_leader(IS_LEADER)
        self._webhooks = Webhooks(
            settings,
            lambda: self._connect(timeout_s=5.0),
            self._clock,
            self._parts.registry,
            cleanup=parts.cleanup,
            on_fault=self._parts.faults,
        )
        self._cluster = self._connect(
            may_write=self._election.may_act,
            lateness_s=self._election.lateness_s,
            qps=flags.rest_config_qps,
        )
        parts.end_wait = self._cluster.wake
        self._manager = Manager(
            self._cluster,
            self._clock,
            settings.options,
            wall_clock=self._parts.wall_clock,
            metrics=ManagerMetrics(self._parts.registry),
            on_fault=self._parts.faults,
        )

    def run(self) -> None:
        self._parts.cleanup.callback(self._loop_calls.close)
        self._serve()
        self._webhooks.start()
        self._show_queues()
        self._election.start()
        run_leader_loop(
            self._parts,
            self._election,
            self._manager,
            self._turn,
            check_lease=self._election.rejoin_if_lost,
        )
        self._election.leave()

    def _show_queues(self) -> None:
        port = self._settings.visibility_port
        if port is not None:
            server = VisibilityServer(
                port,
                self._settings.options.config_namespace,
                lambda: self._connect(qps=REVIEWS_PER_S, timeout_s=10.0),
                self._clock,
                visibility=self._manager.queue_visibility,
                in_loop=self._loop_calls.call,
            )
            server.start(self._parts.cleanup)

    def _turn(self, leads: bool) -> None:
        self._loop_calls.run_pending()
        if not self._manager.step(limit=STEP if leads else 0):
            wakeup_s = self._manager.next_wakeup_s() if leads else None
            self._cluster.wait(self._parts.wait_s(wakeup_s))

    def _serve(self) -> None:
        settings, parts = self._settings, self._parts
        alive = [PING, parts.heartbeat.check, *self._election.checks()]
        servers = process_servers(
            parts,
            settings.pages,
            lambda: self._connect(qps=REVIEWS_PER_S, timeout_s=10.0),
            "koord-manager",
            alive=alive,
            ready=[*alive, self._webhooks.check],
            metrics={"/metrics": parts.registry, "/all-metrics": parts.registry},
            probe_address=settings.health_address,
        )
        parts.start(servers)


class Webhooks:
    """The server of the hooks, its certificate, and the configurations that name both."""

    def __init__(
        self,
        settings: ManagerSettings,
        connect: Callable[[], Cluster],
        clock: Clock,
        registry: CollectorRegistry,
        *,
        cleanup: ExitStack,
        on_fault: FaultHandler,
    ) -> None:
        self._settings, self._cleanup = settings, cleanup
        self._metrics = ReviewMetrics(registry)
        self._hooks: Sequence[AdmissionHook] = ()
        if settings.flags.webhook.webhook_port:
            counted = BindingMetrics(registry).decided
            hooks = replace(settings.hooks, binding_decided=counted)
            self._hooks = enabled_hooks(hooks, self._metrics)
        self._tls: ReplaceableContext | None = None
        self._thread = ServingThread("webhooks", self._refresh)
        self.check = Check("webhook", self._problem)
        if not self._hooks:
            return
        rng = np.random.default_rng()
        cluster = connect()
        record = QuotaRecord(cluster, clock, settings.options.config_namespace)
        self._lookup = WatchLookup(
            cluster,
            lambda: int(rng.integers(_PERCENTS)),
            clock,
            record,
            on_fault=on_fault,
            charge_attempts=settings.flags.quotas.quota_update_max_retries,
            weights=QuotaWeights(registry),
            rights=Authorizer(connect(), clock).permits,
        )
        self._cluster = connect()
        namespace = settings.options.config_namespace
        full = f"{SERVICE}.{namespace}.svc"
        further = parse_list(settings.flags.webhook.webhook_host)
        names = (full, SERVICE, f"{SERVICE}.{namespace}", *further)
        self._secret = ServingSecret(self._cluster, clock, namespace, SECRET, names)

    def start(self) -> None:
        """Serve as soon as there is a certificate; refresh it and the configurations."""
        if self._hooks:
            self._thread.start(self._cleanup, self._settings.shutdown_delay_s)

    def _refresh(self) -> bool:
        """Update certificate and webhook configurations; return whether all of them exist.

        The hooks are listed when reviews can be answered, not before.
        """
        serving = self._secret.current()
        flags = self._settings.flags.webhook
        if self._tls is None:
            tls = ReplaceableContext(serving.pair, flags.webhook_client_ca_file)
            server = HttpServer(
                self._application(),
                _ANY_ADDRESS,
                flags.webhook_port,
                tls.context,
                limits=WEBHOOK_LIMITS,
                periodic=self._follow,
                client_names=parse_list(flags.webhook_client_names),
            )
            self._thread.serve(server)
            self._tls = tls
        else:
            self._tls.replace(serving.pair)
        while not self._lookup.is_synced:
            if self._thread.stopping.wait(SYNC_POLL_S):
                return False
        paths, is_complete = {hook.path for hook in self._hooks}, True
        kinds: tuple[tuple[type[Configuration], str], ...] = (
            (MutatingWebhookConfiguration, MUTATING_NAME),
            (ValidatingWebhookConfiguration, VALIDATING_NAME),
        )
        for kind, name in kinds:
            try:
                configuration = self._cluster.get(kind, name)
            except NotFoundError:
                log.warning("no webhook configuration", extra={"configuration": name})
                is_complete = False
                continue
            patch = configuration_patch(configuration, paths, serving.trusted)
            if patch:
                self._cluster.patch(kind, name, "", patch)
        return is_complete

    def _problem(self) -> str:
        if not self._hooks:
            return ""
        return "no certificate yet" if self._tls is None else self._unknown()

    def _application(self) -> Starlette:
        namespace = self._settings.options.config_namespace
        components = {f"system:serviceaccount:{namespace}:{name}" for name in COMPONENTS}
        return review_application(
            {hook.path: reviewer(hook, self._lookup, components) for hook in self._hooks},
            not_ready=self._not_ready,
            metrics=self._metrics,
        )

    def _not_ready(self) -> str:
        self._lookup.follow()
        return self._unknown()

    def _unknown(self) -> str:
        return "" if self._lookup.is_synced else "the cluster has not been taken in yet"

    def _follow(self) -> None:
        """Keep the objects that reviews need up to date, also while there are no reviews."""
        try:
            self._lookup.follow()
        except Exception:
            log.exception("objects for webhook reviews could not be updated")


def reviewer(
    hook: AdmissionHook, lookup: WatchLookup, components: Collection[str] = ()
) -> ReviewHandler:
    """Return what answers the reviews of a hook; ``components`` are users that are trusted."""

    def review(admission: Review) -> ReviewResponse:
        request = AdmissionRequest(
            operation=admission.operation,
            namespace=admission.namespace,
            name=admission.name,
            subresource=admission.sub_resource,
            obj=admission.object or {},
            old=admission.old_object,
            requester=admission.user_info,
            is_of_component=admission.user_info.username in components,
            is_dry_run=admission.dry_run or False,
        )
        try:
            if hook.mutate is not None:
                return ReviewResponse(after=hook.mutate(request, lookup))
            if hook.validate is not None:
                hook.validate(request, lookup)
        except Denial as denial:
            return ReviewResponse(allowed=False, message=str(denial), code=denial.code)
        return ReviewResponse()

    return review
