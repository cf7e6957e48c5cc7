"""Jobs that wait for quota before their pods are created."""

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
from koordinator.manager.mirror import Controller
from koordinator.manager.queue_units.controller import QueueUnitOptions
from koordinator.manager.queue_units.kinds import BATCH_JOB, RAY
from koordinator.manager.queue_units.ledgers import POLICY_LABEL


def test_jobs_start_while_their_quota_has_room() -> None:
    """The units of the other jobs stay enqueued with the reason in their status."""
    world = World(quota(cpu=4), job("a", 1, pods=3), job("b", 1, pods=2), job("c", 1))
    world.settle()

    assert world.running() == {"a", "c"}
    assert world.phases() == {"a": "Running", "b": "Enqueued", "c": "Running"}
    assert world.unit("b").status.message == (
        "quota team has no room: requested cpu:2, used cpu:4, limit cpu:4; insufficient cpu"
    )


def test_unit_has_the_fields_of_the_original() -> None:
    """Check its owner, labels, requests and admissions, and the annotations of the job."""
    world = World(quota(), job("a", 2, pods=2, priority=7, labels={"team": "x"}))
    world.settle()
    unit, stored_job = world.unit("a"), world.job("a")

    assert (unit.spec.queue, unit.spec.priority, str(unit.spec.resource["cpu"])) == ("team", 7, "4")
    (owner,) = unit.metadata.owner_references
    assert (owner.kind, owner.name, owner.uid) == ("Job", "a", stored_job.metadata.uid)
    assert unit.metadata.labels["team"] == "x"
    (pod_set,) = unit.spec.pod_sets
    assert (pod_set.name, pod_set.count) == ("main", 2)
    (admission,) = unit.status.admissions
    assert (admission.replicas, str(admission.resources["cpu"])) == (2, "4")
    assert unit.status.attempts == 1
    marks = stored_job.metadata.annotations
    assert marks["koord-queue/job-has-enqueued"] == "true"
    assert marks["koord-queue/job-enqueue-timestamp"]
    assert marks["koord-queue/job-dequeue-timestamp"]
    true = {it.type for it in unit.status.conditions if it.status == "True"}
    assert true == {"QuotaReserved", "Admitted", "PodsReady"}


def test_units_have_the_required_fields_of_the_original_crd() -> None:
    """Without them the API server of a cluster with these CRDs rejects the units.

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


def test_released_quota_goes_to_the_next_job() -> None:
    """A job releases its quota when it succeeds, fails or is deleted."""
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


def test_unit_of_the_highest_priority_starts_first() -> None:
    """The later unit starts first if its priority is higher."""
    world = World(quota(cpu=1))
    world.add(job("low", priority=1))
    world.add(job("high", priority=9))
    world.settle()

    assert world.running() == {"high"}


def test_all_ancestors_of_a_quota_need_room() -> None:
    """A unit waits if its quota is missing, unnamed or its own ancestor."""
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
    assert world.unit("c").status.message == "the job names no quota"


def test_oversell_rate_raises_the_limit_of_a_quota() -> None:
    """A rate of 1.5 admits 3 CPUs to a quota of 2."""
    world = World(quota(cpu=2), job("a", 3), oversell_rate=1.5)
    world.settle()

    assert world.running() == {"a"}


@pytest.mark.parametrize(
    ("policy", "running"),
    [("Priority", {"first", "small"}), ("Block", {"first"}), ("Intelligent", {"first", "small"})],
)
def test_policy_selects_the_units_that_may_overtake(policy: str, running: set[str]) -> None:
    """Block admits none of them, Priority all, Intelligent those behind a low priority."""
    world = World(quota(cpu=4), queue(policy=policy))
    world.add(job("first", 3, priority=9), job("large", 2, priority=3), job("small", 1))
    world.settle()

    assert world.running() == running


def test_unit_of_high_priority_blocks_an_intelligent_queue() -> None:
    """The annotation of the queue sets the threshold."""
    world = World(quota(cpu=4), queue(policy="Intelligent", priority_threshold="3"))
    world.add(job("first", 3, priority=9), job("large", 2, priority=3), job("small", 1))
    world.settle()

    assert world.running() == {"first"}


def test_only_the_first_units_of_a_queue_are_tried() -> None:
    """The annotation of the queue sets their number."""
    world = World(quota(cpu=4), queue(max_depth="1"))
    world.add(job("large", 9, priority=3), job("small", 1))
    world.settle()

    assert not world.running()


def test_each_quota_gets_a_queue_that_lists_waiting_units() -> None:
    """Positions start at 1; a label of the quota selects the policy."""
    world = World(quota(cpu=1, **{f"koord-queue/{POLICY_LABEL}": "Block"}))
    world.settle()
    world.add(*(job(name, priority=n) for n, name in enumerate("abc")))
    world.settle()
    result = world.cluster.get(Queue, "team", NAMESPACE)

    assert (result.spec.queue_policy, result.spec.priority) == ("Block", 1000)
    items = result.status.queue_item_details["active"]
    assert [(it.name, it.position) for it in items] == [("b", 1), ("a", 2)]


def test_job_whose_pods_do_not_run_in_time_is_requeued() -> None:
    """The job is suspended with backoff, and other units use its quota meanwhile."""
    world = World(queue(wait_for_pods_running="true"), quota(cpu=1), pods_ready_s=60.0)
    world.add(job("a"))
    world.settle(pods_run=False)
    assert world.phases() == {"a": "Dequeued"}
    world.clock.advance_to(world.clock.now_s() + 61)
    world.manager.step()
    assert world.job("a").spec.suspend
    unit = world.unit("a")
    assert (unit.status.phase, unit.status.attempts) == ("TimeoutBackoff", 1)
    assert unit.status.message == "not all pods were running within 60 s, attempt 1"
    world.add(job("b", priority=-1))
    world.settle()
    assert world.running() == {"b"}
    world.end("b")
    world.pass_time(5)
    assert (world.running(), world.unit("a").status.attempts) == ({"a"}, 2)
    assert world.phases()["a"] == "Running"


def test_job_fails_after_its_maximum_execution_time() -> None:
    """The time adds up over all attempts, and the unit is deactivated."""
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


def test_unit_of_the_lowest_priority_is_preempted() -> None:
    """The queue enables preemption; victims are as few as possible and preemptible."""
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


def test_units_are_not_preempted_without_effect_or_for_equal_priority() -> None:
    """Without the annotation of the queue no unit is preempted."""
    preempting = queue(enable_queueunit_preemption="true")
    for made in (World(quota(cpu=4), preempting), World(quota(cpu=4))):
        made.add(job("low", 4, priority=1))
        made.settle()
        made.add(job("equal", 1, priority=1), job("huge", 5, priority=9))
        made.settle()
        assert made.running() == {"low"}


def test_deactivated_unit_stops_until_it_is_activated() -> None:
    """Activation restarts it."""
    world = World(quota(cpu=4), job("a"))
    world.settle()
    for active, running in ((False, set()), (True, {"a"})):
        world.cluster.patch(QueueUnit, "a", "default", {"spec": {"active": active}})
        world.settle()
        assert world.running() == running


def test_job_that_a_user_suspends_releases_its_quota() -> None:
    """The unit of the suspended job is enqueued again."""
    world = World(quota(cpu=1), job("a"))
    world.settle()
    world.add(job("b", priority=5))
    world.settle()
    world.cluster.patch(Job, "a", "default", {"spec": {"suspend": True}})
    world.settle()

    assert world.running() == {"b"}
    assert world.phases() == {"a": "Enqueued", "b": "Running"}


def test_quota_stays_in_use_until_the_last_pod_ends() -> None:
    """Pods of a suspended job may take time to terminate."""
    world = World(quota(cpu=1), job("a"), job("b"))
    world.settle()
    world.cluster.patch(Job, "a", "default", {"spec": {"suspend": True}})
    world.manager.step()
    world.manager.step()
    assert world.running() == set()
    world.settle()
    assert len(world.running()) == 1


def test_running_job_without_a_unit_uses_quota() -> None:
    """A new unit is created if the unit of a running job is deleted."""
    world = World(quota(cpu=1), job("a"), job("b"))
    world.settle()
    (started,) = world.running()
    world.cluster.delete(QueueUnit, started, "default")
    world.settle()
    assert world.running() == {started}
    assert world.phases()[started] == "Running"


def test_requests_of_a_job_may_change_while_it_waits() -> None:
    """Admission uses the current requests."""
    world = World(quota(cpu=2), job("a", 1, pods=3))
    world.settle()
    assert not world.running()
    world.cluster.patch(Job, "a", "default", {"spec": {"parallelism": 2}})
    world.settle()

    assert world.running() == {"a"}
    assert str(world.unit("a").spec.resource["cpu"]) == "2"


def test_running_jobs_and_jobs_of_controllers_are_not_queued() -> None:
    """A JobSet controls when its jobs start."""
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


def test_new_job_of_the_same_name_gets_a_new_unit() -> None:
    """The old unit is deleted with its job."""
    world = World(quota(cpu=1), job("a"))
    world.settle()
    uid = world.unit("a").metadata.uid
    world.cluster.delete(Job, "a", "default")
    world.add(job("a"))
    world.settle()

    assert world.unit("a").metadata.uid != uid
    assert world.running() == {"a"}


def test_extreme_amounts_do_not_block_other_jobs() -> None:
    """The job with extreme amounts waits; the next one starts."""
    world = World(quota(cpu=1))
    world.add(job("huge", 1, pods=2**31 - 1), job("zero", 0), job("fits", 1))
    world.settle()

    assert world.running() == {"fits", "zero"}


def test_a_job_that_gets_no_unit_has_an_event_with_the_reason() -> None:
    """The event names the job and the invalid field; the next job is queued."""
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
        "spec: must have at most 8 pod sets, the limit of a QueueUnit, "
        "got 9: head, g0, g1, g2, g3, g4, g5, g6, submitter"
    )
    assert world.running() == {"fits"}


def test_no_jobs_are_queued_without_kinds() -> None:
    """The default is an empty list of kinds."""
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


def test_fields_of_other_writers_stay() -> None:
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
    """Cluster that rejects the creation of Queues."""

    def create(self, obj: KindT) -> KindT:
        if isinstance(obj, Queue):
            raise ClusterError("queues are forbidden")
        return super().create(obj)


def test_errors_of_queues_are_dropped_with_their_quotas() -> None:
    """The manager keeps an error only while the quota exists."""
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
