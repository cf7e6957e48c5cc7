"""Binds in flight: the scheduler's behaviour before the API server has responded."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.examples import examples
from tests.unit.scheduler.watches import events, only, places, restarted
from tests.worlds import START_S, made, node, pod

from koordinator.api.event import Event
from koordinator.api.meta import KubeObject
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.volume import PersistentVolume, PersistentVolumeClaim
from koordinator.cluster.memory.server import MemoryCluster
from koordinator.cluster.port import Binding
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import AlreadyExistsError, ClusterError, NotFoundError
from koordinator.scheduler.loop import Bound, Scheduler, SchedulerOptions, Unschedulable
from koordinator.scheduler.rules.volumes import SELECTED_NODE
from koordinator.simulator import Embedded
from koordinator.simulator.volume_controller import VolumeController


@dataclass
class SlowBinds:
    """Binds that are sent and answered on demand."""

    cluster: "SlowCluster"
    bindings: Sequence[Binding]
    answers: list[ClusterError | None]
    reported: int = 0

    def send(self, error: ClusterError | None = None) -> None:
        """Make the server handle or lose the next bind."""
        binding = self.bindings[len(self.answers)]
        self.answers.append(error or MemoryCluster.bind(self.cluster, [binding]).results()[0])

    def finished(self) -> Sequence[tuple[int, ClusterError | None]]:
        fresh = list(enumerate(self.answers))[self.reported :]
        self.reported = len(self.answers)
        return fresh

    def results(self) -> Sequence[ClusterError | None]:
        while len(self.answers) < len(self.bindings):
            self.send()
        return self.answers


class SlowCluster(MemoryCluster):
    """Cluster whose binds stay in flight."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__(clock)
        self.batches: list[SlowBinds] = []

    def bind(self, bindings: Sequence[Binding]) -> SlowBinds:  # type: ignore[override]  # the port's
        binds = SlowBinds(self, bindings, [])
        self.batches.append(binds)
        return binds

    @property
    def unsent(self) -> list[SlowBinds]:
        return [b for b in self.batches if len(b.answers) < len(b.bindings)]


def slow(*objects: KubeObject) -> tuple[SlowCluster, VirtualClock, Scheduler]:
    clock = VirtualClock(START_S)
    cluster = SlowCluster(clock)
    cluster.load(objects)
    return cluster, clock, restarted(cluster, clock)


def test_pod_counts_from_its_decision_on() -> None:
    """The next pod sees a full node while the bind of the first is in flight."""
    cluster, _, scheduler = slow(node("n", cpu=1), pod("a", cpu=1))
    assert scheduler.step() == []
    cluster.create(pod("b", cpu=1))
    assert [o.pod for o in only(Unschedulable, scheduler.step())] == ["default/b"]

    cluster.batches[0].send()
    assert places(scheduler.step()) == {"a": "n"}


def test_pod_deleted_during_its_bind_frees_its_node() -> None:
    """The late response about the old pod does not affect a new one of that name."""
    cluster, _, scheduler = slow(node("n", cpu=1), pod("p", cpu=1))
    scheduler.step()
    cluster.delete(Pod, "p", "default")
    cluster.create(pod("p", cpu=1))
    scheduler.step()
    assert len(cluster.batches) == 2

    cluster.batches[0].send()
    (lost,) = only(Unschedulable, scheduler.step())
    assert "binding failed" in lost.message
    assert list(scheduler.state.pods.by_key) == ["default/p"]
    cluster.batches[1].send()
    assert places(scheduler.step()) == {"p": "n"}
    scheduler.state.validate()


@pytest.mark.parametrize("is_back", [True, False])
def test_refused_bind_does_not_reserve_a_deleted_node(is_back: bool) -> None:
    """The node may return before or after the refusal; the pod counts only on its next node."""
    cluster, clock, scheduler = slow(node("n", cpu=1), pod("p", cpu=1))
    scheduler.step()
    cluster.delete(Node, "n")
    cluster.create(node("m", cpu=1))
    scheduler.step()
    if is_back:
        cluster.create(node("n", cpu=1))
        scheduler.step()
    cluster.batches[0].send(ClusterError("connection lost"))
    scheduler.step()
    clock.advance_to(START_S + 2)
    scheduler.step()
    if not is_back:
        cluster.create(node("n", cpu=1))
        scheduler.step()

    scheduler.state.validate()
    assert list(scheduler.state.pods.by_key) == ["default/p"]
    cluster.create(pod("q", cpu=1))
    scheduler.step()
    assert {binding.node for batch in cluster.batches[1:] for binding in batch.bindings} == {
        "n",
        "m",
    }


def test_pod_bound_elsewhere_counts_there() -> None:
    """The events may arrive before the refusal of our own bind."""
    cluster, _, scheduler = slow(
        node("n", cpu=1), node("m", cpu=1, unschedulable=True), pod("p", cpu=1)
    )
    scheduler.step()
    MemoryCluster.bind(cluster, [Binding("default", "p", "m")])
    scheduler.step()
    cluster.batches[0].send()
    scheduler.step()

    state = scheduler.state
    assert [state.nodes.names[p.row] for p in state.pods.by_key.values()] == ["m"]
    assert scheduler.queue.get("default/p") is None
    state.validate()


def test_lost_bind_is_retried() -> None:
    """The node is free until the retry."""
    cluster, clock, scheduler = slow(node("n", cpu=1), pod("p", cpu=1))
    scheduler.step()
    cluster.batches[0].send(ClusterError("connection lost"))
    assert only(Unschedulable, scheduler.step())
    assert not scheduler.state.pods.by_key

    clock.advance_to(START_S + 2)
    scheduler.step()
    cluster.batches[1].send()
    assert places(scheduler.step()) == {"p": "n"}


def test_decisions_wait_for_capacity_of_the_binder() -> None:
    """A late pod of high priority waits for binds in flight, not for the whole queue."""
    clock = VirtualClock(START_S)
    cluster = SlowCluster(clock)
    cluster.load([node("n", cpu=64), *(pod(f"p{i:02}", cpu=1) for i in range(20))])
    scheduler = restarted(cluster, clock, options=SchedulerOptions(in_flight=4, run_limit=4))
    scheduler.step()
    assert sum(len(b.bindings) for b in cluster.batches) == 4
    cluster.load([pod("urgent", cpu=1, priority=9)])
    scheduler.step()
    assert len(cluster.batches) == 1

    cluster.batches[0].results()
    scheduler.step()
    assert cluster.batches[1].bindings[0].name == "urgent"


def test_victim_in_flight_is_bound_before_its_deletion() -> None:
    """A deletion first would allow the bind to place a deleted pod."""
    cluster, _, scheduler = slow(node("n", cpu=1), pod("victim", cpu=1))
    scheduler.step()
    cluster.load([pod("urgent", cpu=1, priority=9)])
    outcomes = scheduler.step()

    assert [type(o).__name__ for o in outcomes][:2] == ["Bound", "Evicted"]
    cluster.batches[-1].results()
    scheduler.step()
    cluster.batches[-1].results()
    assert "urgent" in places(scheduler.step())


@settings(max_examples=examples(25), deadline=None)
@given(
    moves=st.lists(
        st.sampled_from(["new", "send", "lose", "delete", "step", "wait", "gone", "back"]),
        max_size=40,
    )
)
def test_nothing_leaks_and_nothing_is_overcommitted(moves: list[str]) -> None:
    """Responses, losses and deletions of pods and of a node come in any order."""
    cluster, clock, scheduler = slow(node("n", cpu=3), node("m", cpu=2))
    created = 0
    for move in moves:
        if move == "new":
            with suppress(AlreadyExistsError):
                cluster.create(pod(f"p{created % 7}", cpu=1))
            created += 1
        elif move in ("send", "lose") and cluster.unsent:
            error = ClusterError("connection lost") if move == "lose" else None
            cluster.unsent[0].send(error)
        elif move == "delete" and (pods := cluster.list(Pod).items):
            cluster.delete(Pod, pods[0].metadata.name, "default")
        elif move == "gone":
            with suppress(NotFoundError):
                cluster.delete(Node, "n")
        elif move == "back":
            with suppress(AlreadyExistsError):
                cluster.create(node("n", cpu=3))
        elif move == "wait":
            clock.advance_to(clock.now_s() + 11)
        scheduler.step()
        scheduler.state.validate()
    with suppress(AlreadyExistsError):
        cluster.create(node("n", cpu=3))
    scheduler.step()
    while cluster.unsent:
        cluster.unsent[0].results()
        clock.advance_to(clock.now_s() + 11)
        scheduler.step()
    pods = cluster.list(Pod).items
    on = {name: sum(p.spec.node_name == name for p in pods) for name in ("n", "m")}
    assert on["n"] <= 3
    assert on["m"] <= 2
    assert {p.key for p in pods if p.spec.node_name} == set(scheduler.state.pods.by_key)
    assert len(pods) <= 5 or sum(on.values()) == 5


# -- volumes ---------------------------------------------------------------------------------


def volume_world() -> tuple[KubeObject, ...]:
    claim = made(
        "PersistentVolumeClaim",
        "data",
        spec={
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    )
    fast = made(
        "StorageClass",
        "fast",
        "storage.k8s.io/v1",
        provisioner="csi.example",
        volumeBindingMode="WaitForFirstConsumer",
    )
    user = pod("p", volumes=[{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}])
    return node("n"), fast, claim, user


def test_a_pod_is_bound_after_its_volume() -> None:
    """The node is written to the claim first; the bind waits for the provisioner."""
    clock = VirtualClock(START_S)
    cluster = MemoryCluster(clock)
    cluster.load(volume_world())
    scheduler = restarted(cluster, clock)
    assert scheduler.step() == []
    claim = cluster.get(PersistentVolumeClaim, "data", "default")
    assert claim.metadata.annotations[SELECTED_NODE] == "n"
    assert not cluster.get(Pod, "p", "default").spec.node_name

    volumes = VolumeController(cluster)
    assert volumes.step()
    assert volumes.step()
    assert places(scheduler.step()) == {"p": "n"}
    assert len(cluster.list(PersistentVolume).items) == 1


def test_volume_timeout_unreserves_the_pod() -> None:
    """After bindTimeoutSeconds (600) the pod is unreserved and retried."""
    clock = VirtualClock(START_S)
    cluster = MemoryCluster(clock)
    cluster.load(volume_world())
    scheduler = restarted(cluster, clock)
    scheduler.step()
    assert scheduler.next_wakeup_s() == START_S + 600
    clock.advance_to(START_S + 600)

    (failed,) = only(Unschedulable, scheduler.step())
    assert "timed out waiting for its volumes or devices" in failed.message
    assert not scheduler.state.pods.by_key


def test_failed_provisioning_unreserves_the_pod() -> None:
    """The provisioner removes the node from the claim; the pod may go elsewhere."""
    clock = VirtualClock(START_S)
    cluster = MemoryCluster(clock)
    cluster.load(volume_world())
    scheduler = restarted(cluster, clock)
    scheduler.step()
    removal = {"metadata": {"annotations": {SELECTED_NODE: None}}}
    cluster.patch(PersistentVolumeClaim, "data", "default", removal)

    (failed,) = only(Unschedulable, scheduler.step())
    assert failed.message == 'binding failed: provisioning failed for PVC "data"'


# -- repeated events ---------------------------------------------------------------------------


def test_repeated_failure_increments_the_event_count() -> None:
    """Within six minutes it is one event with a count."""
    one = Embedded(now_s=START_S)
    one.load([node("n", cpu=1), pod("p", cpu=2)])
    for _ in range(3):
        one.scheduler.step()
        one.clock.advance_to(one.clock.now_s() + 301)
    one.scheduler.step()

    (event,) = one.cluster.list(Event).items
    assert event.series is not None
    assert event.series.count == 4
    assert len(events(one, "p")) == 1
    assert not only(Bound, one.scheduler.step())
