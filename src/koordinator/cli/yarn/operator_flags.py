"""Flags of ``koord yarn-operator``, from koord-yarn-operator, and of its own account of nodes."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

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
from koordinator.foundation.errors import InputError
from koordinator.hadoop.amounts import YarnResource
from koordinator.yarn.account import (
    NEVER,
    SMALLEST_NODE_MANAGER,
    YarnPolicy,
    parse_grace_s,
)

if TYPE_CHECKING:
    from koordinator.hadoop.configuration import YarnClusterConfig
    from koordinator.yarn.app import YarnOptions

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

    def clusters(self) -> "tuple[YarnClusterConfig, ...]":
        """Return the clusters that the folder describes.  Raises InputError."""
        from koordinator.hadoop.configuration import (  # noqa: PLC0415 -- for --help not needed
            read_clusters,
        )

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

    def options(self) -> "YarnOptions":
        """Return the options of the operator.  Raises InputError."""
        from koordinator.yarn.app import YarnOptions  # noqa: PLC0415 -- for --help not needed

        return YarnOptions(
            policy=self.account.policy,
            shrink_grace_s=self.account.shrink_grace_s,
            namespace=self.namespace,
        )
