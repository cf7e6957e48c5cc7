"""The configuration file of the scheduler: ``KubeSchedulerConfiguration``.

As in Go, 0 and "" of some fields mean the default.
Source: k8s.io/kube-scheduler config/v1/types.go; k8s.io/component-base config/v1alpha1;
kubernetes pkg/scheduler/apis/config v1/defaults.go and validation/validation.go; client-go
tools/leaderelection/leaderelection.go, ``NewLeaderElector``.
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
from msgspec import field

from koordinator.api.kube_version import V1_36, V1_37, KubeVersion
from koordinator.api.kubescheduler.structs import (
    API_VERSION,
    ConfigPercent,
    ConfigStruct,
    Count,
    PositiveCount,
    PositiveSeconds,
    fill,
)
from koordinator.api.resource_validation import is_extended
from koordinator.api.syntax import check_label_key, invalid_value
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError

DEFAULT_SCHEDULER_NAME = "default-scheduler"
RETRY_JITTER = 1.2  # the retry period is stretched by at most this factor

_LEASE_DURATION = Duration(seconds=15)
_RENEW_DEADLINE = Duration(seconds=10)
_RETRY_PERIOD = Duration(seconds=2)
_PROTOBUF = "application/vnd.kubernetes.protobuf"
_QPS, _BURST = -1.0, 100  # the API server's priority and fairness limits who asks too much

#: First release of extension points that not all releases have.
ADDED_POINTS: Final[Mapping[str, KubeVersion]] = {
    "placementGenerate": V1_36,
    "placementScore": V1_36,
    "podGroupPostFilter": V1_37,
}


class LeaderElectionConfiguration(ConfigStruct, frozen=True, kw_only=True):
    """Election of one of several schedulers by a ``coordination.k8s.io/v1`` Lease."""

    leader_elect: bool = True
    lease_duration: Duration = _LEASE_DURATION
    renew_deadline: Duration = _RENEW_DEADLINE
    retry_period: Duration = _RETRY_PERIOD
    resource_lock: str = "leases"
    resource_name: str = "kube-scheduler"
    resource_namespace: str = "kube-system"

    def __post_init__(self) -> None:
        fill(
            self,
            lease_duration=self.lease_duration or _LEASE_DURATION,
            renew_deadline=self.renew_deadline or _RENEW_DEADLINE,
            retry_period=self.retry_period or _RETRY_PERIOD,
            resource_lock=self.resource_lock or "leases",
            resource_name=self.resource_name or "kube-scheduler",
            resource_namespace=self.resource_namespace or "kube-system",
        )

    def validate(self, path: str) -> None:
        """Check that a lease outlives a failed renewal.  Nothing is checked without election."""
        if not self.leader_elect:
            return
        if self.resource_lock != "leases":
            raise invalid_value(f"{path}.resourceLock", self.resource_lock, "leases")
        for duration, name in (
            (self.lease_duration, "leaseDuration"),
            (self.renew_deadline, "renewDeadline"),
            (self.retry_period, "retryPeriod"),
        ):
            if duration < Duration():
                raise invalid_value(f"{path}.{name}", str(duration), "more than 0s")
        lease, deadline, retry = self.lease_duration, self.renew_deadline, self.retry_period
        if lease <= deadline:
            accepted = f"more than renewDeadline ({deadline})"
            raise invalid_value(f"{path}.leaseDuration", str(lease), accepted)
        if deadline <= retry * RETRY_JITTER:
            accepted = f"more than {RETRY_JITTER} x retryPeriod ({retry})"
            raise invalid_value(f"{path}.renewDeadline", str(deadline), accepted)


class ClientConnectionConfiguration(ConfigStruct, frozen=True, kw_only=True):
    """Connection to the API server; ``qps`` below 0 is unlimited."""

    kubeconfig: str = ""
    accept_content_types: str = ""
    content_type: str = _PROTOBUF
    qps: float = _QPS
    burst: Count = _BURST

    def __post_init__(self) -> None:
        fill(
            self,
            content_type=self.content_type or _PROTOBUF,
            qps=self.qps or _QPS,
            burst=self.burst or _BURST,
        )


class Plugin(ConfigStruct, frozen=True, kw_only=True):
    """A plugin by name, or ``*`` to disable all; the weight counts for scores, 0 is 1."""

    name: str  # name of the plugin, or * to disable all
    weight: Count = 0  # weight of the score; 0 means 1


class PluginSet(ConfigStruct, frozen=True, kw_only=True):
    """Changes to the default plugins of an extension point."""

    enabled: tuple[Plugin, ...] = ()
    disabled: tuple[Plugin, ...] = ()


class Plugins(ConfigStruct, frozen=True, kw_only=True):
    """One set per extension point; ``multi_point`` is for all points that a plugin implements."""

    pre_enqueue: PluginSet = PluginSet()  # plugins that keep pods out of the active queue
    queue_sort: PluginSet = PluginSet()  # plugin that orders the queue
    pre_filter: PluginSet = PluginSet()  # plugins that prepare a pod or reject it on all nodes
    filter: PluginSet = PluginSet()  # plugins that reject nodes
    post_filter: PluginSet = PluginSet()  # plugins that make room for a pod that fits no node
    pre_score: PluginSet = PluginSet()  # plugins that prepare scores
    score: PluginSet = PluginSet()  # plugins that score nodes
    reserve: PluginSet = PluginSet()  # plugins that reserve resources of the chosen node
    permit: PluginSet = PluginSet()  # plugins that delay the binding
    pre_bind: PluginSet = PluginSet()  # plugins that prepare the binding
    bind: PluginSet = PluginSet()  # plugins that bind
    post_bind: PluginSet = PluginSet()  # plugins that are informed of a binding
    placement_generate: PluginSet = PluginSet()  # plugins that propose placements of a pod group
    placement_score: PluginSet = PluginSet()  # plugins that score placements of a pod group
    #: plugins that make room for a pod group that does not fit
    pod_group_post_filter: PluginSet = PluginSet()
    multi_point: PluginSet = PluginSet()  # plugins for all extension points that they implement

    def at(self, point: str) -> PluginSet:
        """Return the set of an extension point by its name in the file."""
        plugin_set: PluginSet = getattr(self, _ATTRIBUTES[point])
        return plugin_set


_ATTRIBUTES = {each.encode_name: each.name for each in msgspec.structs.fields(Plugins)}

#: Names as in the file: the points of a pod in its order, then the points of a pod group.
EXTENSION_POINTS = tuple(name for name in _ATTRIBUTES if name != "multiPoint")


class PluginConfig(ConfigStruct, frozen=True, kw_only=True):
    """Arguments of a plugin, still untyped: see ``decode_args``."""

    name: str  # name of the plugin
    args: dict[str, Any] = field(default_factory=dict)  # arguments of the plugin


class KubeSchedulerProfile(ConfigStruct, frozen=True, kw_only=True):
    """Plugins and arguments for pods with a ``schedulerName``."""

    scheduler_name: str = ""  # default-scheduler if there is one profile
    #: has no effect: every node is scored
    #: has no effect: every node is scored
    percentage_of_nodes_to_score: ConfigPercent | None = None
    plugins: Plugins | None = None  # changes to the default plugins
    plugin_config: tuple[PluginConfig, ...] = ()

    def validate(self, path: str) -> None:
        """Check that the profile has a name, and every plugin one set of arguments at most."""
        if not self.scheduler_name:
            raise InputError(
                "required with several profiles, but missing", path=f"{path}.schedulerName"
            )
        names: set[str] = set()
        for index, config in enumerate(self.plugin_config):
            if config.name in names:
                field_path = f"{path}.pluginConfig[{index}].name"
                raise invalid_value(field_path, config.name, "unique")
            names.add(config.name)


class ExtenderTLSConfig(ConfigStruct, frozen=True, kw_only=True):
    """Keys and certificates; data is base64 in the file and goes before the file of that name."""

    insecure: bool = False  # whether the certificate of the server is not verified
    server_name: str = ""  # name that the certificate of the server must have
    cert_file: str = ""  # path of the client certificate
    key_file: str = ""  # path of the key of the client certificate
    ca_file: str = ""  # path of the certificates of trusted authorities
    cert_data: bytes = b""  # client certificate; goes before certFile
    key_data: bytes = b""  # key of the client certificate; goes before keyFile
    ca_data: bytes = b""  # certificates of trusted authorities; goes before caFile


class ExtenderManagedResource(ConfigStruct, frozen=True, kw_only=True):
    """Resource of an extender; if ignored by the scheduler, only the extender counts it."""

    name: str  # name of the resource
    ignored_by_scheduler: bool = False  # whether NodeResourcesFit ignores the resource


class Extender(ConfigStruct, frozen=True, kw_only=True):
    """HTTP service that filters, scores, preempts or binds; an empty verb is not called."""

    url_prefix: str = ""  # URL that a verb is appended to
    filter_verb: str = ""  # verb to filter nodes; empty does not call
    preempt_verb: str = ""  # verb to choose victims; empty does not call
    prioritize_verb: str = ""  # verb to score nodes; empty does not call
    weight: int = 0  # weight of its scores
    bind_verb: str = ""  # verb to bind; empty does not call
    enable_https: bool = field(name="enableHTTPS", default=False)  # whether TLS is used
    tls_config: ExtenderTLSConfig | None = None  # certificates
    http_timeout: Duration = Duration()  # time limit of a call; 0s means 5s
    node_cache_capable: bool = False  # whether the extender is sent names of nodes only
    #: resources of the pods it is called for; empty means all pods
    managed_resources: tuple[ExtenderManagedResource, ...] = ()
    ignorable: bool = False  # whether scheduling goes on if the extender fails


class KubeSchedulerConfiguration(ConfigStruct, frozen=True, kw_only=True):
    """The whole file."""

    api_version: str = API_VERSION
    kind: str = "KubeSchedulerConfiguration"
    parallelism: PositiveCount = 16  # has no effect: all nodes are evaluated at once
    leader_election: LeaderElectionConfiguration = LeaderElectionConfiguration()
    client_connection: ClientConnectionConfiguration = ClientConnectionConfiguration()
    enable_profiling: bool = True  # has no effect
    enable_contention_profiling: bool = True  # has no effect without profiling
    percentage_of_nodes_to_score: ConfigPercent = 0  # has no effect: every node is scored
    pod_initial_backoff_seconds: PositiveSeconds = 1  # backoff after the first failed attempt
    pod_max_backoff_seconds: PositiveSeconds = 10  # longest backoff
    profiles: tuple[KubeSchedulerProfile, ...] = ()
    extenders: tuple[Extender, ...] = ()  # HTTP services that take part in decisions
    #: whether a replica that is not the leader caches nothing
    delay_cache_until_active: bool = False

    def __post_init__(self) -> None:
        profiles = self.profiles or (KubeSchedulerProfile(),)
        if len(profiles) == 1 and not profiles[0].scheduler_name:
            profiles = (
                msgspec.structs.replace(profiles[0], scheduler_name=DEFAULT_SCHEDULER_NAME),
            )
        fill(self, profiles=profiles)

    def plugin_names(self) -> frozenset[str]:
        """Return the names of all plugins that are enabled or given arguments by name."""
        enabled = (
            plugin.name
            for profile in self.profiles
            for point in _ATTRIBUTES
            for plugin in (profile.plugins or Plugins()).at(point).enabled
        )
        given = (config.name for profile in self.profiles for config in profile.plugin_config)
        return frozenset((*enabled, *given))

    def ignored_resources(self) -> tuple[str, ...]:
        """Return the resources that only extenders count, and NodeResourcesFit does not."""
        return tuple(
            resource.name
            for extender in self.extenders
            for resource in extender.managed_resources
            if resource.ignored_by_scheduler
        )

    def validate(self) -> None:
        """Check what types don't say.

        Raises InputError with the path.
        """
        self.leader_election.validate("leaderElection")
        initial, longest = self.pod_initial_backoff_seconds, self.pod_max_backoff_seconds
        if longest < initial:
            accepted = f"at least podInitialBackoffSeconds ({initial})"
            raise invalid_value("podMaxBackoffSeconds", longest, accepted)
        names: set[str] = set()
        for index, profile in enumerate(self.profiles):
            path = f"profiles[{index}]"
            profile.validate(path)
            if profile.scheduler_name in names:
                accepted = "unique among the profiles"
                raise invalid_value(f"{path}.schedulerName", profile.scheduler_name, accepted)
            names.add(profile.scheduler_name)
        _check_extenders(self.extenders)


def _check_url(extender: Extender, path: str) -> None:
    """Refuse an extender that could never be asked: kube-scheduler would find out pod by pod."""
    verbs = (extender.filter_verb, extender.preempt_verb, extender.prioritize_verb)
    if not any((*verbs, extender.bind_verb)):
        return
    try:
        url = urlsplit(extender.url_prefix)
        is_url = url.scheme in ("http", "https") and bool(url.hostname) and url.port != 0
    except ValueError:
        is_url = False
    if not is_url:
        accepted = "a URL such as http://127.0.0.1:8888/scheduler"
        raise invalid_value(f"{path}.urlPrefix", extender.url_prefix, accepted)
    if extender.http_timeout < Duration():
        raise invalid_value(
            f"{path}.httpTimeout", str(extender.http_timeout), "at least 0s (0s: 5s)"
        )


def _check_extenders(extenders: tuple[Extender, ...]) -> None:
    binder = ""
    managed: set[str] = set()
    for index, extender in enumerate(extenders):
        path = f"extenders[{index}]"
        if extender.prioritize_verb and extender.weight <= 0:
            raise invalid_value(f"{path}.weight", extender.weight, "at least 1 with prioritizeVerb")
        if extender.bind_verb and binder:
            accepted = f"set in one extender only: {binder} binds already"
            raise invalid_value(f"{path}.bindVerb", extender.bind_verb, accepted)
        binder = path if extender.bind_verb else binder
        for number, resource in enumerate(extender.managed_resources):
            field_path = f"{path}.managedResources[{number}].name"
            check_label_key(resource.name, field_path)
            if not is_extended(resource.name):
                raise invalid_value(
                    field_path, resource.name, "an extended resource such as example.com/gpu"
                )
            if resource.name in managed:
                raise invalid_value(field_path, resource.name, "unique among all extenders")
            managed.add(resource.name)
    for index, extender in enumerate(extenders):
        _check_url(extender, f"extenders[{index}]")
