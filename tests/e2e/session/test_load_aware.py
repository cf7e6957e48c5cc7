"""Nodes report their usage, and pods stay off the hot ones."""

import datetime as dt
import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.session.manifests import Manifest, node, pod
from tests.e2e.session.user import User

CONFIGURATION = {
    "leaderElection": {"leaderElect": False},
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {"multiPoint": {"enabled": [{"name": "LoadAwareScheduling"}]}},
        }
    ],
}
PAGE = "/apis/v1/plugins/LoadAwareScheduling/node"


@pytest.fixture(scope="module")
def scheduler(controlplane: ControlPlane) -> Iterator[SchedulerProcess]:
    """Run a scheduler that is aware of load."""
    with SchedulerProcess(controlplane, CONFIGURATION) as running:
        yield running


def report(user: User, name: str, cpu: str, pods: dict[str, str] | None = None) -> None:
    """Report what a node uses of its CPU, and some of its pods, as koordlet does."""
    now = dt.datetime.now(dt.UTC)  # noqa: TID251 -- the scheduler's clock is the machine's
    status: dict[str, Any] = {
        "updateTime": now.strftime("%Y-%m-%dT%H:%M:%SZ"),
        "nodeMetric": {"nodeUsage": {"resources": {"cpu": cpu, "memory": "1Gi"}}},
        "podsMetric": [
            {
                "name": each,
                "namespace": user.namespace,
                "podUsage": {"resources": {"cpu": used, "memory": "1Gi"}},
            }
            for each, used in (pods or {}).items()
        ],
    }
    patch = json.dumps({"status": status})
    user.kubectl(
        "patch", f"nodemetric/{name}", "--subresource=status", "--type=merge", f"--patch={patch}"
    )


def metric(name: str) -> Manifest:
    """Return a NodeMetric that nothing has been reported in yet."""
    return {
        "apiVersion": "slo.koordinator.sh/v1alpha1",
        "kind": "NodeMetric",
        "metadata": {"name": name},
        "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 60}},
    }


def test_a_hot_node_is_avoided_and_named_in_the_event(user: User) -> None:
    """A pod that fits on no other node waits until the hot node's usage falls."""
    user.apply(node("hot", "16"), node("cool", "4"), metric("hot"), metric("cool"))
    report(user, "hot", "15")
    report(user, "cool", "100m")

    user.apply(pod("small", "1"))
    assert user.node_of("small") == "cool"

    user.apply(pod("large", "8"))
    condition = user.refusal_of("large")
    assert "1 Insufficient cpu" in condition["message"]
    assert "1 node(s) cpu usage exceed threshold" in condition["message"]
    event = user.event_of("large", "FailedScheduling")
    assert "1 node(s) cpu usage exceed threshold" in event["message"]

    report(user, "hot", "1")
    assert user.node_of("large") == "hot"


def test_pods_just_placed_count_before_they_are_measured(
    user: User, scheduler: SchedulerProcess
) -> None:
    """Twelve pods of one CPU don't all go to the node that was the emptier one a minute ago."""
    user.apply(node("a", "16"), node("b", "16"), metric("a"), metric("b"))
    report(user, "a", "100m")
    report(user, "b", "2")
    names = [f"p{i}" for i in range(12)]

    user.apply(*(pod(it, "1") for it in names))

    placed = user.nodes_of(*names)
    assert {placed.count("a"), placed.count("b")} <= {5, 6, 7}
    shown = json.loads(scheduler.get(f"{PAGE}/a"))
    assert len(shown["pods"]) == len(shown["nodeDeltaPods"]) == placed.count("a")
    assert shown["nodeDelta"]["cpu"] == _milli(850 * placed.count("a"))


def test_a_node_that_stops_to_report_takes_no_pods(user: User) -> None:
    """Until it reports again; one that has never had a NodeMetric takes them."""
    user.apply(node("silent"), metric("silent"))
    user.apply(pod("p"))
    user.wait_for_refusal("p", "1 node(s) nodeMetric expired")

    user.apply(node("unmeasured"))

    assert user.node_of("p") == "unmeasured"
    report(user, "silent", "100m")
    user.kubectl("cordon", "unmeasured")
    user.apply(pod("q"))
    assert user.node_of("q") == "silent"


def _milli(amount: int) -> str:
    return f"{amount // 1000}" if amount % 1000 == 0 else f"{amount}m"
