"""A cluster in memory with a MigrationController on it."""

from collections.abc import Sequence
from typing import Any

from msgspec.structs import replace
from tests.unit.descheduler.world import DeschedulerWorld
from tests.worlds import pod

from koordinator.api.core import ObjectReference
from koordinator.api.meta import Condition, JsonObject, KubeObject, ObjectMeta, OwnerReference
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob, PodMigrationJobSpec
from koordinator.api.workload import Deployment, ReplicaSet, WorkloadSpec
from koordinator.descheduler.app import Descheduler
from koordinator.descheduler.migration.jobs import has_passed
from koordinator.foundation.clock import Duration


def profile_with(args: Any = None) -> JsonObject:
    """Return a profile whose MigrationController has these arguments."""
    return {"pluginConfig": [{"name": "MigrationController", "args": args or {}}]}


class MigrationWorld(DeschedulerWorld):
    """Cluster with a descheduler that has no plugins other than MigrationController."""

    def __init__(self, *objects: KubeObject, args: Any = None, **configuration: Any) -> None:
        super().__init__(*objects, profile=profile_with(args), **configuration)

    def job(self, name: str) -> PodMigrationJob:
        """Return a job as it is now."""
        return self.cluster.get(PodMigrationJob, name)

    def passed(self) -> set[str]:
        """Return the names of the admitted jobs."""
        jobs = self.cluster.list(PodMigrationJob).items
        return {job.metadata.name for job in jobs if has_passed(job)}

    def advance(self, seconds: float) -> None:
        """Work while time passes."""
        until_s = self.clock.now_s() + seconds
        while True:
            self.settle()
            wakeup_s = self.descheduler.next_wakeup_s()
            if wakeup_s is None or wakeup_s > until_s:
                self.clock.advance_to(until_s)
                self.settle()
                return
            self.clock.advance_to(wakeup_s)

    def restart(self) -> None:
        """Replace the descheduler by a new process."""
        configuration = self.descheduler.configuration
        self.descheduler = Descheduler(self.cluster, self.clock, configuration, source="test")
        self.descheduler.sync()

    def settle(self) -> None:
        """Work until nothing is due at this time."""
        while self.descheduler.step():
            pass


def job(
    name: str, pod_name: str, *, mode: str = "", ttl: str = "5m", **spec: Any
) -> PodMigrationJob:
    """Return a job as a user writes it."""
    return PodMigrationJob(
        metadata=ObjectMeta(name=name),
        spec=PodMigrationJobSpec(
            pod_ref=ObjectReference(namespace="default", name=pod_name),
            mode=mode,
            ttl=Duration.parse(ttl),
            **spec,
        ),
    )


def replicas(
    name: str,
    *,
    on: Sequence[str],
    scheduler: str = "koord-scheduler",
    cpu: int | None = None,
) -> list[KubeObject]:
    """Return a Deployment, its ReplicaSet and its running pods, one on each of the nodes."""
    deployment, owned = _reference(Deployment, name), _reference(ReplicaSet, name)
    pods = [
        _running(pod(f"{name}-{index}", cpu, on=place), owned, scheduler)
        for index, place in enumerate(on)
    ]
    spec = WorkloadSpec(replicas=len(on))
    return [
        Deployment(
            metadata=ObjectMeta(name=name, namespace="default", uid=deployment.uid), spec=spec
        ),
        ReplicaSet(
            metadata=ObjectMeta(
                name=name, namespace="default", uid=owned.uid, owner_references=(deployment,)
            ),
            spec=spec,
        ),
        *pods,
    ]


def _running(made: Pod, owner: OwnerReference, scheduler: str) -> Pod:
    ready = Condition(type="Ready", status="True")
    return replace(
        made,
        metadata=replace(made.metadata, owner_references=(owner,), uid=f"uid-{made.metadata.name}"),
        spec=replace(made.spec, scheduler_name=scheduler),
        status=replace(made.status, phase="Running", conditions=(ready,)),
    )


def _reference(kind: type[KubeObject], name: str) -> OwnerReference:
    return OwnerReference(
        api_version=kind.API_VERSION,
        kind=kind.KIND,
        name=name,
        uid=f"{kind.KIND}-{name}",
        controller=True,
    )
