"""Priorities, zones and default limits: the scenarios of Kubernetes' own suites.

Source: kubernetes 1.35 test/e2e/scheduling/priorities.go, ubernetes_lite.go, limit_range.go,
workload.go; test/e2e/node/taints.go for decisions of a scheduler.
"""

from collections import Counter

import pytest
from tests.e2e.suites.cluster import HOST, ZONE, Manifest, SuiteCluster, having, node, spread
from tests.e2e.waiting import eventually

AMOUNTS = {"cpu": "100m", "memory": "100Mi"}


def test_a_preferred_anti_affinity(cluster: SuiteCluster) -> None:
    """Source: Pod should be scheduled to node that don't match the PodAntiAffinity terms."""
    cluster.create(node("n0"), node("n1"))
    first = cluster.run("pod-with-label-security-s1", AMOUNTS, labels={"security": "S1"})
    for name in ("n0", "n1"):  # the other one is fuller
        balance = {"cpu": "2", "memory": "8Gi"} if name == first else {"cpu": "4", "memory": "16Gi"}
        cluster.run(f"balance-{name}", balance, on=name)
    expressions = [
        {"key": "security", "operator": "In", "values": ["S1", "value2"]},
        {"key": "security", "operator": "NotIn", "values": ["S2"]},
        {"key": "security", "operator": "Exists"},
    ]
    term = {
        "labelSelector": {"matchExpressions": expressions},
        "topologyKey": HOST,
        "namespaces": [cluster.namespace],
    }
    preferred = [{"weight": 100, "podAffinityTerm": term}]
    affinity = {"podAntiAffinity": {"preferredDuringSchedulingIgnoredDuringExecution": preferred}}

    assert cluster.run("apart", AMOUNTS, affinity=affinity) != first


def test_preferred_taints(cluster: SuiteCluster) -> None:
    """Source: Pod should be preferably scheduled to nodes pod can tolerate."""
    names = ("n0", "n1", "n2")
    cluster.create(*(node(name) for name in names))
    for name in names:
        cluster.run(f"balance-{name}", {"cpu": "4", "memory": "16Gi"}, on=name)
        taints = [
            {"key": f"example.com/{name}-{i}", "value": "x", "effect": "PreferNoSchedule"}
            for i in range(10)
        ]
        cluster.patch("Node", name, {"spec": {"taints": taints}})
    tolerations = [
        {"key": f"example.com/n2-{i}", "value": "x", "effect": "PreferNoSchedule"}
        for i in range(10)
    ]

    assert cluster.run("with-tolerations", AMOUNTS, tolerations=tolerations) == "n2"


def test_preferred_spreading(cluster: SuiteCluster) -> None:
    """Source: validates pod should be preferably scheduled to node which makes the matching pods
    more evenly distributed.
    """  # noqa: D205 -- a title
    key, label, names = "example.com/pts-score", "example.com/spread", ("n0", "n1")
    cluster.create(*(node(name, labels={key: name}) for name in names))
    for number in range(4):
        cluster.run(f"p{number}", AMOUNTS, labels={label: "foo"}, on="n0")
    cluster.run("balance", {"cpu": "400m", "memory": "400Mi"}, on="n1")

    where = cluster.run(
        "test-pod",
        AMOUNTS,
        labels={label: "bar"},
        affinity=having(key, *names),
        topologySpreadConstraints=spread(key, label, "ScheduleAnyway"),
    )

    assert where == "n1"


@pytest.mark.parametrize("kind", ["Service", "ReplicaSet"])
def test_pods_are_spread_over_zones(cluster: SuiteCluster, kind: str) -> None:
    """Source: should spread the pods of a service (a replication controller) across zones."""
    zones = ("a", "b", "c")
    cluster.create(*(node(f"n-{zone}{i}", labels={ZONE: zone}) for zone in zones for i in range(2)))
    labels = {"app": "web"}
    if kind == "Service":
        spec: Manifest = {"selector": labels, "ports": [{"port": 80}]}
        name = {"name": "web"}
        cluster.create({"apiVersion": "v1", "kind": kind, "metadata": name, "spec": spec})
    else:
        spec = {
            "replicas": 0,
            "selector": {"matchLabels": labels},
            "template": {
                "metadata": {"labels": labels},
                "spec": {"containers": [{"name": "main", "image": "pause"}]},
            },
        }
        name = {"name": "web"}
        stored = cluster.create(
            {"apiVersion": "apps/v1", "kind": kind, "metadata": name, "spec": spec}
        )
        owner: Manifest = {
            "apiVersion": "apps/v1",
            "kind": kind,
            "name": "web",
            "uid": stored["metadata"]["uid"],
            "controller": True,
        }
    names = [f"p{number}" for number in range(15)]
    for one in names:
        made = cluster.pod(one, AMOUNTS, labels=labels)
        if kind == "ReplicaSet":
            made["metadata"]["ownerReferences"] = [owner]
        cluster.create(made)
    counts = Counter(cluster.node_of(one)[2] for one in names)

    assert max(counts.values()) - min(counts[zone] for zone in zones) <= 2


def limits(kind: str = "Container", **of: dict[str, str]) -> Manifest:
    """Return a LimitRange of a namespace."""
    return {
        "apiVersion": "v1",
        "kind": "LimitRange",
        "metadata": {"name": "limits"},
        "spec": {"limits": [{"type": kind, **of}]},
    }


def test_limit_ranges_count_as_requests(cluster: SuiteCluster) -> None:
    """Source: should create a LimitRange with defaults and ensure pod has those defaults applied.

    The API server fills them in and refuses; the scheduler has to go by what is filled in.
    """
    ranges = limits(
        min={"cpu": "50m", "memory": "100Mi"},
        max={"cpu": "5", "memory": "5Gi"},
        default={"cpu": "5", "memory": "5Gi"},
        defaultRequest={"cpu": "3", "memory": "200Mi"},
    )
    cluster.create(node("n0", "8"), ranges)

    cluster.run("default-0")
    stored = cluster.get("Pod", "default-0")["spec"]["containers"][0]["resources"]
    assert stored["requests"] == {"cpu": "3", "memory": "200Mi"}
    cluster.run("default-1")
    assert "Insufficient cpu" in cluster.fail("default-2")
    cluster.run("partial", {"cpu": "300m"})
    assert "minimum cpu usage" in cluster.refusal(cluster.pod("small", {"cpu": "10m"}))
    assert "maximum cpu usage" in cluster.refusal(cluster.pod("large", {"cpu": "6"}))
    cluster.delete("LimitRange", "limits")
    # The server caches limit ranges; its watch delivers the deletion a moment later.
    eventually(lambda: cluster.refusal(cluster.pod("large", {"cpu": "6"})) == "")


def test_removing_a_taint_admits_pods(cluster: SuiteCluster) -> None:
    """Source: node/taints.go, removing taint cancels eviction: of it, what the scheduler sees.

    NoExecute keeps pods away as NoSchedule does; with a toleration they come, for ever or for a
    time: ending it is the node controller's.
    """
    cluster.create(node("n0"))
    taint = {"key": "example.com/evict", "value": "x", "effect": "NoExecute"}
    cluster.patch("Node", "n0", {"spec": {"taints": [taint]}})

    assert "untolerated taint" in cluster.fail("kept-away")
    assert cluster.run("tolerates", tolerations=[{**taint, "tolerationSeconds": 60}]) == "n0"
    cluster.patch("Node", "n0", {"spec": {"taints": None}})
    assert cluster.node_of("kept-away") == "n0"
