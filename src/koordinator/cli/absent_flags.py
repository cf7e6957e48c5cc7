"""Flags of the original's koordlet that this agent lacks: each is refused, and it is said why."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from typer.core import TyperGroup

from koordinator.foundation.errors import InputError

_KUBELET = "pods come from the API server, and the kubelet is not asked"
_RUNTIME = "no container runtime is asked: processes are found by their cgroups"
_TSDB = "samples are in memory, for as long as the NodeMetric's windows are"
_HOOKS = "hooks are applied to cgroups, no runtime calls them"
_REASONS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        _KUBELET: (
            "disable-query-kubelet-config",
            "enable-pod-taskids",
            "kubelet-insecure-tls",
            "kubelet-preferred-address-type",
            "kubelet-read-only-port",
            "kubelet-sync-interval",
            "kubelet-sync-timeout",
        ),
        _RUNTIME: (
            "containerd-endpoint",
            "default-runtime-type",
            "docker-endpoint",
            "pouch-endpoint",
            "run-root-dir",
            "var-run-root-dir",
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
        _HOOKS: (
            "enable-nri-runtime-hook",
            "runtime-hooks-addr",
            "runtime-hooks-config-path",
            "runtime-hooks-disable-stages",
            "runtime-hooks-failure-policy",
            "runtime-hooks-host-endpoint",
            "runtime-hooks-network",
            "runtime-hooks-nri-backoff-cap",
            "runtime-hooks-nri-backoff-duration",
            "runtime-hooks-nri-backoff-factor",
            "runtime-hooks-nri-backoff-steps",
            "runtime-hooks-nri-connect-timeout",
            "runtime-hooks-nri-plugin-index",
            "runtime-hooks-nri-plugin-name",
            "runtime-hooks-nri-socket-path",
            "runtime-hooks-plugin-failure-policy",
        ),
        "there is no configuration but flags and the NodeSLO": (
            "configmap-name",
            "configmap-namespace",
        ),
        "the last 2,048 changes are kept for /events, whoever reads them": (
            "audit-max-concurrent-readers",
            "audit-max-events-limit",
            "audit-verbose",
        ),
        "/debug/threads shows what the agent is doing": ("enable-pprof", "pprof-addr"),
        "disks are looked up when a limit names them": ("collect-node-storage-info-interval",),
        "page cache is always measured": ("enable-pagecache-collector",),
        "the NodeMetric says how often is reported": ("report-interval",),
        "there are no strategies but those built in": ("qos-extension-plugins",),
        "slices of GPUs are not looked into": ("hami-core-library-directory-path",),
        "the kubelet's list of devices is left as it is": ("pod-resources-proxy-path",),
    }
)
#: Why, by flag.
ABSENT: Final = MappingProxyType({flag: why for why, flags in _REASONS.items() for flag in flags})


class AgentCommand(TyperGroup):
    """Refuses what is absent before anything else is read."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        for arg in args:
            why = ABSENT.get(arg.partition("=")[0].removeprefix("--"))
            if why is not None and arg.startswith("--"):
                raise InputError(f"not a flag of this agent: {why}", source=arg.partition("=")[0])
        return super().parse_args(ctx, args)
