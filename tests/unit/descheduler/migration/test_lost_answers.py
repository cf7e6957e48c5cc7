"""Lost answers to single writes: the effects of the writes count."""

from collections.abc import Callable
from typing import Any

from msgspec.structs import replace
from tests.unit.descheduler.migration.world import job, profile_with, replicas
from tests.worlds import START_S, node

from koordinator.api.annotations.scheduling import EVICTION_ATTEMPT, PASSED_ARBITRATION
from koordinator.api.pod import Pod
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.reservation import Reservation
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.descheduler.app import Descheduler
from koordinator.descheduler.configuration import decode_descheduler_configuration
from koordinator.descheduler.migration.jobs import has_passed
from koordinator.foundation.clock import VirtualClock, to_datetime
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.rules.reservations import lifecycle

Loses = Callable[[MemoryCluster, str, tuple[Any, ...]], bool]


class ForgetfulCluster(MemoryCluster):
    """Cluster that performs a write and loses its answer, once, when ``loses`` returns true."""

    def __init__(self, clock: VirtualClock, loses: Loses) -> None:
        super().__init__(clock, immediate_pod_deletion=False)
        self._loses: Loses | None = loses

    def patch(self, *args: Any, **named: Any) -> Any:
        answer = super().patch(*args, **named)
        self._answer("patch", args)
        return answer

    def evict(self, *args: Any, **named: Any) -> None:
        super().evict(*args, **named)
        self._answer("evict", args)

    def _answer(self, verb: str, args: tuple[Any, ...]) -> None:
        if self._loses is not None and self._loses(self, verb, args):
            self._loses = None
            raise ClusterError("no answer")


def settled(loses: Loses, *jobs: PodMigrationJob, **args: Any) -> ForgetfulCluster:
    """Return a cluster after the jobs were processed for a few seconds."""
    clock = VirtualClock(START_S)
    cluster = ForgetfulCluster(clock, loses)
    cluster.load([node("n1"), node("n2"), *replicas("web", on=["n1", "n1", "n1", "n2", "n2"])])
    for each in jobs:
        cluster.create(each)
    data = {
        "apiVersion": "descheduler/v1alpha2",
        "kind": "DeschedulerConfiguration",
        "profiles": [profile_with({"evictBurst": 9, **args})],
    }
    configuration = decode_descheduler_configuration(data, "test")
    descheduler = Descheduler(cluster, clock, configuration, source="test")
    descheduler.sync()
    for _ in range(8):
        while descheduler.step():
            pass
        clock.advance_to(clock.now_s() + 1)
        _schedule(cluster, clock)
    return cluster


def _schedule(cluster: MemoryCluster, clock: VirtualClock) -> None:
    """Give every reservation a node."""
    for each in cluster.list(Reservation).items:
        if not each.status.phase or each.status.phase == "Pending":
            status = lifecycle.available(each, "n2", to_datetime(clock.now_s()))
            cluster.overwrite(replace(each, status=status))


def going(cluster: MemoryCluster) -> int:
    items = cluster.list(Pod).items
    return sum(1 for pod in items if pod.metadata.deletion_timestamp is not None)


def _annotates(args: tuple[Any, ...], key: str) -> bool:
    return key in (args[3].get("metadata") or {}).get("annotations", {})


DIRECT = [job(f"move-{name}", name, mode="EvictDirectly") for name in ("web-0", "web-1")]
LOOSE = {"maxMigratingPerWorkload": 4, "maxUnavailablePerWorkload": 4}


def test_job_with_unknown_admission_counts_against_limits() -> None:
    """One pod of a node moves at a time, although the admission of the first has no answer."""
    cluster = settled(
        lambda _, verb, args: verb == "patch" and _annotates(args, PASSED_ARBITRATION),
        *DIRECT,
        **LOOSE,
        maxMigratingPerNode=1,
        objectLimiters={"workload": {"duration": "0s"}},
    )
    passed = [each for each in cluster.list(PodMigrationJob).items if has_passed(each)]
    assert len(passed) == 1
    assert going(cluster) == 1


def test_eviction_with_unknown_outcome_counts_against_limits() -> None:
    """One pod of the workload is evicted at first, although the eviction has no answer."""
    cluster = settled(lambda _, verb, __: verb == "evict", *DIRECT, **LOOSE)
    assert going(cluster) == 1
    reasons = sorted(each.status.reason for each in cluster.list(PodMigrationJob).items)
    assert reasons == ["", "Evicting"]


def test_eviction_with_a_lost_status_write_counts_against_limits() -> None:
    """The status write of the job has no answer, and the eviction counts."""
    cluster = settled(
        lambda _, verb, args: verb == "patch" and "Evicting" in str(args[3].get("status", "")),
        *DIRECT,
        **LOOSE,
    )
    assert going(cluster) == 1


def test_pod_is_not_evicted_if_its_reservation_expires_before_the_eviction() -> None:
    """The reservation expires while it is written down that the pod is about to be evicted."""

    def expires(cluster: MemoryCluster, verb: str, args: tuple[Any, ...]) -> bool:
        if verb == "patch" and _annotates(args, EVICTION_ATTEMPT.key):
            for each in cluster.list(Reservation).items:
                status = lifecycle.expired(each, to_datetime(START_S))
                cluster.overwrite(replace(each, status=status))
        return False

    cluster = settled(expires, job("move", "web-0"), **LOOSE)
    assert going(cluster) == 0
    assert cluster.get(PodMigrationJob, "move").status.reason == "ReservationExpired"
