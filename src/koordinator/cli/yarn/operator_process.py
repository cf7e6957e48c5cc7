"""The YARN operator as a process of a cluster: connections, election, pages, and the loop.

The loop runs in the main thread and owns the mirror.  Threads beside it: one per YARN cluster, the
network's, one that keeps the lease, and the servers'.
"""

import logging
import ssl
import threading
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from koordinator.api.control_plane import YARN_OPERATOR_LEASE
from koordinator.cli.component.election import Election, run_leader_loop
from koordinator.cli.component.page_servers import REVIEWS_PER_S, page_servers
from koordinator.cli.component.page_settings import PageSettings
from koordinator.cli.component.process import ComponentProcess, LeaseTerms, run_component
from koordinator.cli.yarn.operator_flags import YarnOperatorFlags
from koordinator.foundation.errors import InputError
from koordinator.hadoop.configuration import YarnClusterConfig
from koordinator.hadoop.connection import YarnApi, YarnClientOptions, connector
from koordinator.process.endpoints import Endpoints, application, probes, thread_stacks
from koordinator.process.health import PING, Check, shutdown_check
from koordinator.process.http_server import STOPPED_WITHIN_S, HttpServer
from koordinator.process.logs import set_verbosity
from koordinator.yarn.app import YarnMetrics, YarnOperator, YarnOptions
from koordinator.yarn.follower import YarnFollower

log = logging.getLogger(__name__)

NAME = "koord-yarn-operator"
#: News of YARN don't wake the loop: it looks so often.
LONGEST_WAIT_S = 0.1
STEP = 256  # nodes between two looks at signals and the lease


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnOperatorSettings:
    """Flags of the command line, and their parsed values and files."""

    flags: YarnOperatorFlags
    options: YarnOptions
    clusters: tuple[YarnClusterConfig, ...]
    client: YarnClientOptions
    poll_interval_s: float
    elects: bool
    pages: PageSettings
    health_address: tuple[str, int] | None

    @staticmethod
    def of(flags: YarnOperatorFlags) -> "YarnOperatorSettings":
        """Return the settings of flags.  Raises InputError for what can't be meant or read."""
        client = flags.client
        return YarnOperatorSettings(
            flags=flags,
            options=flags.options(),
            clusters=client.clusters(),
            client=YarnClientOptions(
                user=client.hadoop_user_name,
                api=YarnApi(client.yarn_api),
                timeout_s=client.timeout_s,
                tls=_trusting(client.yarn_ca_file) if client.yarn_ca_file is not None else None,
            ),
            poll_interval_s=client.poll_interval_s,
            elects=flags.controller.elects,
            pages=flags.controller.page_settings,
            health_address=flags.controller.health_address,
        )


def run_yarn_operator(flags: YarnOperatorFlags) -> None:
    """Work until a signal comes.  Raises InputError for what the user got wrong."""
    settings = YarnOperatorSettings.of(flags)
    run_component(
        NAME,
        "koord_yarn_operator",
        flags.process,
        flags.connection,
        lambda parts: _Process(settings, parts),
        follows_corrections=True,
    )


class _Process:
    """The parts of the operator, put together."""

    def __init__(self, settings: YarnOperatorSettings, parts: ComponentProcess) -> None:
        self._settings, self._parts = settings, parts
        flags = settings.flags
        self._connect = partial(parts.connect, burst=flags.rest_config_burst)
        lease = LeaseTerms.of_controller(
            flags.controller.leader_election_namespace, YARN_OPERATOR_LEASE
        )
        self._election = Election(
            parts, lease if settings.elects else None, burst=flags.rest_config_burst
        )
        self._election.show_leader("koord_yarn_operator_is_leader")
        self._followers = {
            each.cluster_id: YarnFollower(
                each.cluster_id,
                connector(each, settings.client),
                parts.clock,
                interval_s=settings.poll_interval_s,
                may_write=self._election.may_act,
            )
            for each in settings.clusters
        }
        self._cluster = self._connect(
            may_write=self._election.may_act,
            lateness_s=self._election.lateness_s,
            qps=flags.rest_config_qps,
        )
        parts.end_wait = self._cluster.wake
        self._operator = YarnOperator(
            self._cluster,
            parts.clock,
            self._followers,
            settings.options,
            metrics=YarnMetrics(parts.registry),
            on_fault=parts.faults,
        )

    def run(self) -> None:
        self._serve()
        self._start_followers()
        self._election.start()
        run_leader_loop(
            self._parts,
            self._election,
            self._operator,
            self._turn,
            check_lease=self._election.rejoin_if_lost,
        )
        self._election.leave()

    def _turn(self, leads: bool) -> None:
        if not self._operator.step(limit=STEP if leads else 0):
            self._cluster.wait(LONGEST_WAIT_S)

    # -- parts -------------------------------------------------------------------------------

    def _start_followers(self) -> None:
        for follower in self._followers.values():
            thread = threading.Thread(
                target=follower.run,
                args=(self._parts.stopping,),
                name=f"yarn-{follower.cluster_id}",
                daemon=True,
            )
            thread.start()
            self._parts.cleanup.callback(thread.join, STOPPED_WITHIN_S)

    def _serve(self) -> None:
        settings, parts = self._settings, self._parts
        alive = [PING, parts.heartbeat.check, *self._election.checks()]
        taken_in = Check("cluster", self._operator.problem)
        ready = [*alive, taken_in, shutdown_check(parts.stopping)]
        checks = {"healthz": alive, "livez": alive, "readyz": ready}
        pages = Endpoints(
            health=checks,
            metrics={"/metrics": parts.registry},
            pages={"/debug/threads": thread_stacks},
            flags={"v": set_verbosity},
            on_fault=parts.faults,
        )
        servers = page_servers(
            application(pages),
            settings.pages,
            lambda: self._connect(qps=REVIEWS_PER_S, timeout_s=10.0),
            parts.clock,
            NAME,
        )
        if settings.health_address is not None:
            servers.append(HttpServer(probes(checks), *settings.health_address))
        parts.start(servers)


def _trusting(ca_file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"cannot be read: {error}", source=str(ca_file)) from None
