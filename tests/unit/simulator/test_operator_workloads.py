"""Workloads of operators: their pods are made, or a notice lists them as not made."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.pod import Pod
from koordinator.foundation.errors import InputError
from koordinator.simulator import parse_workload
from koordinator.simulator.generation import generate, unsimulated
from koordinator.simulator.manifests.reader import read_input_objects
from koordinator.simulator.operator_workloads import (
    _READERS,
    _UNSIMULATED,
    read_operator_workload,
)
from koordinator.simulator.workload import Workload

CONTAINERS = {"containers": [{"name": "c", "image": "i"}]}
TEMPLATE = {"spec": CONTAINERS}
ONCE = {"spec": CONTAINERS | {"restartPolicy": "Never"}}
JOB_SET = "jobset.x-k8s.io/v1alpha2"
KUBEFLOW = "kubeflow.org/v1"
RAY = "ray.io/v1"
CLUSTER = {
    "headGroupSpec": {"template": TEMPLATE},
    "workerGroupSpecs": [
        {"groupName": "a", "replicas": 2, "numOfHosts": 2, "template": TEMPLATE},
        {"groupName": "b", "replicas": 9, "maxReplicas": 1, "template": TEMPLATE},
        {"groupName": "c", "replicas": 9, "suspend": True, "template": TEMPLATE},
    ],
}
JOBS: dict[str, Any] = {
    "replicatedJobs": [
        {
            "name": "w",
            "replicas": 2,
            "template": {"spec": {"parallelism": 2, "completions": 2, "template": ONCE}},
        },
        {"name": "driver", "template": {"spec": {"template": ONCE}}},
    ]
}


def workload(version: str, kind: str, status: Any = None, /, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {"name": "x"},
        "spec": spec,
        "status": status or {},
    }


def read(*manifests: dict[str, Any]) -> tuple[list[str], list[str]]:
    """Return the names of pods without their last, generated part, and what is not simulated."""
    text = "\n".join(map(json.dumps, manifests)).encode()
    given = read_input_objects(["-"], io.BytesIO(text))
    pods = [obj for obj in given.completed(print) if isinstance(obj, Pod)]
    names = []
    for pod in pods:
        name = pod.metadata.name
        generated = name.rpartition("-")[2]
        is_generated = len(generated) == 5 and not generated.isdecimal()
        names.append(name.rpartition("-")[0] if is_generated else name)
    return names, given.not_simulated


@pytest.mark.parametrize(
    ("manifest", "names"),
    [
        (
            workload(JOB_SET, "JobSet", **JOBS),
            ["x-w-0-0", "x-w-0-1", "x-w-1-0", "x-w-1-1", "x-driver-0-0"],
        ),
        (workload(JOB_SET, "JobSet", suspend=True, **JOBS), []),
        (workload(JOB_SET, "JobSet", managedBy="kueue.x-k8s.io/multikueue", **JOBS), []),
        (
            workload(
                JOB_SET, "JobSet", {"conditions": [{"type": "Completed", "status": "True"}]}, **JOBS
            ),
            [],
        ),
        (
            workload(
                KUBEFLOW,
                "PyTorchJob",
                pytorchReplicaSpecs={
                    "Master": {"template": TEMPLATE},
                    "Worker": {"replicas": 2, "template": TEMPLATE},
                },
            ),
            ["x-master-0", "x-worker-0", "x-worker-1"],
        ),
        (
            workload(KUBEFLOW, "TFJob", tfReplicaSpecs={"PS": {"template": TEMPLATE}}),
            ["x-ps-0"],
        ),
        (
            workload(
                "kubeflow.org/v2beta1",
                "MPIJob",
                mpiReplicaSpecs={
                    "Launcher": {"template": ONCE},
                    "Worker": {"replicas": 2, "template": TEMPLATE},
                },
            ),
            ["x-launcher", "x-worker-0", "x-worker-1"],
        ),
        (
            workload(KUBEFLOW, "MPIJob", mpiReplicaSpecs={"Launcher": {"template": TEMPLATE}}),
            ["x-launcher"],
        ),
        (workload(RAY, "RayCluster", **CLUSTER), ["x-head", *["x-a-worker"] * 4, "x-b-worker"]),
        (
            workload(RAY, "RayService", rayClusterConfig=CLUSTER),
            ["x-head", *["x-a-worker"] * 4, "x-b-worker"],
        ),
        (
            workload(RAY, "RayJob", rayClusterSpec=CLUSTER),
            ["x-head", *["x-a-worker"] * 4, "x-b-worker", "x"],
        ),
        (
            workload(RAY, "RayJob", rayClusterSpec=CLUSTER, submissionMode="HTTPMode"),
            ["x-head", *["x-a-worker"] * 4, "x-b-worker"],
        ),
        (
            workload(
                "leaderworkerset.x-k8s.io/v1",
                "LeaderWorkerSet",
                replicas=2,
                leaderWorkerTemplate={"size": 3, "workerTemplate": TEMPLATE},
            ),
            ["x-0", "x-0-1", "x-0-2", "x-1", "x-1-1", "x-1-2"],
        ),
        (
            workload(
                "batch.volcano.sh/v1alpha1",
                "Job",
                tasks=[{"name": "w", "replicas": 2, "template": TEMPLATE}],
            ),
            ["x-w-0", "x-w-1"],
        ),
        (workload("argoproj.io/v1alpha1", "Rollout", replicas=2, template=TEMPLATE), ["x", "x"]),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_pods_are_made_as_the_operator_makes_them(
    manifest: dict[str, Any], names: list[str]
) -> None:
    """As many, and called alike; none for what is suspended, over or of another cluster."""
    assert read(manifest) == (names, [])


@pytest.mark.parametrize(
    ("manifest", "reason"),
    [
        (workload("argoproj.io/v1alpha1", "CronWorkflow"), "its steps start one after the other"),
        (
            workload("trainer.kubeflow.org/v1alpha1", "TrainJob"),
            "its pods come from the runtime that it names",
        ),
        (
            workload("unheard.of/v1", "Thing", pods={"template": TEMPLATE}),
            "what the controller of Thing (unheard.of/v1) makes of them is not known",
        ),
        (
            workload(RAY, "RayCluster", headGroupSpec={}),
            "spec.headGroupSpec.template: must be the template of a pod",
        ),
        (
            workload(KUBEFLOW, "TFJob", tfReplicaSpecs={"PS": {"replicas": -1, "template": ONCE}}),
            "spec.tfReplicaSpecs.PS.replicas: must be a number from 0 to 1000000, got -1",
        ),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_pods_that_are_not_made_are_reported_by_object(
    manifest: dict[str, Any], reason: str
) -> None:
    """With the reason; the rest of the input is used."""
    other = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}, "spec": CONTAINERS}
    kind = manifest["kind"]

    assert read(manifest, other) == (
        ["web"],
        [f"{kind} default/x: its pods are not simulated: {reason}"],
    )


def test_jobs_that_start_after_others_are_reported() -> None:
    """Pods that start immediately are simulated."""
    second = JOBS["replicatedJobs"][1] | {"dependsOn": [{"name": "w", "status": "Complete"}]}
    jobs = workload(JOB_SET, "JobSet", replicatedJobs=[JOBS["replicatedJobs"][0], second])

    names, reported = read(jobs)
    assert names == ["x-w-0-0", "x-w-0-1", "x-w-1-0", "x-w-1-1"]
    assert reported == [
        "JobSet default/x: its pods are not simulated: x-driver-0 start after others"
    ]


def test_objects_that_an_operator_has_made_are_not_made_again() -> None:
    """Pods count by their names or labels, Jobs make their own pods, clusters replace Ray's."""

    def owned(manifest: dict[str, Any], kind: str, name: str, **labels: str) -> dict[str, Any]:
        owner = {"apiVersion": "a/v1", "kind": kind, "name": "x", "controller": True, "uid": ""}
        return manifest | {"metadata": {"name": name, "labels": labels, "ownerReferences": [owner]}}

    pod = {"apiVersion": "v1", "kind": "Pod", "spec": CONTAINERS}
    workers = {"Worker": {"replicas": 2, "template": TEMPLATE}}
    torch = workload(KUBEFLOW, "PyTorchJob", pytorchReplicaSpecs=workers)
    assert read(torch, owned(pod, "PyTorchJob", "x-worker-1"))[0] == ["x-worker-0", "x-worker-1"]

    labels = {"ray.io/cluster": "x", "ray.io/node-type": "worker", "ray.io/group": "a"}
    worker = owned(pod, "RayCluster", "present", **labels)
    names = read(worker, workload(RAY, "RayCluster", **CLUSTER))[0]
    assert sorted(names) == sorted(["present", "x-head", *["x-a-worker"] * 3, "x-b-worker"])

    cluster = owned(workload(RAY, "RayCluster", **CLUSTER), "RayJob", "x-1")
    names = read(cluster, workload(RAY, "RayJob", rayClusterSpec=CLUSTER))[0]
    assert names.count("x") == 1
    assert len(names) == 7

    job = {"apiVersion": "batch/v1", "kind": "Job", "spec": {"template": ONCE}}
    made = owned(job, "JobSet", "x-driver-0")
    assert len(read(workload(JOB_SET, "JobSet", **JOBS), made)[0]) == 5

    step = owned(pod, "Workflow", "x-step")
    assert read(workload("argoproj.io/v1alpha1", "Workflow"), step) == (["x-step"], [])


def test_a_rule_about_pods_is_no_workload() -> None:
    """Templates and policies describe pods that they do not make."""
    assert read(workload("kyverno.io/v1", "ClusterPolicy", pattern=TEMPLATE)) == ([], [])


FIELDS = st.sampled_from(
    [
        *("metadata", "name", "spec", "status", "template", "replicas", "replicatedJobs", "tasks"),
        *("pytorchReplicaSpecs", "rayClusterSpec", "headGroupSpec", "workerGroupSpecs", "size"),
        *("leaderWorkerTemplate", "workerTemplate", "conditions", "phase", "runPolicy"),
        *("suspend", "managedBy", "numOfHosts", "parallelism", "completions"),
    ]
)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.just("x") | st.just(TEMPLATE),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(FIELDS, inner, max_size=4),
    max_leaves=12,
)


@given(st.sampled_from(sorted([*_READERS, *_UNSIMULATED])), st.dictionaries(FIELDS, JSON))
def test_no_manifest_of_an_operator_ends_the_run(name: tuple[str, str], tree: Any) -> None:
    """Pods are created, or an event states the reason, for any content."""
    group, kind = name

    parsed = read_operator_workload(f"{group}/v1", kind, tree)

    assert parsed is not None
    assert all(part.count > 0 for part in parsed.parts)


# -- in a workload file ----------------------------------------------------------------------


def workload_file(*manifests: dict[str, Any]) -> Workload:
    """Return a workload that has objects and no stream of pods."""
    pool = {"name": "n", "count": 2, "cpu": 8, "memory": "8Gi"}
    data = {"nodePools": [pool], "podStreams": [], "objects": list(manifests)}
    return parse_workload(json.dumps(data), "w.yaml")


@pytest.mark.parametrize(
    "manifest",
    [
        workload(JOB_SET, "JobSet", **JOBS),
        workload(KUBEFLOW, "PyTorchJob", pytorchReplicaSpecs={"Worker": {"template": ONCE}}),
        workload(RAY, "RayCluster", **CLUSTER),
        workload(RAY, "RayJob", rayClusterSpec=CLUSTER),
        workload(JOB_SET, "JobSet", suspend=True, **JOBS),
    ],
)
def test_workload_files_make_the_pods_that_manifests_make(manifest: dict[str, Any]) -> None:
    """``koord simulate`` submits what ``koord schedule -f`` places."""
    text = json.dumps(manifest).encode()
    listed = read_input_objects(["-"], io.BytesIO(text)).completed(print)
    plan = generate(workload_file(manifest), 0, 3600.0)

    pods = sorted(obj.key for obj in listed if isinstance(obj, Pod))
    assert sorted(submission.pod.key for submission in plan.submissions) == pods
    assert unsimulated(workload_file(manifest)) == []


def test_workload_files_with_pods_that_are_not_simulated_are_reported() -> None:
    """One sentence for each object, as ``koord schedule -f`` prints it."""
    unknown = workload("example.com/v1", "Trainer", template=TEMPLATE)
    steps = workload("argoproj.io/v1alpha1", "Workflow")
    described = workload_file(unknown, steps)

    assert unsimulated(described) == [*read(unknown)[1], *read(steps)[1]]
    assert [sentence.partition(":")[0] for sentence in unsimulated(described)] == [
        "Trainer default/x",
        "Workflow default/x",
    ]
    assert generate(described, 0, 3600.0).submissions == ()


@pytest.mark.parametrize(
    "manifest",
    [
        workload("example.com/v1", "Deploymnt"),
        workload("apps/v1", "Deploymnt", template=TEMPLATE),
        workload("scheduling.koordinator.sh/v1alpha1", "Reservaton", template=TEMPLATE),
    ],
)
def test_misspelt_kinds_are_rejected_in_workload_files(manifest: dict[str, Any]) -> None:
    """A workload file is written for the simulation; a kind that it cannot use is a slip."""
    with pytest.raises(InputError, match=r"objects\[0\]\.kind: unknown kind"):
        workload_file(manifest)
