"""Bindings whose answer says nothing about what happened: the truth comes with the events."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import pytest
from tests.unit.scheduler.test_binds_under_way import SlowCluster
from tests.unit.scheduler.watches import restarted
from tests.worlds import START_S, node, pod

from koordinator.api.meta import KubeObject
from koordinator.api.pod import Pod
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import NO_SELECTORS, Binding, EventType, Watch, WatchEvent
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError
from koordinator.scheduler.loop import Scheduler


@dataclass
class LateWatch:
    """A watch that brings nothing while its cluster says so, and at most one bookmark at a time."""

    cluster: "LateCluster"
    watch: Watch
    events: list[WatchEvent] = field(default_factory=list)

    def poll(self) -> Sequence[WatchEvent]:
        self.events += self.watch.poll()
        if self.cluster.is_late:
            return ()
        bookmarks = (i for i, it in enumerate(self.events) if it.type is EventType.BOOKMARK)
        end = next(bookmarks, len(self.events)) + 1
        brought, self.events = self.events[:end], self.events[end:]
        return brought

    def refresh(self) -> None:
        self.watch.refresh()

    def close(self) -> None:
        self.watch.close()


class LateCluster(SlowCluster):
    """A cluster on which bindings stay under way and events may be late."""

    is_late = False

    def watch(  # type: ignore[override]  # the port's
        self,
        kind_types: Sequence[type[KubeObject]],
        field_selectors: Mapping[type[KubeObject], str] = NO_SELECTORS,
    ) -> LateWatch:
        return LateWatch(self, super().watch(kind_types, field_selectors))

    def lose(self, *, done: bool) -> None:  # type: ignore[override] # of another kind
        """Lose the answer to a binding, done or not."""
        batch = self.unsent[0]
        if done:
            MemoryCluster.bind(self, [batch.bindings[len(batch.answers)]])
        batch.answers.append(ClusterError("connection lost"))


def started(*objects: KubeObject) -> tuple[LateCluster, VirtualClock, Scheduler]:
    """Return a scheduler that has begun to bind."""
    clock = VirtualClock(START_S)
    cluster = LateCluster(clock)
    cluster.load(objects)
    scheduler = restarted(cluster, clock)
    scheduler.step()
    return cluster, clock, scheduler


def conditions(cluster: LateCluster, name: str) -> list[tuple[str, str]]:
    stored = cluster.get(Pod, name, "default")
    return [(condition.type, condition.status) for condition in stored.status.conditions]


@pytest.mark.parametrize("news_come_first", [True, False])
def test_a_pod_that_is_seen_on_its_node_is_bound(news_come_first: bool) -> None:
    """Whatever the answer says, and before or after it; it is not tried again."""
    cluster, clock, scheduler = started(node("n", cpu=1), node("m", cpu=1), pod("p", cpu=1))
    cluster.lose(done=True)
    if news_come_first:
        answers, cluster.batches[0].answers = cluster.batches[0].answers, []
        scheduler.step()
        cluster.batches[0].answers = answers
    scheduler.step()
    clock.advance_to(START_S + 11)
    scheduler.step()

    assert list(scheduler.state.pods.by_key) == ["default/p"]
    assert scheduler.queue.get("default/p") is None
    assert len(cluster.batches) == 1
    scheduler.state.validate()
    if news_come_first:
        assert conditions(cluster, "p") == [("PodScheduled", "True")]


@pytest.mark.parametrize("done", [True, False])
def test_nothing_is_decided_until_it_shows_whether_a_pod_is_bound(done: bool) -> None:
    """Its place might be given out twice.  If it is not bound, the place is free."""
    cluster, _, scheduler = started(node("n", cpu=1), pod("p", cpu=1), pod("q", cpu=1))
    assert cluster.batches[0].bindings[0].name == "p"
    cluster.is_late = True
    cluster.lose(done=done)
    for _ in range(3):
        scheduler.step()
    assert not scheduler.is_synced
    assert len(cluster.batches) == 1

    cluster.is_late = False
    scheduler.step()
    assert scheduler.is_synced
    assert len(cluster.batches) == (1 if done else 2)
    assert list(scheduler.state.pods.by_key) == ["default/p" if done else "default/q"]


def test_every_loss_is_waited_for() -> None:
    """Events that were asked for before the second loss are not enough."""
    two = (pod("p", cpu=1), pod("q", cpu=1))
    cluster, _, scheduler = started(node("n", cpu=1), node("m", cpu=1), *two)
    cluster.is_late = True
    for _ in two:
        cluster.lose(done=True)
        scheduler.step(limit=0)
    cluster.is_late = False
    synced = []
    for _ in two:
        scheduler.step(limit=0)
        synced.append(scheduler.is_synced)

    assert synced == [False, True]
    assert set(scheduler.state.pods.by_key) == {"default/p", "default/q"}


def test_a_refusal_is_believed() -> None:
    """There is no doubt, so the next pod need not wait."""
    cluster, _, scheduler = started(node("n", cpu=1), pod("p", cpu=1))
    cluster.is_late = True
    cluster.delete(Pod, "p", "default")
    cluster.unsent[0].send()
    scheduler.step()

    assert scheduler.is_synced
    assert not scheduler.state.pods.by_key


def test_a_pod_that_another_has_bound_is_not_said_to_wait() -> None:
    """Its condition is true."""
    cluster, _, scheduler = started(node("n"), node("m", unschedulable=True), pod("p"))
    MemoryCluster.bind(cluster, [Binding("default", "p", "m")])
    scheduler.step()
    cluster.unsent[0].send()
    scheduler.step()

    assert conditions(cluster, "p") == [("PodScheduled", "True")]
