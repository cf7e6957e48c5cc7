"""Several moves of one workload: each keeps its reservation, in whatever order events arrive."""

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule
from msgspec.structs import replace
from tests.examples import examples
from tests.unit.descheduler.migration.test_random_events import (
    FAULTS,
    ControllerKilledError,
    FaultyCluster,
)
from tests.unit.descheduler.migration.world import job, profile_with, replicas
from tests.worlds import START_S, made, node

from koordinator.api.annotations.scheduling import EVICTION_ATTEMPT
from koordinator.api.conditions import find_condition
from koordinator.api.labels import reservation_order
from koordinator.api.meta import Condition, JsonObject, KubeObject, ObjectMeta
from koordinator.api.pod import Pod, PodStatus
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.reservation import Reservation
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.descheduler.app import Descheduler
from koordinator.descheduler.configuration import decode_descheduler_configuration
from koordinator.descheduler.migration.decisions import is_evicted
from koordinator.descheduler.migration.jobs import is_live
from koordinator.descheduler.migration.reservation_template import job_uid_of
from koordinator.domain.resized_pods import ResizeRules
from koordinator.foundation.clock import VirtualClock, to_datetime
from koordinator.scheduler.rules.reservations import lifecycle

NODES = ("n1", "n2", "n3", "n4")
REPLICAS = 6
UNLIMITED: JsonObject = {
    "maxMigratingPerWorkload": REPLICAS,
    "maxUnavailablePerWorkload": REPLICAS,
    "maxMigratingPerNode": REPLICAS,
    "skipEvictionGates": ["ExpectedReplicas"],
    "objectLimiters": {"workload": {"duration": "0s"}},
    "evictQPS": 1000,
    "evictBurst": 100,
}


def budget(allowed: int) -> KubeObject:
    """Return a disruption budget of all pods that allows so many evictions."""
    status = {"disruptionsAllowed": allowed, "currentHealthy": REPLICAS, "desiredHealthy": 0}
    spec = {"minAvailable": 0, "selector": {}}
    return made(
        "PodDisruptionBudget", "web", "policy/v1", namespace="default", spec=spec, status=status
    )


class CompetingMoves:
    """A workload, jobs for its pods, a faulty connection and a model of the scheduler."""

    def __init__(self, **args: Any) -> None:
        self.args = UNLIMITED | args
        self.clock = VirtualClock(START_S)
        self.cluster = MemoryCluster(self.clock, immediate_pod_deletion=False)
        workload = replicas("web", on=[NODES[n % len(NODES)] for n in range(REPLICAS)])
        self.cluster.load([*(node(name) for name in NODES), *workload, budget(100)])
        self.template = next(obj for obj in workload if isinstance(obj, Pod))
        self.evictions = 0  # calls
        self.used: dict[str, int] = {}  # uid of a job -> reservations used before its eviction
        self.created: dict[str, int] = {}  # uid of a job -> reservations created for it
        self.faulty = FaultyCluster(self.cluster, self.judge)
        self.start()

    def start(self) -> None:
        """Replace the descheduler by a new process."""
        data = {
            "apiVersion": "descheduler/v1alpha2",
            "kind": "DeschedulerConfiguration",
            "profiles": [profile_with(self.args)],
        }
        self.faulty.fault = "none"
        configuration = decode_descheduler_configuration(data, "test")
        self.descheduler = Descheduler(self.faulty, self.clock, configuration, source="test")
        self.descheduler.sync()

    def settle(self) -> None:
        """Run the descheduler until nothing is due."""
        while self.descheduler.step():
            pass

    def step_with(self, fault: str, after: int) -> None:
        """Run the descheduler while the write number ``after`` ends badly."""
        self.faulty.fault, self.faulty.writes_left = fault, after
        try:
            self.settle()
        except ControllerKilledError:
            self.start()
        self.faulty.fault = "none"

    def advance(self, seconds: float) -> None:
        """Advance the clock, then run the descheduler."""
        self.clock.advance_to(self.clock.now_s() + seconds)
        self.settle()

    def judge(self, verb: str, args: Any) -> None:
        """Count reservations: a second one is created only after the first was used."""
        self.evictions += verb == "evict"
        if verb == "create" and isinstance(args[0], Reservation):
            uid = job_uid_of(args[0].metadata)
            names = {each.metadata.name for each in self.reservations()}
            if args[0].metadata.name not in names:
                self.created[uid] = self.created.get(uid, 0) + 1
                assert self.created[uid] <= 1 + min(1, self.used.get(uid, 0))

    # -- cluster -----------------------------------------------------------------------------

    def jobs(self) -> list[PodMigrationJob]:
        return list(self.cluster.list(PodMigrationJob).items)

    def reservations(self) -> list[Reservation]:
        return list(self.cluster.list(Reservation).items)

    def pods(self) -> dict[str, Pod]:
        return {pod.metadata.name: pod for pod in self.cluster.list(Pod).items}

    def move(self, number: int) -> PodMigrationJob:
        """Create the job that moves one replica."""
        return self.cluster.create(job(f"move-{number}", f"web-{number}", ttl="0s"))

    def allow_evictions(self, allowed: bool) -> None:
        """Set the disruption budget."""
        self.cluster.overwrite(budget(100 if allowed else 0))

    def schedule_reservations(self) -> None:
        """Give every pending reservation a node that its pod is not on."""
        now = to_datetime(self.clock.now_s())
        on = {each.metadata.uid: each.spec.pod_ref.name for each in self.jobs()}
        pods = self.pods()
        for each in self.reservations():
            if each.status.node_name or each.status.phase not in {"", "Pending"}:
                continue
            left = pods.get(on.get(job_uid_of(each.metadata), ""))
            place = next(n for n in NODES if left is None or n != left.spec.node_name)
            self.cluster.overwrite(replace(each, status=lifecycle.available(each, place, now)))

    def end_pods(self) -> None:
        """End the pods that are being deleted and create their replacements."""
        for name, each in self.pods().items():
            if each.metadata.deletion_timestamp is not None:
                self.cluster.delete(Pod, name, "default", grace_period_s=0)
        self.create_replica(REPLICAS - len(self.pods()))

    def create_replica(self, count: int = 1) -> None:
        """Create pending pods of the workload."""
        for _ in range(count):
            self.made = getattr(self, "made", REPLICAS) + 1
            owners = self.template.metadata.owner_references
            name = f"web-new-{self.made}"
            meta = ObjectMeta(name=name, namespace="default", owner_references=owners)
            spec = replace(self.template.spec, node_name="")
            self.cluster.create(Pod(metadata=meta, spec=spec))

    def bind_pods(self, count: int = 100) -> None:
        """Bind pending pods, each to the open reservation of the smallest order, if any."""
        pending = [pod for pod in self.pods().values() if not pod.spec.node_name]
        for each in pending[:count]:
            free = sorted(
                (r for r in self.reservations() if is_open(r)),
                key=lambda r: (reservation_order(r.metadata.labels), r.metadata.name),
            )
            place = NODES[0]
            if free:
                place = free[0].status.node_name
                self.use(free[0], each)
                evicted = {uid for r in free if self.is_evicted(uid := job_uid_of(r.metadata))}
                assert not evicted or job_uid_of(free[0].metadata) in evicted
            scheduled = Condition(type="PodScheduled", status="True")
            ready = Condition(type="Ready", status="True")
            status = PodStatus(phase="Running", conditions=(scheduled, ready))
            spec = replace(each.spec, node_name=place)
            self.cluster.overwrite(replace(each, spec=spec, status=status))

    def use(self, reservation: Reservation, by: Pod) -> None:
        """Mark a reservation as used by a pod."""
        uid = job_uid_of(reservation.metadata)
        if not self.is_evicted(uid):
            self.used[uid] = self.used.get(uid, 0) + 1
        now = to_datetime(self.clock.now_s())
        status = lifecycle.used(reservation, [by], now, ResizeRules())
        self.cluster.overwrite(replace(reservation, status=status or reservation.status))

    def is_evicted(self, uid: str) -> bool:
        """Return whether the pod of a job is evicted or being evicted."""
        each = next((one for one in self.jobs() if one.metadata.uid == uid), None)
        attempt = None if each is None else EVICTION_ATTEMPT.read(each.metadata)
        if each is None or attempt is None:
            return False
        return is_evicted(self.pods().get(each.spec.pod_ref.name), attempt)

    def finish(self) -> None:
        """Run without faults until no job is live."""
        self.allow_evictions(True)
        self.start()
        for _ in range(40):
            self.advance(16)
            self.schedule_reservations()
            self.end_pods()
            self.settle()
            self.bind_pods()
            self.settle()
            if not any(is_live(each) for each in self.jobs()):
                break


def is_open(reservation: Reservation) -> bool:
    """Return whether a pod may use a reservation."""
    status = reservation.status
    return (
        status.phase == "Available"
        and not status.current_owners
        and not reservation.spec.unschedulable
    )


def reserved_moves(count: int) -> CompetingMoves:
    """Return a world in which so many moves have reservations with nodes and no pod evicted."""
    world = CompetingMoves()
    world.allow_evictions(False)
    for number in range(count):
        world.move(number)
    world.advance(1)
    world.schedule_reservations()
    world.settle()
    return world


def test_reservation_is_closed_after_a_refused_eviction() -> None:
    """The disruption budget refuses the eviction: no pod may use the reservation meanwhile."""
    world = reserved_moves(3)

    assert [each.spec.unschedulable for each in world.reservations()] == [True] * 3
    assert world.evictions <= 9  # the next attempts are due after their backoff
    assert all(find_condition(each.status.conditions, "Eviction") is None for each in world.jobs())


def test_reservation_opened_by_a_killed_process_is_closed_before_other_jobs_evict() -> None:
    """The process ends between opening the reservation and evicting the pod."""
    for after in range(12):
        world = reserved_moves(2)
        world.allow_evictions(True)
        world.clock.advance_to(world.clock.now_s() + 16)
        world.step_with("killed before", after)
        world.allow_evictions(False)
        world.settle()
        for each in world.reservations():
            assert each.spec.unschedulable is not world.is_evicted(job_uid_of(each.metadata))


def test_reservation_opened_last_is_used_last() -> None:
    """A replacement takes the reservation of the move that was evicted first."""
    world = reserved_moves(3)
    world.allow_evictions(True)
    world.advance(16)

    orders = [reservation_order(each.metadata.labels) for each in world.reservations()]
    assert len(set(orders)) == len(orders)


def used_early(world: CompetingMoves) -> None:
    """Mark every unused reservation as used by another replica."""
    world.create_replica()
    other = max(world.pods().values(), key=lambda pod: pod.metadata.name)
    for each in world.reservations():
        if not each.status.current_owners:
            world.use(each, other)


def test_move_whose_reservation_was_used_reserves_once_more() -> None:
    """The second reservation has a name of its own, the first is deleted, and the job succeeds."""
    world = reserved_moves(1)
    first = world.reservations()[0].metadata
    used_early(world)
    world.advance(16)

    second = world.reservations()
    assert [each.metadata.name for each in second] == [f"{first.name}-2"]
    moved = world.jobs()[0]
    assert moved.status.phase == "Running"
    options = moved.spec.reservation_options
    assert options is not None
    assert options.reservation_ref is not None
    assert options.reservation_ref.uid == second[0].metadata.uid
    world.finish()
    assert world.jobs()[0].status.phase == "Succeeded"


def test_move_whose_second_reservation_was_used_fails() -> None:
    """The message is the original's."""
    world = reserved_moves(1)
    for _ in range(2):
        used_early(world)
        world.advance(16)
        world.schedule_reservations()
        world.advance(16)

    status = world.jobs()[0].status
    assert (status.phase, status.reason, status.message) == (
        "Failed",
        "ForbiddenMigratePod",
        "Reservation is already bound by another Pod",
    )
    assert not world.reservations()


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("after", range(6))
def test_second_reservation_survives_a_fault_at_any_write(fault: str, after: int) -> None:
    """A killed process or a lost answer never makes a third reservation or fails the job."""
    world = reserved_moves(1)
    used_early(world)
    world.clock.advance_to(world.clock.now_s() + 16)
    world.step_with(fault, after)
    world.finish()

    assert world.jobs()[0].status.phase == "Succeeded"
    assert world.created == {world.jobs()[0].metadata.uid: 2}


def test_eviction_whose_answer_was_lost_keeps_its_reservation() -> None:
    """The replacement has used the reservation before the process knew of the eviction."""
    world = reserved_moves(1)
    world.allow_evictions(True)
    world.clock.advance_to(world.clock.now_s() + 16)
    uid = world.jobs()[0].metadata.uid
    for after in range(6):  # the eviction is one of the first writes
        if not world.is_evicted(uid):
            world.step_with("lost", after)
            world.clock.advance_to(world.clock.now_s() + 16)
    assert world.is_evicted(uid)
    world.end_pods()
    world.bind_pods()
    world.finish()

    assert world.jobs()[0].status.phase == "Succeeded"
    assert world.created == {uid: 1}


class CompetingMovesMachine(RuleBasedStateMachine):
    """Jobs, refused evictions, faults, lost replicas and bindings in any order."""

    @initialize()
    def begin(self) -> None:
        self.world = CompetingMoves()

    @rule(number=st.integers(0, REPLICAS - 1))
    def move(self, number: int) -> None:
        names = {each.metadata.name for each in self.world.jobs()}
        pod = self.world.pods().get(f"web-{number}")
        exists = pod is not None and pod.metadata.deletion_timestamp is None
        if exists and f"move-{number}" not in names:
            self.world.move(number)

    @rule(fault=st.sampled_from(FAULTS), after=st.integers(0, 12), wait=st.sampled_from([0, 1, 16]))
    def step(self, fault: str, after: int, wait: int) -> None:
        self.world.clock.advance_to(self.world.clock.now_s() + wait)
        self.world.step_with(fault, after)

    @rule(allowed=st.booleans())
    def allow_evictions(self, allowed: bool) -> None:
        self.world.allow_evictions(allowed)

    @rule()
    def schedule_reservations(self) -> None:
        self.world.schedule_reservations()

    @rule()
    def end_pods(self) -> None:
        self.world.end_pods()

    @rule(count=st.integers(1, REPLICAS))
    def bind_pods(self, count: int) -> None:
        self.world.bind_pods(count)

    @rule(index=st.integers(0, REPLICAS))
    def delete_pod(self, index: int) -> None:
        """Delete a replica that no job moves."""
        moved = {each.spec.pod_ref.name for each in self.world.jobs()}
        others = sorted(self.world.pods().keys() - moved)
        if others:
            self.world.cluster.delete(Pod, others[index % len(others)], "default")

    @rule()
    def scale_up(self) -> None:
        if len(self.world.pods()) < 2 * REPLICAS:
            self.world.create_replica()

    @rule()
    def recover(self) -> None:
        """No reservation is open for a pod that stays, once a new process has looked."""
        self.world.start()
        self.world.settle()
        live = {each.metadata.uid for each in self.world.jobs() if is_live(each)}
        for each in self.world.reservations():
            uid = job_uid_of(each.metadata)
            if uid in live and is_open(each):
                assert self.world.is_evicted(uid)

    def teardown(self) -> None:
        """Fail only moves whose reservations were used twice."""
        if not hasattr(self, "world"):
            return
        self.world.finish()
        for each in self.world.jobs():
            uses = self.world.used.get(each.metadata.uid, 0)
            if each.status.reason == "ForbiddenMigratePod":
                assert uses >= 2
            elif not uses:
                assert each.status.phase == "Succeeded" or is_live(each)


CompetingMovesMachine.TestCase.settings = settings(
    max_examples=examples(25),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestCompetingMovesMachine = pytest.mark.slow(CompetingMovesMachine.TestCase)
