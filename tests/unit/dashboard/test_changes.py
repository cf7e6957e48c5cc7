"""What has changed while a dashboard watched: pods and nodes that came and went; bounded."""

from msgspec.structs import replace
from tests.unit.dashboard.dashboards import settled
from tests.worlds import node, pod

from koordinator.api.meta import Condition, KubeObject
from koordinator.dashboard.changes import FLAPS, MOST_MARKS, NAMED, ClusterChanges
from koordinator.dashboard.overview import OverviewBuilder
from koordinator.dashboard.sources import SourcePhase, SourceStatus


def look(log: ClusterChanges, now_s: float, *objects: KubeObject, pods: bool = True) -> list[str]:
    """Show a cluster at a moment; return what has been told by then."""
    handle = settled(*objects).scheduler.handle
    status = SourceStatus(phase=SourcePhase.LIVE, now_s=now_s)
    log.look(handle.state, OverviewBuilder(handle).build(status), pods=pods)
    return [mark.text for mark in log.marks()]


def unready(name: str) -> KubeObject:
    down = Condition(type="Ready", status="False")
    whole = node(name, cpu=4)
    return replace(whole, status=replace(whole.status, conditions=(down,)))


def test_what_was_there_at_first_has_not_changed() -> None:
    log = ClusterChanges()
    assert look(log, 0, node("a", cpu=4), pod("p", cpu=1, on="a")) == []
    assert look(log, 10, node("a", cpu=4), pod("p", cpu=1, on="a")) == []


def test_pods_and_nodes_come_and_go() -> None:
    """Where a pod has got its node is told; a pod that waits again is not one that has left."""
    log = ClusterChanges()
    look(log, 0, node("a", cpu=4), pod("p", cpu=1, on="a"), pod("q", cpu=1, on="a"))
    told = look(log, 10, node("b", cpu=4), pod("r", cpu=1), pod("q", cpu=9))

    assert told == [
        "node b is there",
        "node a is gone",
        "pod default/r has got the node b",
        "pod default/q waits again",
        "pod default/p has left",
    ]


def test_nodes_that_come_and_go_are_flapping() -> None:
    """As often as that within an hour; whoever was ready for an hour is forgotten."""
    log = ClusterChanges()
    for turn in range(FLAPS + 1):
        look(log, 60.0 * turn, unready("a") if turn % 2 else node("a", cpu=4), node("b", cpu=4))
    last_s = 60.0 * FLAPS

    assert log.flapping(last_s) == {"a": (FLAPS, 60.0)}
    assert log.flapping(last_s + 3600) == {}


def test_the_log_is_bounded_and_names_a_few() -> None:
    """Hundreds of pods that start at once are some names and a number."""
    log = ClusterChanges()
    look(log, 0, node("a", cpu=400))
    told = look(log, 10, node("a", cpu=400), *(pod(f"p{n:03}", cpu=1) for n in range(60)))

    assert len(told) == NAMED + 1
    assert told[-1] == "pod 40 others"
    for n in range(MOST_MARKS // NAMED):
        look(log, 20.0 + 10 * n, node("a", cpu=400), *(pod(f"q{n}-{m}") for m in range(30)))
    assert len(log.marks()) == MOST_MARKS


def test_time_that_goes_back_begins_anew() -> None:
    """A recording that is shown again from an earlier moment has had no changes yet."""
    log = ClusterChanges()
    look(log, 100, node("a", cpu=4))
    look(log, 110, node("b", cpu=4))
    assert look(log, 50, node("a", cpu=4)) == []
