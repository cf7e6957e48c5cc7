"""Nominated pods: a pod that waits for its victims keeps its nominated node."""

import pytest
from tests.keywords import as_keywords
from tests.unit.scheduler.watches import places
from tests.worlds import START_S, node, placed_on, pod

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.scheduler.assembly import build_scheduler
from koordinator.scheduler.loop import Evicted, Outcome
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator.embedded import STOCK

GRACE_S = 600.0


class SlowWorld:
    """Cluster with slow deletions; ``end`` finishes one."""

    def __init__(self, *objects: KubeObject) -> None:
        self.clock = VirtualClock(START_S)
        self.cluster = MemoryCluster(self.clock, immediate_pod_deletion=False)
        self.cluster.load(list(objects))
        state = ClusterState()
        profiles = build_profiles(STOCK, state.axis).profiles
        self.scheduler = build_scheduler(self.cluster, self.clock, profiles, state, WATCHED)

    def run(self, seconds: float = 0.0) -> list[Outcome]:
        """Advance the clock and run the scheduler."""
        self.clock.advance_to(self.clock.now_s() + seconds)
        return self.scheduler.step()

    def end(self, name: str) -> None:
        self.cluster.delete(Pod, name, "default", grace_period_s=0)

    def nominated(self, name: str) -> str:
        """Return the number of nominated pending pods with a name prefix."""
        return self.cluster.get(Pod, name, "default").status.nominated_node_name

    def nominated_like(self, prefix: str) -> int:
        """Return how many waiting pods whose names begin so are nominated."""
        pods = [p for p in self.cluster.list(Pod).items if p.metadata.name.startswith(prefix)]
        return sum(bool(p.status.nominated_node_name) and not p.spec.node_name for p in pods)

    def ending(self) -> int:
        """Return the number of terminating pods."""
        return sum(p.metadata.deletion_timestamp is not None for p in self.cluster.list(Pod).items)


def victims(outcomes: list[Outcome]) -> list[str]:
    return [it.pod.partition("/")[2] for it in outcomes if isinstance(it, Evicted)]


@pytest.fixture
def slow() -> SlowWorld:
    """Return a full node whose pod ``low`` is evicted for ``high``."""
    world = SlowWorld(node("n", cpu=4), pod("low", cpu=3, on="n"), pod("high", cpu=3, priority=10))
    assert victims(world.run()) == ["low"]
    assert world.nominated("high") == "n"
    return world


def test_free_capacity_beside_a_nominated_pod_is_usable(slow: SlowWorld) -> None:
    """Once the pod is placed it does not count twice."""
    slow.cluster.create(pod("beside", cpu=1))
    slow.run()

    slow.end("low")
    assert places(slow.run(20)) == {"high": "n", "beside": "n"}
    slow.scheduler.nominator.validate()


def test_another_attempt_during_termination_changes_nothing(slow: SlowWorld) -> None:
    """The nomination stays, and no further pod is evicted."""
    slow.cluster.create(node("m", cpu=1))
    slow.cluster.create(pod("other", cpu=1, on="m"))

    outcomes = slow.run(GRACE_S)

    assert slow.scheduler.attempts > 1
    assert victims(outcomes) == []
    assert slow.nominated("high") == "n"


def test_nominated_node_precedes_better_ones(slow: SlowWorld) -> None:
    """The victims were evicted for it."""
    slow.end("low")
    slow.cluster.create(node("m", cpu=64))

    assert places(slow.run(20)) == {"high": "n"}


def test_old_event_does_not_move_a_bound_pod(slow: SlowWorld) -> None:
    """The cleared nomination arrives after the bind: the pod does not become pending again."""
    only_n = {"kubernetes.io/hostname": "n"}
    higher = pod("higher", cpu=3, priority=20, nodeSelector=only_n)
    slow.cluster.load([node("m", cpu=8), higher])

    done = slow.run()  # ``high`` gives up its nomination for ``higher``, and goes to m at once
    again = slow.run(20)

    assert places(done) == {"high": "m"}
    assert places(again) == {}
    slow.scheduler.validate()


def crowd(name: str, count: int, priority: int) -> list[Pod]:
    """Return pods that request one of ten units of a node."""
    requests = {"example.com/foo": 1}
    return [pod(f"{name}-{n}", requests=requests, priority=priority) for n in range(count)]


@pytest.mark.parametrize("first", [0, 3, 8, 10])
def test_many_pods_preempt_together(first: int) -> None:
    """Ten low pods terminate slowly; five high ones get half of the units, in any order.

    As in kube-scheduler, pods that lose their nomination to the high ones preempt again while units
    are left; each is nominated, and no further pod is evicted.
    """
    running = [placed_on(low, "n") for low in crowd("low", 10, 100)]
    world = SlowWorld(node("n", cpu=40, **as_keywords({"example.com/foo": 10})), *running)
    medium = crowd("medium", 10, 200)
    world.cluster.load(medium[:first])
    world.run()

    world.cluster.load([*medium[first:], *crowd("high", 5, 300)])
    world.run()

    assert (world.nominated_like("high"), world.nominated_like("medium")) == (5, 5)
    assert world.ending() == 10
    world.run(20)
    assert (world.nominated_like("high"), world.nominated_like("medium")) == (5, 5)
    world.scheduler.validate()
    for n in range(10):
        world.end(f"low-{n}")
    placed = places(world.run(20))
    assert sum(name.startswith("high") for name in placed) == 5
    assert sum(name.startswith("medium") for name in placed) == 5
    assert victims(world.run()) == []


@pytest.mark.parametrize("is_deleted", [True, False])
def test_cleared_nomination_frees_the_node_immediately(*, is_deleted: bool) -> None:
    """Other pods need not wait for another event."""
    world = SlowWorld(
        node("n", cpu=4),
        pod("low-0", cpu=2, on="n"),
        pod("low-1", cpu=2, on="n"),
        pod("high", cpu=4, priority=10),
    )
    world.run()
    world.end("low-0")
    world.cluster.load([pod("waits", cpu=2, priority=5)])
    assert places(world.run(20)) == {}
    assert world.nominated("high") == "n"

    if is_deleted:
        world.cluster.delete(Pod, "high", "default", grace_period_s=0)
    else:
        cleared = {"status": {"nominatedNodeName": None}}
        world.cluster.patch(Pod, "high", "default", cleared, subresource="status")

    assert places(world.run(20)) == {"waits": "n"}
    world.scheduler.validate()
