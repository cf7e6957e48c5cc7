"""Binding takes time: what the scheduler does while the API server has not answered yet."""

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
from koordinator.scheduler.rules.volumes.volume_claims import SELECTED_NODE
from koordinator.simulator import Embedded
from koordinator.simulator.volume_controller import VolumeController


@dataclass
class SlowBinds:
    """Bindings that are sent when told to, and answered when asked after."""

    cluster: "SlowCluster"
    bindings: Sequence[Binding]
    answers: list[ClusterError | None]
    told: int = 0

    def send(self, error: ClusterError | None = None) -> None:
        """Let the server handle the next one, or lose it."""
        binding = self.bindings[len(self.answers)]
        self.answers.append(error or MemoryCluster.bind(self.cluster, [binding]).results()[0])

    def finished(self) -> Sequence[tuple[int, ClusterError | None]]:
        fresh = list(enumerate(self.answers))[self.told :]
        self.told = len(self.answers)
        return fresh

    def results(self) -> Sequence[ClusterError | None]:
        while len(self.answers) < len(self.bindings):
            self.send()
        return self.answers


class SlowCluster(MemoryCluster):
    """A cluster on which bindings stay under way."""

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


def test_a_pod_counts_from_the_moment_it_is_decided() -> None:
    """The next pod sees a full node while the bind of the first is under way."""
    cluster, _, scheduler = slow(node("n", cpu=1), pod("a", cpu=1))
    assert scheduler.step() == []
    cluster.create(pod("b", cpu=1))
    assert [o.pod for o in only(Unschedulable, scheduler.step())] == ["default/b"]

    cluster.batches[0].send()
    assert places(scheduler.step()) == {"a": "n"}


def test_a_pod_deleted_meanwhile_gives_its_place_to_the_next_of_its_name() -> None:
    """The late answer about the old pod leaves the new one's place alone."""
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
def test_a_refused_pod_is_not_kept_for_a_node_that_went_meanwhile(is_back: bool) -> None:
    """Be the node back before the refusal or after it, the pod counts only where it goes next."""
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


def test_a_pod_bound_elsewhere_meanwhile_counts_there() -> None:
    """The events may come before the refusal of our own binding."""
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


def test_a_lost_binding_is_tried_again() -> None:
    """Its place is free until then."""
    cluster, clock, scheduler = slow(node("n", cpu=1), pod("p", cpu=1))
    scheduler.step()
    cluster.batches[0].send(ClusterError("connection lost"))
    assert only(Unschedulable, scheduler.step())
    assert not scheduler.state.pods.by_key

    clock.advance_to(START_S + 2)
    scheduler.step()
    cluster.batches[1].send()
    assert places(scheduler.step()) == {"p": "n"}


def test_no_more_is_decided_than_can_be_sent() -> None:
    """A pod of high priority that comes late waits for what is under way, not for the rest."""
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


def test_a_victim_on_its_way_is_bound_before_it_is_deleted() -> None:
    """Deleting first would let the binding bring nobody to the node."""
    cluster, _, scheduler = slow(node("n", cpu=1), pod("victim", cpu=1))
    scheduler.step()
    cluster.load([pod("urgent", cpu=1, priority=9)])
    outcomes = scheduler.step()

    assert [type(o).__name__ for o in outcomes][:2] == ["Bound", "Evicted"]
    cluster.batches[-1].results()
    scheduler.step()
    cluster.batches[-1].results()
    assert "urgent" in places(scheduler.step())


@settings(max_examples=60, deadline=None)
@given(
    moves=st.lists(
        st.sampled_from(["new", "send", "lose", "delete", "step", "wait", "gone", "back"]),
        max_size=40,
    )
)
def test_nothing_leaks_and_nothing_is_overcommitted(moves: list[str]) -> None:
    """Whatever order answers, losses and deletions come in, of pods and of a node."""
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
    """The claim is told the node first; the bind waits for the provisioner."""
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


def test_a_volume_that_never_comes_sends_the_pod_back() -> None:
    """After bindTimeoutSeconds (600) its place is given back and it is tried again."""
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


def test_a_provisioner_that_gives_up_sends_the_pod_back() -> None:
    """It takes the node out of the claim; the pod may go elsewhere."""
    clock = VirtualClock(START_S)
    cluster = MemoryCluster(clock)
    cluster.load(volume_world())
    scheduler = restarted(cluster, clock)
    scheduler.step()
    gone = {"metadata": {"annotations": {SELECTED_NODE: None}}}
    cluster.patch(PersistentVolumeClaim, "data", "default", gone)

    (failed,) = only(Unschedulable, scheduler.step())
    assert failed.message == 'binding failed: provisioning failed for PVC "data"'


# -- events that come again ------------------------------------------------------------------


def test_a_failure_that_comes_again_is_counted_not_repeated() -> None:
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
