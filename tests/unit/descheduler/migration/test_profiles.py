"""Several profiles in one descheduler: common limits, and one owner for each job."""

from typing import Any

import pytest
from msgspec.structs import replace
from tests.unit.descheduler.migration.world import MigrationWorld, job, profile_with, replicas
from tests.unit.descheduler.world import DEFAULT_EVICTOR
from tests.worlds import node

from koordinator.api.annotations.scheduling import JOB_CREATED_BY
from koordinator.api.meta import JsonObject
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.descheduler.contract import EvictOptions

WEB = replicas("web", on=["n1", "n1", "n1", "n1"])


def two_profiles(**args: Any) -> MigrationWorld:
    direct = {"defaultJobMode": "EvictDirectly", **args}
    profiles = [{"name": name, **profile_with(direct)} for name in ("hot", "cold")]
    nodes = [node(name) for name in ("n1", "n2", "n3")]
    return MigrationWorld(*nodes, *WEB, profiles=profiles)


def job_of(profile: str, pod_name: str) -> PodMigrationJob:
    made = job(f"{profile}-{pod_name}", pod_name)
    return replace(made, metadata=replace(made.metadata, annotations={JOB_CREATED_BY: profile}))


@pytest.mark.parametrize(
    "limit",
    [
        {"maxMigratingGlobally": 1},
        {"maxMigratingPerNode": 1},
        {"maxMigratingPerNamespace": 1},
        {"maxMigratingPerWorkload": 1},
        {"maxUnavailablePerWorkload": 1},
    ],
)
def test_jobs_of_all_profiles_count_in_one_arbitration(limit: dict[str, int]) -> None:
    """A profile counts what another one has admitted a moment before, without an event of it."""
    here = two_profiles(**limit)
    for profile, pod_name in (("hot", "web-0"), ("cold", "web-1")):
        here.cluster.create(job_of(profile, pod_name))

    here.descheduler.step()

    assert len(here.passed()) == 1


def test_two_profiles_of_one_cycle_create_one_job_for_a_pod() -> None:
    """The second profile sees the job that the first has just created, and counts it."""
    here = two_profiles(maxMigratingPerWorkload=1)
    hot, cold = (profile.evict for profile in here.descheduler.profiles)
    pods = [here.cluster.get(Pod, name, "default") for name in ("web-0", "web-1")]

    assert hot.evict(pods[0], EvictOptions(plugin="LowNodeLoad", profile="hot"))
    here.clock.advance_to(here.clock.now_s() + 0.001)
    for pod in pods:
        assert not cold.evict(pod, EvictOptions(plugin="LowNodeLoad", profile="cold"))

    assert len(here.cluster.list(PodMigrationJob).items) == 1


def test_job_of_a_user_belongs_to_the_first_profile_with_a_controller() -> None:
    """A profile that evicts by itself carries out no jobs."""
    evicts_alone: JsonObject = {
        "name": "alone",
        "plugins": {"evict": DEFAULT_EVICTOR, "filter": DEFAULT_EVICTOR},
    }
    args = {"defaultJobMode": "EvictDirectly", "objectLimiters": {"workload": {"duration": "0s"}}}
    moves = {"name": "moves", **profile_with(args)}
    nodes = [node(name) for name in ("n1", "n2")]
    here = MigrationWorld(*nodes, *WEB, profiles=[evicts_alone, moves])
    here.cluster.create(job("of-a-user", "web-0"))
    here.cluster.create(job_of("alone", "web-1"))

    here.advance(10)

    assert here.job("of-a-user").status.phase == "Succeeded"
    assert here.job("alone-web-1").status.phase == "Succeeded"
