"""``koord scheduler``: the scheduler against a cluster, or once over manifests.

Flags are those of kube-scheduler and koord-scheduler.
"""

from pathlib import Path
from typing import Annotated, Any

import typer
from msgspec.structs import replace

from koordinator.api.kubescheduler import FeatureGates, KubeSchedulerConfiguration
from koordinator.api.kubescheduler.gates import GATES
from koordinator.cli.configuration import (
    NAMED_CONFIGURATION,
    WHAT_NAMES_MEAN,
    plugins_for,
    read_configuration,
    write_configuration,
)
from koordinator.cli.flags import (
    BOOL,
    LIVENESS_DEADLINE,
    ONCE,
    LivenessDeadline,
    OnceFiles,
    OnceNow,
    OncePrint,
    Verbosity,
    parse_bool,
    parse_seconds,
)
from koordinator.cli.manifests import read_manifests
from koordinator.cli.output import Output, print_data, warn
from koordinator.cli.times import parse_time
from koordinator.cli.unheeded import unheeded
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.duration import Duration
from koordinator.foundation.errors import InputError
from koordinator.process.logs import LogFormat
from koordinator.simulator.embedded import STOCK
from koordinator.simulator.once import schedule_once

_ELECTION = "Leader election"
_SERVING = "Serving"
_ELECTION_TIME = typer.Option(parser=Duration.parse, metavar="15s", rich_help_panel=_ELECTION)
_ELECTION_TEXT = typer.Option(rich_help_panel=_ELECTION)
_FIVE_MINUTES = Duration(minutes=5)
_ANY_ADDRESS = "0.0.0.0"  # noqa: S104 -- the default of both originals


def scheduler(  # noqa: PLR0917 -- one parameter per flag
    config: Annotated[
        str,
        typer.Option(
            metavar=NAMED_CONFIGURATION,
            help=f"{WHAT_NAMES_MEAN} Default: kubernetes; with --once both.",
        ),
    ] = "",
    kubeconfig: Annotated[
        str, typer.Option(help="How to reach the cluster; default: KUBECONFIG, or this pod's.")
    ] = "",
    context: Annotated[str, typer.Option(help="Context of the kubeconfig.")] = "",
    write_config_to: Annotated[
        Path | None, typer.Option(help="Write the configuration that would be used, and exit.")
    ] = None,
    pod_max_in_unschedulable_pods_duration: Annotated[
        Duration | None,
        typer.Option(
            parser=Duration.parse,
            metavar="5m",
            help="A pod is tried again after this time, whatever happens; default: 5m.",
        ),
    ] = None,
    leader_elect: Annotated[
        str,
        typer.Option(
            metavar=BOOL,
            help="Work only while holding the lease.",
            rich_help_panel=_ELECTION,
        ),
    ] = "",
    leader_elect_lease_duration: Annotated[Duration | None, _ELECTION_TIME] = None,
    leader_elect_renew_deadline: Annotated[Duration | None, _ELECTION_TIME] = None,
    leader_elect_retry_period: Annotated[Duration | None, _ELECTION_TIME] = None,
    leader_elect_resource_lock: Annotated[str, _ELECTION_TEXT] = "",
    leader_elect_resource_name: Annotated[str, _ELECTION_TEXT] = "",
    leader_elect_resource_namespace: Annotated[str, _ELECTION_TEXT] = "",
    secure_port: Annotated[
        int, typer.Option(help="HTTPS; 0: none.", min=0, max=65535, rich_help_panel=_SERVING)
    ] = 10259,
    bind_address: Annotated[str, typer.Option(rich_help_panel=_SERVING)] = _ANY_ADDRESS,
    port: Annotated[
        int,
        typer.Option(
            help="Plain HTTP, open to everybody; 0: none.",
            min=0,
            max=65535,
            rich_help_panel=_SERVING,
        ),
    ] = 0,
    address: Annotated[
        str, typer.Option(help="Of the plain port.", rich_help_panel=_SERVING)
    ] = _ANY_ADDRESS,
    tls_cert_file: Annotated[Path | None, typer.Option(rich_help_panel=_SERVING)] = None,
    tls_private_key_file: Annotated[Path | None, typer.Option(rich_help_panel=_SERVING)] = None,
    cert_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where a self-signed certificate is kept; default: nowhere.",
            rich_help_panel=_SERVING,
        ),
    ] = None,
    authorization_always_allow_paths: Annotated[
        str, typer.Option(rich_help_panel=_SERVING)
    ] = "/healthz,/readyz,/livez",
    feature_gates: Annotated[
        str, typer.Option(metavar="NAME=true,...", help=f"Known: {', '.join(sorted(GATES))}.")
    ] = "",
    enable_network_topology_manager: Annotated[
        str,
        typer.Option(
            metavar=BOOL,
            help="Write the network's domains to ClusterNetworkTopology; default: if a profile "
            "has awareNetworkTopology.",
        ),
    ] = "",
    audit: Annotated[
        bool,
        typer.Option("--audit", help="Remember the last decisions, for /apis/v1/audit."),
    ] = False,
    audit_dir: Annotated[
        Path | None, typer.Option(help="Keep them in files here, too; implies --audit.")
    ] = None,
    liveness_deadline: LivenessDeadline = LIVENESS_DEADLINE,
    verbosity: Verbosity = 0,
    logging_format: Annotated[LogFormat, typer.Option()] = LogFormat.TEXT,
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Schedule the objects given with -f and print what was written.",
            rich_help_panel=ONCE,
        ),
    ] = False,
    files: OnceFiles = None,
    now: OnceNow = "",
    strict: Annotated[
        bool,
        typer.Option(
            "--strict", help="Refuse fields that a kind does not have.", rich_help_panel=ONCE
        ),
    ] = False,
    output: OncePrint = Output.YAML,
) -> None:
    """Run the scheduler on a cluster until it is told to stop."""
    configuration = read_configuration(config, None if once else STOCK)
    gates = FeatureGates.parse(feature_gates)
    if once:
        _run_once(configuration, config, files or [], now, output, gates=gates, strict=strict)
        return
    if files or now:
        raise InputError("accepted together with --once only", source="--filename, --now")
    if bool(tls_cert_file) is not bool(tls_private_key_file):
        raise InputError("accepted together", source="--tls-cert-file, --tls-private-key-file")
    configuration = _with_election(
        configuration,
        leader_elect=parse_bool(leader_elect, "--leader-elect") if leader_elect else None,
        lease_duration=leader_elect_lease_duration,
        renew_deadline=leader_elect_renew_deadline,
        retry_period=leader_elect_retry_period,
        resource_lock=leader_elect_resource_lock,
        resource_name=leader_elect_resource_name,
        resource_namespace=leader_elect_resource_namespace,
    )
    if write_config_to is not None:
        write_configuration(configuration, write_config_to)
        return
    from koordinator.cli.scheduler_process import (  # noqa: PLC0415 -- servers and clients take
        Settings,  # half a second to load, which no other command should pay
        run,
    )

    run(
        Settings(
            configuration=configuration,
            source=config,
            kubeconfig=kubeconfig or configuration.client_connection.kubeconfig,
            context=context,
            max_unschedulable_s=(
                pod_max_in_unschedulable_pods_duration or _FIVE_MINUTES
            ).total_seconds(),
            secure_port=secure_port,
            bind_address=bind_address,
            port=port,
            address=address,
            certificate=tls_cert_file,
            key=tls_private_key_file,
            certificate_folder=cert_dir,
            always_allowed=tuple(filter(None, authorization_always_allow_paths.split(","))),
            gates=gates,
            writes_network=(
                parse_bool(enable_network_topology_manager, "--enable-network-topology-manager")
                if enable_network_topology_manager
                else None
            ),
            audit=audit,
            audit_folder=audit_dir,
            liveness_deadline_s=parse_seconds(liveness_deadline, "--liveness-deadline"),
            verbosity=verbosity,
            log_format=logging_format,
        )
    )


def _with_election(
    configuration: KubeSchedulerConfiguration, **flags: Any
) -> KubeSchedulerConfiguration:
    """Return the configuration as the flags change it: what the user typed wins over the file."""
    given = {name: value for name, value in flags.items() if value not in (None, "")}
    election = replace(configuration.leader_election, **given)
    election.validate("leaderElection")
    return replace(configuration, leader_election=election)


def _run_once(
    configuration: KubeSchedulerConfiguration,
    source: str,
    files: list[str],
    now: str,
    output: Output,
    *,
    gates: FeatureGates,
    strict: bool,
) -> None:
    if not files:
        raise InputError("required with --once, but missing", source="--filename")
    if output is Output.TABLE:
        raise InputError("found 'table'; accepted with --once is json or yaml", source="--output")
    objects, out_of_tree = read_manifests(files, strict=strict), plugins_for(configuration)
    for sentence in unheeded(
        objects, configuration, out_of_tree=out_of_tree, source=source, gates=gates
    ):
        warn(sentence)
    changes = schedule_once(
        objects,
        configuration,
        now_s=parse_time(now) if now else SystemClock().now_s(),
        out_of_tree=out_of_tree,
        source=source,
        gates=gates,
    )
    print_data(changes.as_data(), output)
    changes.faults.check()
