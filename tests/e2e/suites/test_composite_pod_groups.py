"""Trees of PodGroups on a server that has them: Kubernetes 1.37.

Source: kubernetes 1.37 test/integration/scheduler/podgroup.
"""

from typing import Any

import pytest
from tests.e2e.controlplane.binaries import kubernetes_minor
from tests.e2e.suites.cluster import SOON_S, Manifest, SuiteCluster, node
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.skipif(
    kubernetes_minor() < 37, reason="CompositePodGroups are in Kubernetes 1.37 and later"
)
PROFILES = pytest.mark.parametrize("profile", ["default-scheduler", "koord-scheduler"])
SCHEDULED = "PodGroupInitiallyScheduled"
RACK = "example.com/rack"


def path(cluster: SuiteCluster, version: str, plural: str, name: str = "") -> str:
    group = f"/apis/scheduling.k8s.io/{version}/namespaces/{cluster.namespace}"
    return f"{group}/{plural}/{name}".rstrip("/")


def make_composite(cluster: SuiteCluster, name: str, least: int, **spec: Any) -> None:
    body = {
        "apiVersion": "scheduling.k8s.io/v1alpha3",
        "kind": "CompositePodGroup",
        "metadata": {"name": name},
        "spec": {
            "schedulingPolicy": {"gang": {"minGroupCount": least}},
            "workloadRef": {"workloadName": "job", "templateName": name},
            **spec,
        },
    }
    cluster.api.request("POST", path(cluster, "v1alpha3", "compositepodgroups"), body)


def make_group(cluster: SuiteCluster, name: str, least: int, parent: str) -> None:
    body = {
        "apiVersion": "scheduling.k8s.io/v1beta1",
        "kind": "PodGroup",
        "metadata": {"name": name},
        "spec": {
            "schedulingPolicy": {"gang": {"minCount": least}},
            "workloadRef": {"workloadName": "job", "templateName": name},
            "parentCompositePodGroupName": parent,
        },
    }
    cluster.api.request("POST", path(cluster, "v1beta1", "podgroups"), body)


def condition(cluster: SuiteCluster, name: str) -> tuple[str, str, str]:
    """Return status, reason and message of the condition that the scheduler writes."""
    stored = cluster.api.request("GET", path(cluster, "v1beta1", "podgroups", name))
    for each in stored.get("status", {}).get("conditions", ()):
        if each["type"] == SCHEDULED:
            return each["status"], each["reason"], each["message"]
    return "", "", ""


def member(cluster: SuiteCluster, group: str, number: int, cpu: str = "1") -> Manifest:
    name = {"podGroupName": group}
    return cluster.pod(f"{group}-{number}", {"cpu": cpu}, schedulingGroup=name)


@PROFILES
def test_a_tree_waits_for_its_objects_its_members_and_room(
    cluster: SuiteCluster, profile: str
) -> None:
    """In this order, each with its reason; then both groups start."""
    cluster.scheduler_name = profile
    cluster.create(node("n0", "2"))
    make_group(cluster, "a", 1, "job")
    cluster.create(member(cluster, "a", 0))
    job = f"CompositePodGroup {cluster.namespace}/job"
    missing = f"{job} of scheduling.k8s.io does not exist"
    eventually(lambda: cluster.message_of("a-0") == missing, SOON_S)

    make_composite(cluster, "job", 2)
    eventually(lambda: cluster.message_of("a-0").startswith(f"{job} needs 2 groups"), SOON_S)
    make_group(cluster, "b", 2, "job")
    cluster.create(member(cluster, "b", 0), member(cluster, "b", 1))
    shortage = "minCount (2) cannot be satisfied: 1 scheduled, 0 remaining"
    eventually(lambda: shortage in condition(cluster, "a")[2], SOON_S)
    assert condition(cluster, "a")[:2] == ("False", "Unschedulable")
    assert not cluster.bound_pods()

    cluster.create(node("n1", "2"))
    eventually(lambda: cluster.bound_pods() == {"a-0", "b-0", "b-1"}, SOON_S)
    eventually(
        lambda: all(condition(cluster, name) == ("True", "Scheduled", "") for name in "ab"), SOON_S
    )


def test_the_groups_of_a_tree_share_a_rack(cluster: SuiteCluster) -> None:
    """Each rack has room for one group, except the last."""
    for rack, cpu in (("r0", "1"), ("r1", "1"), ("r2", "2")):
        cluster.create(node(rack, cpu, labels={RACK: rack}))
    make_composite(cluster, "job", 2, schedulingConstraints={"topology": [{"key": RACK}]})
    for name in "ab":
        make_group(cluster, name, 1, "job")
        cluster.create(member(cluster, name, 0))
    assert {cluster.node_of(f"{name}-0") for name in "ab"} == {"r2"}


def test_one_of_two_replicas_starts_as_a_whole(cluster: SuiteCluster) -> None:
    """Each replica has two groups; the second gives back the node that one of its groups had."""
    cluster.create(node("n0", "3"))
    make_composite(cluster, "job", 1)
    for replica in ("r0", "r1"):
        make_composite(cluster, replica, 2, parentCompositePodGroupName="job")
        for name in (f"{replica}a", f"{replica}b"):
            make_group(cluster, name, 1, replica)
    pods = [member(cluster, f"{it}{name}", 0) for it in ("r0", "r1") for name in "ab"]
    cluster.create(*pods)
    eventually(lambda: len(cluster.bound_pods()) == 2, SOON_S)
    eventually(lambda: condition(cluster, "r0a")[0] != "" != condition(cluster, "r1b")[0], SOON_S)
    assert {name[:2] for name in cluster.bound_pods()} in ({"r0"}, {"r1"})
