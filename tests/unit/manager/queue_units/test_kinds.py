"""Jobs of all kinds, as queues read them."""

from typing import Any

import pytest

from koordinator.api.codec import decode_object
from koordinator.api.meta import JsonObject
from koordinator.foundation.errors import InputError
from koordinator.manager.queue_units.jobs import (
    QueuedJobState,
    read_job,
    resumed,
    suspended,
)
from koordinator.manager.queue_units.kinds import BY_NAME, JOB_KINDS


def template(cpu: str, **container: Any) -> JsonObject:
    resources = {"requests": {"cpu": cpu}}
    return {"spec": {"containers": [{"name": "c", "resources": resources, **container}]}}


SPECS: dict[str, tuple[JsonObject, int]] = {  # the spec, and the milli-CPU of all pods
    "job": ({"suspend": True, "parallelism": 3, "completions": 2, "template": template("1")}, 2000),
    "pytorchjob": (
        {
            "runPolicy": {"suspend": True},
            "pytorchReplicaSpecs": {
                "Master": {"template": template("1")},
                "Worker": {"replicas": 3, "template": template("2")},
            },
        },
        7000,
    ),
    "tfjob": (
        {
            "runPolicy": {"suspend": True},
            "tfReplicaSpecs": {"PS": {"replicas": 2, "template": template("500m")}},
        },
        1000,
    ),
    "mpijob": (
        {
            "runPolicy": {"suspend": True},
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "template": template("100m")},
                "Worker": {"replicas": 2, "template": template("4")},
            },
        },
        8100,
    ),
    "rayjob": (
        {
            "suspend": True,
            "rayClusterSpec": {
                "headGroupSpec": {"template": template("1")},
                "workerGroupSpecs": [
                    {"groupName": "GPU", "replicas": 2, "numOfHosts": 2, "template": template("3")}
                ],
            },
        },
        13500,  # with the pod that submits it
    ),
    "sparkapp": (
        {
            "suspend": True,
            "driver": {"cores": 1, "memory": "512m"},
            "executor": {"cores": 2, "instances": 4, "memory": "4g", "memoryOverhead": "1g"},
        },
        9000,
    ),
    "jobset": (
        {
            "suspend": True,
            "replicatedJobs": [
                {
                    "name": "w",
                    "replicas": 2,
                    "template": {"spec": {"parallelism": 3, "template": template("1")}},
                }
            ],
        },
        6000,
    ),
    "workflow": (
        {
            "suspend": True,
            "parallelism": 2,
            "templates": [
                {"name": "a", "container": {"resources": {"requests": {"cpu": "1"}}}},
                {"name": "b", "script": {"resources": {"limits": {"cpu": "3"}}}},
                {"name": "dag", "dag": {}},
            ],
        },
        6000,
    ),
}
STATUSES: dict[str, tuple[JsonObject, QueuedJobState]] = {
    "job": ({"active": 2, "ready": 2}, QueuedJobState.WAITING),  # it is suspended
    "pytorchjob": ({"conditions": [{"type": "Running", "status": "True"}]}, QueuedJobState.RUNNING),
    "tfjob": ({"conditions": [{"type": "Succeeded", "status": "True"}]}, QueuedJobState.SUCCEEDED),
    "mpijob": ({"conditions": [{"type": "Failed", "status": "True"}]}, QueuedJobState.FAILED),
    "rayjob": ({"jobDeploymentStatus": "Complete"}, QueuedJobState.SUCCEEDED),
    "sparkapp": ({"applicationState": {"state": "RUNNING"}}, QueuedJobState.RUNNING),
    "jobset": ({"conditions": [{"type": "Completed", "status": "True"}]}, QueuedJobState.SUCCEEDED),
    "workflow": ({"phase": "Error"}, QueuedJobState.FAILED),
}


def made(name: str, spec: JsonObject, status: JsonObject | None = None, **marks: str) -> Any:
    kind = BY_NAME[name]
    data = {
        "apiVersion": kind.type.API_VERSION,
        "kind": kind.type.KIND,
        "metadata": {"name": "x", "namespace": "ml", "annotations": marks},
        "spec": spec,
        "status": status or {},
    }
    return read_job(decode_object(data), kind)


def test_every_kind_is_tried_here() -> None:
    """A new kind needs an example."""
    assert SPECS.keys() == STATUSES.keys() == {kind.name for kind in JOB_KINDS}


@pytest.mark.parametrize("name", SPECS)
def test_a_job_of_each_kind_is_read(name: str) -> None:
    """Check suspension, requests and progress."""
    spec, cpu = SPECS[name]
    result = made(name, spec)
    assert (result.is_suspended, result.request["cpu"], result.state) == (
        True,
        cpu,
        QueuedJobState.WAITING,
    )
    status, state = STATUSES[name]
    assert made(name, spec, status).state is state


@pytest.mark.parametrize("name", SPECS)
def test_job_of_each_kind_is_suspended_by_its_field(name: str) -> None:
    """The field; the annotation, where the job uses that."""
    spec, _ = SPECS[name]
    path = BY_NAME[name].suspend
    for patch, expected in (
        (resumed(made(name, spec), "t", "a"), False),
        (suspended(made(name, spec)), True),
    ):
        field_value: Any = patch
        for key in path:
            field_value = field_value[key]
        assert field_value is expected
    unset = {key: value for key, value in spec.items() if key not in ("suspend", "runPolicy")}
    mark: dict[str, Any] = {"scheduling.x-k8s.io/suspend": "true"}
    annotated = made(name, unset, **mark)
    assert annotated.is_suspended
    patch = resumed(annotated, "t", "a")
    assert patch["metadata"]["annotations"]["scheduling.x-k8s.io/suspend"] == "false"
    assert "spec" not in patch


def test_spark_counts_memory_in_the_words_of_java() -> None:
    """With overhead, 384 MiB where none is stated; whatever else is refused with its path."""
    assert made("sparkapp", SPECS["sparkapp"][0]).request["memory"] == (896 << 20) + 4 * (5 << 30)
    wrongs: list[Any] = ["lots", "-1g", "1x", "9" * 40 + "g", None, {}]
    for wrong in wrongs:
        with pytest.raises(InputError, match=r"spec\.driver\.memory"):
            made("sparkapp", {"driver": {"memory": wrong}})


@pytest.mark.parametrize(
    ("name", "spec", "path"),
    [
        ("pytorchjob", {"pytorchReplicaSpecs": {"Master": {}}}, "template"),
        (
            "pytorchjob",
            {"pytorchReplicaSpecs": {"A": {"replicas": -1, "template": template("1")}}},
            "replicas",
        ),
        (
            "rayjob",
            {"rayClusterSpec": {"headGroupSpec": {"template": {"spec": {"containers": 3}}}}},
            "containers",
        ),
        ("jobset", {"replicatedJobs": [{"name": "w", "replicas": 1 << 40}]}, "template"),
        (
            "tfjob",
            {"tfReplicaSpecs": {str(n): {"template": template("1")} for n in range(9)}},
            "spec",
        ),
        ("workflow", {"parallelism": "2", "templates": []}, "parallelism"),
    ],
)
def test_what_makes_no_sense_is_refused_with_its_path(
    name: str, spec: JsonObject, path: str
) -> None:
    """Raise InputError; tests of the manager check that other jobs continue."""
    with pytest.raises(InputError, match=path):
        made(name, spec)
