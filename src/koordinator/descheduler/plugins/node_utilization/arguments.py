"""Arguments of LowNodeUtilization and HighNodeUtilization.

Source: kubernetes-sigs/descheduler pkg/framework/plugins/nodeutilization types.go, validation.go.
"""

from collections.abc import Mapping
from typing import Final

from koordinator.api.kubescheduler.structs import ConfigStruct, Count, Int32
from koordinator.descheduler.configuration import (
    DeschedulerPluginArgs,
    NamespaceLists,
    field_error,
)

ONLY_THRESHOLDING_RESOURCES: Final = "OnlyThresholdingResources"
_ALL = 100


class PrometheusQuery(ConfigStruct, frozen=True, kw_only=True):
    """Query of Prometheus."""

    query: str = ""


class MetricsUtilization(ConfigStruct, frozen=True, kw_only=True):
    """Source of usage; only requests are supported."""

    metrics_server: bool = False
    source: str = ""
    prometheus: PrometheusQuery | None = None


class EvictionLimitsArgs(ConfigStruct, frozen=True, kw_only=True):
    """Limit of evictions per node and cycle."""

    node: Count | None = None


class LowNodeUtilizationArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Thresholds: pods leave nodes above the target thresholds while others are below."""

    use_deviation_thresholds: bool = False
    thresholds: dict[str, float] = {}  # noqa: RUF012 -- msgspec copies it
    target_thresholds: dict[str, float] = {}  # noqa: RUF012 -- as above
    number_of_nodes: Int32 = 0  # the plugin runs if more nodes than this are below
    metrics_utilization: MetricsUtilization | None = None
    evictable_namespaces: NamespaceLists | None = None
    eviction_limits: EvictionLimitsArgs | None = None

    def validate(self) -> None:
        _check_namespaces(self.evictable_namespaces)
        _check_thresholds(self.thresholds, "thresholds")
        _check_thresholds(self.target_thresholds, "targetThresholds")
        if self.thresholds.keys() != self.target_thresholds.keys():
            message = "thresholds and targetThresholds configured different resources"
            raise field_error("targetThresholds", sorted(self.target_thresholds), message)
        for name, percentage in self.thresholds.items():
            if percentage > self.target_thresholds[name] and not self.use_deviation_thresholds:
                message = f"thresholds' {name} percentage is greater than targetThresholds'"
                raise field_error(f"thresholds[{name}]", percentage, message)
        if self.metrics_utilization is not None:
            message = "metrics client not initialized: only requests can be used, without this"
            raise field_error("metricsUtilization", "a value", message)


class HighNodeUtilizationArgs(DeschedulerPluginArgs, frozen=True, kw_only=True):
    """Thresholds: pods leave nodes below them, so that these nodes can be removed."""

    thresholds: dict[str, float] = {}  # noqa: RUF012 -- as above
    number_of_nodes: Int32 = 0
    eviction_modes: tuple[str, ...] = ()
    evictable_namespaces: NamespaceLists | None = None

    def validate(self) -> None:
        _check_namespaces(self.evictable_namespaces)
        _check_thresholds(self.thresholds, "thresholds")
        for index, mode in enumerate(self.eviction_modes):
            if mode != ONLY_THRESHOLDING_RESOURCES:
                message = f"invalid eviction mode; must be {ONLY_THRESHOLDING_RESOURCES}"
                raise field_error(f"evictionModes[{index}]", mode, message)


def _check_namespaces(namespaces: NamespaceLists | None) -> None:
    if namespaces is not None and namespaces.include:
        message = "only Exclude namespaces can be set, inclusion is not supported"
        raise field_error("evictableNamespaces.include", list(namespaces.include), message)


def _check_thresholds(thresholds: Mapping[str, float], path: str) -> None:
    if not thresholds:
        raise field_error(path, {}, "no resource threshold is configured")
    for name, percentage in thresholds.items():
        if not 0 <= percentage <= _ALL:
            message = f"{name} threshold not in [0, {_ALL}] range"
            raise field_error(f"{path}[{name}]", percentage, message)
