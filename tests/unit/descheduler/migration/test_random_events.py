"""Guarantees of jobs under random faults and events.

The controller is killed before and after any of its writes and restarted, writes fail, answers
are lost; pods end, are replaced and deleted, reservations are scheduled, expire and are deleted;
users pause and delete jobs, and time passes.
"""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from msgspec.structs import replace
from tests.examples import examples
from tests.unit.descheduler.migration.world import job, profile_with, replicas
from tests.worlds import START_S, node

from koordinator.api.annotations.scheduling import EVICTION_ATTEMPT, PASSED_ARBITRATION
from koordinator.api.conditions import find_condition
from koordinator.api.meta import Condition, ObjectMeta
from koordinator.api.pod import Pod, PodStatus
from koordinator.api.pod_migration_job import PodMigrationJob
from koordinator.api.reservation import Reservation
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.descheduler.app import Descheduler
from koordinator.descheduler.configuration import decode_descheduler_configuration
from koordinator.descheduler.contract import EvictOptions
from koordinator.descheduler.migration.jobs import has_passed, is_live
from koordinator.descheduler.migration.reservation_template import job_uid_of
from koordinator.domain.resized_pods import ResizeRules
from koordinator.foundation.clock import VirtualClock, to_datetime
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.rules.reservations import lifecycle
from koordinator.scheduler.rules.reservations.offer import is_owner, owner_candidate_of

NODES = ("n1", "n2", "n3")
REPLICAS = 6
GLOBALLY, PER_NODE, PER_WORKLOAD_S = 3, 1, 100.0  # the last: between two evictions
LIMITS = {
    "maxMigratingGlobally": GLOBALLY,
    "maxMigratingPerNode": PER_NODE,
    "maxUnavailablePerWorkload": 4,
    "maxMigratingPerWorkload": 4,
    "objectLimiters": {"workload": {"duration": "100s", "maxMigrating": 1}},
}
FAULTS = ("none", "fails", "lost", "killed before", "killed after")


class ControllerKilledError(BaseException):
    """End of the process during a write."""


class FaultyCluster:
    """Connection of the descheduler to the cluster, on which one write fails."""

    def __init__(self, cluster: MemoryCluster, judge: Callable[[str, Any], None]) -> None:
        self._cluster, self._judge = cluster, judge
        self.fault, self.writes_left = "none", 0
        for verb in ("create", "patch", "delete", "evict"):
            setattr(self, verb, self._made_faulty(verb))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def _made_faulty(self, verb: str) -> Callable[..., Any]:
        send = getattr(self._cluster, verb)

        def write(*args: Any, **named: Any) -> Any:
            fault = self.fault if self.writes_left == 0 else "none"
            self.writes_left -= 1
            if fault == "fails":
                raise ClusterError("the API server is busy")
            if fault == "killed before":
                raise ControllerKilledError
            self._judge(verb, args)
            answer = send(*args, **named)
            if fault == "lost":
                raise ClusterError("no answer")
            if fault == "killed after":
                raise ControllerKilledError
            return answer

        return write


class MigrationMachine(RuleBasedStateMachine):
    """Random sequences of events."""

    @initialize()
    def begin(self) -> None:
        self.clock = VirtualClock(START_S)
        self.cluster = MemoryCluster(self.clock, immediate_pod_deletion=False)
        workload = replicas("web", on=[*NODES, *NODES])
        self.cluster.load([*(node(name) for name in NODES), *workload])
        self.template = next(obj for obj in workload if isinstance(obj, Pod))
        self.made = 0
        self.reserved: dict[str, int] = {}  # uid of a job -> reservations created for it
        self.used: set[str] = set()  # uids of jobs whose reservations were used
        self.evicted_s: dict[str, float] = {}  # by uid of the job
        self.faulty = FaultyCluster(self.cluster, self.judge)
        self.start()

    def start(self) -> None:
        data = {
            "apiVersion": "descheduler/v1alpha2",
            "kind": "DeschedulerConfiguration",
            "profiles": [profile_with(LIMITS)],
        }
        self.faulty.fault = "none"
        self.descheduler = Descheduler(
            self.faulty,  # all but its faults is the cluster's
            self.clock,
            decode_descheduler_configuration(data, "test"),
            source="test",
        )
        self.descheduler.sync()

    # -- what the descheduler does -----------------------------------------------------------

    @rule(fault=st.sampled_from(FAULTS), after=st.integers(0, 8))
    def step(self, fault: str, after: int) -> None:
        """Run the descheduler; one of its writes may fail."""
        self.faulty.fault, self.faulty.writes_left = fault, after
        self.surviving(self.settle)

    @rule(index=st.integers(0, 9), fault=st.sampled_from(FAULTS))
    def evict_by_plugin(self, index: int, fault: str) -> None:
        pods = self.pods()
        self.faulty.fault, self.faulty.writes_left = fault, 0
        options = EvictOptions(plugin="Test", profile="test", reason="because")
        evictor = self.descheduler.profiles[0].evict
        if pods:
            self.surviving(lambda: evictor.evict(pods[index % len(pods)], options))

    @rule()
    def restart(self) -> None:
        self.start()

    def surviving(self, work: Callable[[], object]) -> None:
        try:
            work()
        except ControllerKilledError:
            self.start()
        self.faulty.fault = "none"

    def settle(self) -> None:
        while self.descheduler.step():
            pass

    # -- what users do -----------------------------------------------------------------------

    @rule(
        index=st.integers(0, 9),
        mode=st.sampled_from(["", "EvictDirectly", "ReservationFirst"]),
        ttl=st.sampled_from(["0s", "60s", "5m"]),
        has_uid=st.booleans(),
    )
    def make_job(self, index: int, mode: str, ttl: str, has_uid: bool) -> None:
        pods = self.pods()
        self.made += 1
        if pods:
            about = pods[index % len(pods)]
            new = job(f"job-{self.made}", about.metadata.name, mode=mode, ttl=ttl)
            uid = about.metadata.uid if has_uid else ""
            reference = replace(new.spec.pod_ref, uid=uid)
            self.cluster.create(replace(new, spec=replace(new.spec, pod_ref=reference)))

    @rule(index=st.integers(0, 9), paused=st.booleans())
    def pause_job(self, index: int, paused: bool) -> None:
        for each in self.chosen(self.jobs(), index):
            patch = {"spec": {"paused": paused}}
            self.cluster.patch(PodMigrationJob, each.metadata.name, "", patch)

    @rule(index=st.integers(0, 9))
    def delete_job(self, index: int) -> None:
        for each in self.chosen(self.jobs(), index):
            self.cluster.delete(PodMigrationJob, each.metadata.name)
            self.evicted_s.pop(each.metadata.uid, None)  # no record of it is left

    @rule(index=st.integers(0, 9))
    def delete_pod(self, index: int) -> None:
        for each in self.chosen(self.pods(), index):
            self.cluster.delete(Pod, each.metadata.name, "default")

    @rule(index=st.integers(0, 9))
    def delete_reservation(self, index: int) -> None:
        for each in self.chosen(self.reservations(), index):
            self.cluster.delete(Reservation, each.metadata.name)
            self.reserved.pop(job_uid_of(each.metadata), None)

    # -- what the rest of the cluster does ---------------------------------------------------

    @rule(index=st.integers(0, 9), place=st.sampled_from([*NODES, ""]))
    def schedule_reservation(self, index: int, place: str) -> None:
        waiting = [r for r in self.reservations() if not r.status.node_name and not _is_over(r)]
        now = to_datetime(self.clock.now_s())
        for each in self.chosen(waiting, index):
            status = lifecycle.unschedulable(each, "no room", now)
            if place:
                status = lifecycle.available(each, place, now)
            self.cluster.overwrite(replace(each, status=status or each.status))

    @rule(index=st.integers(0, 9))
    def expire_reservation(self, index: int) -> None:
        now = to_datetime(self.clock.now_s())
        for each in self.chosen(self.reservations(), index):
            self.cluster.overwrite(replace(each, status=lifecycle.expired(each, now)))

    @rule()
    def end_pods(self) -> None:
        """End terminating pods and create their replacements with the same names."""
        for each in self.cluster.list(Pod).items:
            if each.metadata.deletion_timestamp is not None:
                self.cluster.delete(Pod, each.metadata.name, "default", grace_period_s=0)
        taken = {pod.metadata.name for pod in self.cluster.list(Pod).items}
        for name in {f"web-{index}" for index in range(REPLICAS)} - taken:
            meta = ObjectMeta(
                name=name,
                namespace="default",
                owner_references=self.template.metadata.owner_references,
            )
            spec = replace(self.template.spec, node_name="")
            self.cluster.create(Pod(metadata=meta, spec=spec))

    @rule(index=st.integers(0, 9), place=st.sampled_from(NODES))
    def bind_pod(self, index: int, place: str) -> None:
        """Bind a pending pod with a matching reservation, or to any node."""
        pending = [pod for pod in self.pods() if not pod.spec.node_name]
        for each in self.chosen(pending, index):
            free = [
                r
                for r in self.reservations()
                if r.status.phase == "Available"
                and not r.spec.unschedulable
                and is_owner(r.spec.owners, owner_candidate_of(each))
            ]
            if free:
                place = free[0].status.node_name
                now = to_datetime(self.clock.now_s())
                status = lifecycle.used(free[0], [each], now, ResizeRules())
                self.used.add(job_uid_of(free[0].metadata))
                self.cluster.overwrite(replace(free[0], status=status or free[0].status))
            scheduled = Condition(type="PodScheduled", status="True")
            self.cluster.overwrite(
                replace(
                    each,
                    spec=replace(each.spec, node_name=place),
                    status=PodStatus(phase="Pending", conditions=(scheduled,)),
                )
            )

    @rule(index=st.integers(0, 9), ready=st.booleans())
    def run_pod(self, index: int, ready: bool) -> None:
        bound = [pod for pod in self.pods() if pod.spec.node_name]
        for each in self.chosen(bound, index):
            condition = Condition(type="Ready", status=str(ready))
            status = PodStatus(phase="Running", conditions=(condition,))
            self.cluster.overwrite(replace(each, status=status))

    @rule(seconds=st.sampled_from([1, 4, 20, 61, 120]))
    def pass_time(self, seconds: int) -> None:
        self.clock.advance_to(self.clock.now_s() + seconds)

    # -- what must hold ----------------------------------------------------------------------

    def judge(self, verb: str, args: Any) -> None:
        """Check a write of the descheduler when it is made."""
        if verb == "create" and isinstance(args[0], Reservation):
            uid = job_uid_of(args[0].metadata)
            exists = any(r.metadata.name == args[0].metadata.name for r in self.reservations())
            self.reserved[uid] = self.reserved.get(uid, 0) + (not exists)
            assert self.reserved[uid] <= 1 + (uid in self.used), "two reservations for one job"
        if verb == "patch" and args[0] is PodMigrationJob:
            annotations = args[3].get("metadata", {}).get("annotations", {})
            if PASSED_ARBITRATION in annotations:
                self.judge_admission(args[1])
        if verb == "evict":
            self.judge_eviction(self.cluster.get(Pod, args[1], args[0]))

    def judge_admission(self, name: str) -> None:
        own = self.cluster.get(PodMigrationJob, name).spec.pod_ref.name
        known = {pod.metadata.name: pod for pod in self.cluster.list(Pod).items}
        moving = {
            each.spec.pod_ref.name
            for each in self.jobs()
            if is_live(each) and has_passed(each) and each.metadata.name != name
        } - {own}
        if own not in known:
            return  # there is nothing to move: the job only gets a message
        assert len(moving) < GLOBALLY
        place = known[own].spec.node_name
        beside = [n for n in moving if n in known and place and known[n].spec.node_name == place]
        assert len(beside) < PER_NODE

    def judge_eviction(self, pod: Pod) -> None:
        now_s = self.clock.now_s()
        about = [
            each
            for each in self.jobs()
            if is_live(each)
            and (attempt := EVICTION_ATTEMPT.read(each.metadata)) is not None
            and attempt.pod_uid == pod.metadata.uid
            and find_condition(each.status.conditions, "Eviction") is None
        ]
        assert about, "evicted without having written so"
        if all(each.spec.mode != "EvictDirectly" for each in about):
            owned = {each.metadata.uid for each in about}
            assert any(
                r.status.phase == "Available"
                and r.status.node_name not in {"", pod.spec.node_name}
                and not r.status.current_owners
                for r in self.reservations()
                if job_uid_of(r.metadata) in owned
            ), "evicted without a place"
        if pod.metadata.deletion_timestamp is None:
            last_s = max(self.evicted_s.values(), default=-1e9)
            assert now_s - last_s >= PER_WORKLOAD_S, "evicted too often"
            self.evicted_s |= {each.metadata.uid: now_s for each in about}

    @invariant()
    def one_reservation_each(self) -> None:
        if hasattr(self, "cluster"):
            unused = (r for r in self.reservations() if not r.status.current_owners)
            owners = [job_uid_of(r.metadata) for r in unused]
            assert len(owners) == len(set(owners))

    def teardown(self) -> None:
        """Every job ends, and no object is left."""
        if not hasattr(self, "cluster"):
            return
        self.start()
        for each in self.jobs():
            patch = {"spec": {"paused": False}}
            self.cluster.patch(PodMigrationJob, each.metadata.name, "", patch)
        self.clock.advance_to(self.clock.now_s() + 301)
        self.settle()
        assert not [j.metadata.name for j in self.jobs() if is_live(j) and _has_ttl(j)]
        failed = {j.metadata.uid for j in self.jobs() if j.status.phase == "Failed"}
        assert not [r for r in self.reservations() if job_uid_of(r.metadata) in failed]
        self.clock.advance_to(self.clock.now_s() + 3600)
        self.settle()
        self.settle()
        assert not self.jobs()
        assert not self.reservations()

    # -- what there is -----------------------------------------------------------------------

    def pods(self) -> list[Pod]:
        items = self.cluster.list(Pod).items
        return [pod for pod in items if pod.metadata.deletion_timestamp is None]

    def jobs(self) -> list[PodMigrationJob]:
        return list(self.cluster.list(PodMigrationJob).items)

    def reservations(self) -> list[Reservation]:
        return list(self.cluster.list(Reservation).items)

    @staticmethod
    def chosen(objects: list[Any], index: int) -> list[Any]:
        """Return one of the objects, none if there are none."""
        return objects[index % len(objects) :][:1] if objects else []


def _is_over(reservation: Reservation) -> bool:
    return reservation.status.phase in {"Succeeded", "Failed"}


def _has_ttl(each: PodMigrationJob) -> bool:
    return each.spec.ttl is not None and each.spec.ttl.total_seconds() > 0


MigrationMachine.TestCase.settings = settings(
    max_examples=examples(25),
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
)
TestMigrationMachine = pytest.mark.slow(MigrationMachine.TestCase)
