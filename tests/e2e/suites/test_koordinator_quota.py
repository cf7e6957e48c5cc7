"""Quotas and batch resources: scenarios of the original's own suites, with manager and webhooks.

Source: koordinator test/e2e/quota/quota.go, multi_tree.go, quota_guaranteed.go (Q);
test/e2e/slocontroller/batchresource.go, cpunormalization.go (L).
"""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.errors import ApiError
from tests.e2e.manager_process import NAMESPACE, ManagerProcess
from tests.e2e.session.test_manager import report
from tests.e2e.suites.cluster import HOST, Manifest, SuiteCluster, node, priority_class
from tests.e2e.waiting import eventually

PREFIX = "quota.scheduling.koordinator.sh/"
HOOKS = "/apis/admissionregistration.k8s.io/v1"
BASE = "node.koordinator.sh/cpu-basic-info"
RATIO = "node.koordinator.sh/cpu-normalization-ratio"
POD = {"cpu": "1", "memory": "2Gi"}


def hooks(port: int) -> Iterator[tuple[str, Manifest]]:
    """Yield the webhooks of quotas as the chart makes them, but that no Service is called."""
    for kind, prefix in (("mutating", "m"), ("validating", "v")):
        path = f"{'mutate' if prefix == 'm' else 'validate'}-scheduling-sigs-k8s-io-v1alpha1"
        operations = ["CREATE"] if prefix == "m" else ["CREATE", "UPDATE", "DELETE"]
        entry = {
            "name": f"{prefix}elasticquota.koordinator.sh",
            "admissionReviewVersions": ["v1"],
            "sideEffects": "NoneOnDryRun",
            "failurePolicy": "Fail",
            "timeoutSeconds": 10,
            "clientConfig": {"url": f"https://127.0.0.1:{port}/{path}-elasticquota"},
            "rules": [
                {
                    "apiGroups": ["scheduling.sigs.k8s.io"],
                    "apiVersions": ["v1alpha1"],
                    "operations": operations,
                    "resources": ["elasticquotas"],
                }
            ],
        }
        name = f"koordinator-{kind}-webhook-configuration"
        yield f"{kind}webhookconfigurations", {"metadata": {"name": name}, "webhooks": [entry]}


@pytest.fixture
def managed(koord: SuiteCluster, controlplane: ControlPlane) -> Iterator[SuiteCluster]:
    """Work in a cluster that has a manager, whose webhooks are asked about quotas."""
    api = controlplane.api
    api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    gates = "--feature-gates=MultiQuotaTree=true"
    with ManagerProcess(controlplane, [gates]) as running:
        made = dict(hooks(running.webhook_port))
        for plural, each in made.items():
            api.request("POST", f"{HOOKS}/{plural}", each)

        def trusted() -> bool:
            configurations = [
                api.request("GET", f"{HOOKS}/{plural}/{each['metadata']['name']}")
                for plural, each in made.items()
            ]
            entries = [entry for one in configurations for entry in one["webhooks"]]
            return all(entry["clientConfig"].get("caBundle") for entry in entries)

        eventually(trusted, 60)
        yield koord


def quota(name: str, least: Manifest, most: Manifest, **labels: str) -> Manifest:
    """Return a quota."""
    settings = {f"{PREFIX}{key.replace('_', '-')}": value for key, value in labels.items()}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "labels": settings},
        "spec": {"min": least, "max": most},
    }


def in_quota(name: str) -> dict[str, Any]:
    return {"labels": {f"{PREFIX}name": name}}


TOTAL, HALF = {"cpu": "8", "memory": "32Gi"}, {"cpu": "4", "memory": "16Gi"}


def test_children_ask_for_no_more_than_their_parent_has(managed: SuiteCluster) -> None:
    """Source: Q, the sum of child min is smaller than parent min."""
    more = {"cpu": "4800m", "memory": "19Gi"}
    eventually(lambda: managed.refusal(quota("parent", TOTAL, TOTAL, is_parent="true")) == "")
    managed.create(quota("child-1", HALF, TOTAL, parent="parent"))

    assert "min" in managed.refusal(quota("child-2", more, TOTAL, parent="parent"))
    assert managed.refusal(quota("child-2", HALF, TOTAL, parent="parent")) == ""
    for name in ("child-1", "child-2", "parent"):
        managed.delete("ElasticQuota", name)


def test_a_quota_has_a_most(managed: SuiteCluster) -> None:
    """Source: Q, check the quota max: a pod that is more waits."""
    managed.create(node("n0"))
    eventually(lambda: managed.refusal(quota("basic", {}, POD)) == "")

    managed.run("p1", POD, **in_quota("basic"))

    assert "exceedDimensions" in managed.fail("p2", POD, **in_quota("basic"))


def profile(name: str, on: str, **spec: Any) -> Manifest:
    """Return the profile of a tree of quotas for the nodes of a host name."""
    return {
        "apiVersion": "quota.koordinator.sh/v1alpha1",
        "kind": "ElasticQuotaProfile",
        "metadata": {"name": name},
        "spec": {
            "quotaName": f"{name}-root",
            "quotaLabels": {f"{PREFIX}is-parent": "true"},
            "nodeSelector": {"matchLabels": {HOST: on}},
            **spec,
        },
    }


def root_of(managed: SuiteCluster, name: str) -> Manifest:
    """Wait for the root that the profile makes; return its labels and its least amounts."""
    root = eventually(lambda: managed.get("ElasticQuota", f"{name}-root"))
    labels = root["metadata"]["labels"]
    assert labels[f"{PREFIX}is-root"] == "true"
    least = {key: root["spec"]["min"][key] for key in ("cpu", "memory")}
    return {"tree": labels[f"{PREFIX}tree-id"], "min": least}


def amounts_of(managed: SuiteCluster, name: str, what: str) -> Manifest:
    """Return an annotation of a quota; empty if there is none yet."""
    amounts: Manifest = managed.annotation(name, f"{PREFIX}{what}", "ElasticQuota") or {}
    return {key: value for key, value in amounts.items() if key in ("cpu", "memory")}


def test_two_trees(managed: SuiteCluster) -> None:
    """Source: Q, create two profile and construct two quota tree, check the min and labels."""
    managed.create(node("n0"), node("n1"), profile("one", "n0"), profile("two", "n1"))
    roots = {name: root_of(managed, name) for name in ("one", "two")}
    assert [root["min"] for root in roots.values()] == [TOTAL, TOTAL]
    assert roots["one"]["tree"] != roots["two"]["tree"]

    for name, root in roots.items():
        child = quota(f"{name}-child", HALF, TOTAL, parent=f"{name}-root")
        eventually(lambda child=child: managed.refusal(child) == "")  # type: ignore[misc] # a default
        stored = managed.get("ElasticQuota", f"{name}-child")
        assert stored["metadata"]["labels"][f"{PREFIX}tree-id"] == root["tree"]
        eventually(lambda name=name: amounts_of(managed, f"{name}-child", "runtime") == HALF)  # type: ignore[misc]

    moved = {"metadata": {"labels": {f"{PREFIX}parent": "one-root"}}}
    with pytest.raises(ApiError):
        managed.patch("ElasticQuota", "two-child", moved)
    other = quota("stray", {}, TOTAL, parent="two-root", tree_id="another")
    assert managed.refusal(other)


def test_a_part_of_the_nodes(managed: SuiteCluster) -> None:
    """Source: Q, create profile with resource ratio."""
    managed.create(node("n0"), profile("half", "n0", resourceRatio="0.5"))

    assert root_of(managed, "half")["min"] == HALF


def test_root_quota_shows_the_usage_of_its_tree(managed: SuiteCluster) -> None:
    """Source: Q, root quota show resource usage."""
    managed.create(node("n0"), profile("one", "n0"))
    root_of(managed, "one")
    child = quota("child", HALF, TOTAL, parent="one-root")
    eventually(lambda: managed.refusal(child) == "")
    eventually(lambda: amounts_of(managed, "one-root", "allocated") == HALF)

    managed.run("p", POD, **in_quota("child"))

    eventually(lambda: amounts_of(managed, "child", "allocated") == POD)


@pytest.mark.parametrize("nodes", [1, 3])
def test_used_quota_is_guaranteed(managed: SuiteCluster, nodes: int) -> None:
    """Source: Q, quota guaranteed: what is used is guaranteed, and others get no more than that
    leaves, however much the cluster has.
    """  # noqa: D205 -- a title
    managed.create(*(node(f"n{number}") for number in range(nodes)))
    rest = {"cpu": "7", "memory": "30Gi"}
    eventually(lambda: managed.refusal(quota("parent", TOTAL, TOTAL, is_parent="true")) == "")
    managed.create(quota("child-1", {}, TOTAL, parent="parent"))
    managed.create(quota("child-2", rest, TOTAL, parent="parent"))

    managed.run("p1", POD, **in_quota("child-1"))

    for name, expected in (("child-1", POD), ("child-2", rest), ("parent", TOTAL)):
        for what in ("guaranteed", "runtime"):
            eventually(lambda n=name, w=what, e=expected: amounts_of(managed, n, w) == e)  # type: ignore[misc]
    assert "exceedDimensions" in managed.fail("p2", POD, **in_quota("child-1"))
    managed.run("p3", POD, **in_quota("child-2"))


def configure(managed: SuiteCluster, **sections: Manifest) -> None:
    """Write slo-controller-config."""
    data = {f"{key.replace('_', '-')}-config": json.dumps(each) for key, each in sections.items()}
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    managed.api.request("POST", path, {"metadata": {"name": "slo-controller-config"}, "data": data})


def test_batch_resources(managed: SuiteCluster, controlplane: ControlPlane) -> None:
    """Source: L, update batch resources in the node allocatable: and a batch pod runs on them."""
    managed.create(priority_class("koord-batch", 5999))
    configure(
        managed,
        colocation={
            "enable": True,
            "cpuReclaimThresholdPercent": 80,
            "memoryReclaimThresholdPercent": 80,
            "memoryCalculatePolicy": "usage",
        },
    )
    managed.create(node("n0", "10"))
    report(controlplane, "n0")
    batch = {"kubernetes.io/batch-cpu": "7k", "kubernetes.io/batch-memory": "26306674688"}

    def shown() -> bool:
        allocatable = managed.get("Node", "n0")["status"]["allocatable"]
        return {key: allocatable.get(key, "")[:2] for key in batch} == {
            key: value[:2] for key, value in batch.items()
        }

    eventually(shown)
    asks = {"kubernetes.io/batch-cpu": "25", "kubernetes.io/batch-memory": "64Mi"}
    labels = {"koordinator.sh/qosClass": "BE"}
    assert managed.run("be-demo", asks, labels=labels, priorityClassName="koord-batch") == "n0"


def test_cpu_normalization(managed: SuiteCluster) -> None:
    """Source: L, update cpu normalization ratios in the node annotations."""
    info = {
        "cpuModel": "Intel(R) Xeon(R) Platinum 8269CY CPU @ 2.50GHz",
        "hyperThreadEnabled": True,
        "turboEnabled": False,
    }
    model = {"hyperThreadEnabledRatio": 1.2, "baseRatio": 1.4}
    configure(
        managed,
        colocation={"enable": True},
        cpu_normalization={"enable": True, "ratioModel": {info["cpuModel"]: model}},
    )
    managed.create(
        node("n0"),
        {
            "apiVersion": "topology.node.k8s.io/v1alpha1",
            "kind": "NodeResourceTopology",
            "metadata": {"name": "n0", "annotations": {BASE: json.dumps(info)}},
            "topologyPolicies": ["None"],
            "zones": [],
        },
    )

    def ratio() -> str:
        value: str = managed.get("Node", "n0")["metadata"].get("annotations", {}).get(RATIO, "")
        return value

    assert eventually(ratio) == "1.20"
