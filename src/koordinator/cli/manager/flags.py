"""The flags of ``koord manager``: those of koord-manager."""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import typer

from koordinator.api.labels import BINDING_ADMISSION_BYPASS
from koordinator.api.slo_config import CONFIG_NAME, CONFIG_NAMESPACE
from koordinator.cli.component.flags import (
    BOOL,
    ELECTION,
    ONCE,
    SERVING,
    ConnectionFlags,
    ControllerFlags,
    OnceFiles,
    OnceNow,
    OncePrint,
    ProcessFlags,
    parse_bool,
    parse_list,
    parse_seconds,
)
from koordinator.cli.manager.queue_flags import QueueFlags
from koordinator.cli.output import Output
from koordinator.foundation.errors import InputError
from koordinator.manager.admission.gates import ManagerFeature, parse_gates
from koordinator.manager.rate_limiter import ProfileOptions
from koordinator.manager.switches import Controller, NodePlugin

if TYPE_CHECKING:
    from koordinator.manager.admission.hooks import HookOptions
    from koordinator.manager.app import ManagerOptions

_ADMISSION = "Admission"
_PROFILES = "Colocation profiles of pods that exist (gate ColocationProfileController)"

NameT = TypeVar("NameT", bound=StrEnum)


def _binding_text(text: str) -> Any:
    return typer.Option(help=text, rich_help_panel=_ADMISSION)


def _profile_time(text: str) -> Any:
    return typer.Option(metavar="DURATION", help=text, rich_help_panel=_PROFILES)


@dataclass(frozen=True, slots=True, kw_only=True)
class BindingAdmissionFlags:
    """Who may bind pods that are not to be bound, and where."""

    binding_admission_user_name: Annotated[
        str, _binding_text("Parts of names of users who may bind pods; empty: all may.")
    ] = ""
    binding_admission_dry_run: Annotated[str, _binding_text("Only log what would be refused.")] = (
        "false"
    )
    binding_admission_namespaces: Annotated[
        str, _binding_text("Namespaces in which others are refused, or *; empty: none.")
    ] = ""
    binding_admission_exclude_namespaces: Annotated[
        str, _binding_text("Namespaces in which all may bind pods.")
    ] = "kube-system"
    binding_admission_bypass_labels: Annotated[
        str, _binding_text("Labels of pods that all may bind.")
    ] = BINDING_ADMISSION_BYPASS
    binding_admission_bypass_annotations: Annotated[
        str, _binding_text("Annotations of pods that all may bind.")
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAdmissionFlags:
    """What admission of pods to quotas, and of their labels, goes by."""

    quota_update_max_retries: Annotated[
        int,
        typer.Option(
            help="How often a pod is charged anew to a quota that others changed; 3 at least.",
            min=0,
            max=100,
            rich_help_panel=_ADMISSION,
        ),
    ] = 3
    pod_enhanced_validator_config_namespace: Annotated[
        str, typer.Option(help="Of the ConfigMap.", rich_help_panel=_ADMISSION)
    ] = "koordinator-system"
    pod_enhanced_validator_config_name: Annotated[
        str, typer.Option(help="Of the ConfigMap.", rich_help_panel=_ADMISSION)
    ] = "pod-enhanced-validator-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileFlags:
    """How often pods that exist are given what colocation profiles say, and how fast."""

    colocation_profile_reconcile_by_default: Annotated[
        str,
        typer.Option(
            help="Also profiles without the label config.koordinator.sh/controller-managed=true.",
            metavar=BOOL,
            rich_help_panel=_PROFILES,
        ),
    ] = "false"
    colocation_profile_reconcile_interval: Annotated[
        str, _profile_time("How often profiles are compared with pods.")
    ] = "30s"
    colocation_profile_force_update_pod_duration: Annotated[
        str, _profile_time("After which a pod is updated again although it seems right.")
    ] = "5m"
    colocation_profile_expire_pod_cache_duration: Annotated[
        str, _profile_time("How often updates of pods that are gone are forgotten.")
    ] = "10m"
    colocation_profile_update_pod_qps: Annotated[
        float, typer.Option(help="Pods a second.", rich_help_panel=_PROFILES)
    ] = ProfileOptions().qps
    colocation_profile_update_pod_qps_burst: Annotated[
        int, typer.Option(help="Pods at once.", rich_help_panel=_PROFILES)
    ] = ProfileOptions().burst

    def options(self) -> ProfileOptions:
        """Return what the controller works with.  Raises InputError."""
        name = "--colocation-profile"
        return ProfileOptions(
            reconcile_by_default=parse_bool(
                self.colocation_profile_reconcile_by_default, f"{name}-reconcile-by-default"
            ),
            interval_s=parse_seconds(
                self.colocation_profile_reconcile_interval, f"{name}-reconcile-interval"
            ),
            force_update_s=parse_seconds(
                self.colocation_profile_force_update_pod_duration,
                f"{name}-force-update-pod-duration",
            ),
            forget_every_s=parse_seconds(
                self.colocation_profile_expire_pod_cache_duration,
                f"{name}-expire-pod-cache-duration",
            ),
            qps=self.colocation_profile_update_pod_qps,
            burst=self.colocation_profile_update_pod_qps_burst,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookFlags:
    """Where the API server asks for reviews, and who else may."""

    webhook_port: Annotated[
        int,
        typer.Option(
            help="HTTPS, for the API server; 0: none.",
            min=0,
            max=65535,
            envvar="WEBHOOK_PORT",
            rich_help_panel=SERVING,
        ),
    ] = 9876
    webhook_host: Annotated[
        str,
        typer.Option(
            help="Further names in the certificate, where the API server calls no Service.",
            rich_help_panel=SERVING,
        ),
    ] = ""
    webhook_client_ca_file: Annotated[
        Path | None,
        typer.Option(
            help="Only clients with a certificate of these authorities may ask for reviews.",
            rich_help_panel=SERVING,
        ),
    ] = None
    webhook_client_names: Annotated[
        str,
        typer.Option(
            help="Common names of these certificates that are let in; default: any.",
            metavar="NAME,NAME",
            rich_help_panel=SERVING,
        ),
    ] = ""

    def check(self) -> None:
        """Raise InputError for names of certificates that nobody has vouched for."""
        if self.webhook_client_names and self.webhook_client_ca_file is None:
            problem = "requires --webhook-client-ca-file"
            raise InputError(problem, source="--webhook-client-names")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerFlags:
    """What the command line says; no file is read yet."""

    connection: ConnectionFlags = field(default_factory=ConnectionFlags)
    controllers: Annotated[
        str, typer.Option(metavar="*,-x", help=f"Of {', '.join(Controller)}.")
    ] = "*"
    noderesource_plugins: Annotated[
        str, typer.Option(metavar="*,-X", help=f"Of {', '.join(NodePlugin)}.")
    ] = "*"
    feature_gates: Annotated[
        str, typer.Option(metavar="NAME=true|false,…", help="Features that are switched on or off.")
    ] = ""
    slo_config_name: Annotated[str, typer.Option(help="Of the ConfigMap.")] = CONFIG_NAME
    config_namespace: Annotated[str, typer.Option(help="Of the ConfigMap.")] = CONFIG_NAMESPACE
    node_strategy_name_need_check: Annotated[
        str,
        typer.Option(
            help="Refuse two strategies of nodes of one name.",
            metavar=BOOL,
            rich_help_panel=_ADMISSION,
        ),
    ] = "false"
    binding: BindingAdmissionFlags = field(default_factory=BindingAdmissionFlags)
    quotas: QuotaAdmissionFlags = field(default_factory=QuotaAdmissionFlags)
    profiles: ProfileFlags = field(default_factory=ProfileFlags)
    queues: QueueFlags = field(default_factory=QueueFlags)
    webhook: WebhookFlags = field(default_factory=WebhookFlags)
    controller: ControllerFlags = field(default_factory=ControllerFlags)
    shutdown_delay_duration: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="How long webhooks are answered after a signal, while /readyz fails already.",
            rich_help_panel=SERVING,
        ),
    ] = "0s"
    leader_elect_resource_lock: Annotated[
        str, typer.Option(help="Only leases.", rich_help_panel=ELECTION)
    ] = "leases"
    rest_config_qps: Annotated[float, typer.Option(help="Requests a second; 0: any.")] = 30.0
    rest_config_burst: Annotated[int, typer.Option(help="Requests at once.")] = 50
    process: ProcessFlags = field(default_factory=ProcessFlags)
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Admit and reconcile the objects given with -f and print what is different.",
            rich_help_panel=ONCE,
        ),
    ] = False
    files: OnceFiles = None
    config: Annotated[
        str,
        typer.Option(
            help="File of the ConfigMap; without --once the same as --queue-config.",
            rich_help_panel=ONCE,
        ),
    ] = ""
    now: OnceNow = ""
    output: OncePrint = Output.YAML

    @property
    def gates(self) -> frozenset[ManagerFeature]:
        """The gates that are open.  Raises InputError."""
        return parse_gates(self.feature_gates)

    @property
    def shutdown_delay_s(self) -> float:
        """How long webhooks are answered after a signal.  Raises InputError."""
        text = self.shutdown_delay_duration
        return 0.0 if text in {"0", "0s"} else parse_seconds(text, "--shutdown-delay-duration")

    def check(self) -> None:
        """Raise InputError for what no component of today can do."""
        if self.leader_elect_resource_lock != "leases":
            problem = f"must be leases, got {self.leader_elect_resource_lock!r}"
            raise InputError(problem, source="--leader-elect-resource-lock")

    def options(self) -> "ManagerOptions":
        """Return what the manager works with.  Raises InputError."""
        from koordinator.manager.app import ManagerOptions  # noqa: PLC0415 -- takes long to load

        return ManagerOptions(
            config_namespace=self.config_namespace,
            config_name=self.slo_config_name,
            controllers=_chosen(self.controllers, Controller, "--controllers"),
            plugins=_chosen(self.noderesource_plugins, NodePlugin, "--noderesource-plugins"),
            gates=self.gates,
            profiles=self.profiles.options(),
            queue_units=self.queues.options(self.gates, "" if self.once else self.config),
        )

    def hooks(self) -> "HookOptions":
        """Return what the webhooks work with.  Raises InputError."""
        from koordinator.manager.admission.binding import BindingRules  # noqa: PLC0415 -- as above
        from koordinator.manager.admission.hooks import HookOptions  # noqa: PLC0415 -- as above

        binding = self.binding
        return HookOptions(
            gates=self.gates,
            config=(self.config_namespace, self.slo_config_name),
            needs_names=parse_bool(
                self.node_strategy_name_need_check, "--node-strategy-name-need-check"
            ),
            validator=(
                self.quotas.pod_enhanced_validator_config_namespace,
                self.quotas.pod_enhanced_validator_config_name,
            ),
            binding=BindingRules(
                user_names=parse_list(binding.binding_admission_user_name),
                dry_run=parse_bool(
                    binding.binding_admission_dry_run, "--binding-admission-dry-run"
                ),
                namespaces=parse_list(binding.binding_admission_namespaces),
                excluded_namespaces=parse_list(binding.binding_admission_exclude_namespaces),
                bypass_labels=parse_list(binding.binding_admission_bypass_labels),
                bypass_annotations=parse_list(binding.binding_admission_bypass_annotations),
            ),
        )


def _chosen(text: str, names: type[NameT], source: str) -> frozenset[NameT]:
    """Return what ``*``, ``A,B`` or ``*,-A`` chooses.  Raises InputError for an unknown name."""
    parts = parse_list(text)
    known = {name.value: name for name in names}
    unknown = [part for part in parts if part != "*" and part.removeprefix("-") not in known]
    if unknown:
        accepted = f"*, {', '.join(known)}, or one of these after -"
        raise InputError(f"must be one of {accepted}, got {unknown[0]!r}", source=source)
    chosen = set(names) if "*" in parts else {known[part] for part in parts if part in known}
    return frozenset(name for name in chosen if f"-{name.value}" not in parts)
