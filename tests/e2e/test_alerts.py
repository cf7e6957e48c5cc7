"""Every alert fires once, and stays silent for a healthy installation: the engine of Prometheus.

The expressions are evaluated each minute over given series; no control plane is needed.
"""

import json
import subprocess
from collections.abc import Sequence
from typing import Any

import pytest
import yaml
from tests.e2e.controlplane import binaries
from tests.unit.deploy.installed import CHART

from koordinator.foundation.clock import Duration

GROUPS = yaml.safe_load((CHART / "files/alerts.yaml").read_text("utf-8"))["groups"]
ALERTS: dict[str, Any] = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
MINUTES = 120

SCHEDULER = 'job="koord-scheduler"'
ATTEMPTS = f"scheduler_scheduling_attempt_duration_seconds_bucket{{{SCHEDULER},result="
PLUGIN_STATUS = "slo_controller_node_resource_run_plugin_status"
WRITES = 'koordlet_resource_updates{node="n1",type="cgroup",status='
REQUESTS = 'rest_client_requests_total{job="koord-manager-metrics",code='

#: Series of a healthy installation, one sample per minute: ``0+1x120`` grows by 1 each minute.
HEALTHY = {
    'leader_election_master_status{name="koord-scheduler",instance="a"}': "1x120",
    'leader_election_master_status{name="koord-scheduler",instance="b"}': "0x120",
    'leader_election_master_status{name="koord-descheduler"}': "1x120",
    "koordinator_manager_is_leader": "1x120",
    f'scheduler_schedule_attempts_total{{{SCHEDULER},result="scheduled",profile="p"}}': "0+60x120",
    f'scheduler_schedule_attempts_total{{{SCHEDULER},result="error",profile="p"}}': "3x120",
    f'{ATTEMPTS}"scheduled",le="0.1"}}': "0+60x120",
    f'{ATTEMPTS}"scheduled",le="2"}}': "0+60x120",
    f'{ATTEMPTS}"scheduled",le="+Inf"}}': "0+60x120",
    f'scheduler_pending_pods{{{SCHEDULER},queue="unschedulable"}}': "0x120",
    f'scheduler_pending_pods{{{SCHEDULER},queue="active"}}': "9x120",
    f"scheduler_waiting_gang_group_number{{{SCHEDULER}}}": "0x120",
    'koord_manager_webhook_internal_errors_total{plugin_name="/mutate-pod"}': "2x120",
    'slo_controller_config_rejected_total{key="colocation-config"}': "1x120",
    f'{PLUGIN_STATUS}{{plugin="batchresource",status="failed"}}': "1x120",
    'descheduler_cycle_duration_seconds_count{result="success"}': "0+6x120",
    'descheduler_cycle_duration_seconds_count{result="error"}': "1x120",
    'up{job="koordlet-metrics",instance="n1:9316"}': "1x120",
    f'{WRITES}"written"}}': "0+9x120",
    f'{WRITES}"failed"}}': "4x120",
    'koordlet_node_slo_followed{node="n1"}': "1x120",
    f'{REQUESTS}"200"}}': "0+100x120",
    f'{REQUESTS}"503"}}': "0+1x120",
    'koord_scheduler_internal_errors_total{job="koord-scheduler",stage="s",source="p"}': "1x120",
}

#: Series that differ while an alert fires, and labels of the firing alert.
FIRING: dict[str, tuple[dict[str, str], dict[str, str]]] = {
    "KoordSchedulerHasNoLeader": (
        {'leader_election_master_status{name="koord-scheduler",instance="a"}': "0x120"},
        {},
    ),
    "KoordSchedulerAttemptsFail": (
        {
            f'scheduler_schedule_attempts_total{{{SCHEDULER},result="error",profile="p"}}': (
                "0+2x120"
            )
        },
        {"profile": "p"},
    ),
    "KoordSchedulerIsSlow": (
        {f'{ATTEMPTS}"scheduled",le="0.1"}}': "0+50x120"},
        {},
    ),
    "KoordPodsUnschedulable": (
        {f'scheduler_pending_pods{{{SCHEDULER},queue="unschedulable"}}': "4x120"},
        {},
    ),
    "KoordGangsWait": ({f"scheduler_waiting_gang_group_number{{{SCHEDULER}}}": "2x120"}, {}),
    "KoordManagerHasNoLeader": ({"koordinator_manager_is_leader": "0x120"}, {}),
    "KoordWebhooksFail": (
        {'koord_manager_webhook_internal_errors_total{plugin_name="/mutate-pod"}': "0+1x120"},
        {"plugin_name": "/mutate-pod"},
    ),
    "KoordConfigurationRejected": (
        {'slo_controller_config_rejected_total{key="colocation-config"}': "0x110 1x10"},
        {"key": "colocation-config"},
    ),
    "KoordNodeResourcesFail": (
        {f'{PLUGIN_STATUS}{{plugin="batchresource",status="failed"}}': "0+1x120"},
        {"plugin": "batchresource"},
    ),
    "KoordDeschedulerHasNoLeader": (
        {'leader_election_master_status{name="koord-descheduler"}': "0x120"},
        {},
    ),
    "KoordDeschedulerCyclesFail": (
        {'descheduler_cycle_duration_seconds_count{result="error"}': "0+1x120"},
        {},
    ),
    "KoordletIsDown": (
        {'up{job="koordlet-metrics",instance="n1:9316"}': "0x120"},
        {"instance": "n1:9316"},
    ),
    "KoordletWritesFail": (
        {f'{WRITES}"failed"}}': "0+1x120"},
        {"node": "n1", "type": "cgroup"},
    ),
    "KoordletNodeSloRejected": ({'koordlet_node_slo_followed{node="n1"}': "0x120"}, {"node": "n1"}),
    "KoordApiRequestsFail": (
        {f'{REQUESTS}"503"}}': "0+50x120"},
        {"job": "koord-manager-metrics"},
    ),
    "KoordInternalErrors": (
        {
            'koord_scheduler_internal_errors_total{job="koord-scheduler",stage="s",source="p"}': (
                "0+1x120"
            )
        },
        {"job": "koord-scheduler", "stage": "s", "source": "p"},
    ),
}


@pytest.fixture(autouse=True)
def _left_as_found() -> None:
    """Replace the fixture of other end-to-end tests, which starts a control plane."""


def evaluate(
    series: dict[str, str], queries: Sequence[tuple[str, int]]
) -> list[list[dict[str, Any]]]:
    """Return the samples of each expression at its minute."""
    text = json.dumps(
        {
            "interval_s": 60,
            "series": [f"{name} {values}" for name, values in series.items()],
            "queries": [{"expr": text, "at_s": minute * 60} for text, minute in queries],
        }
    )
    done = subprocess.run(
        [binaries.find("promql")], input=text, stdout=subprocess.PIPE, text=True, check=True
    )
    results: list[list[dict[str, Any]]] = json.loads(done.stdout)
    return results


def minutes_of(rule: Any) -> range:
    """Return the minutes at the end of the series for which an alert has to hold."""
    waits = int(Duration.parse(rule.get("for", "0s")).total_seconds() // 60)
    return range(MINUTES - waits - 1, MINUTES)


def test_every_alert_has_a_case() -> None:
    """A new alert fails here until it was fired."""
    assert FIRING.keys() == ALERTS.keys()


@pytest.mark.parametrize("name", ALERTS)
def test_alert_fires_after_its_time_and_only_for_its_cause(name: str) -> None:
    """The expression holds in each minute of ``for``, and in none in a healthy installation."""
    rule = ALERTS[name]
    changes, labels = FIRING[name]
    assert changes.keys() <= HEALTHY.keys()
    firing = evaluate({**HEALTHY, **changes}, [(rule["expr"], at) for at in minutes_of(rule)])
    quiet = evaluate(HEALTHY, [(rule["expr"], at) for at in range(30, MINUTES)])

    assert all(samples for samples in firing)
    assert labels.items() <= firing[-1][0]["labels"].items()
    assert not any(quiet)


@pytest.mark.parametrize("name", ALERTS)
def test_no_other_alert_fires_for_the_same_cause(name: str) -> None:
    """An operator gets one page for one cause."""
    series = {**HEALTHY, **FIRING[name][0]}
    others = [other for other in ALERTS if other != name]
    results = evaluate(series, [(ALERTS[other]["expr"], MINUTES - 1) for other in others])

    assert not [other for other, samples in zip(others, results, strict=True) if samples]
