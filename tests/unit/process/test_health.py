"""Health is reported in the words of Kubernetes."""

import threading

import pytest
from prometheus_client import generate_latest

from koordinator.process.health import (
    LEASE_GRACE_S,
    PING,
    Check,
    HealthEndpoint,
    Indicators,
    leader_election_check,
    shutdown_check,
)

BROKEN = Check("informer-sync", lambda: "3 informers not started yet")


def endpoint(*checks: Check) -> HealthEndpoint:
    return HealthEndpoint("readyz", checks, Indicators())


def test_success_is_ok_and_no_more() -> None:
    """A probe reads the status only, so the checks are listed on request only."""
    verdict = endpoint(PING).report()

    assert verdict.healthy
    assert verdict.text == "ok"


def test_verbose_lists_every_check() -> None:
    """``?verbose`` shows what was looked at."""
    verdict = endpoint(PING, Check("shutdown", lambda: "")).report(verbose=True)

    assert verdict.text == "[+]ping ok\n[+]shutdown ok\nreadyz check passed\n"


def test_failure_lists_the_checks_without_reasons(caplog: pytest.LogCaptureFixture) -> None:
    """The endpoint is public, so the reason goes to the log."""
    with caplog.at_level("INFO"):
        verdict = endpoint(PING, BROKEN).report()

    assert not verdict.healthy
    assert verdict.text == (
        "[+]ping ok\n[-]informer-sync failed: reason withheld\nreadyz check failed\n"
    )
    assert vars(caplog.records[0])["error"] == "3 informers not started yet"


def test_excluded_check_is_not_run() -> None:
    """Excluding what fails makes healthy; a name that no check has is pointed out."""
    verdict = endpoint(PING, BROKEN).report(["informer-sync", "typo"], verbose=True)

    assert verdict.healthy
    assert verdict.text == (
        "[+]ping ok\n[+]informer-sync excluded: ok\n"
        'warn: some health checks cannot be excluded: no matches for "typo"\n'
        "readyz check passed\n"
    )


def test_single_check_shows_the_reason() -> None:
    """The path of one check requires authorization, so it may show the reason."""
    verdict = endpoint(BROKEN).report_one(BROKEN)

    assert not verdict.healthy
    assert verdict.text == "internal server error: 3 informers not started yet\n"


def test_without_checks_the_process_is_healthy_as_long_as_it_answers() -> None:
    """A scheduler's livez requires no more than an answer."""
    assert endpoint().report(verbose=True).text == "[+]ping ok\nreadyz check passed\n"


def test_shutdown_makes_not_ready() -> None:
    """No new work comes to a process that ends."""
    stopping = threading.Event()
    ready = endpoint(shutdown_check(stopping))

    assert ready.report().healthy
    stopping.set()
    assert not ready.report().healthy


@pytest.mark.parametrize(
    ("overdue_s", "healthy"), [(-5.0, True), (LEASE_GRACE_S, True), (LEASE_GRACE_S + 0.1, False)]
)
def test_a_leader_that_hangs_on_to_a_lost_lease_is_unhealthy(
    overdue_s: float, healthy: bool
) -> None:
    """The leader has 20 s to step down before the kubelet restarts it."""
    check = leader_election_check("koord-scheduler", lambda: overdue_s)

    assert (check.problem() == "") is healthy
    assert healthy or check.problem().endswith("on lease koord-scheduler")


def test_results_are_counted() -> None:
    """/metrics/slis has the last result of each check and how often it came."""
    indicators = Indicators()
    HealthEndpoint("livez", [PING, BROKEN], indicators).report()
    text = generate_latest(indicators.registry).decode()

    assert 'kubernetes_healthcheck{name="ping",type="livez"} 1.0' in text
    assert 'kubernetes_healthcheck{name="informer-sync",type="livez"} 0.0' in text
    error = 'kubernetes_healthchecks_total{name="informer-sync",status="error",type="livez"} 1.0'
    assert error in text
