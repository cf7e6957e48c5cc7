"""Pods that are resized in place, on a server that has the subresource ``resize``.

Source: kubernetes test/e2e/common/node/pod_resize.go; KEP-1287.
"""

from typing import Any

import pytest
from tests.e2e.controlplane.binaries import kubernetes_minor
from tests.e2e.suites.cluster import MERGE, SOON_S, Manifest, SuiteCluster, node, priority_class
from tests.e2e.waiting import eventually


def report(cluster: SuiteCluster, name: str, cpu: str, reason: str = "") -> None:
    """Say as a kubelet does what a pod has been granted and has in force."""
    requests = {"cpu": cpu}
    status: Manifest = {
        "containerStatuses": [
            {
                "name": "main",
                "image": "pause",
                "imageID": "pause",
                "ready": True,
                "restartCount": 0,
                "allocatedResources": requests,
                "resources": {"requests": requests, "limits": requests},
            }
        ]
    }
    if reason:
        pending = {"type": "PodResizePending", "status": "True", "reason": reason}
        known = cluster.get("Pod", name)["status"].get("conditions", [])
        status["conditions"] = [*known, pending]
    path = f"{cluster.path('Pod', name)}/status"
    cluster.api.request("PATCH", path, {"status": status}, content_type=MERGE)


def resize(cluster: SuiteCluster, name: str, cpu: str) -> None:
    amounts = {"cpu": cpu}
    container = {"name": "main", "resources": {"requests": amounts, "limits": amounts}}
    cluster.api.request(
        "PATCH",
        f"{cluster.path('Pod', name)}/resize",
        {"spec": {"containers": [container]}},
        content_type="application/strategic-merge-patch+json",
    )


def run(cluster: SuiteCluster, name: str, cpu: str, **more: Any) -> None:
    """Create a pod and wait until the kubelet reports it as running, which it does once."""
    cluster.run(name, {"cpu": cpu}, **more)
    eventually(lambda: cluster.get("Pod", name)["status"].get("phase") == "Running", SOON_S)
    report(cluster, name, cpu)


def test_resources_allocated_by_the_kubelet_are_in_use(cluster: SuiteCluster) -> None:
    """A pod is shrunk from 3 CPUs to 1; another one gets the room when the kubelet gave it up."""
    cluster.create(node("n0", "4"))
    run(cluster, "old", "3")
    resize(cluster, "old", "1")
    assert "Insufficient cpu" in cluster.fail("new", {"cpu": "2"})

    report(cluster, "old", "1")
    assert cluster.node_of("new") == "n0"


def test_a_resize_that_never_can_be_takes_nothing(cluster: SuiteCluster) -> None:
    """All 4 CPUs are requested; the kubelet reports the resize as infeasible."""
    cluster.create(node("n0", "4"))
    run(cluster, "old", "1")
    resize(cluster, "old", "4")
    assert "Insufficient cpu" in cluster.fail("new", {"cpu": "2"})

    report(cluster, "old", "1", "Infeasible")
    eventually(lambda: cluster.get("Pod", "new")["spec"].get("nodeName") == "n0", SOON_S)


@pytest.mark.skipif(kubernetes_minor() < 37, reason="preemption for resizes is in Kubernetes 1.37")
@pytest.mark.parametrize("profile", ["default-scheduler", "koord-scheduler"])
def test_a_deferred_resize_preempts_where_its_node_allows_it(
    cluster: SuiteCluster, profile: str
) -> None:
    """The less important pod stays while the node's policy protects it, and goes after that."""
    cluster.scheduler_name = profile
    important = f"important-{profile}"
    policy = {"podPreemptionPolicy": {"disableResizePreemption": ["example.com/autoscaler"]}}
    guarded = node("n0", "4")
    guarded["spec"] = {**guarded["spec"], **policy}
    cluster.create(guarded, priority_class(important, 1000))
    run(cluster, "low", "2")
    run(cluster, "big", "1", priorityClassName=important)

    resize(cluster, "big", "3")
    report(cluster, "big", "1", "Deferred")
    assert "Insufficient cpu" in cluster.fail("new", {"cpu": "2"})
    assert not cluster.is_going("low")

    cluster.patch("Node", "n0", {"spec": {"podPreemptionPolicy": None}})
    eventually(lambda: cluster.is_going("low"), SOON_S)
    big = cluster.get("Pod", "big")
    assert big["spec"]["nodeName"] == "n0"
    assert "nominatedNodeName" not in big["status"]
