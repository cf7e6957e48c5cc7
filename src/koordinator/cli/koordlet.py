"""``koord koordlet``: the node agent.  Flags are those of the original's koordlet.

What the original has a flag for and this agent has not is left out, with a warning.
"""

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from koordinator.cli.flags import (
    ANY_ADDRESS,
    LIVENESS_DEADLINE,
    PROBES,
    AlwaysAllowPaths,
    BindAddress,
    LivenessDeadline,
    Print,
    SecurePort,
    TlsFile,
    Verbosity,
    parse_bool,
    parse_seconds,
)
from koordinator.cli.original_flags import KoordletGroup
from koordinator.cli.output import Output, console, print_data
from koordinator.foundation.duration import Duration
from koordinator.foundation.errors import InputError
from koordinator.process.logs import LogFormat

_ROOTS = "Where the machine is mounted"
_QOS = "QoS"
_COLLECT = "Measuring"
_PREDICT = "Prediction"
_AUDIT = "Audit"
_NODE_NAME = "NODE_NAME"
_MODE = "agent_mode"
_S1 = Duration(seconds=1)
_S10 = Duration(seconds=10)
_M1 = Duration(minutes=1)
_S5 = Duration(seconds=5)
_S3 = Duration(seconds=3)
_H24 = Duration(hours=24)
_H12 = Duration(hours=12)
_M30 = Duration(minutes=30)
_M10 = Duration(minutes=10)

koordlet = typer.Typer(
    name="koordlet",
    cls=KoordletGroup,
    help="Run the node agent, or read what it did.",
    invoke_without_command=True,
)


def _duration(value: str | Duration) -> Duration:
    """Return what a flag says; its default comes as it is."""
    return value if isinstance(value, Duration) else Duration.parse(value)


def _time(panel: str, metavar: str) -> Any:
    return typer.Option(parser=_duration, metavar=metavar, rich_help_panel=panel)


@koordlet.callback()
def run(  # noqa: PLR0917 -- one parameter per flag
    context: typer.Context,
    node_name: Annotated[
        str, typer.Option(help=f"The node this runs on; default: the variable {_NODE_NAME}.")
    ] = "",
    addr: Annotated[
        str,
        typer.Option(
            help="Plain HTTP: health for anybody, all else for whom the API server lets, or for "
            "anybody who reaches a loopback address; empty: none."
        ),
    ] = ":9316",
    secure_port: SecurePort = 0,
    bind_address: BindAddress = ANY_ADDRESS,
    tls_cert_file: TlsFile = None,
    tls_private_key_file: TlsFile = None,
    authorization_always_allow_paths: AlwaysAllowPaths = PROBES,
    kubeconfig: Annotated[
        str, typer.Option(help="How to reach the cluster; default: KUBECONFIG, or this pod's.")
    ] = "",
    kube_context: Annotated[str, typer.Option("--context", help="Context of the kubeconfig.")] = "",
    kube_api_qps: Annotated[float, typer.Option(min=0.1)] = 20.0,
    kube_api_burst: Annotated[int, typer.Option(min=1)] = 30,
    feature_gates: Annotated[str, typer.Option(metavar="NAME=true|false,…")] = "",
    liveness_deadline: LivenessDeadline = LIVENESS_DEADLINE,
    verbosity: Verbosity = 0,
    logging_format: Annotated[LogFormat, typer.Option()] = LogFormat.TEXT,
    cgroup_root_dir: Annotated[str, typer.Option(rich_help_panel=_ROOTS)] = "",
    sys_root_dir: Annotated[str, typer.Option(rich_help_panel=_ROOTS)] = "",
    sys_fs_root_dir: Annotated[str, typer.Option(rich_help_panel=_ROOTS)] = "",
    proc_root_dir: Annotated[str, typer.Option(rich_help_panel=_ROOTS)] = "",
    var_lib_kubelet_dir: Annotated[str, typer.Option(rich_help_panel=_ROOTS)] = "",
    xpu_device_infos_dir: Annotated[
        str, typer.Option(help="Where a device daemon describes accelerators.")
    ] = "/var/run/koordlet/xpu-device-infos",
    xpu_enforce_collect_from_device_infos: Annotated[
        bool, typer.Option(help="Only what a device daemon describes counts, the driver does not.")
    ] = False,
    enable_node_metric_report: Annotated[
        bool, typer.Option("--enable-node-metric-report/--no-enable-node-metric-report")
    ] = True,
    collect_res_used_interval: Annotated[Duration, _time(_COLLECT, "1s")] = _S1,
    collect_sys_metric_outdated_interval: Annotated[Duration, _time(_COLLECT, "10s")] = _S10,
    collect_node_cpu_info_interval: Annotated[Duration, _time(_COLLECT, "60s")] = _M1,
    psi_collector_interval: Annotated[Duration, _time(_COLLECT, "10s")] = _S10,
    coldpage_collector_interval: Annotated[Duration, _time(_COLLECT, "5s")] = _S5,
    cpi_collector_interval: Annotated[Duration, _time(_COLLECT, "60s")] = _M1,
    collect_cpi_timewindow: Annotated[Duration, _time(_COLLECT, "10s")] = _S10,
    enable_resctrl_collector: Annotated[
        bool,
        typer.Option(
            help="Measure caches and bandwidth, with gate ResctrlCollector.",
            rich_help_panel=_COLLECT,
        ),
    ] = False,
    resctrl_collector_interval: Annotated[Duration, _time(_COLLECT, "10s")] = _S10,
    node_topology_sync_interval: Annotated[Duration, _time(_COLLECT, "3s")] = _S3,
    reconcile_interval_seconds: Annotated[int, typer.Option(min=1, rich_help_panel=_QOS)] = 1,
    cpu_suppress_interval_seconds: Annotated[int, typer.Option(min=1, rich_help_panel=_QOS)] = 1,
    cpu_evict_interval_seconds: Annotated[int, typer.Option(min=1, rich_help_panel=_QOS)] = 1,
    memory_evict_interval_seconds: Annotated[int, typer.Option(min=1, rich_help_panel=_QOS)] = 1,
    cpu_evict_cool_time_seconds: Annotated[int, typer.Option(min=0, rich_help_panel=_QOS)] = 20,
    memory_evict_cool_time_seconds: Annotated[int, typer.Option(min=0, rich_help_panel=_QOS)] = 4,
    only_evict_by_api: Annotated[
        bool,
        typer.Option(help="Ask the API server, and so disruption budgets.", rich_help_panel=_QOS),
    ] = False,
    resource_force_update_seconds: Annotated[
        int, typer.Option(min=1, help="How often a file is looked at again.", rich_help_panel=_QOS)
    ] = 60,
    runtime_hooks_reconcile_interval: Annotated[Duration, _time(_QOS, "10s")] = _S10,
    disable_unset_cpu_quota: Annotated[
        bool, typer.Option(help="Pods with CPUs of their own keep a quota.", rich_help_panel=_QOS)
    ] = False,
    audit_log_dir: Annotated[str, typer.Option(rich_help_panel=_AUDIT)] = "/var/log/koordlet",
    audit_max_disk_space_mb: Annotated[int, typer.Option(min=2, rich_help_panel=_AUDIT)] = 16,
    prediction_checkpoint_filepath: Annotated[
        str, typer.Option(help="Empty: none are kept.", rich_help_panel=_PREDICT)
    ] = "/prediction-checkpoints",
    prediction_cold_start_duration: Annotated[Duration, _time(_PREDICT, "24h")] = _H24,
    prediction_safety_margin_percent: Annotated[
        int, typer.Option(min=0, rich_help_panel=_PREDICT)
    ] = 10,
    prediction_cpu_histogram_decay_halflife: Annotated[Duration, _time(_PREDICT, "12h")] = _H12,
    prediction_memory_histogram_decay_halflife: Annotated[Duration, _time(_PREDICT, "24h")] = _H24,
    prediction_training_interval: Annotated[Duration, _time(_PREDICT, "1m")] = _M1,
    prediction_model_expiration_duration: Annotated[Duration, _time(_PREDICT, "30m")] = _M30,
    prediction_model_checkpoint_interval: Annotated[Duration, _time(_PREDICT, "10m")] = _M10,
    prediction_model_checkpoint_max_per_step: Annotated[
        int, typer.Option(min=1, rich_help_panel=_PREDICT)
    ] = 12,
) -> None:
    """Run the node agent until it is told to stop."""
    if context.invoked_subcommand is not None:
        return
    from koordinator.cli.koordlet_process import (  # noqa: PLC0415 -- servers and clients take
        Settings,  # half a second to load, which no other command should pay
        run_agent,
    )
    from koordinator.cli.page_servers import PageSettings  # noqa: PLC0415
    from koordinator.host.roots import CONTAINER, HOST, Roots  # noqa: PLC0415
    from koordinator.koordlet.app import Options  # noqa: PLC0415
    from koordinator.koordlet.app.gates import gates_of  # noqa: PLC0415
    from koordinator.koordlet.prediction.models import PredictionOptions  # noqa: PLC0415

    name = node_name or os.environ.get(_NODE_NAME, "")
    if not name:
        raise InputError(f"required, but missing; or set {_NODE_NAME}", source="--node-name")
    mode = os.environ.get(_MODE, "hostMode" if kubeconfig else "dsMode")
    base = HOST if mode == "hostMode" else CONTAINER

    def root(stated: str, default: str) -> str:
        return (stated or default).rstrip("/") or "/"

    options = Options(
        node_name=name,
        roots=Roots(
            cgroup=root(cgroup_root_dir, base.cgroup),
            sys=root(sys_root_dir, base.sys),
            sys_fs=root(sys_fs_root_dir, base.sys_fs),
            proc=root(proc_root_dir, base.proc),
            var_run=base.var_run,
            run=base.run,
            kubelet=root(var_lib_kubelet_dir, base.kubelet),
        ),
        gates=gates_of(_gates(feature_gates)),
        ticks_per_s=float(os.sysconf("SC_CLK_TCK")),
        collect_interval_s=collect_res_used_interval.total_seconds(),
        system_outdated_s=collect_sys_metric_outdated_interval.total_seconds(),
        pressure_interval_s=psi_collector_interval.total_seconds(),
        cold_page_interval_s=coldpage_collector_interval.total_seconds(),
        suppress_interval_s=float(cpu_suppress_interval_seconds),
        cpi_interval_s=cpi_collector_interval.total_seconds(),
        cpi_window_s=collect_cpi_timewindow.total_seconds(),
        monitors_resctrl=enable_resctrl_collector,
        resctrl_interval_s=resctrl_collector_interval.total_seconds(),
        cpu_evict_interval_s=float(cpu_evict_interval_seconds),
        memory_evict_interval_s=float(memory_evict_interval_seconds),
        reconcile_interval_s=float(reconcile_interval_seconds),
        hooks_interval_s=runtime_hooks_reconcile_interval.total_seconds(),
        topology_interval_s=node_topology_sync_interval.total_seconds(),
        hardware_interval_s=collect_node_cpu_info_interval.total_seconds(),
        cpu_evict_cool_s=float(cpu_evict_cool_time_seconds),
        memory_evict_cool_s=float(memory_evict_cool_time_seconds),
        forced_update_s=float(resource_force_update_seconds),
        reports_usage=enable_node_metric_report,
        evicts_only_by_api=only_evict_by_api,
        keeps_quota_of_bound_pods=disable_unset_cpu_quota,
        xpu_folder=xpu_device_infos_dir.rstrip("/"),
        only_described_xpus=xpu_enforce_collect_from_device_infos,
        audit_folder=audit_log_dir,
        audit_bytes=audit_max_disk_space_mb << 20,
        checkpoint_folder=prediction_checkpoint_filepath,
        prediction=PredictionOptions(
            cold_start_s=prediction_cold_start_duration.total_seconds(),
            safety_margin_percent=prediction_safety_margin_percent,
            memory_half_life_s=prediction_memory_histogram_decay_halflife.total_seconds(),
            cpu_half_life_s=prediction_cpu_histogram_decay_halflife.total_seconds(),
            training_interval_s=prediction_training_interval.total_seconds(),
            expiration_s=prediction_model_expiration_duration.total_seconds(),
            checkpoint_interval_s=prediction_model_checkpoint_interval.total_seconds(),
            checkpoints_per_step=prediction_model_checkpoint_max_per_step,
        ),
    )
    run_agent(
        Settings(
            options=options,
            kubeconfig=kubeconfig,
            context=kube_context,
            pages=PageSettings.parse(
                plain=_address(addr),
                secure_port=secure_port,
                bind_address=bind_address,
                tls_cert_file=tls_cert_file,
                tls_private_key_file=tls_private_key_file,
                authorization_always_allow_paths=authorization_always_allow_paths,
            ),
            qps=kube_api_qps,
            burst=kube_api_burst,
            liveness_deadline_s=parse_seconds(liveness_deadline, "--liveness-deadline"),
            verbosity=verbosity,
            log_format=logging_format,
        )
    )


def _address(text: str) -> tuple[str, int] | None:
    if not text:
        return None
    host, _, port = text.rpartition(":")
    if not port.isdigit():
        raise InputError(f"found {text!r}; accepted is host:port", source="--addr")
    any_address = "0.0.0.0"  # noqa: S104 -- the default of the original
    return host.strip("[]") or any_address, int(port)


@koordlet.command()
def audit(
    folder: Annotated[
        Path, typer.Option("--audit-log-dir", help="Where the agent keeps its audit.")
    ] = Path("/var/log/koordlet"),
    *,
    size: Annotated[int, typer.Option(min=1, help="How many events, the newest first.")] = 256,
    owner: Annotated[
        str, typer.Option(help="Only of this pod (namespace/name), tier, program or the node.")
    ] = "",
    kind: Annotated[
        str, typer.Option("--type", help="Only cgroup, file, resctrl, oom, core or eviction.")
    ] = "",
    failed: Annotated[bool, typer.Option("--failed", help="Only what was refused.")] = False,
    output: Print = Output.TABLE,
) -> None:
    """Show what the agent changed on this machine, when and why."""
    from koordinator.host.linux.host import LinuxHost  # noqa: PLC0415
    from koordinator.koordlet.executor.audit import read_events  # noqa: PLC0415

    events = []
    for event in read_events(LinuxHost(), str(folder)):
        if (
            (not owner or event.owner == owner or event.owner.startswith(f"{owner}/"))
            and (not kind or event.type == kind)
            and (not failed or event.error)
        ):
            events.append(event)
            if len(events) == size:
                break
    if output is Output.TABLE:
        out = console()
        for event in events:
            line = f"{event.created_at:%Y-%m-%dT%H:%M:%SZ} {event.type} {event.message}"
            out.print(line, markup=False, highlight=False, soft_wrap=True)
        return
    print_data({"events": [_fields(event) for event in events]}, output)


def _fields(event: object) -> object:
    import msgspec  # noqa: PLC0415

    return msgspec.to_builtins(event)


def _gates(text: str) -> dict[str, bool]:
    pairs = [part.partition("=") for part in text.split(",") if part]
    return {name.strip(): parse_bool(value, "--feature-gates") for name, _, value in pairs}
