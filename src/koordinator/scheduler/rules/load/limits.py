"""Thresholds of usage, of the arguments and of single nodes, and the amounts that they allow.

Source: koordinator pkg/scheduler/plugins/loadaware/helper.go
``generateUsageThresholdsFilterProfile``.
"""

from collections.abc import Mapping

from koordinator.api.annotations.node import CustomUsageThresholds
from koordinator.scheduler.rules.load.rules import Limits, LoadRules, Window

UNLIMITED = 1 << 62


def limits_of(
    usage: Mapping[str, int],
    prod: Mapping[str, int],
    aggregated: Mapping[str, int],
    window: Window | None,
    resources: tuple[str, ...],
) -> Limits:
    """Return the limits; aggregated ones count in place of ``usage`` if they have a window."""
    if not aggregated or window is None:
        aggregated, window = usage, None
    return Limits(
        usage=tuple(aggregated.get(name, 0) for name in resources),
        prod=tuple(prod.get(name, 0) for name in resources),
        window=window,
    )


def limits_on(rules: LoadRules, custom: CustomUsageThresholds | None) -> Limits:
    """Return the limits of a node that may have its own.

    Each part that it names replaces that of the arguments; its plain thresholds do not matter
    where aggregated ones are in force.  Resources that are not tracked are left out.
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
    """Return the most that may be used, the share of which rounds to no more than ``percent``.

    ``UNLIMITED`` where there is nothing to check: 0 of either; -1 where nothing is little enough.
    The share is a floating point number, and half a percent rounds up, as in the original.
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
