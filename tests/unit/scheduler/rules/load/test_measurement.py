"""Measured load of a node, from its NodeMetric."""

from dataclasses import replace
from math import inf

import pytest
from tests.worlds import metric, used

from koordinator.scheduler.rules.load.rules import Limits, LoadRules, Window, measured_by

RULES = LoadRules(
    resources=("cpu", "memory"), factors=(), limits=Limits((0, 0), (0, 0)), expiration_s=180.0
)


@pytest.mark.parametrize(
    ("window", "usage"),
    [
        (None, (1000, 5)),
        (Window("p95"), (3000, 0)),  # the longest that is filled
        (Window("p95", 300.0), (2000, 0)),
        (Window("p95", 3600.0), None),  # not filled yet
        (Window("p99"), (1000, 5)),  # nowhere: the latest
        (Window("p99", 300.0), None),
    ],
)
def test_usage_over_a_window(window: Window | None, usage: tuple[int, int] | None) -> None:
    """The configured one; without a duration, the longest there is."""
    windows = {("15m", "p95"): used("3"), ("5m", "p95"): used("2"), ("1h", "p95"): {}}
    report = metric("n", cpu=1, memory=5, windows=windows)

    assert measured_by(report, RULES).over(window, RULES) == usage


def test_report_without_time_is_expired() -> None:
    """Without time it is infinitely old; a minute is between two reports; negative is nothing."""
    measured = measured_by(metric("n", cpu=-1, at=""), RULES)

    assert (measured.updated_s, measured.interval_s, measured.usage) == (-inf, 60.0, (0, 0))


def test_pods_of_which_nothing_was_measured_are_left_out() -> None:
    """Others have their usage, and whether they were of band koord-prod then."""
    pods = {"a": used("1", "5"), "b": used("2"), "c": {}}
    report = metric("n", pods=pods, prod=["b"], interval_s=30)
    measured = measured_by(report, RULES)
    result = {
        key: (RULES.amounts(pod.pod_usage.resources), pod.priority)
        for key, pod in measured.pods.items()
    }

    assert result == {"default/a": ((1000, 5), ""), "default/b": ((2000, 0), "koord-prod")}
    assert measured.interval_s == 30


def test_usage_outside_pods_counts_if_configured() -> None:
    """As much as is reported."""
    report = metric("n", cpu=1, system=used("2", "7"))

    assert measured_by(report, RULES).system == (0, 0)
    assert measured_by(report, replace(RULES, includes_system=True)).system == (2000, 7)
