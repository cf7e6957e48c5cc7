"""Flags of ``koord koordlet``, from the original's koordlet."""

import os
from dataclasses import field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from koordinator.cli.component.flags import ConnectionFlags, PageFlags, ProcessFlags
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.koordlet.adjustments import FailurePolicy, UnpreparedPolicy

if TYPE_CHECKING:
    from koordinator.cluster.kubernetes.kubelet_pods import KubeletSource
    from koordinator.host.linux.hook_server import HookServerSettings
    from koordinator.host.linux.nri_connection import NriSettings
    from koordinator.host.port import Roots
    from koordinator.koordlet.app import KoordletOptions
    from koordinator.koordlet.prediction.models import PredictionOptions

_ROOTS = "Where the machine is mounted"
_QOS = "QoS"
_COLLECT = "Measuring"
_PREDICT = "Prediction"
_KUBELET = "Pods from the kubelet"
_HOOKS = "Hooks of the container runtime"
_AUDIT = "Audit"
_NODE_NAME = "NODE_NAME"
_INDEX_DIGITS = 2
MODE: Final = "agent_mode"  # environment variable of the original: hostMode or dsMode
_S1 = Duration(seconds=1)
_S10 = Duration(seconds=10)
_M1 = Duration(minutes=1)
_S2 = Duration(seconds=2)
_S5 = Duration(seconds=5)
_S6 = Duration(seconds=6)
_S3 = Duration(seconds=3)
_H24 = Duration(hours=24)
_H12 = Duration(hours=12)
_M30 = Duration(minutes=30)
_M10 = Duration(minutes=10)


def _duration(value: str | Duration) -> Duration:
    """Return the duration of a flag, whose default is a Duration already."""
    return value if isinstance(value, Duration) else Duration.parse(value)


def _time(panel: str, text: str) -> Any:
    return typer.Option(parser=_duration, metavar="DURATION", help=text, rich_help_panel=panel)


@dataclass(frozen=True, slots=True, kw_only=True)
class RootFlags:
    """Folders of the machine that the agent reads and writes; empty: the default of its mode."""

    cgroup_root_dir: Annotated[
        str, typer.Option(help="Mount point of the cgroups.", rich_help_panel=_ROOTS)
    ] = ""
    sys_root_dir: Annotated[
        str, typer.Option(help="Mount point of the machine's /sys.", rich_help_panel=_ROOTS)
    ] = ""
    sys_fs_root_dir: Annotated[
        str, typer.Option(help="Mount point of the machine's /sys/fs.", rich_help_panel=_ROOTS)
    ] = ""
    proc_root_dir: Annotated[
        str, typer.Option(help="Mount point of the machine's /proc.", rich_help_panel=_ROOTS)
    ] = ""
    var_run_root_dir: Annotated[
        str, typer.Option(help="Mount point of the machine's /var/run.", rich_help_panel=_ROOTS)
    ] = ""
    run_root_dir: Annotated[
        str, typer.Option(help="Mount point of the machine's /run.", rich_help_panel=_ROOTS)
    ] = ""
    var_lib_kubelet_dir: Annotated[
        str, typer.Option(help="Folder of the kubelet.", rich_help_panel=_ROOTS)
    ] = ""
    kubelet_cgroup_root: Annotated[
        str,
        typer.Option(
            help="Value of the kubelet's --cgroup-root. Default: read from the kubelet's "
            "configuration, or detected from the cgroups.",
            rich_help_panel=_ROOTS,
        ),
    ] = ""

    def kubelet_parts(self) -> tuple[str, ...] | None:
        """Return the parts of the kubelet's cgroup root; None if not stated.  Raises InputError."""
        from koordinator.domain.cgroups.layout import cgroup_root_parts  # noqa: PLC0415 -- as below

        if not self.kubelet_cgroup_root:
            return None
        try:
            return cgroup_root_parts(self.kubelet_cgroup_root)
        except InputError as error:
            raise error.within(source="--kubelet-cgroup-root") from None

    def roots(self, base: "Roots") -> "Roots":
        """Return the folders with the flags applied to ``base``."""
        from koordinator.host.port import Roots  # noqa: PLC0415 -- as above

        def root(stated: str, default: str) -> str:
            return (stated or default).rstrip("/") or "/"

        return Roots(
            cgroup=root(self.cgroup_root_dir, base.cgroup),
            sys=root(self.sys_root_dir, base.sys),
            sys_fs=root(self.sys_fs_root_dir, base.sys_fs),
            proc=root(self.proc_root_dir, base.proc),
            var_run=root(self.var_run_root_dir, base.var_run),
            run=root(self.run_root_dir, base.run),
            kubelet=root(self.var_lib_kubelet_dir, base.kubelet),
            terway=base.terway,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeletFlags:
    """Requests to the kubelet for the pods of the node; disabled by default."""

    pods_from_kubelet: Annotated[
        bool,
        typer.Option(
            help="Poll the kubelet for the pods of this node, instead of watching the API server.",
            rich_help_panel=_KUBELET,
        ),
    ] = False
    kubelet_preferred_address_type: Annotated[
        str,
        typer.Option(
            help="Type of the Node's address that the kubelet is reached at.",
            rich_help_panel=_KUBELET,
        ),
    ] = "InternalIP"
    kubelet_sync_interval: Annotated[
        Duration, _time(_KUBELET, "Interval between requests to the kubelet.")
    ] = _S10
    kubelet_sync_timeout: Annotated[
        Duration, _time(_KUBELET, "Timeout of a request to the kubelet.")
    ] = _S3
    kubelet_certificate_authority: Annotated[
        str,
        typer.Option(
            help="CA certificates that are trusted for the kubelet, in addition to those of the "
            "API server. Default: pki/kubelet.crt below --var-lib-kubelet-dir.",
            rich_help_panel=_KUBELET,
        ),
    ] = ""
    kubelet_insecure_tls: Annotated[
        bool,
        typer.Option(
            help="Use the read-only port, with plain HTTP and without credentials.",
            rich_help_panel=_KUBELET,
        ),
    ] = False
    kubelet_read_only_port: Annotated[
        int,
        typer.Option(
            help="Read-only port of the kubelet, used with --kubelet-insecure-tls.",
            min=1,
            max=65535,
            rich_help_panel=_KUBELET,
        ),
    ] = 10255

    def source(self, node_name: str, kubelet_root: str) -> "KubeletSource | None":
        """Return the kubelet to poll; None if pods are watched.  Raises InputError."""
        from koordinator.cluster.kubernetes.kubelet_pods import (  # noqa: PLC0415 -- as below
            ADDRESS_TYPES,
            KubeletSource,
        )

        if not self.pods_from_kubelet:
            return None
        times = {
            "--kubelet-sync-interval": self.kubelet_sync_interval.total_seconds(),
            "--kubelet-sync-timeout": self.kubelet_sync_timeout.total_seconds(),
        }
        for flag, seconds in times.items():
            if seconds <= 0:
                raise InputError("must be more than 0s", source=flag)
        if self.kubelet_preferred_address_type not in ADDRESS_TYPES:
            raise InputError(
                f"must be one of {', '.join(ADDRESS_TYPES)}, got "
                f"{self.kubelet_preferred_address_type!r}",
                source="--kubelet-preferred-address-type",
            )
        own = self.kubelet_certificate_authority or f"{kubelet_root}/pki/kubelet.crt"
        return KubeletSource(
            node_name=node_name,
            address_type=self.kubelet_preferred_address_type,
            interval_s=times["--kubelet-sync-interval"],
            timeout_s=times["--kubelet-sync-timeout"],
            read_only_port=self.kubelet_read_only_port if self.kubelet_insecure_tls else 0,
            authorities=(Path(own),),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeHookFlags:
    """Connection of the container runtime to the hooks, and policy for hooks that fail."""

    enable_nri_runtime_hook: Annotated[
        bool,
        typer.Option(
            "--enable-nri-runtime-hook/--no-enable-nri-runtime-hook",
            help="Run as an NRI plugin of the container runtime, so that containers start with the "
            "right settings.",
            rich_help_panel=_HOOKS,
        ),
    ] = True
    runtime_hooks_nri_plugin_name: Annotated[
        str,
        typer.Option(
            help="Name that the agent registers with the runtime.", rich_help_panel=_HOOKS
        ),
    ] = "koordlet_nri"
    runtime_hooks_nri_plugin_index: Annotated[
        str,
        typer.Option(
            help="Two digits that order the plugins of the runtime.", rich_help_panel=_HOOKS
        ),
    ] = "00"
    runtime_hooks_nri_socket_path: Annotated[
        str,
        typer.Option(
            help="NRI socket; a relative path is below --var-run-root-dir.", rich_help_panel=_HOOKS
        ),
    ] = "nri/nri.sock"
    runtime_hooks_nri_connect_timeout: Annotated[
        Duration, _time(_HOOKS, "Timeout of a connection attempt to the runtime.")
    ] = _S6
    runtime_hooks_nri_backoff_duration: Annotated[
        Duration, _time(_HOOKS, "Initial backoff before the next connection attempt.")
    ] = _S1
    runtime_hooks_nri_backoff_cap: Annotated[Duration, _time(_HOOKS, "Longest backoff.")] = _S2
    runtime_hooks_nri_backoff_steps: Annotated[
        int,
        typer.Option(help="Number of times that the backoff grows.", min=0, rich_help_panel=_HOOKS),
    ] = (1 << 31) - 1
    runtime_hooks_nri_backoff_factor: Annotated[
        float,
        typer.Option(help="Factor by which the backoff grows.", min=1, rich_help_panel=_HOOKS),
    ] = 2.0
    hami_core_library_directory_path: Annotated[
        str,
        typer.Option(
            help="Path of libvgpu.so of HAMi-core, on the node and in containers that share a GPU.",
            rich_help_panel=_HOOKS,
        ),
    ] = "/usr/local/vgpu/libvgpu.so"
    runtime_hooks_addr: Annotated[
        str,
        typer.Option(
            help="Unix socket that serves hooks to a runtime proxy; empty disables it. "
            "Requires koordinator[hook-server].",
            rich_help_panel=_HOOKS,
        ),
    ] = ""
    runtime_hooks_host_endpoint: Annotated[
        str,
        typer.Option(help="Path of the same socket for the proxy.", rich_help_panel=_HOOKS),
    ] = "/var/run/koordlet/koordlet.sock"
    runtime_hooks_config_path: Annotated[
        str,
        typer.Option(help="Folder where the proxy looks for hook servers.", rich_help_panel=_HOOKS),
    ] = "/etc/runtime/hookserver.d"
    runtime_hooks_failure_policy: Annotated[
        FailurePolicy,
        typer.Option(
            help="Action of the proxy if the agent does not answer.", rich_help_panel=_HOOKS
        ),
    ] = FailurePolicy.IGNORE
    runtime_hooks_disable_stages: Annotated[
        str,
        typer.Option(
            help="Stages for which the proxy does not call the hooks.", rich_help_panel=_HOOKS
        ),
    ] = ""
    runtime_hooks_plugin_failure_policy: Annotated[
        FailurePolicy,
        typer.Option(
            help="Action if a hook fails; with Fail, the pod does not start.",
            rich_help_panel=_HOOKS,
        ),
    ] = FailurePolicy.IGNORE
    unprepared_containers: Annotated[
        UnpreparedPolicy,
        typer.Option(
            help="Action on containers that were created while the agent was down, and so lack GPU "
            "variables and limits. Restart ends those that the kubelet restarts.",
            rich_help_panel=_HOOKS,
        ),
    ] = UnpreparedPolicy.REPORT

    def nri(self, var_run: str) -> "NriSettings | None":
        """Return the NRI connection; None if it is disabled.  Raises InputError."""
        from koordinator.host.linux.nri_connection import NriSettings  # noqa: PLC0415 -- as below

        index, place = self.runtime_hooks_nri_plugin_index, self.runtime_hooks_nri_socket_path
        if len(index) != _INDEX_DIGITS or not index.isdigit():
            flag = "--runtime-hooks-nri-plugin-index"
            raise InputError(f"must be two digits, got {index!r}", source=flag)
        if not self.enable_nri_runtime_hook:
            return None
        return NriSettings(
            socket_path=place if place.startswith("/") else f"{var_run}/{place}",
            plugin_name=self.runtime_hooks_nri_plugin_name,
            plugin_index=index,
            connect_timeout_s=self.runtime_hooks_nri_connect_timeout.total_seconds(),
            backoff_s=self.runtime_hooks_nri_backoff_duration.total_seconds(),
            backoff_cap_s=self.runtime_hooks_nri_backoff_cap.total_seconds(),
            backoff_factor=self.runtime_hooks_nri_backoff_factor,
            backoff_steps=self.runtime_hooks_nri_backoff_steps,
        )

    def server(self) -> "HookServerSettings | None":
        """Return the server of the hooks for a proxy; None if it is disabled."""
        from koordinator.host.linux.hook_server import HookServerSettings  # noqa: PLC0415
        from koordinator.koordlet.runtime_hooks.hook_service import STAGES  # noqa: PLC0415

        if not self.runtime_hooks_addr:
            return None
        disabled = {stage.strip() for stage in self.runtime_hooks_disable_stages.split(",")}
        return HookServerSettings(
            address=self.runtime_hooks_addr,
            host_endpoint=self.runtime_hooks_host_endpoint,
            config_folder=self.runtime_hooks_config_path,
            failure_policy=self.runtime_hooks_failure_policy,
            stages=tuple(stage for stage in STAGES if stage not in disabled),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionFlags:
    """Training of usage models, and their checkpoints."""

    prediction_checkpoint_filepath: Annotated[
        str,
        typer.Option(
            help="Folder for checkpoints of the models; empty disables checkpoints.",
            rich_help_panel=_PREDICT,
        ),
    ] = "/prediction-checkpoints"
    prediction_cold_start_duration: Annotated[
        Duration, _time(_PREDICT, "Time that a new pod is observed before its usage is predicted.")
    ] = _H24
    prediction_safety_margin_percent: Annotated[
        int,
        typer.Option(
            help="Safety margin added to each prediction, in percent.",
            min=0,
            rich_help_panel=_PREDICT,
        ),
    ] = 10
    prediction_cpu_histogram_decay_halflife: Annotated[
        Duration, _time(_PREDICT, "Time after which the weight of a CPU sample is halved.")
    ] = _H12
    prediction_memory_histogram_decay_halflife: Annotated[
        Duration, _time(_PREDICT, "Time after which the weight of a memory sample is halved.")
    ] = _H24
    prediction_training_interval: Annotated[
        Duration, _time(_PREDICT, "Interval between samples added to the models.")
    ] = _M1
    prediction_model_expiration_duration: Annotated[
        Duration, _time(_PREDICT, "Time after which a model without new samples is removed.")
    ] = _M30
    prediction_model_checkpoint_interval: Annotated[
        Duration, _time(_PREDICT, "Interval between checkpoints of the models.")
    ] = _M10
    prediction_model_checkpoint_max_per_step: Annotated[
        int,
        typer.Option(
            help="Most models that are written in one step.", min=1, rich_help_panel=_PREDICT
        ),
    ] = 12

    def options(self) -> "PredictionOptions":
        """Return the options of the predictor."""
        from koordinator.koordlet.prediction.models import PredictionOptions  # noqa: PLC0415

        return PredictionOptions(
            cold_start_s=self.prediction_cold_start_duration.total_seconds(),
            safety_margin_percent=self.prediction_safety_margin_percent,
            memory_half_life_s=self.prediction_memory_histogram_decay_halflife.total_seconds(),
            cpu_half_life_s=self.prediction_cpu_histogram_decay_halflife.total_seconds(),
            training_interval_s=self.prediction_training_interval.total_seconds(),
            expiration_s=self.prediction_model_expiration_duration.total_seconds(),
            checkpoint_interval_s=self.prediction_model_checkpoint_interval.total_seconds(),
            checkpoints_per_step=self.prediction_model_checkpoint_max_per_step,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class KoordletFlags:
    """Values of the command line; the machine has not been read yet."""

    node_name: Annotated[
        str, typer.Option(help=f"Name of this node. Default: the variable {_NODE_NAME}.")
    ] = ""
    addr: Annotated[
        str,
        typer.Option(
            help="Address of the plain HTTP server; empty disables it. Except for health, the API "
            "server authorizes each request, unless this is a loopback address."
        ),
    ] = ":9316"
    pages: PageFlags = field(default_factory=PageFlags)
    connection: ConnectionFlags = field(default_factory=ConnectionFlags)
    kube_api_qps: Annotated[
        float, typer.Option(help="Average requests per second to the API server.", min=0.1)
    ] = 20.0
    kube_api_burst: Annotated[
        int, typer.Option(help="Burst of requests to the API server.", min=1)
    ] = 30
    feature_gates: Annotated[
        str, typer.Option(help="Feature gates to set.", metavar="NAME=true|false,…")
    ] = ""
    process: ProcessFlags = field(default_factory=ProcessFlags)
    roots: RootFlags = field(default_factory=RootFlags)
    xpu_device_infos_dir: Annotated[
        str, typer.Option(help="Folder where device daemons describe accelerators.")
    ] = "/var/run/koordlet/xpu-device-infos"
    xpu_enforce_collect_from_device_infos: Annotated[
        bool,
        typer.Option(help="Use the descriptions of device daemons only, not the driver's."),
    ] = False
    pod_resources_proxy_path: Annotated[
        str,
        typer.Option(
            help="Folder of the pod resources socket, which lists the devices of pods. Effective "
            "with the gate PodResourcesProxy. Requires koordinator[pod-resources]."
        ),
    ] = "/var/run/koordlet/pod-resources"
    enable_node_metric_report: Annotated[
        bool,
        typer.Option(
            "--enable-node-metric-report/--no-enable-node-metric-report",
            help="Report the NodeMetric of this node.",
        ),
    ] = True
    collect_res_used_interval: Annotated[
        Duration, _time(_COLLECT, "Interval between measurements of CPU and memory usage.")
    ] = _S1
    collect_sys_metric_outdated_interval: Annotated[
        Duration, _time(_COLLECT, "Age after which a measurement of the system is outdated.")
    ] = _S10
    collect_node_cpu_info_interval: Annotated[
        Duration, _time(_COLLECT, "Interval between readings of the CPU topology.")
    ] = _M1
    psi_collector_interval: Annotated[
        Duration, _time(_COLLECT, "Interval between readings of pressure stall information.")
    ] = _S10
    coldpage_collector_interval: Annotated[
        Duration,
        _time(
            _COLLECT,
            "Interval between measurements of cold memory, with the gate ColdPageCollector.",
        ),
    ] = _S5
    cpi_collector_interval: Annotated[
        Duration,
        _time(
            _COLLECT,
            "Interval between measurements of cycles per instruction, with the gate CPICollector.",
        ),
    ] = _M1
    collect_cpi_timewindow: Annotated[
        Duration, _time(_COLLECT, "Duration of a measurement of cycles per instruction.")
    ] = _S10
    enable_resctrl_collector: Annotated[
        bool,
        typer.Option(
            help="Measure caches and memory bandwidth, with the gate ResctrlCollector.",
            rich_help_panel=_COLLECT,
        ),
    ] = False
    resctrl_collector_interval: Annotated[
        Duration, _time(_COLLECT, "Interval between measurements of caches and memory bandwidth.")
    ] = _S10
    node_topology_sync_interval: Annotated[
        Duration, _time(_COLLECT, "Interval between updates of the NodeResourceTopology.")
    ] = _S3
    reconcile_interval_seconds: Annotated[
        int,
        typer.Option(
            help="Seconds between runs of the other QoS strategies.", min=1, rich_help_panel=_QOS
        ),
    ] = 1
    cpu_suppress_interval_seconds: Annotated[
        int,
        typer.Option(
            help="Seconds between adjustments of the CPUs of best-effort pods.",
            min=1,
            rich_help_panel=_QOS,
        ),
    ] = 1
    cpu_evict_interval_seconds: Annotated[
        int,
        typer.Option(
            help="Seconds between checks for eviction by CPU.", min=1, rich_help_panel=_QOS
        ),
    ] = 1
    memory_evict_interval_seconds: Annotated[
        int,
        typer.Option(
            help="Seconds between checks for eviction by memory.", min=1, rich_help_panel=_QOS
        ),
    ] = 1
    cpu_evict_cool_time_seconds: Annotated[
        int,
        typer.Option(
            help="Seconds without another eviction after an eviction by CPU.",
            min=0,
            rich_help_panel=_QOS,
        ),
    ] = 20
    memory_evict_cool_time_seconds: Annotated[
        int,
        typer.Option(
            help="Seconds without another eviction after an eviction by memory.",
            min=0,
            rich_help_panel=_QOS,
        ),
    ] = 4
    only_evict_by_api: Annotated[
        bool,
        typer.Option(
            help="Evict through the API server, which respects disruption budgets.",
            rich_help_panel=_QOS,
        ),
    ] = False
    containerd_endpoint: Annotated[
        str,
        typer.Option(
            help="Socket of the container runtime, which stops the containers of evicted pods; "
            "empty: detected below --var-run-root-dir and --run-root-dir. "
            "Requires koordinator[cri].",
            rich_help_panel=_QOS,
        ),
    ] = ""
    eviction_max_pod_grace_period: Annotated[
        int,
        typer.Option(
            min=0,
            max=60,
            help="Longest grace period of an evicted pod in seconds, where the container runtime "
            "stops it.",
            rich_help_panel=_QOS,
        ),
    ] = 30
    evict_by_copilot_agent: Annotated[
        bool,
        typer.Option(
            help="End containers of YARN, instead of the pod of their NodeManager.",
            rich_help_panel=_QOS,
        ),
    ] = False
    copilot_server_endpoint: Annotated[
        str, typer.Option(help="Socket of koord yarn-copilot.", rich_help_panel=_QOS)
    ] = "/var/run/yarn-copilot/yarn-copilot.sock"
    resource_force_update_seconds: Annotated[
        int,
        typer.Option(
            min=1,
            help="Seconds after which an unchanged value is compared with the file again.",
            rich_help_panel=_QOS,
        ),
    ] = 60
    runtime_hooks_reconcile_interval: Annotated[
        Duration, _time(_QOS, "Interval between reconciliations of the cgroups of containers.")
    ] = _S10
    disable_unset_cpu_quota: Annotated[
        bool,
        typer.Option(help="Keep the CPU quota of pods with exclusive CPUs.", rich_help_panel=_QOS),
    ] = False
    kubelet: KubeletFlags = field(default_factory=KubeletFlags)
    runtime_hooks: RuntimeHookFlags = field(default_factory=RuntimeHookFlags)
    audit_log_dir: Annotated[
        str,
        typer.Option(
            help="Folder of the audit log, which koord koordlet audit reads.",
            rich_help_panel=_AUDIT,
        ),
    ] = "/var/log/koordlet"
    audit_max_disk_space_mb: Annotated[
        int,
        typer.Option(help="Largest size of the audit log, in MiB.", min=2, rich_help_panel=_AUDIT),
    ] = 16
    prediction: PredictionFlags = field(default_factory=PredictionFlags)

    def options(self) -> "KoordletOptions":
        """Return the options of the agent.  Raises InputError."""
        from koordinator.host.port import CONTAINER, HOST  # noqa: PLC0415 -- not for --help
        from koordinator.koordlet.app import KoordletOptions  # noqa: PLC0415 -- the agent, not for --help
        from koordinator.koordlet.app.options import gates_of, parse_gates  # noqa: PLC0415 -- as above

        name = self.node_name or os.environ.get(_NODE_NAME, "")
        if not name:
            raise InputError(f"is required; or set {_NODE_NAME}", source="--node-name")
        mode = os.environ.get(MODE, "hostMode" if self.connection.kubeconfig else "dsMode")
        return KoordletOptions(
            node_name=name,
            roots=self.roots.roots(HOST if mode == "hostMode" else CONTAINER),
            gates=gates_of(parse_gates(self.feature_gates)),
            ticks_per_s=float(os.sysconf("SC_CLK_TCK")),
            collect_interval_s=self.collect_res_used_interval.total_seconds(),
            system_outdated_s=self.collect_sys_metric_outdated_interval.total_seconds(),
            pressure_interval_s=self.psi_collector_interval.total_seconds(),
            cold_page_interval_s=self.coldpage_collector_interval.total_seconds(),
            suppress_interval_s=float(self.cpu_suppress_interval_seconds),
            cpi_interval_s=self.cpi_collector_interval.total_seconds(),
            cpi_window_s=self.collect_cpi_timewindow.total_seconds(),
            monitors_resctrl=self.enable_resctrl_collector,
            resctrl_interval_s=self.resctrl_collector_interval.total_seconds(),
            cpu_evict_interval_s=float(self.cpu_evict_interval_seconds),
            memory_evict_interval_s=float(self.memory_evict_interval_seconds),
            reconcile_interval_s=float(self.reconcile_interval_seconds),
            hooks_interval_s=self.runtime_hooks_reconcile_interval.total_seconds(),
            topology_interval_s=self.node_topology_sync_interval.total_seconds(),
            hardware_interval_s=self.collect_node_cpu_info_interval.total_seconds(),
            cpu_evict_cool_s=float(self.cpu_evict_cool_time_seconds),
            memory_evict_cool_s=float(self.memory_evict_cool_time_seconds),
            forced_update_s=float(self.resource_force_update_seconds),
            reports_usage=self.enable_node_metric_report,
            evicts_only_by_api=self.only_evict_by_api,
            longest_grace_s=self.eviction_max_pod_grace_period,
            keeps_quota_of_bound_pods=self.disable_unset_cpu_quota,
            xpu_folder=self.xpu_device_infos_dir.rstrip("/"),
            only_described_xpus=self.xpu_enforce_collect_from_device_infos,
            audit_folder=self.audit_log_dir,
            audit_bytes=self.audit_max_disk_space_mb << 20,
            kubelet_cgroup_root=self.roots.kubelet_parts(),
            unprepared_containers=self.runtime_hooks.unprepared_containers,
            checkpoint_folder=self.prediction.prediction_checkpoint_filepath,
            prediction=self.prediction.options(),
        )

    def address(self) -> tuple[str, int] | None:
        """Return host and port of ``--addr``; None if it is empty.  Raises InputError."""
        if not self.addr:
            return None
        host, _, port = self.addr.rpartition(":")
        if not port.isdigit():
            raise InputError(f"must be host:port, got {self.addr!r}", source="--addr")
        any_address = "0.0.0.0"  # noqa: S104 -- the default of the original
        return host.strip("[]") or any_address, int(port)
