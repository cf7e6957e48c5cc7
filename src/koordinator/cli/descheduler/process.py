"""The descheduler as a process of a cluster: connection, election, endpoints, and the loop.

The loop runs in the main thread and owns the mirror.  Threads beside it: the network's, one that
keeps the lease, and the servers'.  A process that loses the lease follows with a new mirror: the
next one to lead takes the jobs in flight over from the cluster.
Source of names and ports: koordinator cmd/koord-descheduler/app.
"""

from contextlib import ExitStack
from dataclasses import replace
from functools import partial

from koordinator.api.kubescheduler import FeatureGates
from koordinator.cli.component.election import Election, run_terms
from koordinator.cli.component.page_servers import REVIEWS_PER_S, process_servers
from koordinator.cli.component.process import ComponentProcess, LeaseTerms, run_component
from koordinator.cli.descheduler.flags import SCHEDULER_GATES, DeschedulerFlags
from koordinator.cli.descheduler.plugins import descheduler_plugins_for
from koordinator.cli.input.configuration import plugins_for, read_configuration
from koordinator.cli.input.live import gates_of_component, level_now
from koordinator.descheduler.app import Descheduler
from koordinator.descheduler.configuration import DeschedulerConfiguration, parse_socket_address
from koordinator.descheduler.evictor import MoveObserver
from koordinator.descheduler.metrics import DeschedulerMetrics
from koordinator.descheduler.move_reports import MoveTrail
from koordinator.domain.placement_fork import PlacementFork
from koordinator.process.endpoints import configz
from koordinator.process.health import PING, Check
from koordinator.process.logs import RotatedFile
from koordinator.scheduler.features.audit import AUDIT_FILE
from koordinator.scheduler.fork import follow_cluster

NAME = "koord-descheduler"
LEAD_AT_ONCE_S = 1.0  # a free lease is taken faster than this


def run_descheduler(configuration: DeschedulerConfiguration, flags: DeschedulerFlags) -> None:
    """Run the descheduler until a signal stops it.

    Raises InputError for invalid arguments.
    """
    stated = flags.connection.kubeconfig or configuration.client_connection.kubeconfig
    run_component(
        NAME,
        "koord_descheduler",
        flags.process,
        replace(flags.connection, kubeconfig=stated),
        lambda parts: _Process(configuration, flags, parts),
        follows_corrections=True,
    )


class _Process:
    """The parts of the descheduler, put together."""

    def __init__(
        self,
        configuration: DeschedulerConfiguration,
        flags: DeschedulerFlags,
        parts: ComponentProcess,
    ) -> None:
        self._configuration, self._flags = configuration, flags
        self._parts, self._clock = parts, parts.clock
        connection = configuration.client_connection
        self._connect = partial(parts.connect, burst=connection.burst)
        lease = LeaseTerms.of(configuration.leader_election)
        self._election = Election(parts, lease, burst=connection.burst)
        self._election.show_master_status()
        self._metrics = DeschedulerMetrics(self._parts.registry)
        self._audit = self._build_audit()
        self._gates: FeatureGates | None = None  # of the scheduler in dry runs
        self._descheduler: Descheduler | None = None
        self._is_serving = False

    def run(self) -> None:
        run_terms(self._parts, self._election, self._begin_term, self._turn)
        self._election.leave()

    def _begin_term(self, connections: ExitStack) -> Descheduler:
        """Return a new descheduler with a connection of its own; the first one starts the rest."""
        self._cluster = self._connect(
            may_write=self._election.may_act,
            lateness_s=self._election.lateness_s,
            qps=self._configuration.client_connection.qps,
            cleanup=connections,
        )
        self._parts.end_wait = self._cluster.wake
        self._descheduler = Descheduler(
            self._cluster,
            self._clock,
            self._configuration,
            wall_clock=self._parts.wall_clock,
            out_of_tree=descheduler_plugins_for(self._configuration),
            source=self._flags.source,
            gates=self._flags.gates,
            metrics=self._metrics,
            on_fault=self._parts.faults,
            fork=self._build_fork(),
            on_move=self._audit,
        )
        connections.callback(self._end_term)
        if not self._is_serving:
            self._is_serving = True
            self._serve()
            self._election.start()
            self._election.wait_until_leading(LEAD_AT_ONCE_S)  # else everything is listed twice
        return self._descheduler

    def _end_term(self) -> None:
        """Drop all references to the descheduler, before the next one lists the cluster again."""
        self._parts.end_wait = lambda: None
        self._descheduler = None
        del self._cluster

    def _turn(self, leads: bool) -> None:
        descheduler = self._descheduler
        if descheduler is not None and not descheduler.step(leads=leads):
            waits = leads and descheduler.is_synced
            wakeup_s = descheduler.next_wakeup_s() if waits else None
            self._cluster.wait(self._parts.wait_s(wakeup_s))

    # -- parts -------------------------------------------------------------------------------

    def _build_fork(self) -> PlacementFork | None:
        """Return a dry-run scheduler; None if no profile proves its moves."""
        whole = self._configuration
        settings = [each.prove_moves for each in whole.profiles]
        if all((whole.prove_moves if own is None else own) is False for own in settings):
            return None
        if self._gates is None:
            self._gates = gates_of_component(
                self._flags.scheduler_feature_gates, level_now(self._cluster), SCHEDULER_GATES
            )
        scheduler = read_configuration(self._flags.scheduler_config)
        return follow_cluster(
            self._cluster,
            self._clock,
            scheduler,
            out_of_tree=plugins_for(scheduler),
            source=self._flags.scheduler_config,
            gates=self._gates,
            on_fault=self._parts.faults,
        )

    def _build_audit(self) -> MoveObserver | None:
        folder = self._flags.audit_dir
        if folder is None:
            return None
        kept = RotatedFile(folder, AUDIT_FILE)
        self._parts.cleanup.callback(kept.close)
        return MoveTrail(self._clock, kept.write).observe

    def _serve(self) -> None:
        configuration, parts = self._configuration, self._parts
        alive = [PING, parts.heartbeat.check, *self._election.checks()]
        plain = parse_socket_address(configuration.metrics_bind_address, "metricsBindAddress")
        probed = None
        if configuration.healthz_bind_address != configuration.metrics_bind_address:
            probed = parse_socket_address(configuration.healthz_bind_address, "healthzBindAddress")
        servers = process_servers(
            parts,
            self._flags.pages.settings(plain),
            lambda: self._connect(qps=REVIEWS_PER_S, timeout_s=10.0),
            NAME,
            alive=alive,
            ready=[*alive, Check("cluster-sync", self._not_synced)],
            pages={"/configz": configz(lambda: self._configuration)},
            probe_address=probed,
        )
        parts.start(servers)

    def _not_synced(self) -> str:
        if self._descheduler is not None and self._descheduler.is_synced:
            return ""
        return "the cluster has not been taken in yet"
