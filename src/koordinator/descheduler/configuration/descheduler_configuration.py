"""The configuration file of the descheduler: ``DeschedulerConfiguration``.

Where Go can't tell 0 or "" from nothing, neither do we: both mean the default.
Source: koordinator pkg/descheduler/apis/config/v1alpha2 types.go, defaults.go, default_plugins.go;
pkg/descheduler/apis/config/validation/validation.go.
"""

from ipaddress import ip_address
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta, field

from koordinator.api.kubescheduler import (
    ClientConnectionConfiguration,
    LeaderElectionConfiguration,
    decode_struct,
)
from koordinator.api.kubescheduler.structs import ConfigStruct, Count, fill
from koordinator.api.lease import DESCHEDULER_LEASE
from koordinator.api.meta import LabelSelector
from koordinator.api.selector_validation import check_label_selector
from koordinator.api.syntax import is_dns_subdomain, refusal
from koordinator.descheduler.configuration.plugin_args import take_header
from koordinator.foundation.duration import Duration
from koordinator.foundation.errors import InputError

DEFAULT_PROFILE: Final = "koord-descheduler"
MIGRATION_CONTROLLER: Final = "MigrationController"
PLAIN_PORT: Final = 10251
SECURE_PORT: Final = 10258
POINTS: Final = ("deschedule", "balance", "evict", "filter")
_ANY_HOST = "0.0.0.0"  # noqa: S104 -- the original's; all but health is for whom the API server lets
_ADDRESS = f"{_ANY_HOST}:{PLAIN_PORT}"
_QPS, _BURST = 50.0, 100
_ALL = "*"
_PORTS = 1 << 16

_MOVE_MEMORY = Duration(minutes=30)

Limit = Annotated[int, Meta(ge=0)]


class DeschedulerLeaderElection(LeaderElectionConfiguration, frozen=True, kw_only=True):
    """Which of several deschedulers works; the lease is a ``coordination.k8s.io/v1`` Lease."""

    resource_name: str = DESCHEDULER_LEASE
    resource_namespace: str = "koordinator-system"

    def __post_init__(self) -> None:
        fill(
            self,
            resource_name=self.resource_name or DESCHEDULER_LEASE,
            resource_namespace=self.resource_namespace or "koordinator-system",
        )
        super().__post_init__()


class DeschedulerClientConnection(ClientConnectionConfiguration, frozen=True, kw_only=True):
    """How to reach the API server; ``qps`` below 0 is unlimited."""

    qps: float = _QPS
    burst: Count = _BURST

    def __post_init__(self) -> None:
        fill(self, qps=self.qps or _QPS, burst=self.burst or _BURST)
        super().__post_init__()


class DeschedulerPlugin(ConfigStruct, frozen=True, kw_only=True):
    """A plugin by name, or ``*`` to disable all defaults."""

    name: str


class DeschedulerPluginSet(ConfigStruct, frozen=True, kw_only=True):
    """Changes to the default plugins of an extension point."""

    enabled: tuple[DeschedulerPlugin, ...] = ()
    disabled: tuple[DeschedulerPlugin, ...] = ()

    def over(self, defaults: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names in running order: defaults that are left, then those enabled here."""
        off = {plugin.name for plugin in self.disabled}
        left = () if _ALL in off else tuple(name for name in defaults if name not in off)
        return (*left, *(each.name for each in self.enabled if each.name not in left))


class DeschedulerPlugins(ConfigStruct, frozen=True, kw_only=True):
    """One set per extension point."""

    deschedule: DeschedulerPluginSet = DeschedulerPluginSet()
    balance: DeschedulerPluginSet = DeschedulerPluginSet()
    evict: DeschedulerPluginSet = DeschedulerPluginSet()
    filter: DeschedulerPluginSet = DeschedulerPluginSet()

    def changes_at(self, point: str) -> DeschedulerPluginSet:
        """Return the set of an extension point by its name."""
        changes: DeschedulerPluginSet = getattr(self, point)
        return changes

    def names_at(self, point: str) -> tuple[str, ...]:
        """Return the plugins of an extension point in running order."""
        return self.changes_at(point).over(_DEFAULT_PLUGINS.get(point, ()))


_DEFAULT_PLUGINS = {"evict": (MIGRATION_CONTROLLER,), "filter": (MIGRATION_CONTROLLER,)}


class DeschedulerPluginConfig(ConfigStruct, frozen=True, kw_only=True):
    """Arguments of a plugin, still untyped: see ``decode_plugin_args``."""

    name: str
    args: dict[str, Any] = field(default_factory=dict)


class DeschedulerProfile(ConfigStruct, frozen=True, kw_only=True):
    """Plugins that work together on some of the nodes."""

    name: str = ""  # koord-descheduler if there is one profile
    plugin_config: tuple[DeschedulerPluginConfig, ...] = ()
    plugins: DeschedulerPlugins = DeschedulerPlugins()
    node_selector: LabelSelector | None = None
    prove_moves: bool | None = None  # if not given, as the whole configuration says

    def validate(self, path: str) -> None:
        """Check names and that every plugin has one set of arguments at most."""
        if not self.name:
            raise InputError("required with several profiles, but missing", path=f"{path}.name")
        check_label_selector(self.node_selector, f"{path}.nodeSelector")
        for point in POINTS:
            enabled = [plugin.name for plugin in self.plugins.changes_at(point).enabled]
            for index, name in enumerate(enabled):
                if name in enabled[:index]:
                    where = f"{path}.plugins.{point}.enabled[{index}].name"
                    raise refusal(where, name, "unique")
        names: set[str] = set()
        for index, config in enumerate(self.plugin_config):
            if config.name in names:
                where = f"{path}.pluginConfig[{index}].name"
                raise refusal(where, config.name, "unique")
            names.add(config.name)


class DeschedulerConfiguration(ConfigStruct, frozen=True, kw_only=True):
    """The whole file."""

    leader_election: DeschedulerLeaderElection = DeschedulerLeaderElection()
    client_connection: DeschedulerClientConnection = DeschedulerClientConnection()
    enable_profiling: bool = True
    enable_contention_profiling: bool = True
    healthz_bind_address: str = _ADDRESS
    metrics_bind_address: str = _ADDRESS
    descheduling_interval: Duration = Duration()  # between starts of cycles; 0: there is one
    dry_run: bool = False
    profiles: tuple[DeschedulerProfile, ...] = ()
    node_selector: LabelSelector | None = None
    max_no_of_pods_to_evict_per_node: Limit | None = None  # in one cycle, as the next two
    max_no_of_pods_to_evict_per_namespace: Limit | None = None
    max_no_of_pods_to_evict_total: Limit | None = None
    #: whether evictions are tried before they are made; if not given, those of our own plugins are
    prove_moves: bool | None = None
    move_memory: Duration = _MOVE_MEMORY  # within it no workload goes back to where it left

    def __post_init__(self) -> None:
        profiles = self.profiles or (DeschedulerProfile(),)
        if len(profiles) == 1 and not profiles[0].name:
            profiles = (msgspec.structs.replace(profiles[0], name=DEFAULT_PROFILE),)
        fill(
            self,
            profiles=profiles,
            healthz_bind_address=_with_defaults(self.healthz_bind_address),
            metrics_bind_address=_with_defaults(self.metrics_bind_address),
        )

    def plugin_names(self) -> frozenset[str]:
        """Return the names of all plugins that are enabled or given arguments by name."""
        enabled = (
            plugin.name
            for profile in self.profiles
            for point in POINTS
            for plugin in profile.plugins.changes_at(point).enabled
        )
        given = (config.name for profile in self.profiles for config in profile.plugin_config)
        return frozenset((*enabled, *given))

    def validate(self) -> None:
        """Check what types don't say.

        Raises InputError with the path.
        """
        self.leader_election.validate("leaderElection")
        parse_socket_address(self.healthz_bind_address, "healthzBindAddress")
        parse_socket_address(self.metrics_bind_address, "metricsBindAddress")
        if self.descheduling_interval < Duration():
            raise refusal("deschedulingInterval", str(self.descheduling_interval), "0s or more")
        if self.move_memory < Duration():
            raise refusal("moveMemory", str(self.move_memory), "0s or more")
        check_label_selector(self.node_selector, "nodeSelector")
        names: set[str] = set()
        for index, profile in enumerate(self.profiles):
            path = f"profiles[{index}]"
            profile.validate(path)
            if profile.name in names:
                raise refusal(f"{path}.name", profile.name, "a name that no other profile has")
            names.add(profile.name)


def decode_descheduler_configuration(data: object, source: str) -> DeschedulerConfiguration:
    """Return the configuration that a file holds, with defaults; ``source`` names the file.

    The arguments of plugins stay untyped: only who knows the plugin knows their type.
    Raises InputError with source and path.
    """
    try:
        fields = take_header(data, DeschedulerConfiguration.__name__, required=True)
        configuration = decode_struct(fields, DeschedulerConfiguration, "")
        configuration.validate()
    except InputError as error:
        raise error.within(source=source) from None
    return configuration


def parse_socket_address(text: str, path: str) -> tuple[str, int] | None:
    """Return host and port; None for port 0, where nothing is served.

    Raises InputError.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) >= _PORTS:
        raise refusal(path, text, "a socket address (host:port) such as 0.0.0.0:10251")
    if host and not _is_address(host) and not is_dns_subdomain(host):
        raise refusal(path, text, "an IP address or a host name before the port")
    return (host, int(port)) if int(port) else None


def _with_defaults(address: str) -> str:
    """Return an address with the parts that may be left out: the host, or after one the port."""
    if not address:
        return _ADDRESS
    if address.startswith(":"):
        return f"{_ANY_HOST}{address}"
    if _is_address(address):
        return f"[{address}]:{PLAIN_PORT}" if ":" in address else f"{address}:{PLAIN_PORT}"
    return address


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
