"""Members whose victims are ending have places, all of them, and keep them until they are there."""

import pytest
from prometheus_client import CollectorRegistry
from tests.unit.scheduler.test_gangs import group, members
from tests.unit.scheduler.test_job_preemption import JOBS
from tests.unit.scheduler.watches import places
from tests.worlds import START_S, node, pod

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.api.pod_group import PodGroup
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
    """A cluster that does not delete some pods for a while."""

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
    """Two full nodes, whose pods ``low-0`` and ``low-1`` go for a gang of two, but slowly."""

    def __init__(self) -> None:
        self.clock = VirtualClock(START_S)
        self.cluster = Stubborn(self.clock, immediate_pod_deletion=False)
        for index in range(2):
            self.cluster.load([node(f"n{index}", cpu=4)])
            self.cluster.load([pod(f"low-{index}", 3, on=f"n{index}")])
        self.cluster.load([group("g", 2), *members("g", 2, 3, priority=HIGH)])
        self.start()

    def start(self) -> None:
        """Start a scheduler, in place of the one before."""
        state = ClusterState()
        profiles = build_profiles(JOBS, state.axis).profiles
        self.scheduler = build_scheduler(self.cluster, self.clock, profiles, state, WATCHED)

    def run(self, seconds: float = 0.0) -> list[Outcome]:
        """Let time pass and work."""
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
    """Make the world and let the victims go, who take their time."""
    world = SlowWorld()
    assert victims(world.run()) == ["low-0", "low-1"]
    assert world.nominated("g-0", "g-1") == ["n0", "n1"]
    return world


def test_nobody_less_important_takes_a_place_that_has_become_free(slow: SlowWorld) -> None:
    """The first victim has ended, the second has not: the first place is kept."""
    slow.cluster.create(pod("late", 3))
    slow.end("low-0")
    assert places(slow.run(20)) == {}

    slow.end("low-1")
    assert places(slow.run(20)) == {"g-0": "n0", "g-1": "n1"}


def test_what_is_left_beside_can_be_had(slow: SlowWorld) -> None:
    """Only the places are kept, not the nodes."""
    slow.end("low-0")
    slow.cluster.create(pod("small", 1))

    assert places(slow.run(20)) == {"small": "n0"}


def test_another_attempt_while_the_victims_end_changes_nothing(slow: SlowWorld) -> None:
    """Nobody else has to go, and the places stay."""
    slow.cluster.load([node("n2", cpu=4), pod("low-2", 3, on="n2")])
    slow.cluster.create(node("n3", cpu=1))

    assert victims(slow.run(600)) == []
    assert slow.scheduler.attempts > 2
    assert slow.nominated("g-0", "g-1") == ["n0", "n1"]


def test_better_nodes_do_not_matter_any_more(slow: SlowWorld) -> None:
    """The victims have gone for these places."""
    slow.end("low-0", "low-1")
    slow.cluster.create(node("wide", cpu=64))

    assert places(slow.run(20)) == {"g-0": "n0", "g-1": "n1"}


def test_the_places_are_given_up_with_the_gang(slow: SlowWorld) -> None:
    """A member is deleted, the other waits for a new one: others may have the room."""
    slow.cluster.create(pod("late", 3))
    slow.end("g-1", "low-0")

    assert places(slow.run(20)) == {"late": "n0"}
    assert slow.nominated("g-0") == [""]


def test_the_places_are_given_up_when_more_members_are_needed(slow: SlowWorld) -> None:
    """The PodGroup asks for three now, and there are two."""
    patch = {"spec": {"minMember": 3}}
    slow.cluster.patch(PodGroup, "g", "default", patch)
    slow.run()

    assert slow.nominated("g-0", "g-1") == ["", ""]


def test_a_more_important_pod_comes_first(slow: SlowWorld) -> None:
    """It takes one place; nobody keeps the other one for half a gang."""
    slow.end("low-0", "low-1")
    slow.cluster.load([pod("highest", 3, priority=2 * HIGH)])

    assert places(slow.run(20)) == {"highest": "n0"}
    assert slow.nominated("g-0", "g-1") == ["", ""]


def test_a_restarted_scheduler_goes_on(slow: SlowWorld) -> None:
    """The places are in the API: nobody is evicted again, and nobody else gets them."""
    slow.cluster.create(pod("late", 3))
    slow.end("low-0")
    slow.start()
    outcomes = slow.run(20)
    assert (places(outcomes), victims(outcomes)) == ({}, [])
    assert slow.nominated("g-0", "g-1") == ["n0", "n1"]

    slow.end("low-1")
    assert places(slow.run(20)) == {"g-0": "n0", "g-1": "n1"}


@pytest.mark.parametrize("restart", [False, True])
def test_a_victim_that_could_not_be_deleted_is_one_again(restart: bool) -> None:
    """The others go on; with the next attempt it follows, and nobody besides."""
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
    """With job preemption it waits for its victim, too, and keeps its place meanwhile."""
    world = SlowWorld()
    world.cluster.load([pod("alone", 3, priority=HIGH + 1)])
    assert len(victims(world.run())) == 1
    node_name = world.nominated("alone")[0]
    assert victims(world.run(600)) == []
    assert world.nominated("alone") == [node_name]

    world.end("low-0", "low-1")
    assert places(world.run(20)) == {"alone": node_name}


def test_metrics_count_attempts_and_victims() -> None:
    """Of jobs like those of pods, and how long the search took for which job."""
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
