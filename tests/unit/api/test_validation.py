"""Validation of objects by the rules of the API server, with object and field."""

import io
import json
from typing import Any

import pytest
from tests.refused_manifests import ACCEPTED, REFUSED

from koordinator.api.codec import decode_object
from koordinator.api.defaults import with_defaults
from koordinator.api.validation import validate
from koordinator.foundation.errors import InputError
from koordinator.simulator.manifests.reader import read_manifests

TERM = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"a": "b"}}}
SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


def pod(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "a"},
        "spec": {"containers": [{"name": "main"}], **spec},
    }


def resources(requests: dict[str, Any], limits: dict[str, Any] | None = None) -> dict[str, Any]:
    both = {"requests": requests, "limits": limits or {}}
    return pod(containers=[{"name": "main", "resources": both}])


def ports(*numbers: int) -> list[dict[str, Any]]:
    return [{"containerPort": 1 + i, "hostPort": number} for i, number in enumerate(numbers)]


def node_affinity(**requirement: Any) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": "zone", **requirement}]}]
    return pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}})


def pod_affinity(**changes: Any) -> dict[str, Any]:
    return pod(affinity={"podAffinity": {REQUIRED: [TERM | changes]}})


def other(api_version: str, kind: str, **fields: Any) -> dict[str, Any]:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "a"}, **fields}


def check(data: dict[str, Any]) -> None:
    validate(with_defaults(decode_object(data)))


def problem(data: dict[str, Any]) -> tuple[str, str]:
    with pytest.raises(InputError) as refused:
        check(data)
    return refused.value.path, refused.value.problem


@pytest.mark.parametrize(
    "data",
    [
        resources({"cpu": "1", "memory": "1Gi"}, {"cpu": "1", "ephemeral-storage": "1G"}),
        resources({"nvidia.com/gpu": 2}, {"nvidia.com/gpu": "2000m"}),
        resources({"kubernetes.io/batch-cpu": "500"}, {"kubernetes.io/batch-cpu": "1k"}),
        resources({"cpu": 1, "hugepages-2Mi": "4Mi"}, {"hugepages-2Mi": "4Mi"}),
        pod(
            tolerations=[
                {"operator": "Exists"},
                {"key": "a.b/c", "value": "d", "effect": "NoExecute"},
            ]
        ),
        node_affinity(operator="Gt", values=["3"]),
        node_affinity(operator="Exists"),
        pod_affinity(matchLabelKeys=["rev"], namespaceSelector={}),
        pod(
            topologySpreadConstraints=[SPREAD | {"minDomains": 2}, SPREAD | {"topologyKey": "host"}]
        ),
        pod(
            containers=[{"name": "a", "ports": ports(80, 81)}],
            initContainers=[{"name": "b", "ports": ports(80)}],
        ),
        pod(schedulingGates=[{"name": "x.io/wait"}]),
        other(
            "v1",
            "Node",
            spec={
                "taints": [
                    {"key": "a", "effect": "NoSchedule"},
                    {"key": "a", "effect": "NoExecute"},
                ]
            },
        ),
        other("policy/v1", "PodDisruptionBudget", spec={"minAvailable": "50%"}),
        other("scheduling.k8s.io/v1", "PriorityClass", value=1_000_000_000),
        {
            **other("scheduling.k8s.io/v1", "PriorityClass", value=2_000_001_000),
            "metadata": {"name": "system-node-critical"},
        },
        other("storage.k8s.io/v1", "StorageClass", provisioner="x"),
    ],
)
def test_valid_pod_is_accepted(data: dict[str, Any]) -> None:
    """The limits of every rule are inside."""
    check(data)


@pytest.mark.parametrize(
    ("data", "path", "accepted"),
    [
        (pod(containers=[]), "spec.containers", "at least one container"),
        (resources({"cpu": "-1"}), "spec.containers[0].resources.requests.cpu", "at least 0"),
        (
            resources({"cpu": "2"}, {"cpu": "1"}),
            "spec.containers[0].resources.requests.cpu",
            "at most the limit (1)",
        ),
        (
            resources({}, {"x.io/gpu": "500m"}),
            "spec.containers[0].resources.requests[x.io/gpu]",
            "an integer",
        ),
        (
            resources({"x.io/gpu": 1}),
            "spec.containers[0].resources.requests[x.io/gpu]",
            "exactly the limit (not set)",
        ),
        (
            resources({"x.io/gpu": 1}, {"x.io/gpu": 2}),
            "spec.containers[0].resources.requests[x.io/gpu]",
            "exactly the limit (2)",
        ),
        (resources({"gpu": 1}), "spec.containers[0].resources", "such as nvidia.com/gpu"),
        (resources({}, {"hugepages-2Mi": "4Mi"}), "spec.containers[0].resources", "cpu or memory"),
        (pod(resources={"requests": {"x.io/gpu": 1}}), "spec.resources", "for a whole pod"),
        (pod(containers=[{"name": "A"}]), "spec.containers[0].name", "a-z"),
        (
            pod(initContainers=[{"name": "main"}]),
            "spec.initContainers[0].name",
            "unique among the containers",
        ),
        (
            pod(containers=[{"name": "a", "ports": ports(80)}, {"name": "b", "ports": ports(80)}]),
            "spec.containers[1].ports[0].hostPort",
            "unique among the containers of the pod",
        ),
        (
            pod(containers=[{"name": "a", "ports": ports(0, 70_000)}]),
            "spec.containers[0].ports[1].hostPort",
            "1..65535",
        ),
        (
            pod(hostNetwork=True, containers=[{"name": "a", "ports": ports(80)}]),
            "spec.containers[0].ports[0].hostPort",
            "the containerPort (1)",
        ),
        (pod(nodeSelector={"a b": "c"}), "spec.nodeSelector", "DNS subdomain"),
        (pod(nodeSelector={"a": "-"}), "spec.nodeSelector[a]", "or nothing"),
        (pod(restartPolicy="Sometimes"), "spec.restartPolicy", "Always or OnFailure or Never"),
        (pod(preemptionPolicy="Always"), "spec.preemptionPolicy", "PreemptLowerPriority or Never"),
        (pod(tolerations=[{"operator": "In"}]), "spec.tolerations[0].operator", "Exists or Equal"),
        (
            pod(tolerations=[{"value": "a"}]),
            "spec.tolerations[0].operator",
            "Exists when there is no key",
        ),
        (
            pod(tolerations=[{"key": "a", "operator": "Exists", "value": "b"}]),
            "spec.tolerations[0].value",
            "empty with operator Exists",
        ),
        (
            pod(tolerations=[{"key": "a", "effect": "Never"}]),
            "spec.tolerations[0].effect",
            "NoSchedule or",
        ),
        (
            pod(tolerations=[{"key": "a", "tolerationSeconds": 1}]),
            "spec.tolerations[0].effect",
            "NoExecute with tolerationSeconds",
        ),
        (
            node_affinity(operator="In"),
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].values",
            "at least one value",
        ),
        (
            node_affinity(operator="Exists", values=["a"]),
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].values",
            "must be empty",
        ),
        (
            node_affinity(operator="Gt", values=["a"]),
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].values",
            "exactly one integer",
        ),
        (
            node_affinity(operator="Is"),
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms[0].matchExpressions[0].operator",
            "In or NotIn",
        ),
        (
            pod(affinity={"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": []}}}),
            f"spec.affinity.nodeAffinity.{REQUIRED}.nodeSelectorTerms",
            "at least one term",
        ),
        (
            pod(affinity={"nodeAffinity": {PREFERRED: [{"weight": 0, "preference": {}}]}}),
            f"spec.affinity.nodeAffinity.{PREFERRED}[0].weight",
            "1..100",
        ),
        (
            pod(
                affinity={
                    "podAntiAffinity": {PREFERRED: [{"weight": 101, "podAffinityTerm": TERM}]}
                }
            ),
            f"spec.affinity.podAntiAffinity.{PREFERRED}[0].weight",
            "1..100",
        ),
        (
            pod_affinity(topologyKey=""),
            f"spec.affinity.podAffinity.{REQUIRED}[0].topologyKey",
            "at most 63",
        ),
        (
            pod_affinity(namespaces=["A"]),
            f"spec.affinity.podAffinity.{REQUIRED}[0].namespaces[0]",
            "a-z",
        ),
        (
            pod_affinity(labelSelector=None, matchLabelKeys=["a"]),
            f"spec.affinity.podAffinity.{REQUIRED}[0].matchLabelKeys",
            "without a labelSelector",
        ),
        (
            pod_affinity(mismatchLabelKeys=["a"], matchLabelKeys=["a"]),
            f"spec.affinity.podAffinity.{REQUIRED}[0].matchLabelKeys",
            "mismatchLabelKeys does not have",
        ),
        (
            pod(topologySpreadConstraints=[SPREAD | {"maxSkew": 0}]),
            "spec.topologySpreadConstraints[0].maxSkew",
            "at least 1",
        ),
        (
            pod(topologySpreadConstraints=[SPREAD | {"whenUnsatisfiable": "Never"}]),
            "spec.topologySpreadConstraints[0].whenUnsatisfiable",
            "DoNotSchedule or ScheduleAnyway",
        ),
        (
            pod(
                topologySpreadConstraints=[
                    SPREAD | {"whenUnsatisfiable": "ScheduleAnyway", "minDomains": 1}
                ]
            ),
            "spec.topologySpreadConstraints[0].minDomains",
            "only with whenUnsatisfiable DoNotSchedule",
        ),
        (
            pod(topologySpreadConstraints=[SPREAD, SPREAD]),
            "spec.topologySpreadConstraints[1]",
            "a unique pair",
        ),
        (
            pod(topologySpreadConstraints=[SPREAD | {"nodeTaintsPolicy": "No"}]),
            "spec.topologySpreadConstraints[0].nodeTaintsPolicy",
            "Honor or Ignore",
        ),
        (
            pod(volumes=[{"name": "a"}, {"name": "a"}]),
            "spec.volumes[1].name",
            "unique among the volumes",
        ),
        (
            pod(volumes=[{"name": "a", "persistentVolumeClaim": {"claimName": ""}}]),
            "spec.volumes[0].persistentVolumeClaim.claimName",
            "at most 253",
        ),
        (
            pod(schedulingGates=[{"name": "a"}], nodeName="n"),
            "spec.nodeName",
            "empty while there are schedulingGates",
        ),
        (
            pod(containers=[{"name": "a", "resources": {"claims": [{"name": "x"}]}}]),
            "spec.containers[0].resources.claims[0].name",
            "spec.resourceClaims: none",
        ),
        (
            other("v1", "Node", spec={"taints": [{"key": "a", "effect": "Bad"}]}),
            "spec.taints[0].effect",
            "NoSchedule or",
        ),
        (
            other("v1", "Node", spec={"taints": [{"key": "a", "effect": "NoExecute"}] * 2}),
            "spec.taints[1]",
            "a unique pair",
        ),
        (
            other("v1", "Node", status={"allocatable": {"memory": "-1"}}),
            "status.allocatable.memory",
            "at least 0",
        ),
        (
            {**other("v1", "Node"), "metadata": {"name": "a", "namespace": "b"}},
            "metadata.namespace",
            "cluster-scoped",
        ),
        ({**other("v1", "Node"), "metadata": {"name": "a_b"}}, "metadata.name", "at most 253"),
        ({**other("v1", "Node"), "metadata": {}}, "metadata.name", "required"),
        ({**other("v1", "Namespace"), "metadata": {"name": "a.b"}}, "metadata.name", "at most 63"),
        (
            {**other("v1", "ConfigMap"), "metadata": {"name": "a", "annotations": {"/": ""}}},
            "metadata.annotations",
            "at most 63",
        ),
        (
            other(
                "policy/v1", "PodDisruptionBudget", spec={"minAvailable": 1, "maxUnavailable": 1}
            ),
            "spec",
            "must set only one of",
        ),
        (
            other("policy/v1", "PodDisruptionBudget", spec={"minAvailable": "half"}),
            "spec.minAvailable",
            "0%..100%",
        ),
        (
            other(
                "policy/v1",
                "PodDisruptionBudget",
                spec={"selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}},
            ),
            "spec.selector.matchExpressions[0].values",
            "at least one value",
        ),
        (
            other("scheduling.k8s.io/v1", "PriorityClass", value=1_000_000_001),
            "value",
            "at most 1000000000",
        ),
        (
            {
                **other("scheduling.k8s.io/v1", "PriorityClass", value=1),
                "metadata": {"name": "system-x"},
            },
            "metadata.name",
            "only system-cluster-critical",
        ),
        (
            other("v1", "PersistentVolumeClaim", spec={"accessModes": ["ReadWriteOnce"]}),
            "spec.resources.requests.storage",
            "above 0",
        ),
        (
            other("v1", "PersistentVolume", spec={"accessModes": ["Any"]}),
            "spec.accessModes[0]",
            "ReadWriteOnce or",
        ),
        (
            other("storage.k8s.io/v1", "StorageClass", provisioner="x", volumeBindingMode="Late"),
            "volumeBindingMode",
            "Immediate or WaitForFirstConsumer",
        ),
        (
            other(
                "storage.k8s.io/v1",
                "CSINode",
                spec={"drivers": [{"name": "x", "allocatable": {"count": -1}}]},
            ),
            "spec.drivers[0].allocatable.count",
            "at least 0",
        ),
        (other("apps/v1", "Deployment", spec={"replicas": -1}), "spec.replicas", "at least 0"),
    ],
)
def test_invalid_pod_is_rejected(data: dict[str, Any], path: str, accepted: str) -> None:
    """The message names the field and what is accepted there."""
    problem_path, text = problem(data)

    assert problem_path == path
    assert accepted in text


def test_the_object_is_named() -> None:
    """Namespace and name, or just the name of a cluster-scoped object."""
    with pytest.raises(
        InputError, match=r"^Pod default/a: spec\.restartPolicy: must be .*, got 'x'"
    ):
        check(pod(restartPolicy="x"))
    with pytest.raises(InputError, match=r"^Node a: metadata\.labels\[b\]: must be .*, got 'c d'"):
        check({**other("v1", "Node"), "metadata": {"name": "a", "labels": {"b": "c d"}}})


@pytest.mark.parametrize("name", REFUSED)
def test_manifest_rejected_by_an_api_server_is_rejected(name: str) -> None:
    """With the field; ``tests/e2e`` sends the same to a server."""
    manifest, path = REFUSED[name]

    with pytest.raises(InputError) as refused:
        read_manifests(["-"], io.BytesIO(json.dumps(manifest).encode()))

    assert refused.value.path == path


@pytest.mark.parametrize("name", ACCEPTED)
def test_manifest_accepted_by_an_api_server_is_accepted(name: str) -> None:
    """The other side of each limit."""
    assert read_manifests(["-"], io.BytesIO(json.dumps(ACCEPTED[name]).encode()))
