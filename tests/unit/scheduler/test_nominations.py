"""A pod that waits for its victims to go has a node, and keeps it until it is there."""

import pytest
from tests.unit.scheduler.watching import places
from tests.worlds import START_S, node, pod

from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.foundation.clock import VirtualClock
from koordinator.scheduler.app import Evicted, Outcome, Scheduler
from koordinator.scheduler.profile import WATCHED, build_profiles
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator.embedded import STOCK

GRACE_S = 600.0


class SlowWorld:
    """A cluster in which deleted pods take their time; ``end`` is the end of one."""

    def __init__(self, *objects: object) -> None:
        self.clock = VirtualClock(START_S)
        self.cluster = MemoryCluster(self.clock, immediate_pod_deletion=False)
        self.cluster.load(list(objects))
        state = ClusterState()
        profiles = build_profiles(STOCK, state.axis).profiles
        self.scheduler = Scheduler(self.cluster, self.clock, profiles, state, WATCHED)

    def run(self, seconds: float = 0.0) -> list[Outcome]:
        """Let time pass and work."""
        self.clock.advance_to(self.clock.now_s() + seconds)
        return self.scheduler.step()

    def end(self, name: str) -> None:
        self.cluster.delete(Pod, name, "default", grace_period_s=0)

    def nominated(self, name: str) -> str:
        return self.cluster.get(Pod, name, "default").status.nominated_node_name


def victims(outcomes: list[Outcome]) -> list[str]:
    return [it.pod.partition("/")[2] for it in outcomes if isinstance(it, Evicted)]


@pytest.fixture
def slow() -> SlowWorld:
    """Make a full node whose pod ``low`` has to go for ``high``."""
    world = SlowWorld(node("n", cpu=4), pod("low", cpu=3, on="n"), pod("high", cpu=3, priority=10))
    assert victims(world.run()) == ["low"]
    assert world.nominated("high") == "n"
    return world


def test_what_is_left_beside_the_nominated_pod_can_be_had(slow: SlowWorld) -> None:
    """As soon as it is in its place: it doesn't count twice there."""
    slow.cluster.create(pod("beside", cpu=1))
    slow.run()

    slow.end("low")
    assert places(slow.run(20)) == {"high": "n", "beside": "n"}
    slow.scheduler.nominator.validate()


def test_another_attempt_while_the_victims_end_changes_nothing(slow: SlowWorld) -> None:
    """The nomination stays, and nobody else has to go."""
    slow.cluster.create(node("m", cpu=1))
    slow.cluster.create(pod("other", cpu=1, on="m"))

    outcomes = slow.run(GRACE_S)

    assert slow.scheduler.attempts > 1
    assert victims(outcomes) == []
    assert slow.nominated("high") == "n"


def test_the_nominated_node_comes_before_better_ones(slow: SlowWorld) -> None:
    """Its victims have gone for it."""
    slow.end("low")
    slow.cluster.create(node("m", cpu=64))

    assert places(slow.run(20)) == {"high": "n"}


def test_older_news_of_a_bound_pod_leave_it_where_it_is(slow: SlowWorld) -> None:
    """Its lost nomination is told after its bind: that does not make it wait for a node again."""
    only_n = {"kubernetes.io/hostname": "n"}
    higher = pod("higher", cpu=3, priority=20, nodeSelector=only_n)
    slow.cluster.load([node("m", cpu=8), higher])

    done = slow.run()  # ``high`` gives up its nomination for ``higher``, and goes to m at once
    again = slow.run(20)

    assert places(done) == {"high": "m"}
    assert places(again) == {}
    slow.scheduler.validate()
