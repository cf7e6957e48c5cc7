"""Arguments of load-aware scheduling, thresholds of nodes, and usage of a NodeMetric.

Source: koordinator pkg/scheduler/plugins/loadaware/helper.go; koordinator
pkg/scheduler/plugins/loadaware/helper.go ``generateUsageThresholdsFilterProfile``; koordinator
pkg/scheduler/plugins/loadaware/pod_assign_cache.go ``AddOrUpdateNodeMetric``,
``getTargetAggregatedUsage``; helper.go.
"""

from collections.abc import Iterable, Mapping
from functools import cached_property
from math import inf

import msgspec

from koordinator.api.annotations.node import CustomUsageThresholds
from koordinator.api.node_metric import AggregatedUsage, NodeMetric, PodUsage
from koordinator.domain.amounts import LARGEST, nanos_of_one
from koordinator.foundation.clock import to_epoch_s
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.quantity import Quantity

#: One number per resource of the rules, canonical units (milli-CPU, bytes) or percent.
LoadAmounts = tuple[int, ...]

UNLIMITED = 1 << 62

REPORT_INTERVAL_S = 60.0  # default of koordlet


@dataclass(frozen=True, slots=True)
class Window:
    """Statistic of a node's usage; a duration of 0 selects the longest reported one."""

    statistic: str  # an AggregationType
    duration_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Limits:
    """Usage thresholds in percent of capacity; 0 is not checked.

    ``prod`` applies to prod pods if any of it is set.  Otherwise ``usage`` applies to ``window``,
    or to the latest measurement without a window.
    """

    usage: LoadAmounts
    prod: LoadAmounts
    window: Window | None = None


@dataclass(frozen=True, kw_only=True)
class LoadRules:
    """Load rules; equal rules yield equal loads."""

    resources: tuple[str, ...]  # in alphabetical order
    factors: tuple[tuple[str, int], ...]  # estimated usage in percent of the request
    limits: Limits
    scored: Window | None = None  # window of the score; None: the latest usage
    expiration_s: float
    customised: bool = False  # pod annotations may change estimates
    after_scheduled_s: int | None = None  # minimum time of estimation after scheduling
    after_initialized_s: int | None = None  # minimum time of estimation after initialization
    includes_system: bool = False  # system usage counts as prod usage

    @cached_property
    def key(self) -> str:
        """Equal for equal rules; text, whose hash is computed once."""
        return repr(self)

    @cached_property
    def nothing(self) -> LoadAmounts:
        """Zeros for all resources."""
        return (0,) * len(self.resources)

    def amounts(self, quantities: Mapping[str, Quantity]) -> LoadAmounts:
        """Convert quantities to canonical units, 0 if missing or negative."""
        amounts = []
        for name, unit in self._units:
            quantity = quantities.get(name)
            amount = 0 if quantity is None else -(-quantity.nanos // unit)
            amounts.append(max(0, min(amount, LARGEST)))
        return tuple(amounts)

    @cached_property
    def _units(self) -> tuple[tuple[str, int], ...]:
        """The resources, each with the nanos of one unit."""
        return tuple((name, nanos_of_one(name)) for name in self.resources)

    def numbers(self, of: Mapping[str, int]) -> LoadAmounts:
        """Return numbers by resource, 0 if missing."""
        return tuple(of.get(name, 0) for name in self.resources)


def tracked_resources(*named: Iterable[str]) -> tuple[str, ...]:
    """Return all named resources, always including CPU and memory."""
    return tuple(sorted({"cpu", "memory"}.union(*named)))


def limits_of(
    usage: Mapping[str, int],
    prod: Mapping[str, int],
    aggregated: Mapping[str, int],
    window: Window | None,
    resources: tuple[str, ...],
) -> Limits:
    """Return the limits; aggregated ones replace ``usage`` if they have a window."""
    if not aggregated or window is None:
        aggregated, window = usage, None
    return Limits(
        usage=tuple(aggregated.get(name, 0) for name in resources),
        prod=tuple(prod.get(name, 0) for name in resources),
        window=window,
    )


def limits_on(rules: LoadRules, custom: CustomUsageThresholds | None) -> Limits:
    """Return the limits of a node with optional custom thresholds.

    Each part of ``custom`` replaces the arguments' part; its plain thresholds are ignored if
    aggregated ones apply.  Untracked resources are left out.
    """
    general = rules.limits
    if custom is None:
        return general
    own = custom.aggregated_usage
    usage, window = general.usage, general.window
    if own is not None and own.usage_thresholds and own.usage_aggregation_type:
        duration = own.usage_aggregated_duration
        seconds = duration.total_seconds() if duration is not None else 0.0
        window = Window(own.usage_aggregation_type, seconds)
        usage = rules.numbers(own.usage_thresholds)
    elif window is None and custom.usage_thresholds:
        usage = rules.numbers(custom.usage_thresholds)
    prod = custom.prod_usage_thresholds
    return Limits(usage, rules.numbers(prod) if prod else general.prod, window)


def most_within(has: int, percent: int) -> int:
    """Return the maximum usage whose share rounds to at most ``percent``.

    ``UNLIMITED`` if capacity or percentage is 0; -1 if no usage is small enough. The share is a
    floating-point number, and half a percent rounds up, as in the original.
    """
    if not has or not percent:
        return UNLIMITED
    above = percent + 0.5
    most = min((2 * percent + 1) * has // 200, UNLIMITED)
    while most >= 0 and most / has * 100 >= above:
        most -= 1
    while 0 <= most < UNLIMITED and (most + 1) / has * 100 < above:
        most += 1
    return max(most, -1)


class NodeMeasurement(msgspec.Struct, frozen=True):  # a struct: one is created per report
    """The newest measurement of a node."""

    updated_s: float  # since the epoch; -inf if the report has no time
    interval_s: float  # between two reports
    usage: LoadAmounts | None  # the latest; None: the report has no usage
    windows: tuple[AggregatedUsage, ...]
    system: LoadAmounts  # usage outside of pods, if the rules include it
    pods: Mapping[str, PodUsage]  # measured pods by ``namespace/name``

    def over(self, window: Window | None, rules: LoadRules) -> LoadAmounts | None:
        """Return the usage over a window.

        If no window is filled yet, the longest one falls back to the latest usage; a window with a
        duration is None.
        """
        if window is None:
            return self.usage
        resources, longest_s = None, -1.0
        for aggregated in self.windows:
            usage = aggregated.usage.get(window.statistic)
            duration_s = aggregated.duration.total_seconds()
            wanted = not window.duration_s or duration_s == window.duration_s
            if usage is not None and usage.resources and wanted and duration_s >= longest_s:
                resources, longest_s = usage.resources, duration_s
        if resources is None:
            return None if window.duration_s else self.usage
        return rules.amounts(resources)


def measured_by(metric: NodeMetric, rules: LoadRules) -> NodeMeasurement:
    """Convert a report for the resources of the rules."""
    status, body = metric.status, metric.status.node_metric
    policy = metric.spec.metric_collect_policy
    interval_s = policy.report_interval_seconds if policy is not None else None
    return NodeMeasurement(
        updated_s=to_epoch_s(status.update_time, -inf),
        interval_s=REPORT_INTERVAL_S if interval_s is None else float(interval_s),
        usage=None if body is None else rules.amounts(body.node_usage.resources),
        windows=() if body is None else body.aggregated_node_usages,
        system=rules.nothing
        if body is None or not rules.includes_system
        else rules.amounts(body.system_usage.resources),
        pods={
            f"{report.namespace}/{report.name}": report
            for report in status.pods_metric
            if report.pod_usage.resources
        },
    )
