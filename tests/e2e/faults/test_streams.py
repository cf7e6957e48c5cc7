"""Watches that break, and history that the server has forgotten by then."""

from tests.e2e.faults.stage import NODES, WITHOUT_ELECTION, Stage
from tests.e2e.fleet import node, pod
from tests.e2e.interposer import WATCH
from tests.e2e.waiting import eventually
from tests.e2e.witness import overcommitted

PODS = 300
SLOWLY = WITHOUT_ELECTION | {"clientConnection": {"qps": 100, "burst": 1}}


def test_streams_that_break_are_resumed(stage: Stage) -> None:
    """Nothing is listed again, and nothing is missed."""
    stage.start(SLOWLY)
    stage.add_nodes(*(node(f"n{i}", pods=PODS // 10) for i in range(10)))
    stage.add_pods(*(pod(f"p{i}") for i in range(PODS)))
    lists, opened = len(stage.interposer.lists()), len(stage.interposer.calls_of("GET", WATCH))
    stage.witness.wait_for(PODS // 5)

    assert stage.interposer.cut_streams() == opened
    assert len(stage.witness.bound) < PODS

    stage.witness.wait_for(PODS)
    eventually(lambda: len(stage.interposer.calls_of("GET", WATCH)) == 2 * opened)
    eventually(lambda: stage.cached("pods") == PODS)
    assert len(stage.interposer.lists()) == lists
    assert not overcommitted(stage.api)


def test_changes_during_a_gap_are_applied(stage: Stage) -> None:
    """A pod that went, a node that went, a node that came and a pod that came, all unseen."""
    stage.start()
    stage.add_nodes(node("n0", pods=0), node("n1", pods=1), node("n2", pods=1))
    stage.add_pods(pod("a"), pod("b"))
    stage.witness.wait_for(2)
    left = stage.witness.node_of("a")
    stage.add_pods(pod("c"))
    stage.wait_for_waiting(1)
    lists = len(stage.interposer.lists())

    with stage.interposer.hold("GET", WATCH) as blocked:
        opened = stage.interposer.cut_streams()
        blocked.wait_for_call(opened)  # nothing that happens now is seen
        stage.delete_pod("a")
        stage.api.request("DELETE", f"{NODES}/n0")
        stage.add_nodes(node("n3", pods=1))
        stage.add_pods(pod("d"))
        stage.controlplane.compact_history()

    assert {stage.witness.node_of(name, 60) for name in ("c", "d")} == {left, "n3"}
    assert len(stage.interposer.lists()) > lists
    assert not overcommitted(stage.api)
    eventually(lambda: (stage.cached("nodes"), stage.cached("pods")) == (3, 3))
