"""Finished pods: they are no replicas, need no reservation, and do not become ready."""

import pytest
from msgspec.structs import replace
from tests.unit.descheduler.migration.test_reserved import NODES, ReservedWorld
from tests.unit.descheduler.migration.world import MigrationWorld, job, profile_with, replicas
from tests.unit.descheduler.world import DeschedulerWorld
from tests.worlds import START_S, node, pod

from koordinator.api.core import ObjectReference
from koordinator.api.meta import Condition, KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob, PodMigrationJobStatus
from koordinator.api.reservation import Reservation
from koordinator.descheduler.migration.decisions import JobSituation, Transition, decide
from koordinator.descheduler.migration.transitions import JobEvent

PHASES = ("Succeeded", "Failed")


def ended(made: Pod, phase: str, name: str = "") -> Pod:
    """Return a pod that has ended, under another name if there is one."""
    not_ready = Condition(type="Ready", status="False", reason="PodCompleted")
    meta = made.metadata
    if name:
        meta = replace(meta, name=name, uid=f"uid-{name}")
    status = replace(made.status, phase=phase, conditions=(not_ready,))
    return replace(made, metadata=meta, status=status)


def web(count: int = 4) -> tuple[list[KubeObject], Pod]:
    """Return a Deployment with its pods on n1, and its first pod."""
    objects = replicas("web", on=["n1"] * count, cpu=1)
    return objects, next(each for each in objects if isinstance(each, Pod))


@pytest.mark.parametrize(
    ("phase", "reason", "passed"),
    [
        ("Failed", "Evicted", True),
        ("Failed", "Terminated", True),  # at the shutdown of its node
        ("Failed", "", False),  # its containers failed: as in the original
        ("Running", "", False),  # not ready
    ],
)
def test_pods_that_the_kubelet_ended_do_not_use_up_the_unavailable_replicas(
    phase: str, reason: str, *, passed: bool
) -> None:
    """Ended pods stay for days, and their replacements count."""
    objects, first = web()
    left = [ended(first, phase, f"left-{index}") for index in range(3)]
    left = [replace(each, status=replace(each.status, reason=reason)) for each in left]
    world = MigrationWorld(node("n1", 8), node("n2", 8), *objects, *left)
    world.cluster.create(job("move", "web-0", mode="EvictDirectly"))
    world.advance(10)
    assert world.passed() == ({"move"} if passed else set())


@pytest.mark.parametrize("waits", [True, False])
def test_job_ends_with_a_pod_that_ends_by_itself(*, waits: bool) -> None:
    """Nothing is evicted or kept, whether the pod ended before or after the reservation."""
    world = ReservedWorld(*NODES, *replicas("web", on=["n1", "n1", "n2", "n3"], cpu=2))
    if waits:
        world.cluster.create(job("move", "web-0"))
        world.run_until(START_S + 10)
        assert world.cluster.list(Reservation).items
    running = world.cluster.get(Pod, "web-0", "default")
    world.cluster.update_status(ended(running, "Succeeded"))
    if not waits:
        world.cluster.create(job("move", "web-0"))
    world.run_until(START_S + 30)

    done = world.job("move").status
    assert (done.phase, done.reason) == ("Failed", "MissingPod")
    assert done.message == 'Abort job caused by finished Pod "default/web-0"'
    assert not world.cluster.list(Reservation).items
    assert world.cluster.get(Pod, "web-0", "default").metadata.deletion_timestamp is None


def test_plugin_evicts_a_failed_pod_without_a_reservation() -> None:
    """The workload of the failed pod has replaced it already."""
    objects, first = web()
    failed = ended(first, "Failed", "failed")
    profile = profile_with() | {
        "plugins": {"deschedule": {"enabled": [{"name": "RemoveFailedPods"}]}},
    }
    profile["pluginConfig"] += [{"name": "RemoveFailedPods", "args": {"minPodLifetimeSeconds": 0}}]
    nodes = [node("n1", 8), node("n2", 8)]
    world = DeschedulerWorld(*nodes, *objects, failed, profile=profile)
    world.evicted()
    (made,) = world.cluster.list(PodMigrationJob).items
    assert (made.spec.pod_ref.name, made.spec.mode) == ("failed", "EvictDirectly")


@pytest.mark.parametrize("phase", PHASES)
def test_replacement_that_ends_at_once_completes_its_job(phase: str) -> None:
    """A replacement that has ended will never be ready."""
    bound = Condition(type="ReservationBound", status="True")
    status = PodMigrationJobStatus(
        phase="Running", conditions=(bound,), pod_ref=ObjectReference(namespace="d", name="new")
    )
    seen = JobSituation(
        job=replace(job("move", "old", ttl="0s"), status=status),
        now_s=START_S,
        default_mode="ReservationFirst",
        bound_pod=ended(pod("new", on="n2"), phase),
    )
    decision = decide(seen)
    assert isinstance(decision, Transition)
    assert decision.event is JobEvent.POD_READY
