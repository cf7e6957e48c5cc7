"""Differences between Kubernetes releases, from vectors of the real schedulers."""

from typing import Any

import pytest

from koordinator.api.codec import decode_object
from koordinator.api.defaults import with_defaults
from koordinator.api.kube_version import V1_35, V1_36, V1_37, KubeVersion
from koordinator.api.kubescheduler import FeatureGates
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod
from koordinator.api.policy import PodDisruptionBudget
from koordinator.scheduler.preemption.single_node import split_by_budget
from koordinator.simulator import Embedded, ScheduleResult, schedule

LEVELS = (V1_35, V1_36, V1_37)


def node(name: str, *, cpu: str = "8", memory: str = "32Gi", **status: Any) -> JsonObject:
    allocatable = {"cpu": cpu, "memory": memory, "pods": "110"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "status": {"allocatable": allocatable, **status},
    }


def pod(name: str, cpu: str = "1", memory: str = "1Gi", **spec: Any) -> JsonObject:
    requests = {"cpu": cpu, "memory": memory}
    container = {"name": "c", "image": "i", "resources": {"requests": requests}}
    container |= spec.pop("container", {})
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"app": name}},
        "spec": {"containers": [container], **spec},
        "status": {"phase": "Running" if "nodeName" in spec else "Pending"},
    }


def decided(level: KubeVersion, *manifests: JsonObject, gates: str = "") -> ScheduleResult:
    objects = [with_defaults(decode_object(manifest)) for manifest in manifests]
    return schedule(objects, explain=True, gates=FeatureGates.parse(gates, level))


def scores(result: ScheduleResult, plugin: str) -> dict[str, int]:
    """Return the scores of a plugin for the only pod, by node."""
    (bound,) = result.placements
    assert bound.scorecard is not None
    table = bound.scorecard.score_table()
    return {name: by_plugin.get(plugin, 0) for name, by_plugin in table.items()}


@pytest.mark.parametrize(
    ("holds", "state", "change"),
    [(None, 95, 72), (("4", "1Gi"), 71, 72), (("100m", "20Gi"), 74, 77)],
)
def test_balance_is_scored_by_what_the_pod_changes_from_1_36_on(
    holds: tuple[str, str] | None, state: int, change: int
) -> None:
    there = [pod("there", *holds, nodeName="n")] if holds else []
    others = (node("n"), node("other"), *there, pod("p"))
    for level, expected in zip(LEVELS, (state, change, change), strict=True):
        by_node = scores(decided(level, *others), "NodeResourcesBalancedAllocation")
        assert by_node["n"] == expected


@pytest.mark.parametrize(("level", "words"), [(V1_35, True), (V1_36, True), (V1_37, False)])
def test_message_where_preemption_does_not_help(level: KubeVersion, *, words: bool) -> None:
    (refused,) = decided(level, node("n", cpu="1"), pod("p", "2")).unschedulable

    assert refused.message == (
        "0/1 nodes are available: 1 Insufficient cpu. "
        + ("no new claims to deallocate, " if words else "")
        + "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
    )


def test_successful_preemption_is_reported_from_1_37_on() -> None:
    manifests = (node("n1", cpu="1"), pod("low", nodeName="n1"), pod("p", priority=9))
    for level in LEVELS:
        world = Embedded(gates=FeatureGates.parse("", level))
        world.load([with_defaults(decode_object(manifest)) for manifest in manifests])
        world.scheduler.step()
        world.scheduler.report()
        waiting = world.cluster.get(Pod, "p", "default")
        (message,) = [c.message for c in waiting.status.conditions if c.type == "PodScheduled"]
        suffix = " preemption: found a potential placement for pod on node n1, preempting 1 victims"
        expected = "0/1 nodes are available: 1 Insufficient cpu."
        assert message == (expected + suffix if level >= V1_37 else expected)


@pytest.mark.parametrize(("level", "expected"), [(V1_35, 0), (V1_36, 46), (V1_37, 22)])
def test_images_of_volumes_are_scored(level: KubeVersion, expected: int) -> None:
    image = {"names": ["example.com/model:1"], "sizeBytes": 1_000_000_000}
    volumes = [{"name": "v", "image": {"reference": "example.com/model:1"}}]
    result = decided(level, node("has", images=[image]), node("has-not"), pod("p", volumes=volumes))

    assert scores(result, "ImageLocality") == {"has": expected, "has-not": 0}


RESTARTS: JsonObject = {"container": {"restartPolicyRules": [{"action": "RestartAllContainers"}]}}
IN_USER_NAMESPACE = {"hostNetwork": True, "hostUsers": False}
WITH_OPTIONS = {
    "container": {"volumeMounts": [{"name": "v", "mountPath": "/", "bindMountOptions": ["x"]}]}
}


@pytest.mark.parametrize(
    ("spec", "feature", "since"),
    [
        (RESTARTS, "RestartAllContainersOnContainerExits", V1_36),
        (IN_USER_NAMESPACE, "UserNamespacesHostNetworkSupport", V1_36),
        (WITH_OPTIONS, "VolumeBindMountOptions", V1_37),
    ],
)
def test_pod_needs_declared_kubelet_features(
    spec: JsonObject, feature: str, since: KubeVersion
) -> None:
    for level in LEVELS:
        able = node("able", cpu="2", declaredFeatures=[feature, "Unknown"])
        result = decided(level, node("big"), able, pod("p", **spec))
        alone = decided(level, node("big"), pod("p", **spec))
        assert [bound.node for bound in result.placements] == ["able" if level >= since else "big"]
        assert bool(alone.placements) == (level < since)
        for refused in alone.unschedulable:
            assert refused.message == (
                "0/1 nodes are available: 1 node(s) didn't match Pod's required features. "
                + ("" if level >= V1_37 else "no new claims to deallocate, ")
                + "preemption: 0/1 nodes are available: 1 Preemption is not helpful for scheduling."
            )


def test_declared_features_work_in_1_35_with_their_gate() -> None:
    gates = "NodeDeclaredFeatures=true"
    result = decided(V1_35, node("big"), pod("p", **RESTARTS), gates=gates)

    (refused,) = result.unschedulable
    assert "unsatisfied requirements: RestartAllContainersOnContainerExits" in refused.message


CLAIM: JsonObject = {
    "apiVersion": "v1",
    "kind": "PersistentVolumeClaim",
    "metadata": {"name": "c", "namespace": "default"},
    "spec": {
        "storageClassName": "late",
        "accessModes": ["ReadWriteOnce"],
        "resources": {"requests": {"storage": "10Gi"}},
    },
}
CLASS = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "StorageClass",
    "metadata": {"name": "late"},
    "provisioner": "d.example.com",
    "volumeBindingMode": "WaitForFirstConsumer",
}
CLAIMED: JsonObject = {"volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}]}


def driver(**spec: Any) -> JsonObject:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIDriver",
        "metadata": {"name": "d.example.com"},
        "spec": spec,
    }


def free_capacity(name: str, capacity: str) -> JsonObject:
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSIStorageCapacity",
        "metadata": {"name": name, "namespace": "default"},
        "storageClassName": "late",
        "nodeTopology": {"matchLabels": {"kubernetes.io/hostname": name}},
        "capacity": capacity,
    }


@pytest.mark.parametrize(
    ("level", "gates", "expected"),
    [
        (V1_35, "", {"a": 0, "b": 0}),
        (V1_36, "", {"a": 0, "b": 0}),
        (V1_36, "StorageCapacityScoring=true", {"a": 90, "b": 50}),
        (V1_37, "", {"a": 90, "b": 50}),
    ],
)
def test_free_capacity_for_volumes_is_preferred_from_1_37_on(
    level: KubeVersion, gates: str, expected: dict[str, int]
) -> None:
    result = decided(
        level,
        *(node("a"), node("b"), free_capacity("a", "100Gi"), free_capacity("b", "20Gi")),
        *(driver(storageCapacity=True), CLASS, CLAIM, pod("p", **CLAIMED)),
        gates=gates,
    )

    assert scores(result, "VolumeBinding") == expected


@pytest.mark.parametrize(
    ("level", "gates", "opts_in", "is_placed"),
    [
        (V1_35, "", True, True),
        (V1_36, "", True, True),
        (V1_36, "VolumeLimitScaling=true", False, False),
        (V1_37, "", True, False),
        (V1_37, "", False, True),
        (V1_37, "VolumeLimitScaling=false", True, True),
    ],
)
def test_pods_need_the_installed_csi_driver(
    level: KubeVersion, gates: str, *, opts_in: bool, is_placed: bool
) -> None:
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": "pv"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "capacity": {"storage": "10Gi"},
            "csi": {"driver": "d.example.com", "volumeHandle": "h"},
            "claimRef": {"namespace": "default", "name": "c"},
        },
    }
    bound = CLAIM | {"spec": CLAIM["spec"] | {"volumeName": "pv"}, "status": {"phase": "Bound"}}
    bound["metadata"] = CLAIM["metadata"] | {
        "annotations": {"pv.kubernetes.io/bind-completed": "yes"}
    }
    rule = driver(**({"preventPodSchedulingIfMissing": True} if opts_in else {}))
    there = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "CSINode",
        "metadata": {"name": "able"},
        "spec": {"drivers": [{"name": "d.example.com", "nodeID": "able"}]},
    }
    given = (node("n"), rule, volume, bound, pod("p", **CLAIMED))
    result = decided(level, *given, gates=gates)
    with_able = decided(level, *given, node("able", cpu="4"), there, gates=gates)

    assert bool(result.placements) == is_placed
    for refused in result.unschedulable:
        assert "1 d.example.com CSI driver is not installed on the node." in refused.message
        assert "1 No preemption victims found for incoming pod." in refused.message
    assert is_placed or [each.node for each in with_able.placements] == ["able"]


def budget(name: str, allowed: int, **labels: str) -> PodDisruptionBudget:
    manifest = {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"selector": {"matchLabels": labels}},
        "status": {"disruptionsAllowed": allowed},
    }
    decoded = decode_object(manifest)
    assert isinstance(decoded, PodDisruptionBudget)
    return decoded


def labelled(name: str, **labels: str) -> Pod:
    manifest = pod(name)
    manifest["metadata"] = {"name": name, "namespace": "default", "labels": labels}
    decoded = decode_object(manifest)
    assert isinstance(decoded, Pod)
    return decoded


def test_budgets_are_used_up_to_the_first_exhausted_one_from_1_37_on() -> None:
    """A pod that violates the first budget leaves the second one to the next pod."""
    budgets = [budget("a", 0, x="1"), budget("b", 1, y="1")]
    both, second = labelled("both", x="1", y="1"), labelled("second", y="1")

    assert split_by_budget([both, second], budgets) == ([both, second], [])
    split = split_by_budget([both, second], budgets, to_first_exhausted=True)
    assert split == ([both], [second])
