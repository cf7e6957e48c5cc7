"""Nominations of gang members: all members keep their nominated nodes while victims terminate."""

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.scheduler.test_gangs import group, members
from tests.unit.scheduler.test_job_preemption import JOBS
from tests.unit.scheduler.watches import places
from tests.worlds import START_S, node, pod

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_groups import PodGroup
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.features.metrics import SchedulerMetrics
from koordinator.scheduler.loop import Evicted, Outcome
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.snapshot import ClusterState

HIGH = 100


class Stubborn(MemoryCluster):
    """Cluster that delays the deletion of some pods."""

    refused: tuple[str, ...] = ()

    def delete(
        self,
        kind_type: type[KubeObject],
        name: str,
        namespace: str = "",
        *,
        uid: str = "",
        grace_period_s: int | None = None,
    ) -> None:
        if name in self.refused:
            raise ClusterError("try again later")
        super().delete(kind_type, name, namespace, uid=uid, grace_period_s=grace_period_s)


class SlowWorld:
    """Two full nodes, whose pods ``low-0`` and ``low-1`` terminate slowly for a gang of two."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START_S)
        self.cluster = Stubborn(self.clock, immediate_pod_deletion=False)
        for index in range(2):
            self.cluster.load([node(f"n{index}", cpu=4)])
            self.cluster.load([pod(f"low-{index}", 3, on=f"n{index}")])
        self.cluster.load([group("g", 2), *members("g", 2, 3, priority=HIGH)])
        self.start()

    def start(self) -> None:
        """Start a new scheduler in place of the current one."""
        state = ClusterState()
        profiles = build_profiles(JOBS, state.axis).profiles
        self.scheduler = build_scheduler(self.cluster, self.clock, profiles, state, WATCHED)

    def run(self, seconds: float = 0.0) -> list[Outcome]:
        """Advance the clock and run the scheduler."""
        self.clock.advance_to(self.clock.now_s() + seconds)
        outcomes = self.scheduler.step()
        self.scheduler.validate()
        return outcomes

    def end(self, *names: str) -> None:
        for name in names:
            super(Stubborn, self.cluster).delete(Pod, name, "default", grace_period_s=0)

    def nominated(self, *names: str) -> list[str]:
        pods = [self.cluster.get(Pod, name, "default") for name in names]
        return [it.status.nominated_node_name for it in pods]


def victims(outcomes: list[Outcome]) -> list[str]:
    return sorted(it.pod.partition("/")[2] for it in outcomes if isinstance(it, Evicted))


@pytest.fixture
def slow() -> SlowWorld:
    """Create the world and start the preemption."""
    world = SlowWorld()
    assert victims(world.run()) == ["low-0", "low-1"]
    assert world.nominated("g-0", "g-1") == ["n0", "n1"]
    return world


def test_less_important_pod_does_not_get_a_freed_node(slow: SlowWorld) -> None:
    """The first victim has terminated, the second has not: the first node stays nominated."""
    slow.cluster.create(pod("late", 3))
    slow.end("low-0")
    assert places(slow.run(20)) == {}

    slow.end("low-1")
    assert places(slow.run(20)) == {"g-0": "n0", "g-1": "n1"}


def test_free_capacity_beside_nominations_is_usable(slow: SlowWorld) -> None:
    """Only the members' requests are reserved, not the nodes."""
    slow.end("low-0")
    slow.cluster.create(pod("small", 1))

    assert places(slow.run(20)) == {"small": "n0"}


def test_another_attempt_during_termination_changes_nothing(slow: SlowWorld) -> None:
    """No further victims are evicted, and nominations stay."""
    slow.cluster.load([node("n2", cpu=4), pod("low-2", 3, on="n2")])
    slow.cluster.create(node("n3", cpu=1))

    assert victims(slow.run(600)) == []
    assert slow.scheduler.attempts > 2
    assert slow.nominated("g-0", "g-1") == ["n0", "n1"]


def test_better_nodes_do_not_change_nominations(slow: SlowWorld) -> None:
    """The victims were evicted for the nominated nodes."""
    slow.end("low-0", "low-1")
    slow.cluster.create(node("wide", cpu=64))

    assert places(slow.run(20)) == {"g-0": "n0", "g-1": "n1"}


def test_nominations_end_with_the_gang(slow: SlowWorld) -> None:
    """A member is deleted and the other waits for a new one: others may use the nodes."""
    slow.cluster.create(pod("late", 3))
    slow.end("g-1", "low-0")

    assert places(slow.run(20)) == {"late": "n0"}
    assert slow.nominated("g-0") == [""]


def test_nominations_end_if_more_members_are_required(slow: SlowWorld) -> None:
    """The PodGroup now requires three, and there are two."""
    patch = {"spec": {"minMember": 3}}
    slow.cluster.patch(PodGroup, "g", "default", patch)
    slow.run()

    assert slow.nominated("g-0", "g-1") == ["", ""]


def test_more_important_pod_takes_a_nominated_node(slow: SlowWorld) -> None:
    """The other node is not kept for half a gang."""
    slow.end("low-0", "low-1")
    slow.cluster.load([pod("highest", 3, priority=2 * HIGH)])

    assert places(slow.run(20)) == {"highest": "n0"}
    assert slow.nominated("g-0", "g-1") == ["", ""]


def test_nominations_survive_a_restart(slow: SlowWorld) -> None:
    """The API stores nominations: no further victim is evicted, and no other pod gets the nodes."""
    slow.cluster.create(pod("late", 3))
    slow.end("low-0")
    slow.start()
    outcomes = slow.run(20)
    assert (places(outcomes), victims(outcomes)) == ({}, [])
    assert slow.nominated("g-0", "g-1") == ["n0", "n1"]

    slow.end("low-1")
    assert places(slow.run(20)) == {"g-0": "n0", "g-1": "n1"}


@pytest.mark.parametrize("restart", [False, True])
def test_victim_whose_eviction_failed_is_evicted_again(restart: bool) -> None:
    """The gang keeps its nominations; the next attempt evicts only that victim."""
    world = SlowWorld()
    world.cluster.refused = ("low-0",)
    assert victims(world.run()) == ["low-1"]
    assert world.nominated("g-0", "g-1") == ["n0", "n1"]
    if restart:
        world.start()

    world.cluster.refused = ()
    assert victims(world.run(20)) == ["low-0"]
    world.end("low-0", "low-1")
    assert places(world.run(20)) == {"g-0": "n0", "g-1": "n1"}


def test_a_single_pod_is_a_job_of_one() -> None:
    """With job preemption it waits for its victim, too, and stays nominated."""
    world = SlowWorld()
    world.cluster.load([pod("alone", 3, priority=HIGH + 1)])
    assert len(victims(world.run())) == 1
    node_name = world.nominated("alone")[0]
    assert victims(world.run(600)) == []
    assert world.nominated("alone") == [node_name]

    world.end("low-0", "low-1")
    assert places(world.run(20)) == {"alone": node_name}


def test_metrics_count_attempts_and_victims() -> None:
    """Jobs are counted like pods, with the duration per job."""
    world = SlowWorld()
    registry = CollectorRegistry()
    profiles = build_profiles(JOBS, world.scheduler.state.axis).profiles
    state = ClusterState()
    metrics = SchedulerMetrics(registry)
    world.scheduler = build_scheduler(
        world.cluster, world.clock, profiles, state, WATCHED, metrics=metrics
    )
    world.run()

    def value(name: str, **labels: str) -> float | None:
        return registry.get_sample_value(f"scheduler_{name}", labels)

    assert value("preemption_victims_sum") == 2
    assert value("preemption_attempts_total") == 1
    job = {"jobName": "default/g", "result": "success"}
    assert value("job_preemption_duration_seconds_count", **job) == 1
