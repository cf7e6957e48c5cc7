"""Predicates: the scenarios of Kubernetes' own suite, for the default profile.

Source: kubernetes 1.35 test/e2e/scheduling/predicates.go, ``SchedulerPredicates``; the name of the
scenario stands in each docstring.
"""

from typing import Any

import pytest
from tests.e2e.suites.cluster import (
    FAKE,
    HOST,
    Manifest,
    SuiteCluster,
    having,
    node,
    spread,
)

NODES = ("n0", "n1")


def test_ephemeral_storage(cluster: SuiteCluster) -> None:
    """Source: validates local ephemeral storage resource limits of pods that are allowed to run."""
    storage = {"ephemeral-storage": "100Gi"}
    cluster.create(*(node(name, more=storage) for name in NODES))
    for number in range(20):
        cluster.create(cluster.pod(f"p{number}", {"ephemeral-storage": "10Gi"}))
    for number in range(20):
        cluster.node_of(f"p{number}")

    why = cluster.fail("additional", {"ephemeral-storage": "10Gi"})

    assert "2 Insufficient ephemeral-storage" in why


def test_pod_overhead(cluster: SuiteCluster) -> None:
    """Source: verify pod overhead is accounted for."""
    runtime = {
        "apiVersion": "node.k8s.io/v1",
        "kind": "RuntimeClass",
        "metadata": {"name": "heavy"},
        "handler": "heavy",
        "overhead": {"podFixed": {FAKE: "250"}},
    }
    cluster.create(node("n0", more={FAKE: "1000"}), runtime)
    cluster.run("filler", {FAKE: "700"})
    overhead = cluster.create(cluster.pod("additional", {FAKE: "200"}, runtimeClassName="heavy"))[
        "spec"
    ]["overhead"]
    assert overhead == {FAKE: "250"}

    assert f"Insufficient {FAKE}" in cluster.failure_of("additional")
    cluster.run("lighter", {FAKE: "200"})


def test_resource_limits(cluster: SuiteCluster) -> None:
    """Source: validates resource limits of pods that are allowed to run."""
    cluster.create(*(node(name, "10") for name in NODES))
    for name in NODES:
        assert cluster.run(f"filler-{name}", {"cpu": "7"}, on=name) == name

    assert "2 Insufficient cpu" in cluster.fail("additional", {"cpu": "5"})


def test_node_selector_that_matches_nothing(cluster: SuiteCluster) -> None:
    """Source: validates that NodeSelector is respected if not matching."""
    cluster.create(node("n0"))

    why = cluster.fail("p", nodeSelector={"label": "nonempty"})

    assert "didn't match Pod's node affinity/selector" in why


def test_node_selector_that_matches(cluster: SuiteCluster) -> None:
    """Source: validates that NodeSelector is respected if matching."""
    cluster.create(*(node(name) for name in NODES))
    cluster.patch("Node", "n1", {"metadata": {"labels": {"example.com/e2e": "42"}}})

    assert cluster.run("p", nodeSelector={HOST: "n1", "example.com/e2e": "42"}) == "n1"


@pytest.mark.parametrize("operator", ["Gt", "In"])
def test_node_affinity_that_matches_nothing(cluster: SuiteCluster, operator: str) -> None:
    """Source: validates that NodeAffinity is respected if not matching."""
    cluster.create(node("n0", labels={"number": "10"}))
    values = ("10",) if operator == "Gt" else ("bar", "value2")

    why = cluster.fail("p", affinity=having("number", *values, operator=operator))

    assert "didn't match Pod's node affinity/selector" in why


def test_node_affinity_that_matches(cluster: SuiteCluster) -> None:
    """Source: validates that required NodeAffinity setting is respected if matching."""
    cluster.create(node("n0"), node("n1", labels={"example.com/e2e": "42"}))

    assert cluster.run("p", affinity=having("example.com/e2e", "42", "43")) == "n1"


@pytest.mark.parametrize("tolerated", [True, False])
def test_taints(cluster: SuiteCluster, *, tolerated: bool) -> None:
    """Source: validates that taints-tolerations is respected if matching; … if not matching."""
    cluster.create(node("n0"))
    taint = {"key": "example.com/taint", "value": "secret", "effect": "NoSchedule"}
    cluster.patch("Node", "n0", {"spec": {"taints": [taint]}})
    chosen: dict[str, Any] = {"nodeSelector": {HOST: "n0"}}

    if tolerated:
        assert cluster.run("p", tolerations=[taint], **chosen) == "n0"
        return
    assert "untolerated taint" in cluster.fail("p", **chosen)
    cluster.patch("Node", "n0", {"spec": {"taints": None}})
    assert cluster.node_of("p") == "n0"


def port(ip: str = "", protocol: str = "TCP") -> list[Manifest]:
    """Return a port of the node, of an address of it."""
    return [{"containerPort": 80, "hostPort": 54321, "hostIP": ip, "protocol": protocol}]


def test_host_ports_that_differ(cluster: SuiteCluster) -> None:
    """Source: validates that there is no conflict between pods with same hostPort but different
    hostIP and protocol.
    """  # noqa: D205 -- a title
    cluster.create(node("n0"))

    assert cluster.run("pod1", ports=port("127.0.0.1")) == "n0"
    assert cluster.run("pod2", ports=port("10.0.0.1")) == "n0"
    assert cluster.run("pod3", ports=port("10.0.0.1", "UDP")) == "n0"


def test_host_ports_of_all_addresses(cluster: SuiteCluster) -> None:
    """Source: validates that there exists conflict between pods with same hostPort and protocol but
    one using 0.0.0.0 hostIP.
    """  # noqa: D205 -- a title
    cluster.create(node("n0"))
    cluster.run("pod4", ports=port())

    assert "free ports" in cluster.fail("pod5", ports=port("127.0.0.1"))


def test_even_spreading(cluster: SuiteCluster) -> None:
    """Source: validates 4 pods with MaxSkew=1 are evenly distributed into 2 nodes."""
    key, label = "example.com/pts-filter", "example.com/spread"
    cluster.create(*(node(name, labels={key: name}) for name in NODES), node("other"))
    for number in range(4):
        cluster.create(
            cluster.pod(
                f"p{number}",
                labels={label: ""},
                affinity=having(key, *NODES),
                topologySpreadConstraints=spread(key, label),
            )
        )

    assert sorted(cluster.node_of(f"p{number}") for number in range(4)) == ["n0", "n0", "n1", "n1"]


def test_scheduling_gates(cluster: SuiteCluster) -> None:
    """Source: validates Pods with non-empty schedulingGates are blocked on scheduling."""
    cluster.create(node("n0"))
    names = [f"p{number}" for number in range(3)]
    gates = [{"name": "example.com/foo"}, {"name": "example.com/bar"}]
    cluster.create(*(cluster.pod(name, schedulingGates=gates) for name in names))

    for left in (gates[1:], None):
        for name in names:
            reason = cluster.get("Pod", name)["status"]["conditions"][0]["reason"]
            assert reason == "SchedulingGated"
            assert "nodeName" not in cluster.get("Pod", name)["spec"]
            cluster.patch("Pod", name, {"spec": {"schedulingGates": left}})

    assert [cluster.node_of(name) for name in names] == ["n0"] * 3


def test_a_volume_of_nodes_that_are_not_there(cluster: SuiteCluster) -> None:
    """Source: when PVC has node-affinity to non-existent/illegal nodes, the pod should be scheduled
    normally if suitable nodes exist.
    """  # noqa: D205 -- a title
    affinity = having(HOST, "n1", "gone-1", "gone-2")["nodeAffinity"]
    terms = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
    sizes = {"storage": "1Gi"}
    cluster.create(
        *(node(name) for name in NODES),
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": "disk"},
            "spec": {
                "capacity": sizes,
                "accessModes": ["ReadWriteOnce"],
                "local": {"path": "/tmp"},  # noqa: S108 -- of a node that is played
                "nodeAffinity": {"required": terms},
                "claimRef": {"name": "claim", "namespace": cluster.namespace},
            },
        },
        {
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {"name": "claim"},
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "resources": {"requests": sizes},
                "storageClassName": "",
                "volumeName": "disk",
            },
        },
    )
    # No controller binds here: what it would write is written.
    made = {"pv.kubernetes.io/bind-completed": "yes"}
    cluster.patch("PersistentVolumeClaim", "claim", {"metadata": {"annotations": made}})
    for kind, name in (("PersistentVolumeClaim", "claim"), ("PersistentVolume", "disk")):
        cluster.patch(kind, name, {"status": {"phase": "Bound"}}, "status")
    uid = cluster.get("PersistentVolumeClaim", "claim")["metadata"]["uid"]
    cluster.patch("PersistentVolume", "disk", {"spec": {"claimRef": {"uid": uid}}})

    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "claim"}}]
    assert cluster.run("p", volumes=volumes) == "n1"
