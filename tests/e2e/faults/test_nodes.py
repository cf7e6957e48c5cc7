"""Nodes that go while pods are on them or on their way to them, and come back."""

import pytest
from tests.e2e.faults.stage import NODES, Stage
from tests.e2e.fleet import node, pod
from tests.e2e.interposer import BIND
from tests.e2e.waiting import eventually
from tests.e2e.witness import overcommitted


def test_recreated_node_accounts_for_its_pods(stage: Stage) -> None:
    """Meanwhile the other nodes go on as ever."""
    stage.start()
    stage.add_nodes(node("n1", pods=2))
    stage.add_pods(pod("a"))
    assert stage.witness.node_of("a") == "n1"

    stage.api.request("DELETE", f"{NODES}/n1")
    stage.add_nodes(node("n2", pods=1))
    stage.add_pods(pod("b"))
    assert stage.witness.node_of("b") == "n2"
    stage.add_pods(pod("c"), pod("d"))
    stage.wait_for_waiting(2)

    stage.add_nodes(node("n1", pods=2))
    stage.witness.wait_for(3)
    stage.wait_for_waiting(1)
    assert sorted(stage.witness.bound.values()) == ["n1", "n1", "n2"]
    assert not overcommitted(stage.api)


@pytest.mark.parametrize("answer", [None, 403])
def test_node_is_deleted_during_a_bind(stage: Stage, answer: int | None) -> None:
    """A pod bound to the node counts there when the node is added again."""
    stage.start()
    stage.add_nodes(node("n1", pods=1))
    blocked = stage.interposer.hold("POST", f"/a{BIND}", times=1)
    if answer is not None:
        stage.interposer.answer("POST", f"/a{BIND}", answer)
    with blocked:
        stage.add_pods(pod("a"))
        blocked.wait_for_call()
        stage.api.request("DELETE", f"{NODES}/n1")
        stage.add_nodes(node("n2", pods=1))
        eventually(lambda: (stage.handled("NodeAdd"), stage.handled("NodeDelete")) == (2, 1))
    was_bound_to = stage.witness.node_of("a")
    assert was_bound_to == ("n1" if answer is None else "n2")

    stage.add_nodes(node("n1", pods=1))
    stage.add_pods(pod("b"))
    assert stage.witness.node_of("b") == {"n1": "n2", "n2": "n1"}[was_bound_to]
    stage.add_pods(pod("c"))
    stage.wait_for_waiting(1)
    assert not overcommitted(stage.api)
    assert len(stage.witness.bound) == 2


def test_node_is_recreated_before_its_bind_fails(stage: Stage) -> None:
    """The assumed pod is released."""
    stage.start()
    stage.add_nodes(node("n1", pods=1))
    blocked = stage.interposer.hold("POST", f"/a{BIND}", times=1)
    stage.interposer.answer("POST", f"/a{BIND}", 403)
    with blocked:
        stage.add_pods(pod("a"))
        blocked.wait_for_call()
        stage.api.request("DELETE", f"{NODES}/n1")
        stage.add_nodes(node("n1", pods=1))
        eventually(lambda: stage.handled("NodeAdd") == 2)

    assert stage.witness.node_of("a") == "n1"
    stage.add_pods(pod("b"))
    stage.wait_for_waiting(1)
    stage.delete_pod("a")
    assert stage.witness.node_of("b") == "n1"
