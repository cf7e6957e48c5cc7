"""Flags of ``koord scheduler``, from kube-scheduler and koord-scheduler."""

import re
from collections.abc import Mapping
from dataclasses import field, fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer
from msgspec.structs import replace

from koordinator.api.kube_version import (
    DEFAULT_LEVEL,
    KubeVersion,
    emulated_level,
    stated_level,
)
from koordinator.api.kubescheduler import KubeSchedulerConfiguration, LeaderElectionConfiguration
from koordinator.api.kubescheduler.gates import GATES
from koordinator.cli.component.flags import (
    BOOL,
    ELECTION,
    LEADER_ELECT,
    ONCE,
    SERVING,
    TLS_SUITES,
    TLS_VERSION,
    WRITE_CONFIG,
    ConnectionFlags,
    KubeVersionFlag,
    OnceFiles,
    OnceNow,
    OncePrint,
    ProcessFlags,
    ServerAddress,
    TlsCertificateFile,
    TlsKeyFile,
    parse_bool,
)
from koordinator.cli.input.configuration import (
    CONFIGURATION_HELP,
    NAMED_CONFIGURATION,
    PluginFiles,
)
from koordinator.cli.output import Output
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.features.auditor.workload_life import AlertLimits

if TYPE_CHECKING:
    from koordinator.process.certificates import TlsTerms

ElectionT = TypeVar("ElectionT", bound=LeaderElectionConfiguration)

_FIVE_MINUTES = Duration(minutes=5)
_AUDITOR = "Workload auditor"  # a panel of the help
_TRACING = "Tracing"
_SERIES_LABEL = re.compile(r"[a-zA-Z_][a-zA-Z0-9_]*")
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 -- the default of both originals


def _election_time(text: str) -> Any:
    return typer.Option(
        parser=Duration.parse, metavar="DURATION", help=text, rich_help_panel=ELECTION
    )


def _election_text(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel=ELECTION)


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerElectionFlags:
    """Fields of the configuration's ``leaderElection``; a flag overrides the file."""

    leader_elect: Annotated[
        str,
        typer.Option(metavar=BOOL, help=LEADER_ELECT, rich_help_panel=ELECTION),
    ] = ""
    leader_elect_lease_duration: Annotated[
        Duration | None,
        _election_time(
            "Time that a standby replica waits for the leader to renew the lease. Default: 15s."
        ),
    ] = None
    leader_elect_renew_deadline: Annotated[
        Duration | None,
        _election_time(
            "Time after which the leader gives up if it cannot renew the lease. Default: 10s."
        ),
    ] = None
    leader_elect_retry_period: Annotated[
        Duration | None,
        _election_time("Interval between attempts to acquire or renew the lease. Default: 2s."),
    ] = None
    leader_elect_resource_lock: Annotated[
        str, _election_text("Kind of the lock; must be leases.")
    ] = ""
    leader_elect_resource_name: Annotated[str, _election_text("Name of the Lease.")] = ""
    leader_elect_resource_namespace: Annotated[str, _election_text("Namespace of the Lease.")] = ""

    def over(self, configuration: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
        """Return the configuration with the values of the flags set.  Raises InputError."""
        return replace(
            configuration, leader_election=self.over_election(configuration.leader_election)
        )

    def over_election(self, election: ElectionT) -> ElectionT:
        """Return ``leaderElection`` with the values of the flags set.  Raises InputError."""
        given = {
            each.name.removeprefix("leader_elect_"): value
            for each in fields(self)
            if (value := getattr(self, each.name)) not in (None, "")
        }
        if self.leader_elect:
            given["leader_elect"] = parse_bool(self.leader_elect, "--leader-elect")
        changed = replace(election, **given)
        changed.validate("leaderElection")
        return changed


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerServingFlags:
    """Servers of the scheduler's pages, and the authorization of requests."""

    secure_port: Annotated[
        int,
        typer.Option(
            help="Port of the HTTPS server; 0 disables it.",
            min=0,
            max=65535,
            rich_help_panel=SERVING,
        ),
    ] = 10259
    bind_address: ServerAddress = _ANY_ADDRESS
    port: Annotated[
        int,
        typer.Option(
            help="Port of the plain HTTP server, without authorization; 0 disables it.",
            min=0,
            max=65535,
            rich_help_panel=SERVING,
        ),
    ] = 0
    address: Annotated[
        str,
        typer.Option(
            help="Address that the plain HTTP server listens on.", rich_help_panel=SERVING
        ),
    ] = _ANY_ADDRESS
    tls_cert_file: TlsCertificateFile = None
    tls_private_key_file: TlsKeyFile = None
    tls_min_version: Annotated[str, TLS_VERSION] = ""
    tls_cipher_suites: Annotated[str, TLS_SUITES] = ""
    cert_dir: Annotated[
        Path | None,
        typer.Option(
            help="Folder that stores the self-signed certificate. Default: it is kept in memory.",
            rich_help_panel=SERVING,
        ),
    ] = None
    authorization_always_allow_paths: Annotated[
        str,
        typer.Option(help="Paths that are served without authorization.", rich_help_panel=SERVING),
    ] = "/healthz,/readyz,/livez"

    authentication_kubeconfig: Annotated[
        str,
        typer.Option(
            help="Kubeconfig file of the API server that authenticates and authorizes requests. "
            "Default: the value of --kubeconfig.",
            rich_help_panel=SERVING,
        ),
    ] = ""
    authorization_kubeconfig: Annotated[
        str,
        typer.Option(
            help="Same as --authentication-kubeconfig; the two must not differ.",
            rich_help_panel=SERVING,
        ),
    ] = ""

    @property
    def reviewing_kubeconfig(self) -> str:
        """Kubeconfig of the API server that authorizes requests; empty: the component's own."""
        return self.authentication_kubeconfig or self.authorization_kubeconfig

    @property
    def terms(self) -> "TlsTerms":
        """Minimum version and cipher suites of TLS.  Raises InputError."""
        from koordinator.process.certificates import TlsTerms  # noqa: PLC0415 -- not for --help

        return TlsTerms.parse(self.tls_min_version, self.tls_cipher_suites)

    @property
    def always_allowed(self) -> tuple[str, ...]:
        """Paths that are served without authorization."""
        return tuple(filter(None, self.authorization_always_allow_paths.split(",")))

    def check(self) -> None:
        """Raise InputError for a certificate without its key, or a key without its certificate."""
        if bool(self.tls_cert_file) is not bool(self.tls_private_key_file):
            raise InputError(
                "must be set together", source="--tls-cert-file, --tls-private-key-file"
            )
        stated = {self.authentication_kubeconfig, self.authorization_kubeconfig} - {""}
        if len(stated) > 1:
            raise InputError(
                "must name the same file in both",
                source="--authentication-kubeconfig, --authorization-kubeconfig",
            )
        self.terms  # noqa: B018 -- raises


def _limit(text: str) -> Any:
    return typer.Option(
        parser=Duration.parse, metavar="DURATION", help=text, rich_help_panel=_AUDITOR
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadAuditorFlags:
    """Alerts of the workload auditor about waiting pods and gangs; flags of the original."""

    enable_workload_auditor: Annotated[
        str,
        typer.Option(
            metavar=BOOL,
            help="Measure the scheduling of pods and gangs, and log what exceeds the limits.",
            rich_help_panel=_AUDITOR,
        ),
    ] = ""
    workload_auditor_metric_labels: Annotated[
        str,
        typer.Option(
            metavar="NAME=LABEL,...",
            help="Labels of the metrics, each with the pod label that its value comes from.",
            rich_help_panel=_AUDITOR,
        ),
    ] = ""
    workload_auditor_victim_reschedule_duration: Annotated[
        Duration | None,
        _limit(
            "Longest time from the deletion of all victims to the next scheduling result. "
            "Default: 10s."
        ),
    ] = None
    workload_auditor_victim_deletion_duration: Annotated[
        Duration | None,
        _limit("Longest time from a nomination to the deletion of all victims. Default: 30s."),
    ] = None
    workload_auditor_victim_deleting_retries: Annotated[
        int,
        typer.Option(
            help="Most scheduling attempts before the victims are deleted.",
            min=0,
            rich_help_panel=_AUDITOR,
        ),
    ] = 3
    workload_auditor_scheduling_event_interval: Annotated[
        Duration | None,
        _limit("Longest time between two scheduling events of a pod in the queue. Default: 5m."),
    ] = None

    @property
    def is_on(self) -> bool:
        """Whether the auditor is enabled.  Raises InputError."""
        text = self.enable_workload_auditor
        return bool(text) and parse_bool(text, "--enable-workload-auditor")

    @property
    def limits(self) -> AlertLimits:
        """Limits above which the auditor logs an alert."""
        given = {
            "reschedule_s": self.workload_auditor_victim_reschedule_duration,
            "deletion_s": self.workload_auditor_victim_deletion_duration,
            "interval_s": self.workload_auditor_scheduling_event_interval,
        }
        return AlertLimits(
            retries=self.workload_auditor_victim_deleting_retries,
            **{name: each.total_seconds() for name, each in given.items() if each is not None},
        )

    @property
    def labels(self) -> Mapping[str, str]:
        """Pod labels by the metric label that each is exported as.

        Raises InputError for a part that is not a pair, an invalid Prometheus name, or a duplicate.
        """
        labels: dict[str, str] = {}
        for pair in filter(None, self.workload_auditor_metric_labels.split(",")):
            name, equals, label = (part.strip() for part in pair.partition("="))
            is_free = name not in {*labels, "priority", "event_type", "outcome"}
            if not equals or not label or not _SERIES_LABEL.fullmatch(name) or not is_free:
                raise InputError(
                    "must be NAME=LABEL with a NAME such as quota_name, each only once, got "
                    f"{pair.strip()!r}",
                    source="--workload-auditor-metric-labels",
                )
            labels[name] = label
        return labels


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatibilityLevelFlags:
    """Kubernetes release whose decisions the scheduler reproduces."""

    emulated_version: Annotated[
        str,
        typer.Option(
            metavar="1.NN",
            help="Kubernetes release whose scheduling decisions are reproduced, whichever release "
            "the cluster runs.",
        ),
    ] = ""
    kube_version: KubeVersionFlag = ""

    def check(self) -> None:
        """Raise InputError for an invalid or unsupported version."""
        self.emulated()
        self.stated()

    def emulated(self) -> KubeVersion | None:
        """Return the level that overrides the cluster's; None without the flag."""
        return emulated_level(self.emulated_version)

    def stated(self) -> KubeVersion:
        """Return the level of a cluster that does not report its version."""
        return stated_level(self.kube_version) if self.kube_version else DEFAULT_LEVEL


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFlags:
    """Values of the command line; no file has been read yet."""

    config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help=f"{CONFIGURATION_HELP} Default: kubernetes; with --once both.",
        ),
    ] = ""
    plugin: PluginFiles = None
    connection: ConnectionFlags = field(default_factory=ConnectionFlags)
    controller_plugins: Annotated[
        str,
        typer.Option(help="Plugins whose controllers run; must be *, all configured plugins."),
    ] = "*"
    write_config_to: Annotated[Path | None, typer.Option(help=WRITE_CONFIG)] = None
    pod_max_in_unschedulable_pods_duration: Annotated[
        Duration | None,
        typer.Option(
            parser=Duration.parse,
            metavar="DURATION",
            help="Time after which an unschedulable pod is retried without any event. Default: 5m.",
        ),
    ] = None
    election: SchedulerElectionFlags = field(default_factory=SchedulerElectionFlags)
    serving: SchedulerServingFlags = field(default_factory=SchedulerServingFlags)
    feature_gates: Annotated[
        str,
        typer.Option(
            metavar="NAME=true,...",
            help=f"Feature gates to set. Known gates: {', '.join(sorted(GATES))}.",
        ),
    ] = ""
    level: CompatibilityLevelFlags = field(default_factory=CompatibilityLevelFlags)
    enable_network_topology_manager: Annotated[
        str,
        typer.Option(
            metavar=BOOL,
            help="Write the network domains to the ClusterNetworkTopology. Default: true if a "
            "profile sets awareNetworkTopology.",
        ),
    ] = ""
    audit: Annotated[
        bool,
        typer.Option("--audit", help="Keep the latest decisions in memory, for /apis/v1/audit."),
    ] = False
    audit_dir: Annotated[
        Path | None,
        typer.Option(help="Folder to write decisions to as well; implies --audit."),
    ] = None
    tracing_endpoint: Annotated[
        str,
        typer.Option(
            metavar="URL",
            help="Endpoint that traces of pods are sent to, by OTLP over HTTP, such as "
            "http://collector:4318/v1/traces. Default: no traces. Requires koordinator[tracing].",
            rich_help_panel=_TRACING,
        ),
    ] = ""
    tracing_sampling_ratio: Annotated[
        float,
        typer.Option(help="Ratio of pods that are traced.", min=0, max=1, rich_help_panel=_TRACING),
    ] = 1.0
    auditor: WorkloadAuditorFlags = field(default_factory=WorkloadAuditorFlags)
    process: ProcessFlags = field(default_factory=ProcessFlags)
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Schedule the objects of -f once, and print all objects that were written.",
            rich_help_panel=ONCE,
        ),
    ] = False
    files: OnceFiles = None
    now: OnceNow = ""
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Reject fields that a kind does not have.", rich_help_panel=ONCE
        ),
    ] = False
    output: OncePrint = Output.YAML

    @property
    def max_unschedulable_s(self) -> float:
        """Seconds after which an unschedulable pod is retried."""
        return (self.pod_max_in_unschedulable_pods_duration or _FIVE_MINUTES).total_seconds()

    @property
    def writes_network(self) -> bool | None:
        """Whether the network domains are written; None: if a profile needs them.

        Raises InputError.
        """
        text = self.enable_network_topology_manager
        return parse_bool(text, "--enable-network-topology-manager") if text else None
