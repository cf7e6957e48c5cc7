"""Flags as Go programs take them, so that the original's Deployments run these commands unchanged.

One dash or two, a boolean with or without its value.  Flags of the originals that have nothing to
act on here are left out, with a warning that says why.  Some are spelled in another way here.
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

Reasons = Mapping[str, Sequence[str]]  # flags by why they are left out
IgnoredResources = Mapping[str, str]  # why, by flag


def _by_flag(*reasons: Reasons) -> IgnoredResources:
    return MappingProxyType(
        {flag: why for each in reasons for why, flags in each.items() for flag in flags}
    )


_LOGS: Final[Reasons] = {
    "what is logged goes to standard error": (
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
    "one certificate is shown, whatever name a client asks for": ("tls-sni-cert-key",),
    "connections are bounded in number, size and time, and speak HTTP/1.1": (
        "disable-http2-serving",
        "http2-max-streams-per-connection",
    ),
    "no other process may listen on the same port": (
        "permit-address-sharing",
        "permit-port-sharing",
    ),
    "all metrics are shown, with all labels; none is hidden": (
        "allow-metric-labels",
        "allow-metric-labels-manifest",
        "disabled-metrics",
        "show-hidden-metrics-for-version",
    ),
}
_REVIEWED = "who asks is looked up with the API server, by token"
_RUNTIME = "a container runtime is found by its socket: --containerd-endpoint names another"
_TSDB = "samples are in memory, for as long as the NodeMetric's windows are"
_THREADS = "/debug/threads shows what the process is doing"
_AUDIT = "koord audit and koord explain tell it"

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
        "an answer about who may read what is kept for ten seconds": (
            "authentication-token-webhook-cache-ttl",
            "authorization-webhook-cache-authorized-ttl",
            "authorization-webhook-cache-unauthorized-ttl",
        ),
        "clientConnection of the configuration says it": ("kube-api-burst", "kube-api-qps"),
        "--emulated-version alone says which release of Kubernetes is reproduced": (
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
        "nothing is decided before everything that exists has been taken in": (
            "sync-barrier-pod-name",
            "sync-barrier-pod-namespace",
            "sync-hard-timeout",
        ),
        "the API server is asked in JSON": ("kube-api-content-type",),
    },
)
OF_MANAGER: Final = _by_flag(
    _LOGS,
    {
        _THREADS: ("enable-pprof", "pprof-addr"),
        "watches lose nothing, and what failed is tried again": ("sync-period",),
        "a pod is charged to the quota as it is stored, one pod after the other": (
            "quota-update-conflict-fresh-get",
            "quota-update-max-total-jitter",
            "quota-update-retry-jitter",
        ),
        "the ConfigMap is read with each review": ("pod-enhanced-validator-reconcile-interval",),
        "objects are never changed in place": ("disable-no-deepcopy",),
        "all namespaces are followed: the controllers' objects have none": ("namespace",),
        "queues are looked at when something has changed, all at once": (
            "admissionCheckControllerWorker",
            "default-requeue-period",
            "scheduleSuspendTimeInMillSecond",
            "workers",
            "wqqps",
        ),
        "what a quota above has no room for is never let in": ("enableParentLimit",),
        "units that wait stand in the Queue's status": ("enableApiHandler",),
        "a unit holds its whole room until its job is over": ("enable-pod-reclaim",),
        "the scheduler reserves for gangs: queues make no Reservations": (
            "enable-reservation",
            "enable-network-aware",
        ),
    },
)
#: How flags of koord-queue and koord-queue-controllers are spelled here.
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
        "a certificate of its own making is in memory only": ("cert-dir",),
        _THREADS: ("contention-profiling", "profiling"),
        "addresses stand in the configuration": ("address", "port"),
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
        "watches lose nothing, and what failed is tried again": ("sync-period",),
    },
)
OF_YARN_COPILOT: Final = _by_flag(
    _LOGS,
    {
        "Hadoop 2 is not supported: LinuxContainerExecutor of Hadoop 3 makes cgroups for memory": (
            "sync-cgroup-period",
            "sync-memory-cgroup",
        ),
    },
)
OF_KOORDLET: Final = _by_flag(
    _LOGS,
    {
        "of its configuration only the policy counts that its CPU manager keeps in a file": (
            "disable-query-kubelet-config",
        ),
        "processes are looked up when they have to be moved": ("enable-pod-taskids",),
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
        "there is no configuration but flags and the NodeSLO": (
            "configmap-name",
            "configmap-namespace",
        ),
        "the last 2,048 changes are kept for /events, whoever reads them": (
            "audit-max-concurrent-readers",
            "audit-max-events-limit",
            "audit-verbose",
        ),
        _THREADS: ("enable-pprof", "pprof-addr"),
        "disks are looked up when a limit names them": ("collect-node-storage-info-interval",),
        "page cache is always measured": ("enable-pagecache-collector",),
        "the NodeMetric says how often is reported": ("report-interval",),
        "there are no strategies but those built in": ("qos-extension-plugins",),
    },
)
OF_VGPU_MONITOR: Final = _by_flag(_LOGS)
OF_DEVICE_DAEMON: Final = _by_flag(
    _LOGS,
    {
        "the file has no time in it": ("no-timestamp",),
        "flags and variables say everything": ("config-file",),
    },
)


NOWHERE_ELSE: Final[Mapping[str, str]] = MappingProxyType({})
#: What each of them says adds to what was said before; of all other flags the last one counts.
_LISTS: Final = frozenset(
    ("controller-plugins", "controllers", "feature-gates", "noderesource-plugins")
)


def as_declared(
    args: Sequence[str],
    declared: Mapping[str, Any],
    ignored: IgnoredResources,
    stays: Callable[[str], bool],
    spelled: Mapping[str, str] = NOWHERE_ELSE,
) -> list[str]:
    """Return arguments as click takes them; ``declared`` are its parameters by option.

    What ``stays`` is no value of a flag that is left out.  ``spelled`` has the names that flags
    have here, by those that they have in the original.
    """
    taken: list[str] = []
    lists: dict[str, list[str]] = {}
    left = list(args)
    while left:
        arg = left.pop(0)
        name, equals, value = arg.removeprefix("-").removeprefix("-").partition("=")
        name = spelled.get(name, name.replace("_", "-"))
        option = declared.get(f"--{name}")
        if arg == "--":
            taken += [arg, *left]
            break
        if not arg.startswith("-") or not name:
            taken.append(arg)
        elif name == "v":
            taken += ["-v", value] if equals else ["-v"]
        elif option is not None and name in _LISTS and (equals or left):
            lists.setdefault(name, []).append(value if equals else left.pop(0))
        elif option is not None:
            taken += _as_option(option, name, value if equals else None)
        elif name in ignored:
            if not equals and left and not left[0].startswith("-") and not stays(left[0]):
                left.pop(0)
            log.warning("flag left out", extra={"flag": f"--{name}", "why": ignored[name]})
        else:
            taken.append(arg)
    return [*(f"--{name}={','.join(said)}" for name, said in lists.items()), *taken]


def _as_option(option: Any, name: str, value: str | None) -> Iterable[str]:
    """Return one option of click; its flags take no value, and the negative has another name."""
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
    ignored: ClassVar[IgnoredResources]
    spelled: ClassVar[Mapping[str, str]] = NOWHERE_ELSE

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        translated = as_declared(args, _declared(self), self.ignored, lambda _: False, self.spelled)
        return super().parse_args(ctx, translated)


class SchedulerCommand(_Command):
    """``koord scheduler``, for typer."""

    ignored = OF_SCHEDULER


class ManagerCommand(_Command):
    """``koord manager``, for typer."""

    ignored = OF_MANAGER
    spelled = SPELLED_BY_MANAGER


class VgpuMonitorCommand(_Command):
    """``koord vgpu-monitor``, for typer."""

    ignored = OF_VGPU_MONITOR


class DeviceDaemonCommand(_Command):
    """``koord device-daemon``, for typer."""

    ignored = OF_DEVICE_DAEMON


class YarnOperatorCommand(_Command):
    """``koord yarn-operator``, for typer."""

    ignored = OF_YARN_OPERATOR


class YarnCopilotCommand(_Command):
    """``koord yarn-copilot``, for typer."""

    ignored = OF_YARN_COPILOT


class _Group(HelpGroup):
    ignored: ClassVar[IgnoredResources]

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        at = next((n for n, arg in enumerate(args) if arg in self.commands), len(args))
        own, further = args[:at], args[at:]  # flags of further commands are theirs
        translated = as_declared(own, _declared(self), self.ignored, self.commands.__contains__)
        return super().parse_args(ctx, [*translated, *further])


class KoordletGroup(_Group):
    """``koord koordlet``, for typer: it has further commands."""

    ignored = OF_KOORDLET


class DeschedulerGroup(_Group):
    """``koord descheduler``, for typer: it has further commands."""

    ignored = OF_DESCHEDULER
