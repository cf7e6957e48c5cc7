"""Command ``koord yarn-operator``: batch resources of Kubernetes for YARN's NodeManagers.

Flags of ``koord yarn-operator``, from koord-yarn-operator, and of its own account of nodes.

The YARN operator as a process of a cluster: connections, election, pages, and the loop.

The loop runs in the main thread and owns the mirror.  Threads beside it: one per YARN cluster, the
network's, one that keeps the lease, and the servers'.
"""

import logging
import ssl
import threading
from dataclasses import field
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from koordinator.api.control_plane import YARN_OPERATOR_LEASE
from koordinator.cli.component.dataclass_flags import with_flags
from koordinator.cli.component.election import Election, run_leader_loop
from koordinator.cli.component.flags import (
    BOOL,
    REST_BURST,
    REST_QPS,
    ConnectionFlags,
    ControllerFlags,
    ProcessFlags,
    parse_bool,
    parse_seconds,
)
from koordinator.cli.component.page_servers import REVIEWS_PER_S, process_servers
from koordinator.cli.component.page_settings import PageSettings
from koordinator.cli.component.process import ComponentProcess, LeaseTerms, run_component
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.hadoop.amounts import YarnResource
from koordinator.hadoop.configuration import (
    YarnClusterConfig,
    read_clusters,
)
from koordinator.hadoop.connection import YarnApi, YarnClientOptions, connector
from koordinator.process.health import PING, Check
from koordinator.process.http_server import STOPPED_WITHIN_S
from koordinator.yarn.account import (
    NEVER,
    SMALLEST_NODE_MANAGER,
    YarnPolicy,
    parse_grace_s,
)
from koordinator.yarn.app import YarnMetrics, YarnOperator, YarnOptions
from koordinator.yarn.follower import YarnFollower

log = logging.getLogger(__name__)

NAME = "koord-yarn-operator"
#: News of YARN don't wake the loop: it looks so often.
LONGEST_WAIT_S = 0.1
STEP = 256  # nodes between two looks at signals and the lease

_YARN = "YARN"
_ACCOUNT = "Division of a node"
_CONTROLLER = "yarnresource"
_APIS = ("auto", "rest", "rpc")


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnClientFlags:
    """Connection to the ResourceManagers."""

    hadoop_conf_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder with yarn-site.xml, and <cluster>.yarn-site.xml for additional clusters.",
            envvar="HADOOP_CONF_DIR",
            rich_help_panel=_YARN,
        ),
    ] = None
    hadoop_user_name: Annotated[
        str,
        typer.Option(
            help="User name for requests to the ResourceManager; must be in its yarn.admin.acl.",
            envvar="HADOOP_USER_NAME",
            rich_help_panel=_YARN,
        ),
    ] = "yarn"
    yarn_api: Annotated[
        str,
        typer.Option(
            metavar="|".join(_APIS),
            help="API of the ResourceManager; auto selects REST from Hadoop 3.3 on, otherwise RPC.",
            rich_help_panel=_YARN,
        ),
    ] = "auto"
    yarn_ca_file: Annotated[
        Path | None,
        typer.Option(
            help="CA certificates that are trusted if yarn.http.policy is HTTPS_ONLY.",
            rich_help_panel=_YARN,
        ),
    ] = None
    yarn_poll_interval: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Interval between readings of the nodes of YARN.",
            rich_help_panel=_YARN,
        ),
    ] = "1s"
    yarn_timeout: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Timeout of a request to the ResourceManager.",
            rich_help_panel=_YARN,
        ),
    ] = "10s"

    @property
    def poll_interval_s(self) -> float:
        """Seconds between readings of nodes.  Raises InputError."""
        return parse_seconds(self.yarn_poll_interval, "--yarn-poll-interval")

    @property
    def timeout_s(self) -> float:
        """Timeout of a request, in seconds.  Raises InputError."""
        return parse_seconds(self.yarn_timeout, "--yarn-timeout")

    def clusters(self) -> tuple[YarnClusterConfig, ...]:
        """Return the clusters that the folder describes.  Raises InputError."""
        if self.hadoop_conf_dir is None:
            problem = "is required: a folder with yarn-site.xml"
            raise InputError(problem, source="--hadoop-conf-dir, HADOOP_CONF_DIR")
        return read_clusters(self.hadoop_conf_dir)

    def check(self) -> None:
        """Raise InputError for an unknown API."""
        if self.yarn_api not in _APIS:
            problem = f"must be one of {', '.join(_APIS)}, got {self.yarn_api!r}"
            raise InputError(problem, source="--yarn-api")


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnAccountFlags:
    """Division of batch resources between pods and YARN."""

    kubernetes_headroom_percent: Annotated[
        int,
        typer.Option(
            help="Share of batch resources in percent that stays with Kubernetes unless containers "
            "use it.",
            min=0,
            max=100,
            rich_help_panel=_ACCOUNT,
        ),
    ] = YarnPolicy().headroom_percent
    registered_vcores: Annotated[
        int,
        typer.Option(
            help="Vcores of NodeManagers in yarn-site.xml, which YARN always gets.",
            min=0,
            rich_help_panel=_ACCOUNT,
        ),
    ] = SMALLEST_NODE_MANAGER.vcores
    registered_memory_mb: Annotated[
        int,
        typer.Option(
            help="Memory of NodeManagers in yarn-site.xml in MiB, which YARN always gets.",
            min=0,
            rich_help_panel=_ACCOUNT,
        ),
    ] = SMALLEST_NODE_MANAGER.memory_mb
    shrink_grace_period: Annotated[
        str,
        typer.Option(
            metavar=f"DURATION|{NEVER}",
            help="Time that containers may exceed a limit after it was lowered; 0s ends them "
            "immediately, as the original does.",
            rich_help_panel=_ACCOUNT,
        ),
    ] = "30s"
    original_account: Annotated[
        str,
        typer.Option(
            metavar=BOOL,
            help="Offer free resources to both sides, and round up, as the original does.",
            rich_help_panel=_ACCOUNT,
        ),
    ] = "false"

    @property
    def policy(self) -> YarnPolicy:
        """Policy for the division of nodes.  Raises InputError."""
        return YarnPolicy(
            headroom_percent=self.kubernetes_headroom_percent,
            registered=YarnResource(self.registered_vcores, self.registered_memory_mb),
            is_original=parse_bool(self.original_account, "--original-account"),
        )

    @property
    def shrink_grace_s(self) -> float:
        """Grace period in seconds, negative for never.  Raises InputError."""
        try:
            return parse_grace_s(self.shrink_grace_period)
        except InputError as error:
            raise error.within(source="--shrink-grace-period") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class YarnOperatorFlags:
    """Values of the command line; no file has been read yet."""

    connection: ConnectionFlags = field(default_factory=ConnectionFlags)
    client: YarnClientFlags = field(default_factory=YarnClientFlags)
    account: YarnAccountFlags = field(default_factory=YarnAccountFlags)
    namespace: Annotated[
        str,
        typer.Option(
            help="Namespace of the pods of NodeManagers. Default: all namespaces.",
            rich_help_panel=_YARN,
        ),
    ] = ""
    controllers: Annotated[
        str, typer.Option(help=f"Controllers to run; must be * or {_CONTROLLER}.")
    ] = "*"
    controller: ControllerFlags = field(default_factory=ControllerFlags)
    rest_config_qps: Annotated[float, typer.Option(help=REST_QPS)] = 200.0
    rest_config_burst: Annotated[int, typer.Option(help=REST_BURST)] = 400
    process: ProcessFlags = field(default_factory=ProcessFlags)

    def check(self) -> None:
        """Raise InputError for unknown controllers or an unknown API."""
        if self.controllers not in {"*", _CONTROLLER}:
            problem = f"must be * or {_CONTROLLER}, got {self.controllers!r}"
            raise InputError(problem, source="--controllers")
        self.client.check()

    def options(self) -> YarnOptions:
        """Return the options of the operator.  Raises InputError."""
        return YarnOptions(
            policy=self.account.policy,
            shrink_grace_s=self.account.shrink_grace_s,
            namespace=self.namespace,
        )


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
        """Return the settings of flags.  Raises InputError for invalid values or files."""
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
    """Work until a signal comes.  Raises InputError for invalid arguments."""
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
        servers = process_servers(
            parts,
            settings.pages,
            lambda: self._connect(qps=REVIEWS_PER_S, timeout_s=10.0),
            NAME,
            alive=alive,
            ready=[*alive, Check("cluster", self._operator.problem)],
            probe_address=settings.health_address,
        )
        parts.start(servers)


def _trusting(ca_file: Path) -> ssl.SSLContext:
    try:
        return ssl.create_default_context(cafile=str(ca_file))
    except (OSError, ssl.SSLError) as error:
        raise InputError(f"cannot be read: {error}", source=str(ca_file)) from None


@with_flags
def yarn_operator(flags: YarnOperatorFlags) -> None:
    """Run the YARN operator on a cluster until a signal stops it."""
    flags.check()
    run_yarn_operator(flags)
