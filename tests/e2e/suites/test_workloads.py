"""The Workload API of Kubernetes 1.35, on a server that has it.

Source: kubernetes 1.35 test/e2e/scheduling/workload.go, "Workload API availability";
test/integration/scheduler/gang, ``TestGangScheduling``.
"""

import pytest
from tests.e2e.controlplane.binaries import kubernetes_minor
from tests.e2e.suites.cluster import Manifest, SuiteCluster, node
from tests.e2e.waiting import eventually

pytestmark = pytest.mark.skipif(
    kubernetes_minor() != 35,
    reason="Workloads of scheduling.k8s.io/v1alpha1 are in Kubernetes 1.35 alone",
)
PROFILES = pytest.mark.parametrize("profile", ["default-scheduler", "koord-scheduler"])


def workload(name: str = "job", **least: int) -> Manifest:
    """Return a Workload with a gang of each name; 0 is the basic policy."""
    groups: list[Manifest] = [
        {"name": one, "policy": {"gang": {"minCount": count}} if count else {"basic": {}}}
        for one, count in least.items()
    ]
    return {
        "apiVersion": "scheduling.k8s.io/v1alpha1",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": {"podGroups": groups},
    }


def member(cluster: SuiteCluster, name: str, of: str = "workers", replica: str = "") -> Manifest:
    """Return a pod of a group, with one CPU."""
    ref = {"name": "job", "podGroup": of}
    if replica:
        ref["podGroupReplicaKey"] = replica
    return cluster.pod(name, {"cpu": "1"}, workloadRef=ref)


def test_server_accepts_the_workload(cluster: SuiteCluster) -> None:
    """Source: Workload API availability: create, look, change, delete."""
    stored = cluster.create(workload(workers=2, driver=0))
    assert stored["spec"]["podGroups"][1]["policy"] == {"basic": {}}
    assert "minCount" in cluster.refusal(workload("wrong", workers=-1))
    cluster.patch("Workload", "job", {"metadata": {"labels": {"a": "b"}}})
    cluster.delete("Workload", "job")
    assert not cluster.get("Workload", "job")


@PROFILES
def test_a_gang_waits_for_its_workload_its_members_and_room(
    cluster: SuiteCluster, profile: str
) -> None:
    """Source: TestGangScheduling; in this order, each wait with its reason on the pods."""
    cluster.scheduler_name = profile
    cluster.create(node("n0", "2"), *(member(cluster, f"w{i}") for i in range(2)))
    missing = f"Workload {cluster.namespace}/job does not exist"
    eventually(lambda: missing in {cluster.message_of(f"w{i}") for i in range(2)})

    cluster.create(workload(workers=3))
    eventually(lambda: any("needs 3 members" in cluster.message_of(f"w{i}") for i in range(2)))
    cluster.create(member(cluster, "w2"))
    eventually(lambda: any("Insufficient cpu" in cluster.message_of(f"w{i}") for i in range(3)))
    assert not cluster.bound_pods()
    cluster.run("other", {"cpu": "2"})  # no place is kept for who does not start

    cluster.create(node("n1", "4"))
    assert [cluster.node_of(f"w{i}") for i in range(3)] == ["n1"] * 3


@PROFILES
def test_replicas_and_groups_are_gangs_of_their_own(cluster: SuiteCluster, profile: str) -> None:
    """One replica fits, the other does not; a group of the basic policy takes what there is."""
    cluster.scheduler_name = profile
    cluster.create(node("n0", "3"), workload(workers=2, driver=0))
    cluster.create(*(member(cluster, f"{key}{i}", replica=key) for i in range(2) for key in "ab"))
    eventually(lambda: len(cluster.bound_pods()) == 2)
    assert len({name[0] for name in cluster.bound_pods()}) == 1

    cluster.create(*(member(cluster, f"d{i}", "driver") for i in range(2)))
    eventually(lambda: len(cluster.bound_pods()) == 3)
    assert sum(name.startswith("d") for name in cluster.bound_pods()) == 1
