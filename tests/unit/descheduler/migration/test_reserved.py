"""ReservationFirst jobs with a real scheduler."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.descheduler.migration.world import job, profile_with, replicas
from tests.worlds import START_S, made, node, pod

from koordinator.api.core import ObjectReference
from koordinator.api.event import Event
from koordinator.api.meta import Condition, KubeObject
from koordinator.api.pod import Pod, PodStatus
from koordinator.api.pod_migration_job import (
    PodMigrationJob,
    PodMigrationReservationOptions,
)
from koordinator.api.reservation import Reservation
from koordinator.descheduler.configuration import decode_descheduler_configuration
from koordinator.descheduler.migration.arguments import EvictionGate
from koordinator.simulator.descheduled import Descheduled
from koordinator.simulator.policies import default_configuration


class ReservedWorld(Descheduled):
    """A cluster with scheduler and descheduler, and no plugin that makes jobs."""

    def __init__(self, *objects: KubeObject, args: Any = None) -> None:
        data = {
            "apiVersion": "descheduler/v1alpha2",
            "kind": "DeschedulerConfiguration",
            "profiles": [profile_with(args)],
        }
        configuration = decode_descheduler_configuration(data, "test")
        scheduler = default_configuration()
        super().__init__(configuration, now_s=START_S, source="test", scheduler=scheduler)
        self.load(objects)
        self.descheduler.sync()

    def job(self, name: str) -> PodMigrationJob:
        return self.cluster.get(PodMigrationJob, name)

    def node_of(self, name: str) -> str:
        return self.cluster.get(Pod, name, "default").spec.node_name


NODES = [node("n1", cpu=2), node("n2", cpu=2), node("n3", cpu=2)]


def test_job_reserves_evicts_and_completes_when_the_replacement_is_ready() -> None:
    """Conditions, events and messages are the original's."""
    world = ReservedWorld(*NODES, *replicas("web", on=["n1", "n1", "n2", "n3"], cpu=1))
    world.cluster.create(job("move", "web-0"))

    world.run_until_jobs_end()

    done = world.job("move")
    assert (done.status.phase, done.status.status) == ("Succeeded", "Complete")
    new = done.status.pod_ref
    assert new is not None
    assert done.status.message == (
        f'Bind Pod "default/{new.name}" in Reservation "{done.metadata.uid}"'
    )
    assert world.node_of(new.name) == done.status.node_name != "n1"
    assert {each.type for each in done.status.conditions} == {
        "ReservationCreated",
        "ReservationScheduled",
        "Eviction",
        "ReservationBound",
        "BoundPodReady",
        "PodBoundReservation",
    }
    assert all(each.status == "True" for each in done.status.conditions)
    events = {
        each.reason for each in world.cluster.list(Event).items if each.regarding.name == "move"
    }
    assert events >= {
        "ReservationCreated",
        "ReservationScheduled",
        "Evicting",
        "EvictComplete",
        "PodBoundReservation",
        "BoundPodReady",
        "Complete",
    }


def test_pod_without_another_node_is_not_evicted() -> None:
    """The job has the reason, fails after its ttl, and leaves no reservation."""
    world = ReservedWorld(*NODES, *replicas("web", on=["n1", "n1", "n2", "n3"], cpu=2))
    world.cluster.create(job("move", "web-0"))
    world.run_until(START_S + 10)
    waiting = world.job("move").status
    assert (waiting.status, waiting.reason) == ("ReservationScheduled", "Unschedulable")
    assert "Insufficient cpu" in waiting.message

    world.run_until_jobs_end()

    done = world.job("move").status
    assert (done.phase, done.reason, done.message) == (
        "Failed",
        "Timeout",
        "Abort job caused by timeout",
    )
    assert world.node_of("web-0") == "n1"
    assert not world.cluster.list(Reservation).items


def test_job_and_reservation_are_deleted_five_minutes_after_the_ttl() -> None:
    """No object of a move is left."""
    world = ReservedWorld(*NODES, *replicas("web", on=["n1", "n1", "n2", "n3"], cpu=1))
    world.cluster.create(job("move", "web-0"))
    world.run_until_jobs_end()
    assert world.cluster.list(Reservation).items

    world.run_until(START_S + 600)

    assert not world.cluster.list(PodMigrationJob).items
    assert not world.cluster.list(Reservation).items


def test_reservation_is_deleted_with_its_job() -> None:
    """Deleting a job ends the move."""
    world = ReservedWorld(*NODES, *replicas("web", on=["n1", "n1", "n2", "n3"], cpu=2))
    world.cluster.create(job("move", "web-0"))
    world.run_until(START_S + 1)
    assert world.cluster.list(Reservation).items

    world.cluster.delete(PodMigrationJob, "move")
    world.run_until(START_S + 2)

    assert not world.cluster.list(Reservation).items
    assert world.node_of("web-0") == "n1"


def reserved(name: str, on: str, **owner: Any) -> KubeObject:
    """Return a reservation of a core of a node, as a user writes it."""
    return made(
        "Reservation",
        name,
        "scheduling.koordinator.sh/v1alpha1",
        spec={
            "template": {
                "spec": {
                    "schedulerName": "koord-scheduler",
                    "nodeSelector": {"kubernetes.io/hostname": on},
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": "1"}}}],
                }
            },
            "owners": [owner],
            "allocateOnce": True,
        },
    )


def test_pending_pod_uses_the_reservation_itself() -> None:
    """Nothing is evicted: the reservation is for the pod, and the job ends when it has its node."""
    first = replicas("web", on=["n1", "n2", "n3"], cpu=1)[2]
    assert isinstance(first, Pod)
    waits = (Condition(type="PodScheduled", status="False", message="no room"),)
    stuck = replace(
        first,
        spec=replace(first.spec, node_name=""),
        status=PodStatus(phase="Pending", conditions=waits),
    )
    world = ReservedWorld(*NODES, args={"skipEvictionGates": list(EvictionGate)})
    world.cluster.create(reserved("place", "n2", object={"name": "web-0"}))
    world.run_until(START_S)
    world.cluster.load([stuck])
    reference = ObjectReference(name="place")
    options = PodMigrationReservationOptions(reservation_ref=reference)
    world.cluster.create(job("move", "web-0", reservation_options=options))

    world.run_until_jobs_end()

    done = world.job("move").status
    assert (done.phase, done.status) == ("Succeeded", "Complete")
    assert done.message == 'Assign Pod "default/web-0" to node "n2"'
    assert world.cluster.get(Pod, "web-0", "default").metadata.uid == first.metadata.uid


def test_reservation_of_another_owner_with_the_same_name_is_not_used() -> None:
    """The job uses no reservation that it has not created."""
    world = ReservedWorld(*NODES, *replicas("web", on=["n1", "n1", "n2", "n3"], cpu=1))
    theirs = made(
        "Reservation",
        "mine",
        "scheduling.koordinator.sh/v1alpha1",
        spec={
            "template": {"spec": {"containers": [{"name": "c"}]}},
            "owners": [{"labelSelector": {"matchLabels": {"app": "x"}}}],
        },
    )
    world.cluster.create(theirs)
    template = PodMigrationReservationOptions(template={"metadata": {"name": "mine"}})
    world.cluster.create(job("move", "web-0", reservation_options=template))

    world.run_until_jobs_end()

    done = world.job("move").status
    assert done.reason == "Timeout"
    refused = done.conditions[0]
    assert (refused.type, refused.status) == ("ReservationCreated", "False")
    assert "already exists" in refused.message
    assert [each.metadata.name for each in world.cluster.list(Reservation).items] == ["mine"]


def test_fields_of_the_template_are_kept() -> None:
    """Name, labels and ttl are the user's; the rest is as for any job."""
    world = ReservedWorld(*NODES, *replicas("web", on=["n1", "n1", "n2", "n3"], cpu=1))
    template = {"metadata": {"name": "mine", "labels": {"a": "b"}}, "spec": {"ttl": "1h"}}
    options = PodMigrationReservationOptions(template=template)
    world.cluster.create(job("move", "web-0", reservation_options=options))

    world.run_until_jobs_end()

    assert world.job("move").status.phase == "Succeeded"
    kept = world.cluster.get(Reservation, "mine")
    assert (kept.metadata.labels["a"], str(kept.spec.ttl)) == ("b", "1h0m0s")
    assert kept.spec.allocate_once
    assert kept.metadata.labels["app.kubernetes.io/created-by"] == "koord-descheduler"
    assert kept.spec.template.spec.affinity is not None


def test_existing_reservation_is_used() -> None:
    """The user reserved a place; the job moves the pod there."""
    world = ReservedWorld(*NODES, *replicas("web", on=["n1", "n1", "n2", "n3"], cpu=1))
    web = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "ReplicaSet-web"}
    given = reserved("place", "n2", controller=web)
    world.cluster.create(given)
    reference = ObjectReference(name="place")
    options = PodMigrationReservationOptions(reservation_ref=reference)
    world.cluster.create(job("move", "web-0", reservation_options=options))

    world.run_until_jobs_end()

    done = world.job("move").status
    assert (done.phase, done.node_name) == ("Succeeded", "n2")
    assert done.pod_ref is not None
    assert world.node_of(done.pod_ref.name) == "n2"


def test_pod_without_a_controller_is_not_moved_with_a_reservation() -> None:
    """No pod would use the reservation: the job has this reason and fails."""
    world = ReservedWorld(*NODES, pod("bare", 1, on="n1", schedulerName="koord-scheduler"))
    world.cluster.create(job("move", "bare"))
    world.run_until_jobs_end()
    assert world.job("move").status.reason == "ForbiddenMigratePod"

    world = ReservedWorld(*NODES, pod("bare", 1, on="n1"), args={"evictAllBarePods": True})
    world.cluster.create(job("move", "bare"))
    world.run_until_jobs_end()
    assert "has no controller that replaces it" in world.job("move").status.conditions[0].message
    assert world.node_of("bare") == "n1"


def crowded(evictions_per_s: str) -> ReservedWorld:
    """Return a world with 20 replicas on 10 nodes, room on 10 others, and ten jobs."""
    nodes = [node(f"old{n}", cpu=2) for n in range(10)] + [
        node(f"new{n}", cpu=2) for n in range(10)
    ]
    args = {
        "maxMigratingPerWorkload": 10,
        "maxUnavailablePerWorkload": 10,
        "maxMigratingPerNode": 2,
        "evictQPS": evictions_per_s,
        "evictBurst": 1,
        "objectLimiters": {"workload": {"duration": "0s", "maxMigrating": 0}},
    }
    web = replicas("web", on=[f"old{n % 10}" for n in range(20)], cpu=1)
    world = ReservedWorld(*nodes, *web, args=args)
    for number in range(10):
        world.cluster.create(job(f"move-{number}", f"web-{number}"))
    return world


@pytest.mark.slow
@pytest.mark.parametrize("lost", [(), ("web-19",), ("web-13", "web-16", "web-19")])
def test_ten_moves_of_one_workload_use_their_own_reservations(lost: tuple[str, ...]) -> None:
    """Pods of other moves and new replicas use no reservation of a move: all jobs succeed."""
    world = crowded("0.2")
    world.run_until(START_S + 12)
    for name in lost:
        world.cluster.delete(Pod, name, "default")

    world.run_until_jobs_end()

    ended = [world.job(f"move-{number}").status for number in range(10)]
    assert [(each.phase, each.message.partition(" ")[0]) for each in ended] == [
        ("Succeeded", "Bind")
    ] * 10
    users = {each.pod_ref.uid for each in ended if each.pod_ref is not None}
    assert len(users) == 10


def test_reservation_is_open_only_after_the_eviction_of_its_pod() -> None:
    """The other reservations are closed to all replicas."""
    world = crowded("0.01")
    world.run_until(START_S + 20)

    seen = {True: 0, False: 0}
    for number in range(10):
        move = world.job(f"move-{number}")
        is_evicted = any(each.type == "Eviction" for each in move.status.conditions)
        kept = world.cluster.get(Reservation, move.metadata.uid)
        assert kept.spec.unschedulable is not is_evicted
        seen[is_evicted] += 1
    assert seen[True] == 1


def test_reservation_is_used_if_the_pod_is_deleted_after_a_refused_eviction() -> None:
    """The budget refuses the eviction, the pod is deleted, and the next one takes the place."""
    budget = made(
        "PodDisruptionBudget",
        "web",
        "policy/v1",
        namespace="default",
        spec={"minAvailable": 4, "selector": {}},
        status={"disruptionsAllowed": 0, "currentHealthy": 4, "desiredHealthy": 4},
    )
    web = replicas("web", on=["n1", "n1", "n2", "n3"], cpu=1)
    world = ReservedWorld(*NODES, *web, budget, args={"skipEvictionGates": list(EvictionGate)})
    world.cluster.create(job("move", "web-0"))
    world.run_until(START_S + 20)
    assert world.node_of("web-0") == "n1"

    world.cluster.delete(Pod, "web-0", "default")
    world.run_until_jobs_end()

    done = world.job("move").status
    assert (done.phase, done.status) == ("Succeeded", "Complete")
