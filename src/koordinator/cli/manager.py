"""``koord manager``: the manager against a cluster, or once over manifests.

Flags are those of koord-manager.
"""

from enum import StrEnum
from pathlib import Path
from typing import Annotated, TypeVar

import typer

from koordinator.api.labels import BINDING_ADMISSION_BYPASS
from koordinator.api.slo_config import CONFIG_NAME, CONFIG_NAMESPACE
from koordinator.cli.flags import (
    ANY_ADDRESS,
    BOOL,
    LIVENESS_DEADLINE,
    ONCE,
    PROBES,
    AlwaysAllowPaths,
    BindAddress,
    LivenessDeadline,
    OnceFiles,
    OnceNow,
    OncePrint,
    SecurePort,
    TlsFile,
    Verbosity,
    parse_bool,
    parse_seconds,
)
from koordinator.cli.output import Output
from koordinator.foundation.errors import InputError
from koordinator.manager.admission.gates import parse_gates
from koordinator.manager.pace import ProfileOptions
from koordinator.manager.switches import Controller, NodePlugin
from koordinator.process.logs import LogFormat

_ELECTION = "Leader election"
_SERVING = "Serving"
_ADMISSION = "Admission"
_BINDING_TEXT = typer.Option(rich_help_panel=_ADMISSION)
_PROFILES = "Colocation profiles of pods that exist (gate ColocationProfileController)"
_PROFILE_TIME = typer.Option(metavar="DURATION", rich_help_panel=_PROFILES)

NameT = TypeVar("NameT", bound=StrEnum)


def manager(  # noqa: PLR0917 -- one parameter per flag
    kubeconfig: Annotated[
        str, typer.Option(help="How to reach the cluster; default: KUBECONFIG, or this pod's.")
    ] = "",
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    controllers: Annotated[
        str, typer.Option(metavar="*,-x", help=f"Of {', '.join(Controller)}.")
    ] = "*",
    noderesource_plugins: Annotated[
        str, typer.Option(metavar="*,-X", help=f"Of {', '.join(NodePlugin)}.")
    ] = "*",
    feature_gates: Annotated[str, typer.Option(metavar="NAME=true|false,…")] = "",
    slo_config_name: Annotated[str, typer.Option(help="Of the ConfigMap.")] = CONFIG_NAME,
    config_namespace: Annotated[str, typer.Option(help="Of the ConfigMap.")] = CONFIG_NAMESPACE,
    node_strategy_name_need_check: Annotated[
        str, typer.Option(metavar=BOOL, rich_help_panel=_ADMISSION)
    ] = "false",
    binding_admission_user_name: Annotated[str, _BINDING_TEXT] = "",
    binding_admission_dry_run: Annotated[str, _BINDING_TEXT] = "false",
    binding_admission_namespaces: Annotated[str, _BINDING_TEXT] = "",
    binding_admission_exclude_namespaces: Annotated[str, _BINDING_TEXT] = "kube-system",
    binding_admission_bypass_labels: Annotated[str, _BINDING_TEXT] = BINDING_ADMISSION_BYPASS,
    binding_admission_bypass_annotations: Annotated[str, _BINDING_TEXT] = "",
    colocation_profile_reconcile_by_default: Annotated[
        str,
        typer.Option(
            help="Also profiles without the label config.koordinator.sh/controller-managed=true.",
            metavar=BOOL,
            rich_help_panel=_PROFILES,
        ),
    ] = "false",
    colocation_profile_reconcile_interval: Annotated[str, _PROFILE_TIME] = "30s",
    colocation_profile_force_update_pod_duration: Annotated[str, _PROFILE_TIME] = "5m",
    colocation_profile_expire_pod_cache_duration: Annotated[str, _PROFILE_TIME] = "10m",
    colocation_profile_update_pod_qps: Annotated[
        float, typer.Option(help="Pods a second.", rich_help_panel=_PROFILES)
    ] = ProfileOptions().qps,
    colocation_profile_update_pod_qps_burst: Annotated[
        int, typer.Option(help="Pods at once.", rich_help_panel=_PROFILES)
    ] = ProfileOptions().burst,
    webhook_port: Annotated[
        int,
        typer.Option(
            help="HTTPS, for the API server; 0: none.",
            min=0,
            max=65535,
            envvar="WEBHOOK_PORT",
            rich_help_panel=_SERVING,
        ),
    ] = 9876,
    webhook_host: Annotated[
        str,
        typer.Option(
            help="Further names in the certificate, where the API server calls no Service.",
            rich_help_panel=_SERVING,
        ),
    ] = "",
    webhook_client_ca_file: Annotated[
        Path | None,
        typer.Option(
            help="Only clients with a certificate of these authorities may ask for reviews.",
            rich_help_panel=_SERVING,
        ),
    ] = None,
    webhook_client_names: Annotated[
        str,
        typer.Option(
            help="Common names of these certificates that are let in; default: any.",
            metavar="NAME,NAME",
            rich_help_panel=_SERVING,
        ),
    ] = "",
    metrics_addr: Annotated[
        str,
        typer.Option(
            help="Plain HTTP, for whom the API server lets, or for anybody who reaches a loopback "
            "address; 0: none.",
            rich_help_panel=_SERVING,
        ),
    ] = ":8080",
    secure_port: SecurePort = 0,
    bind_address: BindAddress = ANY_ADDRESS,
    tls_cert_file: TlsFile = None,
    tls_private_key_file: TlsFile = None,
    authorization_always_allow_paths: AlwaysAllowPaths = PROBES,
    health_probe_addr: Annotated[
        str, typer.Option(help="Plain HTTP, only health; 0: none.", rich_help_panel=_SERVING)
    ] = ":8000",
    shutdown_delay_duration: Annotated[
        str,
        typer.Option(
            metavar="DURATION",
            help="How long webhooks are answered after a signal, while /readyz fails already.",
            rich_help_panel=_SERVING,
        ),
    ] = "0s",
    enable_leader_election: Annotated[
        str, typer.Option(metavar=BOOL, rich_help_panel=_ELECTION)
    ] = "true",
    leader_election_namespace: Annotated[
        str, typer.Option(rich_help_panel=_ELECTION)
    ] = CONFIG_NAMESPACE,
    leader_elect_resource_lock: Annotated[
        str, typer.Option(help="Only leases.", rich_help_panel=_ELECTION)
    ] = "leases",
    rest_config_qps: Annotated[float, typer.Option(help="Requests a second; 0: any.")] = 30.0,
    rest_config_burst: Annotated[int, typer.Option(help="Requests at once.")] = 50,
    liveness_deadline: LivenessDeadline = LIVENESS_DEADLINE,
    verbosity: Verbosity = 0,
    logging_format: Annotated[LogFormat, typer.Option()] = LogFormat.TEXT,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Admit and reconcile the objects given with -f and print what is different.",
            rich_help_panel=ONCE,
        ),
    ] = False,
    files: OnceFiles = None,
    config: Annotated[str, typer.Option(help="File of the ConfigMap.", rich_help_panel=ONCE)] = "",
    now: OnceNow = "",
    output: OncePrint = Output.YAML,
) -> None:
    """Run the manager on a cluster until it is told to stop."""
    if leader_elect_resource_lock != "leases":
        problem = f"found {leader_elect_resource_lock!r}; accepted is leases"
        raise InputError(problem, source="--leader-elect-resource-lock")
    from koordinator.manager.admission.binding import BindingRules  # noqa: PLC0415 -- as above
    from koordinator.manager.admission.hooks import (  # noqa: PLC0415 -- what manages is not loaded
        HookOptions,  # for all other commands
    )
    from koordinator.manager.app import Options  # noqa: PLC0415 -- as above

    gates = parse_gates(feature_gates)
    profiles = "--colocation-profile"
    options = Options(
        config_namespace=config_namespace,
        config_name=slo_config_name,
        controllers=_chosen(controllers, Controller, "--controllers"),
        plugins=_chosen(noderesource_plugins, NodePlugin, "--noderesource-plugins"),
        gates=gates,
        profiles=ProfileOptions(
            reconcile_by_default=parse_bool(
                colocation_profile_reconcile_by_default, f"{profiles}-reconcile-by-default"
            ),
            interval_s=parse_seconds(
                colocation_profile_reconcile_interval, f"{profiles}-reconcile-interval"
            ),
            force_update_s=parse_seconds(
                colocation_profile_force_update_pod_duration,
                f"{profiles}-force-update-pod-duration",
            ),
            forget_every_s=parse_seconds(
                colocation_profile_expire_pod_cache_duration,
                f"{profiles}-expire-pod-cache-duration",
            ),
            qps=colocation_profile_update_pod_qps,
            burst=colocation_profile_update_pod_qps_burst,
        ),
    )
    if once:
        from koordinator.cli.manager_once import run_once  # noqa: PLC0415 -- as above

        run_once(options, gates, files=files or [], config=config, now=now, output=output)
        return
    if files or now or config:
        raise InputError("accepted together with --once only", source="--filename, --config, --now")
    hooks = HookOptions(
        gates=gates,
        config=(config_namespace, slo_config_name),
        needs_names=parse_bool(node_strategy_name_need_check, "--node-strategy-name-need-check"),
        binding=BindingRules(
            user_names=_listed(binding_admission_user_name),
            dry_run=parse_bool(binding_admission_dry_run, "--binding-admission-dry-run"),
            namespaces=_listed(binding_admission_namespaces),
            excluded_namespaces=_listed(binding_admission_exclude_namespaces),
            bypass_labels=_listed(binding_admission_bypass_labels),
            bypass_annotations=_listed(binding_admission_bypass_annotations),
        ),
    )
    if webhook_client_names and webhook_client_ca_file is None:
        problem = "accepted together with --webhook-client-ca-file only"
        raise InputError(problem, source="--webhook-client-names")
    from koordinator.cli.manager_process import (  # noqa: PLC0415 -- servers and clients take half a
        Settings,  # second to load, which no other command should pay
        run,
    )
    from koordinator.cli.page_servers import PageSettings  # noqa: PLC0415 -- as above

    run(
        Settings(
            options=options,
            hooks=hooks,
            kubeconfig=kubeconfig,
            context=context,
            elects=parse_bool(enable_leader_election, "--enable-leader-election"),
            election_namespace=leader_election_namespace,
            webhook_port=webhook_port,
            webhook_names=_listed(webhook_host),
            webhook_client_ca=webhook_client_ca_file,
            webhook_client_names=_listed(webhook_client_names),
            shutdown_delay_s=_delay(shutdown_delay_duration),
            pages=PageSettings.parse(
                plain=parse_address(metrics_addr, "--metrics-addr"),
                secure_port=secure_port,
                bind_address=bind_address,
                tls_cert_file=tls_cert_file,
                tls_private_key_file=tls_private_key_file,
                authorization_always_allow_paths=authorization_always_allow_paths,
            ),
            health_address=parse_address(health_probe_addr, "--health-probe-addr"),
            qps=rest_config_qps,
            burst=rest_config_burst,
            liveness_deadline_s=parse_seconds(liveness_deadline, "--liveness-deadline"),
            verbosity=verbosity,
            log_format=logging_format,
        )
    )


def parse_address(text: str, source: str) -> tuple[str, int] | None:
    """Return host and port of ``:8080`` or ``127.0.0.1:8080``; None for ``0``: nowhere.

    Raises InputError.
    """
    if text == "0":
        return None
    host, _, port = text.rpartition(":")
    if not port.isdecimal() or not int(port) < 1 << 16:
        raise InputError(f"found {text!r}; accepted is such as :8080, or 0", source=source)
    return host.strip("[]") or "::", int(port)


def _delay(text: str) -> float:
    source = "--shutdown-delay-duration"
    return 0.0 if text in {"0", "0s"} else parse_seconds(text, source)


def _listed(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


def _chosen(text: str, names: type[NameT], source: str) -> frozenset[NameT]:
    """Return what ``*``, ``A,B`` or ``*,-A`` chooses.  Raises InputError for an unknown name."""
    parts = _listed(text)
    known = {name.value: name for name in names}
    unknown = [part for part in parts if part != "*" and part.removeprefix("-") not in known]
    if unknown:
        accepted = f"*, {', '.join(known)}, or one of these after a -"
        raise InputError(f"found {unknown[0]!r}; accepted are {accepted}", source=source)
    chosen = set(names) if "*" in parts else {known[part] for part in parts if part in known}
    return frozenset(name for name in chosen if f"-{name.value}" not in parts)
