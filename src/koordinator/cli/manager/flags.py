"""Flags of ``koord manager``, from koord-manager."""

from dataclasses import field
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
    REST_BURST,
    REST_QPS,
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
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.manager.admission.gates import ManagerFeature, parse_gates
from koordinator.manager.mirror import Controller
from koordinator.manager.node_resources.calculation import NodePlugin
from koordinator.manager.writes import ColocationProfileOptions

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
    """Admission of bindings: allowed users, namespaces and exempt pods."""

    binding_admission_user_name: Annotated[
        str,
        _binding_text("Users who may bind pods, by parts of their names; empty allows every user."),
    ] = ""
    binding_admission_dry_run: Annotated[
        str, _binding_text("Log bindings that would be rejected, and allow them.")
    ] = "false"
    binding_admission_namespaces: Annotated[
        str, _binding_text("Namespaces in which bindings are checked, or * for all; empty: none.")
    ] = ""
    binding_admission_exclude_namespaces: Annotated[
        str, _binding_text("Namespaces in which bindings are not checked.")
    ] = "kube-system"
    binding_admission_bypass_labels: Annotated[
        str, _binding_text("Labels of pods whose bindings are not checked.")
    ] = BINDING_ADMISSION_BYPASS
    binding_admission_bypass_annotations: Annotated[
        str, _binding_text("Annotations of pods whose bindings are not checked.")
    ] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaAdmissionFlags:
    """Admission of pods by quotas and by the rules of the pod validator."""

    quota_update_max_retries: Annotated[
        int,
        typer.Option(
            help="Retries of charging a pod to a quota after a conflict; at least 3 are made.",
            min=0,
            max=100,
            rich_help_panel=_ADMISSION,
        ),
    ] = 3
    pod_enhanced_validator_config_namespace: Annotated[
        str,
        typer.Option(
            help="Namespace of the ConfigMap with the rules of the pod validator.",
            rich_help_panel=_ADMISSION,
        ),
    ] = "koordinator-system"
    pod_enhanced_validator_config_name: Annotated[
        str,
        typer.Option(
            help="Name of the ConfigMap with the rules of the pod validator.",
            rich_help_panel=_ADMISSION,
        ),
    ] = "pod-enhanced-validator-config"


@dataclass(frozen=True, slots=True, kw_only=True)
class ColocationProfileFlags:
    """Updates of existing pods by colocation profiles: intervals and rate limit."""

    colocation_profile_reconcile_by_default: Annotated[
        str,
        typer.Option(
            help="Apply also profiles without the label "
            "config.koordinator.sh/controller-managed=true.",
            metavar=BOOL,
            rich_help_panel=_PROFILES,
        ),
    ] = "false"
    colocation_profile_reconcile_interval: Annotated[
        str, _profile_time("Interval between comparisons of profiles and pods.")
    ] = "30s"
    colocation_profile_force_update_pod_duration: Annotated[
        str, _profile_time("Time after which a pod is updated again although it seems up to date.")
    ] = "5m"
    colocation_profile_expire_pod_cache_duration: Annotated[
        str, _profile_time("Interval between removals of deleted pods from the cache.")
    ] = "10m"
    colocation_profile_update_pod_qps: Annotated[
        float, typer.Option(help="Average pod updates per second.", rich_help_panel=_PROFILES)
    ] = ColocationProfileOptions().qps
    colocation_profile_update_pod_qps_burst: Annotated[
        int, typer.Option(help="Burst of pod updates.", rich_help_panel=_PROFILES)
    ] = ColocationProfileOptions().burst

    def options(self) -> ColocationProfileOptions:
        """Return the options of the controller.  Raises InputError."""
        name = "--colocation-profile"
        return ColocationProfileOptions(
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
    """Webhook server, and the clients that may call it."""

    webhook_port: Annotated[
        int,
        typer.Option(
            help="Port of the webhook server; 0 disables it.",
            min=0,
            max=65535,
            envvar="WEBHOOK_PORT",
            rich_help_panel=SERVING,
        ),
    ] = 9876
    webhook_host: Annotated[
        str,
        typer.Option(
            help="Additional names in the certificate, for an API server that calls the webhooks "
            "by URL instead of by Service.",
            rich_help_panel=SERVING,
        ),
    ] = ""
    webhook_client_ca_file: Annotated[
        Path | None,
        typer.Option(
            help="CA certificates in PEM format; only clients with a certificate of these "
            "authorities may call the webhooks.",
            rich_help_panel=SERVING,
        ),
    ] = None
    webhook_client_names: Annotated[
        str,
        typer.Option(
            help="Common names of the client certificates that are admitted. Default: any.",
            metavar="NAME,NAME",
            rich_help_panel=SERVING,
        ),
    ] = ""

    def check(self) -> None:
        """Raise InputError for names of client certificates without an authority."""
        if self.webhook_client_names and self.webhook_client_ca_file is None:
            problem = "requires --webhook-client-ca-file"
            raise InputError(problem, source="--webhook-client-names")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManagerFlags:
    """Values of the command line; no file has been read yet."""

    connection: ConnectionFlags = field(default_factory=ConnectionFlags)
    controllers: Annotated[
        str,
        typer.Option(
            metavar="*,-x",
            help=f"Controllers to run: * is all of them, -x disables x. "
            f"Known controllers: {', '.join(Controller)}.",
        ),
    ] = "*"
    noderesource_plugins: Annotated[
        str,
        typer.Option(
            metavar="*,-X",
            help=f"Plugins of the noderesource controller: * is all of them, -X disables X. "
            f"Known plugins: {', '.join(NodePlugin)}.",
        ),
    ] = "*"
    feature_gates: Annotated[
        str, typer.Option(metavar="NAME=true|false,…", help="Feature gates to set.")
    ] = ""
    slo_config_name: Annotated[
        str, typer.Option(help="Name of the ConfigMap with the SLO configuration.")
    ] = CONFIG_NAME
    config_namespace: Annotated[
        str, typer.Option(help="Namespace of the ConfigMap with the SLO configuration.")
    ] = CONFIG_NAMESPACE
    node_strategy_name_need_check: Annotated[
        str,
        typer.Option(
            help="Reject an SLO configuration with two node strategies of the same name.",
            metavar=BOOL,
            rich_help_panel=_ADMISSION,
        ),
    ] = "false"
    binding: BindingAdmissionFlags = field(default_factory=BindingAdmissionFlags)
    quotas: QuotaAdmissionFlags = field(default_factory=QuotaAdmissionFlags)
    profiles: ColocationProfileFlags = field(default_factory=ColocationProfileFlags)
    queues: QueueFlags = field(default_factory=QueueFlags)
    webhook: WebhookFlags = field(default_factory=WebhookFlags)
    controller: ControllerFlags = field(default_factory=ControllerFlags)
    shutdown_delay_duration: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="Time that webhooks are still served after a termination signal, while /readyz "
            "already fails.",
            rich_help_panel=SERVING,
        ),
    ] = "0s"
    leader_elect_resource_lock: Annotated[
        str, typer.Option(help="Kind of the lock; must be leases.", rich_help_panel=ELECTION)
    ] = "leases"
    rest_config_qps: Annotated[float, typer.Option(help=REST_QPS)] = 30.0
    rest_config_burst: Annotated[int, typer.Option(help=REST_BURST)] = 50
    process: ProcessFlags = field(default_factory=ProcessFlags)
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Admit and reconcile the objects of -f once, and print those that changed.",
            rich_help_panel=ONCE,
        ),
    ] = False
    files: OnceFiles = None
    config: Annotated[
        str,
        typer.Option(
            help="File of the ConfigMap with the SLO configuration. Without --once it is another "
            "--queue-config.",
            rich_help_panel=ONCE,
        ),
    ] = ""
    now: OnceNow = ""
    output: OncePrint = Output.YAML

    @property
    def gates(self) -> frozenset[ManagerFeature]:
        """Enabled feature gates.  Raises InputError."""
        return parse_gates(self.feature_gates)

    @property
    def shutdown_delay_s(self) -> float:
        """Seconds that webhooks are still served after a signal.  Raises InputError."""
        text = self.shutdown_delay_duration
        return 0.0 if text in {"0", "0s"} else parse_seconds(text, "--shutdown-delay-duration")

    def check(self) -> None:
        """Raise InputError for a kind of lock other than leases."""
        if self.leader_elect_resource_lock != "leases":
            problem = f"must be leases, got {self.leader_elect_resource_lock!r}"
            raise InputError(problem, source="--leader-elect-resource-lock")

    def options(self) -> "ManagerOptions":
        """Return the options of the manager.  Raises InputError."""
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
        """Return the options of the webhooks.  Raises InputError."""
        from koordinator.manager.admission.gates import BindingRules  # noqa: PLC0415 -- as above
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
    """Return the names that ``*``, ``A,B`` or ``*,-A`` selects.  Raises InputError."""
    parts = parse_list(text)
    known = {name.value: name for name in names}
    unknown = [part for part in parts if part != "*" and part.removeprefix("-") not in known]
    if unknown:
        expected = f"*, {', '.join(known)}, or one of these after -"
        raise InputError(f"must be one of {expected}, got {unknown[0]!r}", source=source)
    chosen = set(names) if "*" in parts else {known[part] for part in parts if part in known}
    return frozenset(name for name in chosen if f"-{name.value}" not in parts)
