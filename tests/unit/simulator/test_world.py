"""Virtual time: what pods, nodes and the scheduler do in it, and when."""

import math

import pytest
from tests import worlds

from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import BugError
from koordinator.simulator import Submission, World
from koordinator.simulator.stages import UNREACHABLE, PodLife, PodStage

TOLERATES_A_MINUTE = [
    {"key": UNREACHABLE, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": 60}
]


class Journal:
    """Records the events that it receives."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.lines: list[str] = []
        world.set_observer(self)

    def submitted(self, kind: str) -> None:
        self._add("submitted", kind)

    def resubmitted(self, kind: str) -> None:
        self._add("resubmitted", kind)

    def scheduled(self, kind: str, waited_s: float) -> None:
        self._add("scheduled", f"{kind} after {waited_s:g}")

    def finished(self, kind: str) -> None:
        self._add("finished", kind)

    def failed(self, kind: str) -> None:
        self._add("failed", kind)

    def event(self, time_s: float, text: str) -> None:
        assert time_s == self._world.now_s
        self._add("event", text)

    def node_failed(self, time_s: float, text: str) -> None:
        assert time_s == self._world.now_s
        self._add("node failed", text)

    def _add(self, what: str, text: str) -> None:
        self.lines.append(f"{self._world.now_s:g} {what} {text}")


def world_of(*nodes: Node, **options: float) -> World:
    world = World(stopwatch=VirtualClock(), **options)  # type: ignore[arg-type]  # all are numbers
    world.load(nodes)
    return world


def submission(
    name: str, at_s: float = 0.0, work_s: float = math.inf, cpu: int = 1, **life: float
) -> Submission:
    pod = worlds.pod(name, cpu=cpu, tolerations=TOLERATES_A_MINUTE)
    return Submission(at_s, pod, name, PodLife(work_s=work_s, **life))  # type: ignore[arg-type]


def test_a_pod_works_from_its_bind_on_and_frees_its_place() -> None:
    """The second pod waits for the end of the first, and is tried again when that frees its CPU."""
    world = world_of(worlds.node("n", cpu=1))
    journal = Journal(world)
    world.submit([submission("a", at_s=5, work_s=100), submission("b", at_s=10, work_s=100)])

    world.run(300)

    assert journal.lines == [
        "5 submitted a",
        "5 scheduled a after 0",
        "10 submitted b",
        "105 finished a",
        "105 scheduled b after 95",
        "205 finished b",
    ]
    assert world.now_s == 300


def test_a_pod_that_is_done_is_deleted_unless_it_is_to_be_kept() -> None:
    """A kept one has its start time and has succeeded, and holds nothing."""
    for keep, expected in ((False, []), (True, ["Succeeded"])):
        world = World(keep_finished=keep)
        world.load([worlds.node("n", cpu=1)])
        world.submit([submission("a", work_s=10), submission("b", at_s=20, work_s=1e6)])
        world.run(50)
        ended = [p for p in world.cluster.list(Pod).items if p.metadata.name == "a"]
        assert [p.status.phase for p in ended] == expected
        assert world.cluster.get(Pod, "b", "default").status.phase == "Running"


def test_events_of_one_moment_keep_their_order() -> None:
    """Ends come before submissions, and submissions in the order in which they were planned."""
    world = world_of(worlds.node("n", cpu=2))
    journal = Journal(world)
    world.submit([submission("first", work_s=60, cpu=2)])
    world.submit(submission(name, at_s=60, work_s=1) for name in "bac")

    world.run(60)

    assert journal.lines[2:] == [
        "60 finished first",
        "60 submitted b",
        "60 submitted a",
        "60 submitted c",
        "60 scheduled b after 0",
        "60 scheduled a after 0",
    ]


def test_samples_see_the_end_of_their_moment() -> None:
    """Samples are taken at 0, at multiples of the interval and at the end, after the scheduler."""
    world = world_of(worlds.node("n"))
    world.submit([submission("a"), submission("b", at_s=100)])
    seen: list[tuple[float, int]] = []

    def look(sampled: World) -> None:
        seen.append((sampled.now_s, sampled.counts[PodStage.RUNNING]))

    world.run(150, sample_every_s=100, on_sample=look)
    world.run(250, sample_every_s=100, on_sample=look)

    assert seen == [(0, 1), (100, 2), (150, 2), (200, 2), (250, 2)]


def test_nothing_can_be_planned_for_the_past() -> None:
    """A past event would change decisions that have been made."""
    world = world_of(worlds.node("n"))
    world.run(100)

    with pytest.raises(BugError, match=r"must not be before 100\.?0?, got 99"):
        world.submit([submission("late", at_s=99)])


def test_a_rejected_pod_is_retried_without_events() -> None:
    """The scheduler's own wake-up after five minutes is an event like any other."""
    world = world_of(worlds.node("n", cpu=1))
    world.submit([submission("big", cpu=2)])

    world.run(1_000)

    assert world.scheduler.attempts == 4  # at 0, 300, 600 and 900 seconds
    assert world.pods["default/big"].why.startswith("0/1 nodes are available: 1 Insufficient cpu.")


class TestNodeFailure:
    """A node fails; 50 s later that is noticed; a minute later its pods are given up."""

    def test_lost_pods_are_submitted_again_elsewhere(self) -> None:
        """The work restarts, under a new name."""
        world = world_of(worlds.node("n1"), worlds.node("n2"))
        journal = Journal(world)
        world.submit([submission("a", work_s=500, resubmit_after_s=10)])
        world.run(0)
        home = world.pods["default/a"].node
        world.fail_node(100, home, repaired_after_s=5_000)

        world.run(1_000)

        assert journal.lines[2:] == [
            f"100 node failed {home} failed with 1 pods",
            "210 failed a",
            "220 resubmitted a",
            "220 scheduled a after 0",
            "720 finished a",
        ]
        first, second = world.history
        assert (first.key, second.key) == ("default/a", "default/a-r1")
        assert second.node != home

    def test_a_node_that_is_back_in_time_keeps_its_pods(self) -> None:
        """Containers restart, even at the moment at which the pods would be lost."""
        world = world_of(worlds.node("n"))
        world.submit([submission("a", work_s=500)])
        world.fail_node(100, "n", repaired_after_s=110)

        world.run(2_000)

        (run,) = world.history
        assert (run.stage, run.ended_s) == (PodStage.FINISHED, 210 + 500)

    def test_the_cluster_shows_it_only_when_it_is_noticed(self) -> None:
        """Until then the scheduler sends pods there; from then on the taints keep them away."""
        world = world_of(worlds.node("n"), grace_period_s=50)
        world.fail_node(100, "n", repaired_after_s=500)
        world.submit([submission("early", at_s=120), submission("late", at_s=160)])

        world.run(120)
        assert world.pods["default/early"].stage is PodStage.INTERRUPTED
        assert not world.cluster.get(Node, "n").spec.taints
        world.run(400)
        node = world.cluster.get(Node, "n")
        assert [(t.key, t.effect) for t in node.spec.taints] == [
            (UNREACHABLE, "NoSchedule"),
            (UNREACHABLE, "NoExecute"),
        ]
        assert node.status.conditions[-1].status == "Unknown"
        assert world.nodes_down() == ["n"]
        assert "untolerated taint" in world.pods["default/late"].why

        world.run(601)
        assert not world.cluster.get(Node, "n").spec.taints
        assert world.pods["default/late"].stage is PodStage.RUNNING

    def test_the_owner_gives_up_after_so_many_times(self) -> None:
        """A pod that is lost with every node is submitted again twice, no more."""
        world = world_of(worlds.node("n"))
        for at_s in (100, 1_000, 2_000, 3_000):
            world.fail_node(at_s, "n", repaired_after_s=600)
        world.submit([submission("a", resubmissions=2)])

        world.run(5_000)

        assert [run.pod.metadata.name for run in world.history] == ["a", "a-r1", "a-r2"]
        assert world.counts[PodStage.LOST] == 3

    def test_a_failed_node_does_not_fail_again(self) -> None:
        """The first failure and its repair stand."""
        world = world_of(worlds.node("n"))
        journal = Journal(world)
        world.fail_node(100, "n", repaired_after_s=100)
        world.fail_node(150, "n", repaired_after_s=900)

        world.run(400)

        assert journal.lines == ["100 node failed n failed with 0 pods", "200 event n is back"]


def test_a_preempted_pod_is_submitted_again() -> None:
    """The owner ignores who deleted the pod; the preemptor gets the room immediately."""
    world = world_of(worlds.node("n", cpu=1))
    journal = Journal(world)
    pod = worlds.pod("vip", cpu=1, priority=None, priorityClassName="system-cluster-critical")
    world.submit([submission("a"), Submission(100, pod, "vip")])

    world.run(200)

    assert journal.lines == [
        "0 submitted a",
        "0 scheduled a after 0",
        "100 submitted vip",
        "100 event default/a made room for default/vip",
        "100 failed a",
        "100 scheduled vip after 0",
        "100 resubmitted a",
    ]
