"""PodGroups of scheduling.k8s.io, on a server that has them: Kubernetes 1.36 and later.

Source: kubernetes 1.37 test/e2e/scheduling/workload.go, gang_scheduling.go,
workload_aware_preemption.go; test/integration/scheduler/podgroup.
"""

from typing import Any

import pytest
from tests.e2e.controlplane.binaries import kubernetes_minor
from tests.e2e.suites.cluster import SOON_S, Manifest, SuiteCluster, node, priority_class
from tests.e2e.waiting import eventually

MINOR = kubernetes_minor()
pytestmark = pytest.mark.skipif(
    MINOR < 36, reason="PodGroups of scheduling.k8s.io are in Kubernetes 1.36 and later"
)
PROFILES = pytest.mark.parametrize("profile", ["default-scheduler", "koord-scheduler"])
VERSION = "scheduling.k8s.io/v1alpha2" if MINOR == 36 else "scheduling.k8s.io/v1beta1"
SCHEDULED = "PodGroupScheduled" if MINOR == 36 else "PodGroupInitiallyScheduled"


def path(cluster: SuiteCluster, name: str = "") -> str:
    return f"/apis/{VERSION}/namespaces/{cluster.namespace}/podgroups/{name}".rstrip("/")


def make_group(cluster: SuiteCluster, least: int, **spec: Any) -> Manifest:
    """Create the PodGroup ``train``; return it as it was stored."""
    policy: Manifest = {"gang": {"minCount": least}} if least else {"basic": {}}
    body = {
        "apiVersion": VERSION,
        "kind": "PodGroup",
        "metadata": {"name": "train"},
        "spec": {"schedulingPolicy": policy, **spec},
    }
    stored: Manifest = cluster.api.request("POST", path(cluster), body)
    return stored


def condition(cluster: SuiteCluster) -> tuple[str, str, str]:
    """Return status, reason and message of the condition that the scheduler writes."""
    stored = cluster.api.request("GET", path(cluster, "train"))
    for each in stored.get("status", {}).get("conditions", ()):
        if each["type"] == SCHEDULED:
            return each["status"], each["reason"], each["message"]
    return "", "", ""


def member(cluster: SuiteCluster, name: str, cpu: str = "3", **spec: Any) -> Manifest:
    return cluster.pod(name, {"cpu": cpu}, schedulingGroup={"podGroupName": "train"}, **spec)


@PROFILES
def test_a_gang_waits_for_its_group_its_members_and_room(
    cluster: SuiteCluster, profile: str
) -> None:
    """In this order, each with its reason; the group has the result."""
    cluster.scheduler_name = profile
    cluster.create(node("n0", "4"), member(cluster, "a"))
    missing = f"PodGroup {cluster.namespace}/train of scheduling.k8s.io does not exist"
    eventually(lambda: cluster.message_of("a") == missing, SOON_S)

    make_group(cluster, 2)
    eventually(lambda: "needs 2 members" in cluster.message_of("a"), SOON_S)
    cluster.create(member(cluster, "b"))
    eventually(lambda: condition(cluster)[:2] == ("False", "Unschedulable"), SOON_S)
    assert not cluster.bound_pods()
    if MINOR >= 37:
        text = (
            "pod group is unschedulable, 0/1 placements are available, first placement status: "
            "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining, pod group preemption: No "
            "preemption victims found for incoming preemptor"
        )
        assert condition(cluster)[2] == text
        eventually(lambda: f"pod group is unschedulable, {text}" in _messages(cluster), SOON_S)
        assert any(
            one.startswith("0/1 nodes are available: 1 Insufficient cpu.")
            for one in _messages(cluster)
        )

    cluster.create(node("n1", "4"))
    assert {cluster.node_of(name) for name in "ab"} == {"n0", "n1"}
    eventually(lambda: condition(cluster) == ("True", "Scheduled", ""), SOON_S)


def _messages(cluster: SuiteCluster) -> set[str]:
    return {cluster.message_of(name) for name in "ab"}


@PROFILES
def test_pods_of_the_basic_policy_are_each_for_themselves(
    cluster: SuiteCluster, profile: str
) -> None:
    """Two of three find room and take it."""
    cluster.scheduler_name = profile
    cluster.create(node("n0", "7"))
    make_group(cluster, 0)
    cluster.create(*(member(cluster, name) for name in "abc"))
    eventually(lambda: len(cluster.bound_pods()) == 2, SOON_S)
    eventually(lambda: condition(cluster) == ("True", "Scheduled", ""), SOON_S)


@pytest.mark.skipif(MINOR < 37, reason="minCount cannot be changed in Kubernetes 1.36")
def test_gang_starts_after_its_minimum_is_lowered(cluster: SuiteCluster) -> None:
    """Three wait for room that two have."""
    cluster.create(node("n0", "7"))
    make_group(cluster, 3)
    cluster.create(*(member(cluster, name) for name in "abc"))
    eventually(lambda: condition(cluster)[0] == "False", SOON_S)
    assert not cluster.bound_pods()

    change = {"spec": {"schedulingPolicy": {"gang": {"minCount": 2}}}}
    merge = "application/merge-patch+json"
    cluster.api.request("PATCH", path(cluster, "train"), change, content_type=merge)
    eventually(lambda: len(cluster.bound_pods()) == 2, SOON_S)


@PROFILES
@pytest.mark.skipif(MINOR < 37, reason="groups are preempted and preempt in Kubernetes 1.37")
@pytest.mark.parametrize(
    ("mode", "by_group", "left"),
    [({"all": {}}, True, 0), ({"single": {}}, True, 1), ({"single": {}}, False, 1)],
    ids=["all by group", "single by group", "single by pod"],
)
def test_members_are_preempted_by_the_disruption_mode_of_their_group(
    cluster: SuiteCluster, profile: str, mode: Manifest, *, by_group: bool, left: int
) -> None:
    """WorkloadAwarePreemption of Kubernetes' suite: room for one of two members is wanted."""
    cluster.scheduler_name = profile
    kinds = {name: f"{name}-{cluster.namespace}" for name in ("low", "high")}
    cluster.create(priority_class(kinds["low"], 100), priority_class(kinds["high"], 1000))
    cluster.create(node("n0", "4"))
    low = {"priorityClassName": kinds["low"]}
    make_group(cluster, 2, disruptionMode=mode, **low)
    cluster.create(*(member(cluster, name, "2", **low) for name in "ab"))
    assert {cluster.node_of(name) for name in "ab"} == {"n0"}

    high: Manifest = {"priorityClassName": kinds["high"]}
    if by_group:
        policy = {"schedulingPolicy": {"gang": {"minCount": 1}}}
        body = {"apiVersion": VERSION, "kind": "PodGroup", "metadata": {"name": "urgent"}}
        single: Manifest = {"disruptionMode": {"single": {}}}
        cluster.api.request("POST", path(cluster), {**body, "spec": {**policy, **single, **high}})
        high["schedulingGroup"] = {"podGroupName": "urgent"}
    cluster.create(cluster.pod("urgent", {"cpu": "2"}, **high))
    assert cluster.node_of("urgent") == "n0"
    assert sum(not cluster.is_going(name) for name in "ab") == left
