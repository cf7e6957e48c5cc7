"""Bounded log of changes to pods and nodes."""

from msgspec.structs import replace
from tests.unit.dashboard.dashboards import settled
from tests.worlds import node, pod

from koordinator.api.meta import Condition, KubeObject
from koordinator.dashboard.overview import OverviewBuilder
from koordinator.dashboard.sources import SourcePhase, SourceStatus
from koordinator.dashboard.timeline import FLAPS, MAX_MARKS, MAX_NAMED, ClusterChanges


def look(log: ClusterChanges, now_s: float, *objects: KubeObject, pods: bool = True) -> list[str]:
    """Show a cluster at a moment; return the texts of the log."""
    handle = settled(*objects).scheduler.handle
    status = SourceStatus(phase=SourcePhase.LIVE, now_s=now_s)
    log.update(handle.state, OverviewBuilder(handle).build(status), pods=pods)
    return [mark.text for mark in log.marks()]


def unready(name: str) -> KubeObject:
    down = Condition(type="Ready", status="False")
    whole = node(name, cpu=4)
    return replace(whole, status=replace(whole.status, conditions=(down,)))


def test_initial_objects_are_no_changes() -> None:
    log = ClusterChanges()
    assert look(log, 0, node("a", cpu=4), pod("p", cpu=1, on="a")) == []
    assert look(log, 10, node("a", cpu=4), pod("p", cpu=1, on="a")) == []


def test_changes_of_pods_and_nodes_are_recorded() -> None:
    """A new assignment names the node; a pod that is pending again has not ended."""
    log = ClusterChanges()
    look(log, 0, node("a", cpu=4), pod("p", cpu=1, on="a"), pod("q", cpu=1, on="a"))
    texts = look(log, 10, node("b", cpu=4), pod("r", cpu=1), pod("q", cpu=9))

    assert texts == [
        "node b was added",
        "node a was removed",
        "pod default/r was assigned to node b",
        "pod default/q is pending again",
        "pod default/p ended",
    ]


def test_frequent_readiness_changes_are_flapping() -> None:
    """Changes older than an hour do not count."""
    log = ClusterChanges()
    for turn in range(FLAPS + 1):
        look(log, 60.0 * turn, unready("a") if turn % 2 else node("a", cpu=4), node("b", cpu=4))
    last_s = 60.0 * FLAPS

    assert log.flapping(last_s) == {"a": (FLAPS, 60.0)}
    assert log.flapping(last_s + 3600) == {}


def test_log_is_bounded_and_summarises_many_pods() -> None:
    """Many pods in one comparison are some names and a number."""
    log = ClusterChanges()
    look(log, 0, node("a", cpu=400))
    texts = look(log, 10, node("a", cpu=400), *(pod(f"p{n:03}", cpu=1) for n in range(60)))

    assert len(texts) == MAX_NAMED + 1
    assert texts[-1] == "pod 40 others"
    for n in range(MAX_MARKS // MAX_NAMED):
        look(log, 20.0 + 10 * n, node("a", cpu=400), *(pod(f"q{n}-{m}") for m in range(30)))
    assert len(log.marks()) == MAX_MARKS


def test_seek_to_an_earlier_time_clears_the_log() -> None:
    log = ClusterChanges()
    look(log, 100, node("a", cpu=4))
    look(log, 110, node("b", cpu=4))
    assert look(log, 50, node("a", cpu=4)) == []
