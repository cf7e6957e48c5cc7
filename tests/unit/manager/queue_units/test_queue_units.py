"""Jobs that wait for room in their quota before they have pods."""

import pytest
from tests.unit.manager.queue_units.worlds import (
    NAMESPACE,
    START_S,
    World,
    job,
    queue,
    quota,
)

from koordinator.api.codec import decode_object, to_manifest
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.event import Event
from koordinator.api.labels import QUOTA_PREEMPTIBLE
from koordinator.api.meta import JsonObject
from koordinator.api.queue_unit import Queue, QueueUnit
from koordinator.api.workload import Job
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import KindT
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError
from koordinator.manager.app import Manager, ManagerOptions
from koordinator.manager.queue_units.controller import QueueUnitOptions
from koordinator.manager.queue_units.kinds import BATCH_JOB, RAY
from koordinator.manager.queue_units.queues import POLICY_LABEL
from koordinator.manager.switches import Controller


def test_jobs_start_as_far_as_their_quota_has_room() -> None:
    """The others wait, and are told why."""
    world = World(quota(cpu=4), job("a", 1, pods=3), job("b", 1, pods=2), job("c", 1))
    world.settle()

    assert world.running() == {"a", "c"}
    assert world.phases() == {"a": "Running", "b": "Enqueued", "c": "Running"}
    assert world.unit("b").status.message == (
        "quota team has no room: it asks for cpu:2, used is cpu:4, the most is cpu:4: "
        "too little cpu"
    )


def test_a_unit_is_in_the_original_s_words() -> None:
    """Owner, labels, what is asked for, and marks on the job."""
    world = World(quota(), job("a", 2, pods=2, priority=7, labels={"team": "x"}))
    world.settle()
    unit, found = world.unit("a"), world.job("a")

    assert (unit.spec.queue, unit.spec.priority, str(unit.spec.resource["cpu"])) == ("team", 7, "4")
    (owner,) = unit.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("Job", "a", found.metadata.uid)
    assert unit.metadata.labels["team"] == "x"
    (pod_set,) = unit.spec.pod_sets
    assert (pod_set.name, pod_set.count) == ("main", 2)
    (admission,) = unit.status.admissions
    assert (admission.replicas, str(admission.resources["cpu"])) == (2, "4")
    assert unit.status.attempts == 1
    marks = found.metadata.annotations
    assert marks["koord-queue/job-has-enqueued"] == "true"
    assert marks["koord-queue/job-enqueue-timestamp"]
    assert marks["koord-queue/job-dequeue-timestamp"]
    true = {it.type for it in unit.status.conditions if it.status == "True"}
    assert true == {"QuotaReserved", "Admitted", "PodsReady"}


def test_units_have_what_the_crd_of_the_original_demands() -> None:
    """On a cluster with its CRDs the API server would refuse them otherwise.

    Source: koord-queue v1.8.0 chart, templates/crd/queueunit-v1alpha1.yaml, ``required``.
    """
    checked = queue()
    checked["spec"]["admissionChecks"] = [{"name": "budget"}]
    world = World(quota(cpu=1), checked, job("in"), job("out"))
    world.settle()
    for unit in world.cluster.list(QueueUnit).items:
        made = to_manifest(unit)
        status = made["status"]
        assert {"phase", "lastUpdateTime"} <= status.keys()
        for check in status.get("admissionChecks", []):
            assert {"lastTransitionTime", "message", "name", "state"} <= check.keys()
        for admission in status.get("admissions", []):
            assert {"name", "replicas", "running"} <= admission.keys()
        assert all("template" in pod_set for pod_set in made["spec"]["podSet"])
    assert world.phases() == {"in": "Reserved", "out": "Enqueued"}


def test_room_that_a_job_gives_back_goes_to_the_next() -> None:
    """Whether it ended well or badly, or was deleted."""
    world = World(quota(cpu=1), *(job(name) for name in "abcd"))
    world.settle()
    world.end("a")
    world.settle()
    assert (world.running(), world.phases()["a"]) == ({"b"}, "Succeed")
    world.end("b", "Failed")
    world.settle()
    assert (world.running(), world.phases()["b"]) == ({"c"}, "Failed")
    world.cluster.delete(Job, "c", "default")
    world.settle()
    assert world.running() == {"d"}
    assert "c" not in world.phases()


def test_the_most_important_goes_first() -> None:
    """Of equals, who came first."""
    world = World(quota(cpu=1))
    world.add(job("low", priority=1))
    world.add(job("high", priority=9))
    world.settle()

    assert world.running() == {"high"}


def test_every_quota_above_has_to_have_room() -> None:
    """And a quota that is not there, twice, or its own ancestor, lets nobody in."""
    world = World(quota("top", 3), quota("team", 9, "top"), quota("other", 9, "top"))
    world.add(job("a", 2), job("b", 2, quota="other"), job("c", 1, quota="other"))
    world.settle()
    assert world.running() == {"a", "c"}
    assert world.unit("b").status.message.startswith("quota top has no room")

    world = World(quota("x", 9, "y"), quota("y", 9, "x"), job("a", quota="x"), job("b", quota="z"))
    world.add(job("c", quota=""))
    world.settle()
    assert not world.running()
    assert world.unit("a").status.message == "quota x is its own ancestor"
    assert world.unit("b").status.message == "there is no quota z"
    assert world.unit("c").status.message == "it names no quota"


def test_a_quota_may_be_oversold() -> None:
    """As --oversellrate says."""
    world = World(quota(cpu=2), job("a", 3), oversell_rate=1.5)
    world.settle()

    assert world.running() == {"a"}


@pytest.mark.parametrize(
    ("policy", "running"),
    [("Priority", {"first", "small"}), ("Block", {"first"}), ("Intelligent", {"first", "small"})],
)
def test_the_policy_says_who_may_pass_one_that_does_not_fit(policy: str, running: set[str]) -> None:
    """Nobody, everybody, or who stands behind an unimportant one."""
    world = World(quota(cpu=4), queue(policy=policy))
    world.add(job("first", 3, priority=9), job("large", 2, priority=3), job("small", 1))
    world.settle()

    assert world.running() == running


def test_an_important_unit_blocks_an_intelligent_queue() -> None:
    """From the threshold of the queue on."""
    world = World(quota(cpu=4), queue(policy="Intelligent", priority_threshold="3"))
    world.add(job("first", 3, priority=9), job("large", 2, priority=3), job("small", 1))
    world.settle()

    assert world.running() == {"first"}


def test_only_the_first_of_a_queue_are_looked_at() -> None:
    """As deep as the queue says."""
    world = World(quota(cpu=4), queue(max_depth="1"))
    world.add(job("large", 9, priority=3), job("small", 1))
    world.settle()

    assert not world.running()


def test_each_quota_gets_a_queue_that_shows_who_waits() -> None:
    """In order, with places from 1; its label chooses the policy."""
    world = World(quota(cpu=1, **{f"koord-queue/{POLICY_LABEL}": "Block"}))
    world.settle()
    world.add(*(job(name, priority=n) for n, name in enumerate("abc")))
    world.settle()
    found = world.cluster.get(Queue, "team", NAMESPACE)

    assert (found.spec.queue_policy, found.spec.priority) == ("Block", 1000)
    items = found.status.queue_item_details["active"]
    assert [(it.name, it.position) for it in items] == [("b", 1), ("a", 2)]


def test_a_job_whose_pods_do_not_run_in_time_goes_back() -> None:
    """Suspended, it waits longer each time; others have the room meanwhile."""
    world = World(queue(wait_for_pods_running="true"), quota(cpu=1), pods_ready_s=60.0)
    world.add(job("a"))
    world.settle(pods_run=False)
    assert world.phases() == {"a": "Dequeued"}
    world.clock.advance_to(world.clock.now_s() + 61)
    world.manager.step()
    assert world.job("a").spec.suspend
    unit = world.unit("a")
    assert (unit.status.phase, unit.status.attempts) == ("TimeoutBackoff", 1)
    assert unit.status.message == "its pods did not all run in 60 s, attempt 1"
    world.add(job("b", priority=-1))
    world.settle()
    assert world.running() == {"b"}
    world.end("b")
    world.pass_time(5)
    assert (world.running(), world.unit("a").status.attempts) == ({"a"}, 2)
    assert world.phases()["a"] == "Running"


def test_a_job_ends_when_it_has_run_as_long_as_it_may() -> None:
    """Its time is counted over all attempts, and it is not tried again."""
    world = World(quota(cpu=1), job("a"))
    world.settle()
    patch = {"spec": {"maximumExecutionTimeSeconds": 100}}
    world.cluster.patch(QueueUnit, "a", "default", patch)
    world.pass_time(99)
    assert world.running() == {"a"}
    world.pass_time(2)
    unit = world.unit("a")
    assert (world.running(), unit.status.phase, unit.spec.active) == (set(), "Failed", False)
    assert [it.reason for it in unit.status.conditions if it.type == "Evicted"] == [
        "MaximumExecutionTimeExceeded"
    ]


def test_the_least_important_goes_for_a_more_important_one() -> None:
    """Where the queue says so; no more than have to, and never those that must not."""
    marks = {"enable_queueunit_preemption": "true"}
    world = World(quota(cpu=4), queue(**marks))
    fixed = job("fixed", 1, priority=0, labels={QUOTA_PREEMPTIBLE: "false"})
    world.add(fixed, job("low", 2, priority=1), job("mid", 1, priority=2))
    world.settle()
    world.add(job("high", 2, priority=9))
    world.settle()

    assert world.running() == {"fixed", "mid", "high"}
    low = world.unit("low")
    assert low.status.phase == "Enqueued"
    assert [it.reason for it in low.status.conditions if it.type == "Evicted"] == ["Preempted"]
    world.end("high")
    world.settle()
    assert world.running() == {"fixed", "mid", "low"}


def test_nobody_goes_in_vain_or_for_an_equal() -> None:
    """And nobody at all unless the queue says so."""
    preempting = queue(enable_queueunit_preemption="true")
    for made in (World(quota(cpu=4), preempting), World(quota(cpu=4))):
        made.add(job("low", 4, priority=1))
        made.settle()
        made.add(job("equal", 1, priority=1), job("huge", 5, priority=9))
        made.settle()
        assert made.running() == {"low"}


def test_a_deactivated_unit_stops_and_does_not_start_again() -> None:
    """Until it is active again."""
    world = World(quota(cpu=4), job("a"))
    world.settle()
    for active, running in ((False, set()), (True, {"a"})):
        world.cluster.patch(QueueUnit, "a", "default", {"spec": {"active": active}})
        world.settle()
        assert world.running() == running


def test_a_job_that_somebody_suspends_gives_its_room_back() -> None:
    """And comes again in its turn."""
    world = World(quota(cpu=1), job("a"))
    world.settle()
    world.add(job("b", priority=5))
    world.settle()
    world.cluster.patch(Job, "a", "default", {"spec": {"suspend": True}})
    world.settle()

    assert world.running() == {"b"}
    assert world.phases() == {"a": "Enqueued", "b": "Running"}


def test_room_counts_until_the_last_pod_is_gone() -> None:
    """A suspended job may have pods that end slowly."""
    world = World(quota(cpu=1), job("a"), job("b"))
    world.settle()
    world.cluster.patch(Job, "a", "default", {"spec": {"suspend": True}})
    world.manager.step()
    world.manager.step()
    assert world.running() == set()
    world.settle()
    assert len(world.running()) == 1


def test_a_job_that_was_resumed_by_hand_counts() -> None:
    """And one whose unit was deleted while it ran gets another one."""
    world = World(quota(cpu=1), job("a"), job("b"))
    world.settle()
    (started,) = world.running()
    world.cluster.delete(QueueUnit, started, "default")
    world.settle()
    assert world.running() == {started}
    assert world.phases()[started] == "Running"


def test_what_a_job_asks_for_may_change_while_it_waits() -> None:
    """It counts as it is when it is let in."""
    world = World(quota(cpu=2), job("a", 1, pods=3))
    world.settle()
    assert not world.running()
    world.cluster.patch(Job, "a", "default", {"spec": {"parallelism": 2}})
    world.settle()

    assert world.running() == {"a"}
    assert str(world.unit("a").spec.resource["cpu"]) == "2"


def test_jobs_that_are_not_suspended_or_belong_to_others_are_left_alone() -> None:
    """A JobSet decides about its jobs itself; one of a CronJob is like any other."""
    owned = job("owned")
    owned["metadata"]["ownerReferences"] = [
        {
            "apiVersion": "jobset.x-k8s.io/v1alpha2",
            "kind": "JobSet",
            "name": "s",
            "uid": "u",
            "controller": True,
        }
    ]
    world = World(quota(), owned, job("runs", suspend=False))
    world.settle()

    assert world.phases() == {}
    assert world.job("owned").spec.suspend


def test_a_job_of_the_same_name_gets_a_unit_of_its_own() -> None:
    """The old one goes with its job."""
    world = World(quota(cpu=1), job("a"))
    world.settle()
    uid = world.unit("a").metadata.uid
    world.cluster.delete(Job, "a", "default")
    world.add(job("a"))
    world.settle()

    assert world.unit("a").metadata.uid != uid
    assert world.running() == {"a"}


def test_hostile_amounts_harm_nobody_else() -> None:
    """A job that can't be read waits; the next starts."""
    world = World(quota(cpu=1))
    world.add(job("huge", 1, pods=2**31 - 1), job("zero", 0), job("fits", 1))
    world.settle()

    assert world.running() == {"fits", "zero"}


def test_a_job_that_gets_no_unit_has_an_event_with_the_reason() -> None:
    """It names the job and what is wrong with it; the next job is queued."""
    template = {"spec": {"containers": [{"name": "c", "image": "i"}]}}
    groups = [{"groupName": f"g{number}", "template": template} for number in range(7)]
    cluster = {"headGroupSpec": {"template": template}, "workerGroupSpecs": groups}
    ray: JsonObject = {
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": "wide", "namespace": "default"},
        "spec": {"suspend": True, "rayClusterSpec": cluster},
    }
    world = World(quota(cpu=1), kinds=(BATCH_JOB, RAY))
    world.add(ray, job("fits", 1))
    world.settle()

    (event,) = world.cluster.list(Event).items
    assert (event.regarding.kind, event.regarding.name, event.reason) == (
        "RayJob",
        "wide",
        "JobNotQueued",
    )
    assert event.note == (
        "spec: must make at most 8 sets of pods, the most that a QueueUnit holds; "
        "got 9: head, g0, g1, g2, g3, g4, g5, g6, submitter"
    )
    assert world.running() == {"fits"}


def test_nothing_is_watched_without_kinds() -> None:
    """By default."""
    world = World(quota(), job("a"), kinds=())
    world.manager.step()

    assert not world.running()
    assert not world.cluster.list(QueueUnit).items
    assert [it.metadata.name for it in world.cluster.list(ElasticQuota).items] == ["team"]


@pytest.mark.parametrize(
    "label", ["alibabacloud.com/quota-name", "quota.scheduling.alibabacloud.com/name"]
)
def test_a_quota_may_be_named_as_in_the_original_s_samples(label: str) -> None:
    """By the labels of either plugin of koord-queue; a job without one waits."""
    world = World(quota(cpu=4))
    world.add(job("named", 1, quota="", labels={label: "team"}), job("nameless", 1, quota=""))
    world.settle()

    assert world.running() == {"named"}


def test_what_others_say_of_a_unit_stays() -> None:
    """Checks and counts that koord-queue's CRD has and nothing here writes are not lost."""
    checks = [
        {
            "name": "provisioning",
            "state": "Ready",
            "message": "a pool of three nodes",
            "lastTransitionTime": "2026-11-23T10:00:00Z",
            "podSetUpdates": [{"name": "main", "nodeSelector": {"pool": "a"}}],
        }
    ]
    stored: JsonObject = {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "QueueUnit",
        "metadata": {"name": "unit1", "namespace": "default"},
        "spec": {
            "consumerRef": {
                "apiVersion": "kubeflow.org/v1",
                "kind": "TFJob",
                "name": "job1",
                "namespace": "default",
                "fieldPath": "spec",
                "resourceVersion": "7",
            },
            "queue": "default",
            "priority": 100,
            "priorityClassName": "high-priority",
            "resource": {"cpu": 1, "memory": "100Mi"},
            "podSet": [{"name": "main", "count": 2, "minCount": 1}],
        },
        "status": {
            "phase": "Dequeued",
            "admissionChecks": checks,
            "admissions": [{"name": "main", "replicas": 2, "reclaimState": {"replicas": 1}}],
        },
    }

    read = to_manifest(decode_object(stored))

    assert read["status"]["admissionChecks"] == checks
    assert read["status"]["admissions"][0]["reclaimState"] == {"replicas": 1}
    assert read["spec"]["podSet"][0]["minCount"] == 1
    assert read["spec"]["consumerRef"] == stored["spec"]["consumerRef"]


class NoQueues(MemoryCluster):
    """A cluster in which nobody may make Queues."""

    def create(self, obj: KindT) -> KindT:
        if isinstance(obj, Queue):
            raise ClusterError("queues are forbidden")
        return super().create(obj)


def test_nothing_is_kept_of_quotas_whose_queues_could_never_be_made() -> None:
    """However many come and go: what was told of them goes with them."""
    clock = VirtualClock(START_S)
    cluster = NoQueues(clock)
    options = ManagerOptions(
        controllers=frozenset((Controller.QUEUE_UNITS,)),
        queue_units=QueueUnitOptions(kinds=(BATCH_JOB,)),
    )
    manager = Manager(cluster, clock, options)
    for number in range(3):
        cluster.create(decode_object(quota(f"team-{number}")))
        manager.step()
        clock.advance_to(clock.now_s() + 60)
        manager.step()
        assert manager.unwritten_queues == {f"team-{number}": "queues are forbidden"}
        cluster.delete(ElasticQuota, f"team-{number}", "quotas")
        clock.advance_to(clock.now_s() + 60)
        manager.step()

    assert manager.unwritten_queues == {}
