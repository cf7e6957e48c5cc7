"""Parser of flags in the style of Go, so that the original's Deployments run these commands.

A flag has one dash or two, a boolean flag a value or none.  Flags of the originals without
counterpart here are ignored with a warning that gives the reason.  Some have another name here.
Source: Go flag and spf13/pflag; k8s.io/klog/v2; kube-scheduler, koord-scheduler, koord-manager,
koordlet, koord-queue with koord-queue-controllers, and HAMi's vGPUmonitor.
"""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, ClassVar, Final

from koordinator.cli.component.flags import BOOL, parse_bool
from koordinator.cli.help_pages import HelpCommand, HelpGroup

log = logging.getLogger(__name__)

Reasons = Mapping[str, Sequence[str]]  # ignored flags by reason
IgnoredFlags = Mapping[str, str]  # reasons by ignored flag


def _by_flag(*reasons: Reasons) -> IgnoredFlags:
    return MappingProxyType(
        {flag: why for each in reasons for why, flags in each.items() for flag in flags}
    )


_LOGS: Final[Reasons] = {
    "logs are written to standard error": (
        "add-dir-header",
        "alsologtostderr",
        "async-log",
        "async-log-queue-length",
        "legacy-stderr-threshold-behavior",
        "log-backtrace-at",
        "log-dir",
        "log-file",
        "log-file-max-size",
        "log-flush-frequency",
        "logtostderr",
        "log-json-info-buffer-size",
        "log-json-split-stream",
        "log-text-info-buffer-size",
        "log-text-split-stream",
        "one-output",
        "skip-headers",
        "skip-log-headers",
        "stderrthreshold",
        "vmodule",
    ),
}
_SERVING: Final[Reasons] = {
    "the server has one certificate for all host names": ("tls-sni-cert-key",),
    "connections use HTTP/1.1, and are limited in number, size and time": (
        "disable-http2-serving",
        "http2-max-streams-per-connection",
    ),
    "a port is never shared with another process": (
        "permit-address-sharing",
        "permit-port-sharing",
    ),
    "all metrics are served with all their labels": (
        "allow-metric-labels",
        "allow-metric-labels-manifest",
        "disabled-metrics",
        "show-hidden-metrics-for-version",
    ),
}
_REVIEWED = "the API server authenticates clients by their bearer tokens"
_RUNTIME = "the container runtime is detected by its socket; see --containerd-endpoint"
_TSDB = "samples are kept in memory for the windows of the NodeMetric"
_THREADS = "/debug/threads shows the stacks of all threads"
_AUDIT = "koord audit and koord explain show decisions"

OF_SCHEDULER: Final = _by_flag(
    _LOGS,
    _SERVING,
    {
        _REVIEWED: (
            "authentication-skip-lookup",
            "authentication-tolerate-lookup-failure",
            "client-ca-file",
            "requestheader-allowed-names",
            "requestheader-client-ca-file",
            "requestheader-extra-headers-prefix",
            "requestheader-group-headers",
            "requestheader-uid-headers",
            "requestheader-username-headers",
        ),
        "results of authentication and authorization are cached for ten seconds": (
            "authentication-token-webhook-cache-ttl",
            "authorization-webhook-cache-authorized-ttl",
            "authorization-webhook-cache-unauthorized-ttl",
        ),
        "clientConnection of the configuration sets it": ("kube-api-burst", "kube-api-qps"),
        "only --emulated-version selects the Kubernetes release that is reproduced": (
            "emulation-forward-compatible",
            "min-compatibility-version",
            "runtime-config-emulation-forward-compatible",
        ),
        "objects are never changed in place": ("disable-no-deepcopy",),
        _THREADS: ("contention-profiling", "profiling"),
        _AUDIT: (
            "debug-diagnosis",
            "debug-diagnosis-blocking",
            "debug-diagnosis-queue-size",
            "debug-diagnosis-worker-count",
            "debug-filters",
            "debug-scores",
            "scheduler-monitor-period",
            "scheduling-drop-unhandled-timeout",
            "scheduling-timeout",
        ),
        "scheduling starts when all existing objects have been listed": (
            "sync-barrier-pod-name",
            "sync-barrier-pod-namespace",
            "sync-hard-timeout",
        ),
        "requests to the API server use JSON": ("kube-api-content-type",),
    },
)
OF_MANAGER: Final = _by_flag(
    _LOGS,
    {
        _THREADS: ("enable-pprof", "pprof-addr"),
        "watches miss no event, and failed reconciliations are retried": ("sync-period",),
        "pods are charged one after the other to the stored quota": (
            "quota-update-conflict-fresh-get",
            "quota-update-max-total-jitter",
            "quota-update-retry-jitter",
        ),
        "each review reads the ConfigMap": ("pod-enhanced-validator-reconcile-interval",),
        "objects are never changed in place": ("disable-no-deepcopy",),
        "all namespaces are watched: the objects of the controllers are cluster-scoped": (
            "namespace",
        ),
        "all queues are processed together after every change": (
            "admissionCheckControllerWorker",
            "default-requeue-period",
            "scheduleSuspendTimeInMillSecond",
            "workers",
            "wqqps",
        ),
        "the limits of parent quotas always apply": ("enableParentLimit",),
        "the Queue's status lists the waiting units": ("enableApiHandler",),
        "a unit keeps its quota until its job has ended": ("enable-pod-reclaim",),
        "the scheduler reserves resources for gangs; queues create no Reservations": (
            "enable-reservation",
            "enable-network-aware",
        ),
    },
)
#: Names here of flags of koord-queue and koord-queue-controllers.
SPELLED_BY_MANAGER: Final[Mapping[str, str]] = MappingProxyType(
    {
        "burst": "rest-config-burst",
        "defaultPreemptible": "default-preemptible",
        "enableVisibilityServer": "enable-visibility-server",
        "health-probe-bind-address": "health-probe-addr",
        "leader-elect": "enable-leader-election",
        "leader-namespace": "leader-election-namespace",
        "leaderElection": "enable-leader-election",
        "metrics-bind-address": "metrics-addr",
        "podInitialBackoffSeconds": "pod-initial-backoff-seconds",
        "podMaxBackoffSeconds": "pod-max-backoff-seconds",
        "qps": "rest-config-qps",
        "strictDequeueMode": "strict-dequeue-mode",
    }
)
OF_DESCHEDULER: Final = _by_flag(
    _LOGS,
    _SERVING,
    {
        "the self-signed certificate is kept in memory only": ("cert-dir",),
        _THREADS: ("contention-profiling", "profiling"),
        "the configuration sets the addresses": ("address", "port"),
        _REVIEWED: (
            "authentication-skip-lookup",
            "authentication-tolerate-lookup-failure",
        ),
    },
)
OF_YARN_OPERATOR: Final = _by_flag(
    _LOGS,
    {
        _THREADS: ("enable-pprof", "pprof-addr"),
        "watches miss no event, and failed reconciliations are retried": ("sync-period",),
    },
)
OF_YARN_COPILOT: Final = _by_flag(
    _LOGS,
    {
        "Hadoop 2 is not supported; Hadoop 3 creates memory cgroups itself": (
            "sync-cgroup-period",
            "sync-memory-cgroup",
        ),
    },
)
OF_KOORDLET: Final = _by_flag(
    _LOGS,
    {
        "of the kubelet's configuration, only the CPU manager's state file is used": (
            "disable-query-kubelet-config",
        ),
        "processes are looked up only when they are moved": ("enable-pod-taskids",),
        _RUNTIME: (
            "default-runtime-type",
            "docker-endpoint",
            "pouch-endpoint",
        ),
        _TSDB: (
            "metric-expire-seconds",
            "metric-gc-interval-seconds",
            "tsdb-enable-prometheus-metric",
            "tsdb-head-chunks-write-buffer-size",
            "tsdb-max-block-chunk-segment-size",
            "tsdb-max-block-duration",
            "tsdb-max-bytes",
            "tsdb-min-block-duration",
            "tsdb-path",
            "tsdb-retention-duration",
            "tsdb-stripe-size",
            "tsdb-wal-segment-size",
        ),
        "hooks are served on a unix socket": ("runtime-hooks-network",),
        "the agent is configured by flags and the NodeSLO only": (
            "configmap-name",
            "configmap-namespace",
        ),
        "/events serves the latest 2,048 changes to every reader": (
            "audit-max-concurrent-readers",
            "audit-max-events-limit",
            "audit-verbose",
        ),
        _THREADS: ("enable-pprof", "pprof-addr"),
        "disks are looked up only for limits": ("collect-node-storage-info-interval",),
        "page cache is always measured": ("enable-pagecache-collector",),
        "the NodeMetric sets the interval of reports": ("report-interval",),
        "only built-in strategies are supported": ("qos-extension-plugins",),
    },
)
OF_VGPU_MONITOR: Final = _by_flag(_LOGS)
OF_DEVICE_DAEMON: Final = _by_flag(
    _LOGS,
    {
        "the output file has no timestamp": ("no-timestamp",),
        "the daemon is configured by flags and variables only": ("config-file",),
    },
)


NO_RENAMES: Final[Mapping[str, str]] = MappingProxyType({})
#: Flags whose values add up if they are repeated; of all other flags the last value counts.
_LISTS: Final = frozenset(
    ("controller-plugins", "controllers", "feature-gates", "noderesource-plugins")
)


def as_declared(
    args: Sequence[str],
    declared: Mapping[str, Any],
    ignored: IgnoredFlags,
    is_command: Callable[[str], bool],
    spelled: Mapping[str, str] = NO_RENAMES,
) -> list[str]:
    """Return the arguments in the style of click; ``declared`` maps options to its parameters.

    An argument for which ``is_command`` is true is never the value of an ignored flag.
    ``spelled`` maps names of the original to names here.
    """
    translated: list[str] = []
    lists: dict[str, list[str]] = {}
    rest = list(args)
    while rest:
        arg = rest.pop(0)
        name, equals, value = arg.removeprefix("-").removeprefix("-").partition("=")
        name = spelled.get(name, name.replace("_", "-"))
        option = declared.get(f"--{name}")
        if arg == "--":
            translated += [arg, *rest]
            break
        if not arg.startswith("-") or not name:
            translated.append(arg)
        elif name == "v":
            translated += ["-v", value] if equals else ["-v"]
        elif option is not None and name in _LISTS and (equals or rest):
            lists.setdefault(name, []).append(value if equals else rest.pop(0))
        elif option is not None:
            translated += _as_option(option, name, value if equals else None)
        elif name in ignored:
            # Go's flags take the next argument as their value unless they are boolean, which is
            # unknown for a flag that does not exist here.
            if not equals and rest and not rest[0].startswith("-") and not is_command(rest[0]):
                rest.pop(0)
            log.warning("flag ignored", extra={"flag": f"--{name}", "reason": ignored[name]})
        else:
            translated.append(arg)
    return [*(f"--{name}={','.join(values)}" for name, values in lists.items()), *translated]


def _as_option(option: Any, name: str, value: str | None) -> Iterable[str]:
    """Return a flag as click parses it: boolean flags have no value, but a negative name."""
    if option.is_flag:
        if value is None or parse_bool(value, f"--{name}"):
            return (f"--{name}",)
        return tuple(option.secondary_opts[:1])
    if value is None:
        return (f"--{name}=true",) if option.metavar == BOOL else (f"--{name}",)
    return (f"--{name}={value}",)


def _declared(command: Any) -> Mapping[str, Any]:
    return {option: each for each in command.params for option in each.opts}


class _Command(HelpCommand):
    ignored: ClassVar[IgnoredFlags]
    spelled: ClassVar[Mapping[str, str]] = NO_RENAMES

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        translated = as_declared(args, _declared(self), self.ignored, lambda _: False, self.spelled)
        return super().parse_args(ctx, translated)


class SchedulerCommand(_Command):
    """Command ``koord scheduler`` for typer."""

    ignored = OF_SCHEDULER


class ManagerCommand(_Command):
    """Command ``koord manager`` for typer."""

    ignored = OF_MANAGER
    spelled = SPELLED_BY_MANAGER


class VgpuMonitorCommand(_Command):
    """Command ``koord vgpu-monitor`` for typer."""

    ignored = OF_VGPU_MONITOR


class DeviceDaemonCommand(_Command):
    """Command ``koord device-daemon`` for typer."""

    ignored = OF_DEVICE_DAEMON


class YarnOperatorCommand(_Command):
    """Command ``koord yarn-operator`` for typer."""

    ignored = OF_YARN_OPERATOR


class YarnCopilotCommand(_Command):
    """Command ``koord yarn-copilot`` for typer."""

    ignored = OF_YARN_COPILOT


class _Group(HelpGroup):
    ignored: ClassVar[IgnoredFlags]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = next((n for n, arg in enumerate(args) if arg in self.commands), len(args))
        own, inner = args[:at], args[at:]  # flags after a subcommand belong to it
        translated = as_declared(own, _declared(self), self.ignored, self.commands.__contains__)
        return super().parse_args(ctx, [*translated, *inner])


class KoordletGroup(_Group):
    """Group ``koord koordlet`` for typer."""

    ignored = OF_KOORDLET


class DeschedulerGroup(_Group):
    """Group ``koord descheduler`` for typer."""

    ignored = OF_DESCHEDULER
