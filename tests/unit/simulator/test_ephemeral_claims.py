"""Claims of ephemeral volumes are made by the simulated world."""

from typing import Any

import pytest
from tests.worlds import START_S, embedded, made, node, pod

from koordinator.api.meta import JsonObject, KubeObject, OwnerReference
from koordinator.api.pod import Pod
from koordinator.api.volume import PersistentVolumeClaim
from koordinator.scheduler.loop import Bound, Unschedulable
from koordinator.scheduler.rules.volumes import SELECTED_NODE
from koordinator.simulator import Embedded, schedule
from koordinator.simulator.volume_controller import create_ephemeral_claims
from koordinator.simulator.world import Submission, World

DEFAULT = {"storageclass.kubernetes.io/is-default-class": "true"}


def storage_class(mode: str = "WaitForFirstConsumer") -> KubeObject:
    return made(
        "StorageClass",
        "standard",
        "storage.k8s.io/v1",
        metadata={"annotations": DEFAULT},
        provisioner="csi.example.com",
        volumeBindingMode=mode,
    )


SPEC: JsonObject = {
    "accessModes": ["ReadWriteOnce"],
    "resources": {"requests": {"storage": "1Gi"}},
}
TEMPLATE: JsonObject = {"metadata": {"labels": {"app": "job"}}, "spec": SPEC}


def job(name: str = "job", **fields: Any) -> Pod:
    volumes = [{"name": "scratch", "ephemeral": {"volumeClaimTemplate": TEMPLATE}}]
    return pod(name, volumes=volumes, **fields)


def claims_of(world: Embedded) -> dict[str, PersistentVolumeClaim]:
    return {item.metadata.name: item for item in world.cluster.list(PersistentVolumeClaim).items}


def test_a_pending_pod_gets_the_claim_that_the_controller_would_make() -> None:
    """The pod owns it; labels and spec are the template's, the class is the default one."""
    world = embedded(node("n1"), storage_class(), job())
    stored = world.cluster.get(Pod, "job", "default")

    (claim,) = claims_of(world).values()

    assert claim.key == "default/job-scratch"
    assert claim.metadata.labels == {"app": "job"}
    assert claim.metadata.owner_references == (
        OwnerReference(
            api_version="v1",
            kind="Pod",
            name="job",
            uid=stored.metadata.uid,
            controller=True,
            block_owner_deletion=True,
        ),
    )
    assert claim.spec.access_modes == ("ReadWriteOnce",)
    assert claim.spec.storage_class_name == "standard"


def test_the_pod_is_scheduled_and_its_claim_has_the_node() -> None:
    """The provisioner would go on from there."""
    world = embedded(node("n1"), storage_class(), job())

    outcomes = world.run_to_fixed_point()

    assert [(o.pod, o.node) for o in outcomes if isinstance(o, Bound)] == [("default/job", "n1")]
    claim = claims_of(world)["job-scratch"]
    assert claim.metadata.annotations[SELECTED_NODE] == "n1"


def test_a_pod_waits_for_its_claim_and_is_tried_as_soon_as_that_comes() -> None:
    """As in a cluster, where the controller may be slower than the scheduler."""
    world = embedded(node("n1"), storage_class())
    stored = world.cluster.create(job())
    (waiting,) = world.run_to_fixed_point()
    assert isinstance(waiting, Unschedulable)
    assert "waiting for ephemeral volume controller" in waiting.message

    create_ephemeral_claims(world.cluster, stored)

    outcomes = world.run_to_fixed_point()
    assert [o.node for o in outcomes if isinstance(o, Bound)] == ["n1"]


def test_a_claim_of_that_name_is_left_alone() -> None:
    """The claim has another owner, and the pod gets this reason."""
    foreign = made("PersistentVolumeClaim", "job-scratch", spec=SPEC)

    (refused,) = schedule([node("n1"), storage_class(), foreign, job()]).unschedulable

    assert isinstance(refused, Unschedulable)
    assert "was not created for pod default/job (pod is not owner)" in refused.message


@pytest.mark.parametrize("other", [job(on="n1"), job(deleted=True), pod("plain")])
def test_only_pods_that_wait_for_a_node_get_claims(other: Pod) -> None:
    """The claims of pods that run are part of what the world was loaded with."""
    assert claims_of(embedded(node("n1"), storage_class(), other)) == {}


def test_pods_that_come_later_in_a_simulation_get_theirs_too() -> None:
    """Each pod gets its own claim as soon as it is submitted."""
    world = World()
    world.load([node("n1"), storage_class()])
    world.submit([Submission(at_s=5.0, pod=job("a")), Submission(at_s=9.0, pod=job("b"))])

    world.run(20.0)

    assert claims_of(world.embedded).keys() == {"a-scratch", "b-scratch"}
    assert {run.node for run in world.pods.values()} == {"n1"}


def test_a_claim_made_by_hand_gets_the_default_class_too() -> None:
    """Wherever it stands in the list."""
    claim = made("PersistentVolumeClaim", "data", spec=SPEC)
    mounted = [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}]
    objects = [claim, pod("db", volumes=mounted), node("n1"), storage_class()]

    result = schedule(objects, now_s=START_S)

    assert [placement.node for placement in result.placements] == ["n1"]
