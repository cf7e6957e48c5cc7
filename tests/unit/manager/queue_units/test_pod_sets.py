"""Requests of queued jobs, compared with the requests of the pods that they create."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples

from koordinator.api.codec import decode_object, to_manifest
from koordinator.api.defaults import with_defaults
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod, PodSpec
from koordinator.domain.pod_requests import pod_requests
from koordinator.manager.queue_units.jobs import WaitingJob, read_job
from koordinator.manager.queue_units.kinds import BY_NAME
from koordinator.simulator.operator_workloads import WorkloadPart, read_operator_workload

GIB = 1 << 30
MIB = 1 << 20


def container(cpu: str | None = "1", **more: Any) -> JsonObject:
    requests = {"requests": {"cpu": cpu}} if cpu else {}
    return {"name": "c", "image": "i", "resources": requests, **more}


def template(cpu: str = "1", **spec: Any) -> JsonObject:
    return {"spec": {"containers": [container(cpu)], **spec}}


def job_of(name: str, spec: JsonObject) -> WaitingJob:
    kind = BY_NAME[name]
    data = {
        "apiVersion": kind.type.API_VERSION,
        "kind": kind.type.KIND,
        "metadata": {"name": "x", "namespace": "ml"},
        "spec": spec,
    }
    return read_job(decode_object(data), kind)


# -- the property ----------------------------------------------------------------------------

_cpus = st.sampled_from(["0", "250m", "1", "3"])
_resources = st.fixed_dictionaries(
    {}, optional={key: st.fixed_dictionaries({"cpu": _cpus}) for key in ("requests", "limits")}
).filter(lambda it: len(it) < 2 or it["requests"]["cpu"] == "0")
_containers = st.builds(lambda resources: {**container(), "resources": resources}, _resources)
_inits = st.builds(
    lambda it, always: {**it, "restartPolicy": "Always"} if always else it,
    _containers,
    st.booleans(),
)
_pods = st.fixed_dictionaries(
    {"containers": st.lists(_containers, min_size=1, max_size=2)},
    optional={
        "initContainers": st.lists(_inits, max_size=3),
        "overhead": st.just({"cpu": "125m"}),
        "resources": st.sampled_from(
            [{"requests": {"cpu": "30"}}, {"limits": {"cpu": "30"}}, {"limits": {"memory": "1Gi"}}]
        ),
    },
)


def _named(spec: JsonObject) -> JsonObject:
    """Give the containers of a pod names of their own, as the API server demands."""
    for key in ("containers", "initContainers"):
        for number, each in enumerate(spec.get(key, ())):
            each["name"] = f"{key.lower()}-{number}"
    return spec


_templates = st.builds(lambda spec: {"spec": _named(spec)}, _pods)
_counts = st.integers(0, 3)
_replicas = st.fixed_dictionaries({"template": _templates}, optional={"replicas": _counts})


def _kubeflow(field: str, *roles: str) -> st.SearchStrategy[JsonObject]:
    roles_of = st.fixed_dictionaries({}, optional=dict.fromkeys(roles, _replicas))
    return st.builds(lambda it: {field: it}, roles_of)


_ray_groups = st.fixed_dictionaries(
    {"groupName": st.just("w"), "template": _templates},
    optional={
        **dict.fromkeys(("replicas", "minReplicas", "maxReplicas"), _counts),
        "numOfHosts": st.integers(1, 3),
        "suspend": st.booleans(),
    },
)
_clusters = st.fixed_dictionaries(
    {
        "headGroupSpec": st.fixed_dictionaries({"template": _templates}),
        "workerGroupSpecs": st.lists(_ray_groups, max_size=2),
    },
    optional={
        "enableInTreeAutoscaling": st.booleans(),
        "autoscalerOptions": st.just({"resources": {"requests": {"cpu": "2"}}}),
    },
)
_ray_jobs = st.fixed_dictionaries(
    {"rayClusterSpec": _clusters},
    optional={
        "submissionMode": st.sampled_from(["K8sJobMode", "HTTPMode", "SidecarMode"]),
        "submitterPodTemplate": _templates,
        "clusterSelector": st.just({"ray.io/cluster": "there"}),
    },
)
_jobs = st.fixed_dictionaries(
    {"template": _templates},
    optional={"parallelism": st.integers(1, 3), "completions": st.integers(1, 3)},
)
_job_sets = st.builds(
    lambda listed: {"replicatedJobs": listed},
    st.lists(
        st.fixed_dictionaries(
            {
                "name": st.just("r"),
                "replicas": _counts,
                "template": st.builds(lambda it: {"spec": it}, _jobs),
            }
        ),
        max_size=2,
    ),
)
_SPECS = {
    "pytorchjob": _kubeflow("pytorchReplicaSpecs", "Master", "Worker"),
    "tfjob": _kubeflow("tfReplicaSpecs", "Chief", "PS", "Worker"),
    "mpijob": _kubeflow("mpiReplicaSpecs", "Worker"),
    "rayjob": _ray_jobs,
    "jobset": _job_sets,
}


def _counted(part: WorkloadPart) -> dict[str, int]:
    """Return what the scheduler counts for the pods of a part that are there at once."""
    pods = part.count
    if part.job is not None:
        at_once = 1 if part.job.parallelism is None else part.job.parallelism
        most = part.job.completions
        pods *= at_once if most is None else min(at_once, most)
    one = pod_requests(with_defaults(Pod(spec=part.template.spec)).spec)
    return {name: amount * pods for name, amount in one.items()}


@pytest.mark.parametrize("name", _SPECS)
@settings(max_examples=examples(25), deadline=None)
@given(data=st.data())
def test_unit_requests_the_amounts_that_the_scheduler_counts(
    name: str, data: st.DataObject
) -> None:
    """Check all kinds whose pods the simulator creates; it parses manifests independently."""
    result = job_of(name, data.draw(_SPECS[name]))
    kind = BY_NAME[name].type
    made = read_operator_workload(kind.API_VERSION, kind.KIND, to_manifest(result.obj))
    assert made is not None
    assert not made.unsimulated
    expected: dict[str, int] = {}
    for part in made.parts:
        for resource, amount in _counted(part).items():
            expected[resource] = expected.get(resource, 0) + amount
    requested = {resource: amount for resource, amount in result.request.items() if amount}
    assert requested == {resource: amount for resource, amount in expected.items() if amount}


@settings(max_examples=examples(25), deadline=None)
@given(spec=_jobs)
def test_a_batch_job_asks_for_its_pods_at_once(spec: JsonObject) -> None:
    """No more than its parallelism, and than it needs to complete."""
    result = job_of("job", spec)
    stored = with_defaults(Pod(spec=result.pod_sets[0].template.spec)).spec  # type: ignore[union-attr]
    at_once = min(spec.get("parallelism", 1), spec.get("completions", 3))
    assert result.request == {n: a * at_once for n, a in pod_requests(stored).items()}
    assert isinstance(stored, PodSpec)


# -- cases -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("more", "cpu"),
    [
        ({"submitterPodTemplate": template("1")}, 6000),
        ({}, 5500),  # KubeRay's own submitter
        ({"submissionMode": "HTTPMode"}, 5000),
        ({"submissionMode": "InteractiveMode"}, 5000),
        ({"submissionMode": "SidecarMode"}, 5500),  # a container of the head
        ({"clusterSelector": {"ray.io/cluster": "y"}}, 500),
    ],
)
def test_a_ray_job_counts_the_pod_that_submits_it(more: JsonObject, cpu: int) -> None:
    """One head, two replicas of two hosts each, and the submitter of its mode."""
    cluster = {
        "headGroupSpec": {"template": template("1")},
        "workerGroupSpecs": [
            {"groupName": "w", "replicas": 2, "numOfHosts": 2, "template": template("1")}
        ],
    }
    assert job_of("rayjob", {"rayClusterSpec": cluster, **more}).request["cpu"] == cpu


@pytest.mark.parametrize(
    ("group", "workers"),
    [
        ({}, 0),
        ({"minReplicas": 2}, 2),
        ({"replicas": 9, "maxReplicas": 4}, 4),
        ({"replicas": 2, "maxReplicas": 2147483647}, 2),
        ({"replicas": 2, "suspend": True}, 0),
    ],
)
def test_groups_of_ray_workers_keep_to_their_bounds(group: JsonObject, workers: int) -> None:
    """Missing replicas are the least; a suspended group makes none."""
    cluster = {
        "headGroupSpec": {"template": template("0")},
        "workerGroupSpecs": [{"groupName": "w", "template": template("1"), **group}],
    }
    result = job_of("rayjob", {"submissionMode": "HTTPMode", "rayClusterSpec": cluster})
    assert result.request["cpu"] == workers * 1000


def test_a_job_set_runs_no_more_pods_at_once_than_complete_it() -> None:
    """Parallelism 4 of a Job with 2 completions makes 2 pods; 3 such Jobs make 6."""
    job = {"spec": {"parallelism": 4, "completions": 2, "template": template("1")}}
    result = job_of("jobset", {"replicatedJobs": [{"name": "w", "replicas": 3, "template": job}]})
    assert (result.request["cpu"], result.pod_sets[0].count) == (6000, 6)


def test_containers_beside_the_main_one_count_in_kinds_without_templates() -> None:
    """Sidecars and init containers of Spark's pods and of Argo's steps."""
    beside = {"sidecars": [container("1")], "initContainers": [container("7")]}
    native = {"initContainers": [container("2", restartPolicy="Always")]}
    spark = job_of("sparkapp", {"driver": beside, "executor": {"instances": 2, **native}})
    assert [each.request["cpu"] for each in spark.pod_sets] == [7000, 3000]
    steps = [
        {"name": "a", "container": container("1"), **native},
        {"name": "b", "containerSet": {"containers": [container("2"), container("3")]}},
        {"name": "c", "script": container("1"), "sidecars": [container("1")]},
    ]
    for number, cpu in enumerate((3000, 5000, 2000)):
        assert job_of("workflow", {"templates": [steps[number]]}).request["cpu"] == cpu
    assert job_of("workflow", {"templates": steps}).request["cpu"] == 5000


@pytest.mark.parametrize(
    ("spec", "executors", "executor_memory"),
    [
        ({}, 2, GIB + 384 * MIB),
        ({"type": "Python", "executor": {"memory": "10g"}}, 2, 14 * GIB),
        ({"executor": {"memory": "10g"}}, 2, 11 * GIB),
        ({"memoryOverheadFactor": "0.5", "executor": {"memory": "2g"}}, 2, 3 * GIB),
        ({"dynamicAllocation": {"enabled": True, "minExecutors": 3}}, 3, GIB + 384 * MIB),
        ({"dynamicAllocation": {"enabled": False, "minExecutors": 3}}, 2, GIB + 384 * MIB),
    ],
)
def test_spark_counts_executors_and_memory_as_spark_does(
    spec: JsonObject, executors: int, executor_memory: int
) -> None:
    """Memory beside the heap and the number of executors have defaults of Spark's own."""
    result = job_of("sparkapp", spec).pod_sets[1]
    assert (result.count, result.request["memory"]) == (executors, executor_memory)
