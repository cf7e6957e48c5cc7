"""A cluster with suspended jobs, a manager that holds them back, and who makes their pods."""

from collections.abc import Iterable
from typing import Any

from msgspec.structs import replace

from koordinator.api.codec import decode_object
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.labels import QUOTA_NAME, QUOTA_PARENT
from koordinator.api.meta import Condition, JsonObject
from koordinator.api.queue_unit import Queue, QueueUnit
from koordinator.api.workload import Job, JobStatus
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import VirtualClock
from koordinator.manager.app import Manager, ManagerOptions
from koordinator.manager.mirror import Controller
from koordinator.manager.queue_units.controller import QueueUnitOptions
from koordinator.manager.queue_units.kinds import BATCH_JOB, JOB_KINDS, JobKind

START_S = 1_000_000.0
NAMESPACE = "koord-queue"


def job(
    name: str,
    cpu: int = 1,
    *,
    pods: int = 1,
    quota: str = "team",
    priority: int = 0,
    suspend: bool = True,
    labels: dict[str, str] | None = None,
    **spec: Any,
) -> JsonObject:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name,
            "namespace": "default",
            "labels": {QUOTA_NAME: quota, **(labels or {})} if quota else labels or {},
        },
        "spec": {
            "suspend": suspend,
            "parallelism": pods,
            **spec,
            "template": {
                "spec": {
                    "priority": priority,
                    "containers": [{"name": "c", "resources": {"requests": {"cpu": cpu}}}],
                }
            },
        },
    }


def quota(name: str = "team", cpu: int = 4, parent: str = "", **labels: str) -> JsonObject:
    marks = {QUOTA_PARENT: parent} if parent else {}
    return {
        "apiVersion": "scheduling.sigs.k8s.io/v1alpha1",
        "kind": "ElasticQuota",
        "metadata": {"name": name, "namespace": "quotas", "labels": {**marks, **labels}},
        "spec": {"max": {"cpu": str(cpu)}},
    }


def queue(name: str = "team", policy: str = "Priority", **marks: str) -> JsonObject:
    return {
        "apiVersion": "scheduling.x-k8s.io/v1alpha1",
        "kind": "Queue",
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            "annotations": {
                f"kube-queue/{key.replace('_', '-')}": text for key, text in marks.items()
            },
        },
        "spec": {"queuePolicy": policy, "priority": 1000},
    }


class World:
    """Objects, a manager over them, and the controller of batch Jobs."""

    def __init__(
        self,
        *objects: JsonObject,
        kinds: tuple[JobKind, ...] = (BATCH_JOB,),
        **options: Any,
    ) -> None:
        self.clock = VirtualClock(START_S)
        self.cluster = MemoryCluster(self.clock)
        self.options = ManagerOptions(
            controllers=frozenset((Controller.QUEUE_UNITS,)),
            queue_units=QueueUnitOptions(kinds=kinds, **options),
        )
        self.add(*objects)
        self.manager = self.start()

    def start(self, cluster: Cluster | None = None) -> Manager:
        """Return a manager that knows nothing yet."""
        return Manager(cluster or self.cluster, self.clock, self.options)

    def add(self, *objects: JsonObject) -> None:
        for each in objects:
            self.cluster.create(decode_object(each))

    def settle(self, *, pods_run: bool = True) -> None:
        """Run the manager and the Job controller until nothing changes."""
        for _ in range(50):
            before = self.state()
            self.clock.advance_to(self.clock.now_s() + 0.02)
            self.manager.step()
            for each in self.jobs():
                self.make_pods(each.metadata.name, run=pods_run)
            self.manager.step()
            if self.state() == before:
                return
        raise AssertionError("it never settles")

    def pass_time(self, seconds: float, *, pods_run: bool = True) -> None:
        self.clock.advance_to(self.clock.now_s() + seconds)
        self.settle(pods_run=pods_run)

    def make_pods(self, name: str, *, run: bool = True) -> None:
        """Do what the Job controller does next: pods of a job that may run, none of another."""
        result = self.cluster.get(Job, name, "default")
        wanted = 0 if result.spec.suspend or is_over(result) else result.spec.parallelism or 0
        status = replace(result.status, active=wanted, ready=wanted if run else 0)
        if status != result.status:
            self.cluster.update_status(replace(result, status=status))

    def end(self, name: str, kind: str = "Complete") -> None:
        result = self.cluster.get(Job, name, "default")
        over = JobStatus(conditions=(Condition(type=kind, status="True"),))
        self.cluster.update_status(replace(result, status=over))

    def jobs(self) -> Iterable[Job]:
        return self.cluster.list(Job).items

    def job(self, name: str) -> Job:
        return self.cluster.get(Job, name, "default")

    def unit(self, name: str) -> QueueUnit:
        return self.cluster.get(QueueUnit, name, "default")

    def running(self) -> set[str]:
        """Return the names of jobs that may have pods."""
        return {it.metadata.name for it in self.jobs() if not it.spec.suspend and not is_over(it)}

    def phases(self) -> dict[str, str]:
        return {it.metadata.name: it.status.phase for it in self.cluster.list(QueueUnit).items}

    def state(self) -> object:
        return [
            [it.metadata.resource_version for it in self.cluster.list(kind).items]
            for kind in (Job, QueueUnit, Queue, ElasticQuota)
        ]


def is_over(batch_job: Job) -> bool:
    return any(it.type in ("Complete", "Failed") for it in batch_job.status.conditions)


ALL_KINDS = JOB_KINDS
