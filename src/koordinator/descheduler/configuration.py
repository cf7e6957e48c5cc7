"""Configuration file of the descheduler: ``DeschedulerConfiguration``.

As in Go, 0 and "" mean the default in fields where Go does not distinguish them from unset.
Source: koordinator pkg/descheduler/apis/config/v1alpha2 types.go, defaults.go, default_plugins.go;
pkg/descheduler/apis/config/validation/validation.go.
"""

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec import Meta, field

from koordinator.api.codec import without_nulls
from koordinator.api.control_plane import DESCHEDULER_LEASE
from koordinator.api.kubescheduler import (
    ClientConnectionConfiguration,
    LeaderElectionConfiguration,
    decode_struct,
)
from koordinator.api.kubescheduler.structs import ConfigStruct, Count, fill
from koordinator.api.meta import LabelSelector
from koordinator.api.selectors import check_label_selector
from koordinator.api.syntax import invalid_value, is_dns_subdomain
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError

DESCHEDULER_API_VERSION: Final = "descheduler/v1alpha2"

ArgsT = TypeVar("ArgsT", bound="DeschedulerPluginArgs")
DEFAULT_PROFILE: Final = "koord-descheduler"
MIGRATION_CONTROLLER: Final = "MigrationController"
PLAIN_PORT: Final = 10251
SECURE_PORT: Final = 10258
POINTS: Final = ("deschedule", "balance", "evict", "filter")
_ANY_HOST = "0.0.0.0"  # noqa: S104 -- the original's; everything but health needs authorization
_ADDRESS = f"{_ANY_HOST}:{PLAIN_PORT}"
_QPS, _BURST = 50.0, 100
_ALL = "*"
_PORTS = 1 << 16

_MOVE_MEMORY = Duration(minutes=30)

Limit = Annotated[int, Meta(ge=0)]


# -- arguments of plugins --------------------------------------------------------------------

_DEFAULT_PLUGINS = {"evict": (MIGRATION_CONTROLLER,), "filter": (MIGRATION_CONTROLLER,)}


class DeschedulerPluginArgs(ConfigStruct, frozen=True, kw_only=True):
    """Arguments of a plugin; the name of a subclass is the ``kind`` in the file."""

    def validate(self) -> None:
        """Check rules that types don't express.

        Raises InputError whose path starts at the arguments.
        """


class NamespaceLists(ConfigStruct, frozen=True, kw_only=True):
    """Included or excluded namespaces; empty lists mean all."""

    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()

    def covers(self, namespace: str) -> bool:
        """Return whether a namespace is included and not excluded."""
        if self.include and namespace not in self.include:
            return False
        return namespace not in self.exclude


class NamedPodSelector(ConfigStruct, frozen=True, kw_only=True):
    """Named selector of pods; without a selector it matches none, with an empty one all."""

    name: str = ""  # name of the selector
    selector: LabelSelector | None = None


def decode_plugin_args(args_type: type[ArgsT], data: object, path: str, source: str) -> ArgsT:
    """Decode the arguments of a plugin, with defaults; ``path`` is their place in the file.

    ``apiVersion`` and ``kind`` may be omitted.
    Raises InputError with source and path.
    """
    try:
        fields = _take_header({} if data is None else data, args_type.__name__, required=False)
        args = decode_struct(fields, args_type, "")
        args.validate()
    except InputError as error:
        raise error.within(source=source, path=path) from None
    return args


def _take_header(data: object, kind: str, *, required: bool) -> dict[str, Any]:
    """Return the fields of an object without nulls, ``apiVersion`` and ``kind``.

    Raises InputError for a value that is not an object, and for another ``apiVersion`` or ``kind``.
    """
    left = without_nulls(data)
    if not isinstance(left, dict):
        raise invalid_value("", left, "an object")
    for name, expected in (("apiVersion", DESCHEDULER_API_VERSION), ("kind", kind)):
        value = left.pop(name, None)
        if value is None and required:
            raise InputError(f"is required and must be {expected}", path=name)
        if value is not None and value != expected:
            raise invalid_value(name, value, expected)
    return left


def field_error(path: str, value: object, message: str) -> InputError:
    """Return the error of a field with the original's ``message``."""
    return InputError(f"{message}, got {value!r}", path=path)


def check_namespaces(namespaces: NamespaceLists | None, path: str) -> None:
    """Raise InputError if namespaces are both included and excluded."""
    if namespaces is not None and namespaces.include and namespaces.exclude:
        value = {"include": list(namespaces.include), "exclude": list(namespaces.exclude)}
        raise field_error(path, value, "only one of Include/Exclude namespaces can be set")


def check_selector(selector: LabelSelector | None, path: str) -> None:
    """Raise InputError for an invalid selector."""
    check_label_selector(selector, path)


def check_pod_selectors(selectors: Sequence[NamedPodSelector]) -> None:
    """Raise InputError for the first invalid selector of ``podSelectors``."""
    for index, each in enumerate(selectors):
        check_label_selector(each.selector, f"podSelectors[{index}].selector")


# -- configuration file ----------------------------------------------------------------------


class DeschedulerLeaderElection(LeaderElectionConfiguration, frozen=True, kw_only=True):
    """Leader election by a ``coordination.k8s.io/v1`` Lease."""

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
    """Client of the API server; a negative ``qps`` means no limit."""

    qps: float = _QPS
    burst: Count = _BURST

    def __post_init__(self) -> None:
        fill(self, qps=self.qps or _QPS, burst=self.burst or _BURST)
        super().__post_init__()


class DeschedulerPlugin(ConfigStruct, frozen=True, kw_only=True):
    """Name of a plugin, or ``*`` to disable all defaults."""

    name: str  # name of the plugin, or * to disable all


class DeschedulerPluginSet(ConfigStruct, frozen=True, kw_only=True):
    """Changes to the default plugins of an extension point."""

    enabled: tuple[DeschedulerPlugin, ...] = ()
    disabled: tuple[DeschedulerPlugin, ...] = ()

    def over(self, defaults: tuple[str, ...]) -> tuple[str, ...]:
        """Return the names in running order: defaults not disabled, then those enabled here."""
        off = {plugin.name for plugin in self.disabled}
        left = () if _ALL in off else tuple(name for name in defaults if name not in off)
        return (*left, *(each.name for each in self.enabled if each.name not in left))


class DeschedulerPlugins(ConfigStruct, frozen=True, kw_only=True):
    """Plugin sets by extension point."""

    #: plugins that evict pods that violate a rule
    deschedule: DeschedulerPluginSet = DeschedulerPluginSet()
    balance: DeschedulerPluginSet = DeschedulerPluginSet()  # plugins that spread or gather pods
    evict: DeschedulerPluginSet = DeschedulerPluginSet()  # plugin that evicts
    filter: DeschedulerPluginSet = DeschedulerPluginSet()  # plugins that protect pods

    def changes_at(self, point: str) -> DeschedulerPluginSet:
        """Return the set of an extension point by its name."""
        changes: DeschedulerPluginSet = getattr(self, point)
        return changes

    def names_at(self, point: str) -> tuple[str, ...]:
        """Return the plugins of an extension point in running order."""
        return self.changes_at(point).over(_DEFAULT_PLUGINS.get(point, ()))


class DeschedulerPluginConfig(ConfigStruct, frozen=True, kw_only=True):
    """Undecoded arguments of a plugin; ``decode_plugin_args`` decodes them."""

    name: str  # name of the plugin
    args: dict[str, Any] = field(default_factory=dict)


class DeschedulerProfile(ConfigStruct, frozen=True, kw_only=True):
    """Plugins for the nodes that the selector matches."""

    name: str = ""  # default koord-descheduler for a single profile
    plugin_config: tuple[DeschedulerPluginConfig, ...] = ()
    plugins: DeschedulerPlugins = DeschedulerPlugins()  # changes to the default plugins
    node_selector: LabelSelector | None = None
    prove_moves: bool | None = None  # default: the configuration's value

    def validate(self, path: str) -> None:
        """Check names, and that every plugin has at most one set of arguments."""
        if not self.name:
            raise InputError("required with several profiles", path=f"{path}.name")
        check_label_selector(self.node_selector, f"{path}.nodeSelector")
        for point in POINTS:
            enabled = [plugin.name for plugin in self.plugins.changes_at(point).enabled]
            for index, name in enumerate(enabled):
                if name in enabled[:index]:
                    field_path = f"{path}.plugins.{point}.enabled[{index}].name"
                    raise invalid_value(field_path, name, "unique")
        names: set[str] = set()
        for index, config in enumerate(self.plugin_config):
            if config.name in names:
                field_path = f"{path}.pluginConfig[{index}].name"
                raise invalid_value(field_path, config.name, "unique")
            names.add(config.name)


class DeschedulerConfiguration(ConfigStruct, frozen=True, kw_only=True):
    """Configuration of the descheduler."""

    leader_election: DeschedulerLeaderElection = DeschedulerLeaderElection()
    client_connection: DeschedulerClientConnection = DeschedulerClientConnection()
    enable_profiling: bool = True  # has no effect
    enable_contention_profiling: bool = True  # has no effect
    healthz_bind_address: str = _ADDRESS  # address of the health endpoints
    metrics_bind_address: str = _ADDRESS  # address of the metrics
    descheduling_interval: Duration = Duration()  # between starts of cycles; 0: a single cycle
    dry_run: bool = False
    profiles: tuple[DeschedulerProfile, ...] = ()
    node_selector: LabelSelector | None = None  # labels of the nodes that are considered
    max_no_of_pods_to_evict_per_node: Limit | None = None  # per cycle, as the next two
    #: largest number of evictions of a namespace per cycle
    max_no_of_pods_to_evict_per_namespace: Limit | None = None
    max_no_of_pods_to_evict_total: Limit | None = None  # largest number of evictions per cycle
    #: Whether evictions are proven by a dry run; by default only evictions of our own plugins.
    prove_moves: bool | None = None
    move_memory: Duration = _MOVE_MEMORY  # time in which no workload returns to a node that it left

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
        """Check rules that types don't express.

        Raises InputError with the path.
        """
        self.leader_election.validate("leaderElection")
        parse_socket_address(self.healthz_bind_address, "healthzBindAddress")
        parse_socket_address(self.metrics_bind_address, "metricsBindAddress")
        if self.descheduling_interval < Duration():
            raise invalid_value(
                "deschedulingInterval", str(self.descheduling_interval), "0s or more"
            )
        if self.move_memory < Duration():
            raise invalid_value("moveMemory", str(self.move_memory), "0s or more")
        check_label_selector(self.node_selector, "nodeSelector")
        names: set[str] = set()
        for index, profile in enumerate(self.profiles):
            path = f"profiles[{index}]"
            profile.validate(path)
            if profile.name in names:
                raise invalid_value(
                    f"{path}.name", profile.name, "a name that no other profile has"
                )
            names.add(profile.name)


def decode_descheduler_configuration(data: object, source: str) -> DeschedulerConfiguration:
    """Decode a configuration file, with defaults; ``source`` is its name.

    The arguments of plugins remain undecoded, as their types depend on the registered plugins.
    Raises InputError with source and path.
    """
    try:
        fields = _take_header(data, DeschedulerConfiguration.__name__, required=True)
        configuration = decode_struct(fields, DeschedulerConfiguration, "")
        configuration.validate()
    except InputError as error:
        raise error.within(source=source) from None
    return configuration


def parse_socket_address(text: str, path: str) -> tuple[str, int] | None:
    """Return host and port; None for port 0, which disables the server.

    Raises InputError.
    """
    host, colon, port = text.rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not port.isdecimal() or int(port) >= _PORTS:
        raise invalid_value(path, text, "a socket address (host:port) such as 0.0.0.0:10251")
    if host and not _is_address(host) and not is_dns_subdomain(host):
        raise invalid_value(path, text, "an IP address or a host name before the port")
    return (host, int(port)) if int(port) else None


def _with_defaults(address: str) -> str:
    """Return an address with default host or port if one is omitted."""
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
