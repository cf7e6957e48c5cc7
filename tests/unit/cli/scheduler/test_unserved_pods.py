"""A scheduler that does not serve a name of the installed configuration reports pods of it."""

import logging

import pytest
from tests.worlds import pod

from koordinator.api.pod import Pod
from koordinator.cli.scheduler.process import INTERVAL_S, UnservedPods

MESSAGE = "pods wait for a scheduler name that the configuration does not serve"


def waiting(*names: str) -> list[Pod]:
    return [pod(f"p{n}", schedulerName=name) for n, name in enumerate(names)]


def warnings(log: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    result = [record for record in log.records if record.message == MESSAGE]
    return [(getattr(it, "schedulerName", ""), getattr(it, "pods", 0)) for it in result]


def test_pods_of_the_installed_configuration_are_reported_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """With their number; pods of other schedulers are not ours."""
    unserved = UnservedPods(["default-scheduler"])
    with caplog.at_level(logging.WARNING):
        unserved.check_waiting_pods(waiting("volcano", "default-scheduler"), 0.0)
        unserved.check_waiting_pods(waiting("koord-scheduler"), INTERVAL_S / 2)
        assert warnings(caplog) == []
        for turn in range(1, 4):
            unserved.check_waiting_pods(
                waiting("koord-scheduler", "koord-scheduler"), turn * INTERVAL_S
            )

    assert warnings(caplog) == [("koord-scheduler", 2)]


def test_a_scheduler_that_serves_the_name_reports_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Pods of kube-scheduler wait for that."""
    with caplog.at_level(logging.WARNING):
        UnservedPods(["koord-scheduler"]).check_waiting_pods(
            waiting("koord-scheduler", "default-scheduler"), 0.0
        )

    assert warnings(caplog) == []
