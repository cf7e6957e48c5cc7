"""The flags of ``koord scheduler``: those of kube-scheduler and koord-scheduler."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
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
    ONCE,
    SERVING,
    TLS_SUITES,
    TLS_VERSION,
    ConnectionFlags,
    KubeVersionFlag,
    OnceFiles,
    OnceNow,
    OncePrint,
    ProcessFlags,
    parse_bool,
)
from koordinator.cli.input.configuration import NAMED_CONFIGURATION, WHAT_NAMES_MEAN
from koordinator.cli.output import Output
from koordinator.foundation.duration import Duration
from koordinator.foundation.errors import InputError
from koordinator.scheduler.features.auditor.workload_life import AlertLimits

if TYPE_CHECKING:
    from koordinator.process.tls_terms import TlsTerms

ElectionT = TypeVar("ElectionT", bound=LeaderElectionConfiguration)

_FIVE_MINUTES = Duration(minutes=5)
_AUDITOR = "Workload auditor"  # a panel of the help
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
    """Fields of the configuration's ``leaderElection``; what is said here wins over the file."""

    leader_elect: Annotated[
        str,
        typer.Option(
            metavar=BOOL, help="Work only while holding the lease.", rich_help_panel=ELECTION
        ),
    ] = ""
    leader_elect_lease_duration: Annotated[
        Duration | None,
        _election_time("How long a standby waits for the holder of the lease; the usual is 15s."),
    ] = None
    leader_elect_renew_deadline: Annotated[
        Duration | None,
        _election_time("How long the holder tries to renew the lease; the usual is 10s."),
    ] = None
    leader_elect_retry_period: Annotated[
        Duration | None, _election_time("Pause between two tries; the usual is 2s.")
    ] = None
    leader_elect_resource_lock: Annotated[str, _election_text("Kind of the lock: leases.")] = ""
    leader_elect_resource_name: Annotated[str, _election_text("Name of the Lease.")] = ""
    leader_elect_resource_namespace: Annotated[str, _election_text("Namespace of the Lease.")] = ""

    def over(self, configuration: KubeSchedulerConfiguration) -> KubeSchedulerConfiguration:
        """Return the configuration as these flags change it.  Raises InputError."""
        return replace(
            configuration, leader_election=self.over_election(configuration.leader_election)
        )

    def over_election(self, election: ElectionT) -> ElectionT:
        """Return a ``leaderElection`` as these flags change it.  Raises InputError."""
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
    """Where the scheduler serves its pages, and what anybody may read of them."""

    secure_port: Annotated[
        int, typer.Option(help="HTTPS; 0: none.", min=0, max=65535, rich_help_panel=SERVING)
    ] = 10259
    bind_address: Annotated[
        str, typer.Option(help="Address of the secure port.", rich_help_panel=SERVING)
    ] = _ANY_ADDRESS
    port: Annotated[
        int,
        typer.Option(
            help="Plain HTTP, open to everybody; 0: none.",
            min=0,
            max=65535,
            rich_help_panel=SERVING,
        ),
    ] = 0
    address: Annotated[str, typer.Option(help="Of the plain port.", rich_help_panel=SERVING)] = (
        _ANY_ADDRESS
    )
    tls_cert_file: Annotated[
        Path | None,
        typer.Option(help="Certificate with which pages are served, PEM.", rich_help_panel=SERVING),
    ] = None
    tls_private_key_file: Annotated[
        Path | None, typer.Option(help="Its private key, PEM.", rich_help_panel=SERVING)
    ] = None
    tls_min_version: Annotated[str, TLS_VERSION] = ""
    tls_cipher_suites: Annotated[str, TLS_SUITES] = ""
    cert_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where a self-signed certificate is kept; default: nowhere.",
            rich_help_panel=SERVING,
        ),
    ] = None
    authorization_always_allow_paths: Annotated[
        str, typer.Option(help="Pages that need no rights.", rich_help_panel=SERVING)
    ] = "/healthz,/readyz,/livez"

    authentication_kubeconfig: Annotated[
        str,
        typer.Option(
            help="Which API server is asked who may read what; default: as --kubeconfig.",
            rich_help_panel=SERVING,
        ),
    ] = ""
    authorization_kubeconfig: Annotated[
        str,
        typer.Option(help="The same as --authentication-kubeconfig.", rich_help_panel=SERVING),
    ] = ""

    @property
    def reviewing_kubeconfig(self) -> str:
        """How to reach the API server that says who may read what; empty: as all else."""
        return self.authentication_kubeconfig or self.authorization_kubeconfig

    @property
    def terms(self) -> "TlsTerms":
        """What is asked of the TLS of clients.  Raises InputError."""
        from koordinator.process.tls_terms import TlsTerms  # noqa: PLC0415 -- not for --help

        return TlsTerms.parse(self.tls_min_version, self.tls_cipher_suites)

    @property
    def always_allowed(self) -> tuple[str, ...]:
        """The paths that anybody may read."""
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
    """What is alarming of pods and gangs that wait; flags of the original."""

    enable_workload_auditor: Annotated[
        str,
        typer.Option(
            metavar=BOOL,
            help="Measure lives of workloads, and log what is alarming.",
            rich_help_panel=_AUDITOR,
        ),
    ] = ""
    workload_auditor_metric_labels: Annotated[
        str,
        typer.Option(
            metavar="NAME=LABEL,...",
            help="Labels of the series, from labels of pods.",
            rich_help_panel=_AUDITOR,
        ),
    ] = ""
    workload_auditor_victim_reschedule_duration: Annotated[
        Duration | None, _limit("From the end of the victims to the next result; the usual is 10s.")
    ] = None
    workload_auditor_victim_deletion_duration: Annotated[
        Duration | None, _limit("From a nomination to the end of the victims; the usual is 30s.")
    ] = None
    workload_auditor_victim_deleting_retries: Annotated[
        int,
        typer.Option(
            help="Attempts while victims are still there.", min=0, rich_help_panel=_AUDITOR
        ),
    ] = 3
    workload_auditor_scheduling_event_interval: Annotated[
        Duration | None, _limit("Between two events of what may be tried; the usual is 5m.")
    ] = None

    @property
    def is_on(self) -> bool:
        """Whether anything is measured.  Raises InputError."""
        text = self.enable_workload_auditor
        return bool(text) and parse_bool(text, "--enable-workload-auditor")

    @property
    def limits(self) -> AlertLimits:
        """What goes beyond is alarming."""
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
        """Labels of pods by the names that they have in series.

        Raises InputError for what is no pair, no name of Prometheus', or said twice.
        """
        found: dict[str, str] = {}
        for pair in filter(None, self.workload_auditor_metric_labels.split(",")):
            name, equals, label = (part.strip() for part in pair.partition("="))
            is_free = name not in {*found, "priority", "event_type", "outcome"}
            if not equals or not label or not _SERIES_LABEL.fullmatch(name) or not is_free:
                raise InputError(
                    "must be NAME=LABEL with a NAME such as quota_name, each only once, got "
                    f"{pair.strip()!r}",
                    source="--workload-auditor-metric-labels",
                )
            found[name] = label
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class CompatibilityLevelFlags:
    """Which release of Kubernetes is reproduced."""

    emulated_version: Annotated[
        str,
        typer.Option(
            metavar="1.NN", help="Decide as this release of Kubernetes, whatever the cluster runs."
        ),
    ] = ""
    kube_version: KubeVersionFlag = ""

    def check(self) -> None:
        """Raise InputError for what is no version, or one that is not served."""
        self.emulated()
        self.stated()

    def emulated(self) -> KubeVersion | None:
        """Return the level that holds whatever the cluster runs."""
        return emulated_level(self.emulated_version)

    def stated(self) -> KubeVersion:
        """Return the level where the cluster does not say."""
        return stated_level(self.kube_version) if self.kube_version else DEFAULT_LEVEL


@dataclass(frozen=True, slots=True, kw_only=True)
class SchedulerFlags:
    """What the command line says; no file is read yet."""

    config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help=f"{WHAT_NAMES_MEAN} Default: kubernetes; with --once both.",
        ),
    ] = ""
    connection: ConnectionFlags = field(default_factory=ConnectionFlags)
    controller_plugins: Annotated[
        str,
        typer.Option(help="Plugins whose controllers run: all of the configuration, which is *."),
    ] = "*"
    write_config_to: Annotated[
        Path | None, typer.Option(help="Write the configuration that would be used, and exit.")
    ] = None
    pod_max_in_unschedulable_pods_duration: Annotated[
        Duration | None,
        typer.Option(
            parser=Duration.parse,
            metavar="DURATION",
            help="A pod is tried again after this time, whatever happens; default: 5m.",
        ),
    ] = None
    election: SchedulerElectionFlags = field(default_factory=SchedulerElectionFlags)
    serving: SchedulerServingFlags = field(default_factory=SchedulerServingFlags)
    feature_gates: Annotated[
        str, typer.Option(metavar="NAME=true,...", help=f"Known: {', '.join(sorted(GATES))}.")
    ] = ""
    level: CompatibilityLevelFlags = field(default_factory=CompatibilityLevelFlags)
    enable_network_topology_manager: Annotated[
        str,
        typer.Option(
            metavar=BOOL,
            help="Write the network's domains to ClusterNetworkTopology; default: if a profile "
            "has awareNetworkTopology.",
        ),
    ] = ""
    audit: Annotated[
        bool,
        typer.Option("--audit", help="Remember the last decisions, for /apis/v1/audit."),
    ] = False
    audit_dir: Annotated[
        Path | None, typer.Option(help="Keep them in files here, too; implies --audit.")
    ] = None
    auditor: WorkloadAuditorFlags = field(default_factory=WorkloadAuditorFlags)
    process: ProcessFlags = field(default_factory=ProcessFlags)
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Schedule the objects given with -f and print what was written.",
            rich_help_panel=ONCE,
        ),
    ] = False
    files: OnceFiles = None
    now: OnceNow = ""
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Refuse fields that a kind does not have.", rich_help_panel=ONCE
        ),
    ] = False
    output: OncePrint = Output.YAML

    @property
    def max_unschedulable_s(self) -> float:
        """After so long a pod that found no node is tried again."""
        return (self.pod_max_in_unschedulable_pods_duration or _FIVE_MINUTES).total_seconds()

    @property
    def writes_network(self) -> bool | None:
        """Whether the network's domains are written; None: as the profiles need it.

        Raises InputError.
        """
        text = self.enable_network_topology_manager
        return parse_bool(text, "--enable-network-topology-manager") if text else None
