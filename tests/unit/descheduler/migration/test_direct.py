"""Jobs that evict their pod without keeping a place for the next one."""

from tests.unit.descheduler.migration.world import MigrationWorld, job, replicas
from tests.worlds import node

from koordinator.api.pod_migration_job import PodMigrationJob

NODES = [node("n1"), node("n2"), node("n3")]


def test_a_job_made_by_hand_evicts_its_pod_and_succeeds() -> None:
    """From the filter to the end."""
    world = MigrationWorld(*NODES, *replicas("web", on=["n1", "n2", "n3", "n1"]))
    world.cluster.create(job("move", "web-0", mode="EvictDirectly"))

    world.settle()

    done = world.cluster.get(PodMigrationJob, "move")
    assert (done.status.phase, done.status.status) == ("Succeeded", "Complete")
    assert done.status.message == 'Pod "default/web-0" has been evicted'
    assert world.pods() == {"web-1", "web-2", "web-3"}
