"""The pods of workloads: as many, and such, as Kubernetes' controllers would make."""

import io
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.volume import PersistentVolumeClaim
from koordinator.api.workload import Job, ReplicaSet
from koordinator.foundation.errors import InputError
from koordinator.simulator import schedule, simulate
from koordinator.simulator.manifests.reader import read_manifests
from koordinator.simulator.workload_file import parse_workload

POD = {"containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}]}
APP = {"app": "web"}


def template(**spec: Any) -> dict[str, Any]:
    return {"metadata": {"labels": APP}, "spec": POD | spec}


def once() -> dict[str, Any]:
    return template(restartPolicy="Never")


def workload(kind: str, name: str = "web", /, metadata: Any = None, **spec: Any) -> dict[str, Any]:
    version = {"Job": "batch/v1", "CronJob": "batch/v1", "ReplicationController": "v1"}
    return {
        "apiVersion": version.get(kind, "apps/v1"),
        "kind": kind,
        "metadata": {"name": name} | (metadata or {}),
        "spec": spec,
    }


def replicated(kind: str, replicas: int | None = None, **more: Any) -> dict[str, Any]:
    counted = {} if replicas is None else {"replicas": replicas}
    selector: Any = APP if kind == "ReplicationController" else {"matchLabels": APP}
    return workload(kind, selector=selector, template=template(), **counted, **more)


def owned(name: str, kind: str, owner: str, **more: Any) -> dict[str, Any]:
    reference = {"kind": kind, "name": owner, "controller": True}
    metadata = {"name": name, "ownerReferences": [reference]}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": POD} | more


def node(name: str, **more: Any) -> dict[str, Any]:
    headroom = {"allocatable": {"cpu": "8", "memory": "8Gi", "pods": "110"}}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name},
        "status": headroom,
    } | more


def read(*manifests: dict[str, Any]) -> list[KubeObject]:
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": manifests})
    return read_manifests(["-"], io.BytesIO(text.encode()))


def pods(*manifests: dict[str, Any]) -> list[Pod]:
    return [obj for obj in read(*manifests) if isinstance(obj, Pod)]


@pytest.mark.parametrize(
    ("manifest", "count"),
    [
        (replicated("Deployment"), 1),
        (replicated("Deployment", 3), 3),
        (replicated("Deployment", 0), 0),
        (replicated("ReplicaSet", 2), 2),
        (replicated("ReplicationController", 2), 2),
        (replicated("StatefulSet", 2), 2),
        (workload("Job", template=template(restartPolicy="Never")), 1),
        (workload("Job", template=once(), parallelism=4, completions=2), 2),
        (workload("Job", template=once(), parallelism=4), 4),
        (workload("Job", template=once(), completions=4), 1),
        (workload("Job", template=once(), parallelism=4, suspend=True), 0),
        (workload("CronJob", jobTemplate={"spec": {"template": once(), "parallelism": 2}}), 2),
        (
            workload("CronJob", suspend=True, jobTemplate={"spec": {"template": once()}}),
            0,
        ),
        (
            workload("Job", template=once(), completions=3, parallelism=3)
            | {"status": {"succeeded": 2}},
            1,
        ),
        (
            workload("Job", template=once())
            | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}},
            0,
        ),
    ],
)
def test_a_workload_makes_as_many_pods_as_its_controller(
    manifest: dict[str, Any], count: int
) -> None:
    """A workload without replicas makes one pod, a suspended or done one none."""
    assert len(pods(manifest)) == count


@pytest.mark.parametrize("kind", ["ReplicaSet", "ReplicationController", "StatefulSet"])
@given(there=st.integers(0, 4), wanted=st.integers(0, 4))
def test_pods_that_are_there_count(kind: str, there: int, wanted: int) -> None:
    """Only pods that a workload lacks are made; names are never taken twice."""
    given = [owned(f"web-{number}", kind, "web") for number in range(there)]

    created = pods(*given, replicated(kind, wanted))

    assert len({pod.key for pod in created}) == len(created) == max(there, wanted)


def test_pods_that_have_ended_or_belong_to_others_do_not_count() -> None:
    """As for the controllers."""
    ended = owned("old", "ReplicaSet", "web", status={"phase": "Failed"})
    other = owned("alien", "ReplicaSet", "other")

    assert len(pods(ended, other, replicated("ReplicaSet", 2))) == 4


def test_a_deployment_has_a_replica_set_in_between() -> None:
    """Default spreading finds the selector, and labels separate versions."""
    objects = read(replicated("Deployment", 2))
    (between,) = [obj for obj in objects if isinstance(obj, ReplicaSet)]
    code = between.metadata.labels["pod-template-hash"]

    assert between.metadata.name == f"web-{code}"
    for pod in pods(replicated("Deployment", 2)):
        (owner,) = pod.metadata.owner_references
        assert (owner.kind, owner.name, owner.controller) == ("ReplicaSet", f"web-{code}", True)
        assert pod.metadata.labels == {"app": "web", "pod-template-hash": code}
        assert pod.metadata.name.startswith(f"web-{code}-")
        assert pod.spec.scheduler_name == "default-scheduler"


def test_pods_of_the_replica_sets_of_a_deployment_count() -> None:
    """Existing pods of older versions count; the newest version gets the rest."""
    sets = [
        workload(
            "ReplicaSet",
            f"web-{code}",
            {
                "labels": {"pod-template-hash": code},
                "annotations": {"deployment.kubernetes.io/revision": revision},
                "ownerReferences": [{"kind": "Deployment", "name": "web", "controller": True}],
            },
            replicas=9,
            template=template(),
            selector={"matchLabels": APP},
        )
        for code, revision in (("old", "9"), ("new", "10"))
    ]
    there = [owned("a", "ReplicaSet", "web-old"), owned("b", "ReplicaSet", "web-new")]

    created = pods(replicated("Deployment", 4), *sets, *there)

    made = [pod for pod in created if pod.metadata.name not in {"a", "b"}]
    assert len(made) == 2
    assert {pod.metadata.owner_references[0].name for pod in made} == {"web-new"}
    assert {pod.metadata.labels["pod-template-hash"] for pod in made} == {"new"}


def test_names_are_the_same_every_time_and_differ_among_many() -> None:
    """A run can be compared with the one before."""
    many = replicated("Deployment", 5000)
    names = [pod.metadata.name for pod in pods(many)]

    assert len(set(names)) == 5000
    assert names == [pod.metadata.name for pod in pods(many)]
    assert max(map(len, names)) <= 63


def test_pods_of_a_stateful_set_have_numbers_and_claims() -> None:
    """A claim that is there is kept, and so is a pod."""
    claim: dict[str, Any] = {
        "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}},
    }
    given = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data-web-5"},
        "spec": claim["spec"] | {"volumeName": "disk"},
    }
    there = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web-7"}, "spec": POD}
    made = replicated(
        "StatefulSet", 3, serviceName="web", ordinals={"start": 5}, volumeClaimTemplates=[claim]
    )

    objects = read(given, there, made)

    claims = {o.metadata.name: o for o in objects if isinstance(o, PersistentVolumeClaim)}
    assert claims.keys() == {"data-web-5", "data-web-6"}
    assert claims["data-web-5"].spec.volume_name == "disk"
    by_name = {obj.metadata.name: obj for obj in objects if isinstance(obj, Pod)}
    assert by_name.keys() == {"web-5", "web-6", "web-7"}
    (volume,) = by_name["web-6"].spec.volumes
    assert volume.persistent_volume_claim is not None
    assert volume.persistent_volume_claim.claim_name == "data-web-6"
    assert by_name["web-6"].metadata.labels["apps.kubernetes.io/pod-index"] == "6"


def test_an_indexed_job_makes_the_numbers_that_are_missing() -> None:
    """Done ones are not made again."""
    index = "batch.kubernetes.io/job-completion-index"
    done = owned("web-0-x", "Job", "web", status={"phase": "Succeeded"})
    done["metadata"]["annotations"] = {index: "0"}
    job = workload(
        "Job", template=once(), completionMode="Indexed", completions=3, parallelism=3
    ) | {"status": {"succeeded": 1}}

    made = [pod for pod in pods(done, job) if pod.metadata.name != "web-0-x"]

    assert [pod.metadata.annotations[index] for pod in made] == ["1", "2"]
    assert made[0].metadata.name.startswith("web-1-")


def test_a_cron_job_that_runs_makes_no_second_job() -> None:
    """The Job that is there makes the pods."""
    cron = workload("CronJob", "nightly", jobTemplate={"spec": {"template": once()}})
    reference = {"kind": "CronJob", "name": "nightly", "controller": True}
    running = workload("Job", "nightly-1", {"ownerReferences": [reference]}, template=once())

    objects = read(cron, running)

    assert [obj.key for obj in objects if isinstance(obj, Job)] == ["default/nightly-1"]
    assert len([obj for obj in objects if isinstance(obj, Pod)]) == 1


def test_a_daemon_set_has_a_pod_for_each_node_that_it_may_run_on() -> None:
    """Selector and taints decide; cordoned nodes and sick ones are served."""
    nodes = [
        node("plain", metadata={"name": "plain", "labels": {"disk": "ssd"}}),
        node(
            "cordoned",
            metadata={"name": "cordoned", "labels": {"disk": "ssd"}},
            spec={"taints": [{"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}]},
        ),
        node("other"),
        node(
            "tainted",
            metadata={"name": "tainted", "labels": {"disk": "ssd"}},
            spec={"taints": [{"key": "dedicated", "effect": "NoSchedule"}]},
        ),
    ]
    served = node("served", metadata={"name": "served", "labels": {"disk": "ssd"}})
    there = owned("ds-1", "DaemonSet", "ds")
    there["spec"] = POD | {"nodeName": "served"}
    daemon = workload(
        "DaemonSet",
        "ds",
        selector={"matchLabels": APP},
        template=template(nodeSelector={"disk": "ssd"}),
    )

    placed = schedule(read(*nodes, served, there, daemon)).placements

    assert {bound.node for bound in placed} == {"plain", "cordoned"}


@pytest.mark.parametrize(
    ("manifest", "problem"),
    [
        (
            workload("Deployment", selector={"matchLabels": APP}),
            "Deployment default/web: spec.template: is required",
        ),
        (workload("CronJob"), "CronJob default/web: spec.jobTemplate: is required"),
        (
            replicated("Deployment", -1),
            "Deployment default/web: spec.replicas: must be at least 0, got -1",
        ),
        (
            replicated("Deployment", 2**31 - 1),
            "Deployment default/web: spec.replicas: must be 0..1000000, got 2147483647",
        ),
        (
            workload("Job", template={"spec": {"containers": []}}),
            "Job default/web: spec.template.spec.containers",
        ),
        (
            workload("Job", template={"spec": {"containers": [{"name": 1}]}}),
            "Job default/web: spec.template.spec.containers[0].name: must be a string, got 1",
        ),
        (
            workload("Job", template=template()),
            (
                "Job default/web: spec.template.spec.restartPolicy: must be OnFailure or "
                "Never, got Always"
            ),
        ),
        (
            workload("CronJob", jobTemplate={"spec": {"template": template()}}),
            (
                "CronJob default/web: spec.jobTemplate.spec.template.spec.restartPolicy: must be "
                "OnFailure or Never, got Always"
            ),
        ),
        (
            replicated("DaemonSet")
            | {"spec": {"selector": {"matchLabels": APP}, "template": once()}},
            "DaemonSet default/web: spec.template.spec.restartPolicy: must be Always, got Never",
        ),
        (
            workload("Job", template=once(), completionMode="Indexed", parallelism=2),
            "Job default/web: spec.completions: required with completionMode Indexed",
        ),
        (
            workload("ReplicaSet", template=template(), selector={"matchLabels": {"app": "x"}}),
            (
                "ReplicaSet default/web: spec.template.metadata.labels: must have the labels that "
                "spec.selector selects, got {'app': 'web'}"
            ),
        ),
        (
            workload("StatefulSet", template=template()),
            "StatefulSet default/web: spec.selector: is required",
        ),
    ],
)
def test_a_workload_that_can_make_no_pods_is_refused(
    manifest: dict[str, Any], problem: str
) -> None:
    """The path is the workload's."""
    with pytest.raises(InputError) as refused:
        read(manifest)

    assert problem in str(refused.value)


def test_a_simulated_cluster_runs_the_workloads_among_its_objects() -> None:
    """Beside the pods of its streams."""
    given = {
        "horizon": "1m",
        "nodePools": [{"name": "n", "count": 2, "cpu": 8, "memory": "8Gi"}],
        "podStreams": [],
        "objects": [
            replicated("Deployment", 3),
            workload("DaemonSet", "ds", template=template(), selector={"matchLabels": APP}),
        ],
    }

    placements = simulate(parse_workload(json.dumps(given), "test")).placements

    assert len(placements) == 5
    assert all(placement.node for placement in placements)


@pytest.mark.parametrize(
    ("manifest", "count"),
    [
        (workload("Job", parallelism=3, managedBy="kueue.x-k8s.io/multikueue"), 0),
        (workload("Job", parallelism=3, managedBy="kubernetes.io/job-controller"), 3),
        (workload("Job", "web", {"deletionTimestamp": "2026-01-01T00:00:00Z"}, parallelism=3), 0),
        (replicated("Deployment", 3, paused=True), 0),
    ],
)
def test_a_workload_that_its_controller_leaves_alone_makes_no_pods(
    manifest: dict[str, Any], count: int
) -> None:
    """Managed from elsewhere, paused before its first ReplicaSet, or being deleted."""
    used = once() if manifest["kind"] == "Job" else template()

    assert len(pods(manifest | {"spec": manifest["spec"] | {"template": used}})) == count


def test_a_paused_deployment_scales_the_replica_set_that_it_has() -> None:
    """To more pods of the ReplicaSet's template, not of its own."""
    deployment = replicated("Deployment", 3, paused=True)
    owner = {"kind": "Deployment", "name": "web", "controller": True}
    labels = {"pod-template-hash": "old"} | APP
    old = workload(
        "ReplicaSet",
        "web-old",
        {"ownerReferences": [owner], "labels": labels},
        replicas=1,
        template={"metadata": {"labels": labels}, "spec": POD | {"priority": 7}},
        selector={"matchLabels": labels},
    )

    created = pods(deployment, old, owned("web-old-1", "ReplicaSet", "web-old"))
    assert [pod.spec.priority for pod in created] == [7, 7, None]


@given(
    st.integers(1, 6),
    st.integers(1, 6),
    st.sets(st.integers(0, 5)),
    st.sets(st.integers(0, 5)),
)
def test_an_indexed_job_makes_no_index_that_is_over(
    parallelism: int, completions: int, done: set[int], failed: set[int]
) -> None:
    """The job's status names finished indices, whose pods may have been deleted."""
    done = {index for index in done if index < completions}
    failed = {index for index in failed if index < completions} - done
    job = workload(
        "Job",
        parallelism=parallelism,
        completions=completions,
        completionMode="Indexed",
        template=template(restartPolicy="Never"),
    )
    job["status"] = {
        "succeeded": len(done),
        "completedIndexes": ",".join(map(str, sorted(done))),
        "failedIndexes": ",".join(map(str, sorted(failed))),
    }

    made = [
        int(pod.metadata.annotations["batch.kubernetes.io/job-completion-index"])
        for pod in pods(job)
    ]
    left = sorted({*range(completions)} - done - failed)
    assert made == left[:parallelism]


@pytest.mark.parametrize(
    "kind", ["ReplicaSet", "ReplicationController", "StatefulSet", "DaemonSet"]
)
def test_pods_without_owner_that_a_workload_selects_count(kind: str) -> None:
    """The controller adopts such pods; of two workloads the first does."""
    orphan = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web-1", "labels": APP},
        "spec": POD | {"nodeName": "n"},
    }
    wanted = None if kind == "DaemonSet" else 2
    twin = replicated(kind, wanted)
    twin["metadata"] = {"name": "twin"}

    there = [node("n"), orphan, replicated(kind, wanted)]
    assert len(pods(*there)) == (wanted or 1)
    assert len(pods(*there, twin)) == 2 * (wanted or 1)
    bare = orphan | {"metadata": {"name": "web-1"}}
    assert len(pods(node("n"), bare, replicated(kind, wanted))) == (
        2 if kind == "StatefulSet" else (wanted or 1) + 1
    )


def test_a_replica_set_without_owner_is_adopted_by_the_deployment_that_selects_it() -> None:
    """Pods of the ReplicaSet count for the Deployment."""
    labels = {"pod-template-hash": "old"} | APP
    old = workload(
        "ReplicaSet",
        "web-old",
        {"labels": labels},
        replicas=1,
        template={"metadata": {"labels": labels}, "spec": POD},
        selector={"matchLabels": labels},
    )

    assert len(pods(replicated("Deployment", 2), old)) == 2
