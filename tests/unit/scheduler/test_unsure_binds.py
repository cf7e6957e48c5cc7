"""Binds with an unknown outcome: events resolve them."""

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
    """Watch that pauses while its cluster requires it, and sends at most one bookmark at a time."""

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
    """Cluster with binds in flight and late events."""

    is_late = False

    def watch(  # type: ignore[override]  # the port's
        self,
        kind_types: Sequence[type[KubeObject]],
        field_selectors: Mapping[type[KubeObject], str] = NO_SELECTORS,
    ) -> LateWatch:
        return LateWatch(self, super().watch(kind_types, field_selectors))

    def lose(self, *, done: bool) -> None:
        """Lose the response to a bind, done or not."""
        batch = self.unsent[0]
        if done:
            MemoryCluster.bind(self, [batch.bindings[len(batch.answers)]])
        batch.answers.append(ClusterError("connection lost"))


def started(*objects: KubeObject) -> tuple[LateCluster, VirtualClock, Scheduler]:
    """Return a scheduler with binds in flight."""
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
def test_pod_seen_on_its_node_is_bound(news_come_first: bool) -> None:
    """The response may be anything, before or after; the pod is not retried."""
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
def test_no_decision_until_the_outcome_is_known(done: bool) -> None:
    """The node might be given away twice.  If the pod is not bound, the node is free."""
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


def test_every_lost_response_needs_newer_events() -> None:
    """Events requested before the second loss do not suffice."""
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


def test_refusal_is_a_known_outcome() -> None:
    """The next pod need not wait."""
    cluster, _, scheduler = started(node("n", cpu=1), pod("p", cpu=1))
    cluster.is_late = True
    cluster.delete(Pod, "p", "default")
    cluster.unsent[0].send()
    scheduler.step()

    assert scheduler.is_synced
    assert not scheduler.state.pods.by_key


def test_pod_bound_by_another_scheduler_is_not_pending() -> None:
    """The condition of the pod is true."""
    cluster, _, scheduler = started(node("n"), node("m", unschedulable=True), pod("p"))
    MemoryCluster.bind(cluster, [Binding("default", "p", "m")])
    scheduler.step()
    cluster.unsent[0].send()
    scheduler.step()

    assert conditions(cluster, "p") == [("PodScheduled", "True")]
