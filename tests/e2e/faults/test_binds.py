"""Bindings that come late, are refused, or whose answer gets lost."""

import pytest
from tests.e2e.faults.stage import Stage
from tests.e2e.fleet import node, pod
from tests.e2e.interposer import BIND
from tests.e2e.waiting import eventually
from tests.e2e.witness import overcommitted

PODS_WATCH = r"^/api/v1/pods\?watch=true"
FAILED_HALF_WAY = {
    "kind": "Status",
    "reason": "Conflict",
    "code": 409,
    "message": 'Operation cannot be fulfilled on pods/binding "a": rpc error: '
    "code = Unavailable desc = error reading from server: EOF",
}


def place(name: str) -> dict[str, object]:
    """Return a node with room for one pod."""
    return node(name, pods=1)


def test_bind_is_retried_after_the_delay_of_a_busy_server(stage: Stage) -> None:
    """Retry-After is waited for; other pods are bound meanwhile, and it is no failure."""
    stage.start()
    stage.add_nodes(place("n1"), place("n2"), place("n3"))
    busy = stage.interposer.answer("POST", f"/a{BIND}", 429, headers={"Retry-After": "3"})

    stage.add_pods(pod("a"))
    busy.wait_for_call()
    stage.add_pods(pod("b"), pod("c"))

    stage.witness.node_of("a")
    first, second = stage.interposer.calls_of("POST", f"/a{BIND}")
    others = stage.interposer.calls_of("POST", f"/[bc]{BIND}")
    assert second.at_s - first.answered_s >= 3
    assert len([it for it in others if it.answered_s < second.at_s]) == 2
    assert len(stage.witness.bound) == 3
    assert not overcommitted(stage.api)
    assert stage.count("error") == 0


@pytest.mark.parametrize("news_comes_first", [True, False])
def test_a_pod_that_another_has_bound_counts_where_it_is(
    stage: Stage, news_comes_first: bool
) -> None:
    """The place that it was to have is given to the next pod, and no place is given twice.

    Whether its event comes before the refusal or after it.
    """
    stage.start()
    stage.add_nodes(place("n1"), place("n2"))
    with stage.interposer.hold("POST", f"/a{BIND}") as blocked:
        stage.add_pods(pod("a"))
        wanted = blocked.wait_for_call().manifest["target"]["name"]
        other = {"n1": "n2", "n2": "n1"}[wanted]
        let_news_through = stage.interposer.stall_streams(PODS_WATCH)
        if news_comes_first:
            let_news_through()
        stage.bind("a", other)
        if news_comes_first:
            stage.add_pods(pod("b"))
            assert stage.witness.node_of("b") == wanted
    eventually(lambda: blocked.calls[0].status == 409)
    if not news_comes_first:
        eventually(lambda: stage.count("error") == 1)
        let_news_through()
        stage.add_pods(pod("b"))
        assert stage.witness.node_of("b") == wanted
    stage.add_pods(pod("c"))

    stage.wait_for_waiting(1)
    assert stage.witness.node_of("a") == other
    assert set(stage.witness.bound.values()) == {"n1", "n2"}
    assert not overcommitted(stage.api)


@pytest.mark.parametrize("news_comes_first", [True, False])
def test_a_pod_that_is_deleted_while_it_is_bound_gives_its_place_back(
    stage: Stage, news_comes_first: bool
) -> None:
    """A new pod of the same name gets it, and counts there."""
    stage.start()
    stage.add_nodes(place("n1"))
    with stage.interposer.hold("POST", f"/a{BIND}", times=1) as blocked:
        stage.add_pods(pod("a"))
        blocked.wait_for_call()
        let_news_through = stage.interposer.stall_streams(PODS_WATCH)
        if news_comes_first:
            let_news_through()
        stage.delete_pod("a")
        stage.add_pods(pod("a"))
        if news_comes_first:
            assert stage.witness.node_of("a") == "n1"
    eventually(lambda: blocked.calls[0].status in (404, 409))
    let_news_through()

    assert stage.witness.node_of("a") == "n1"
    stage.add_pods(pod("b"))
    stage.wait_for_waiting(1)
    assert len(stage.witness.bound) == 1
    stage.delete_pod("a")
    assert stage.witness.node_of("b") == "n1"


def test_bind_with_a_lost_answer_is_resolved(stage: Stage) -> None:
    """The pod counts once, is not bound again, and no failure is reported."""
    stage.start()
    stage.add_nodes(place("n1"), place("n2"))
    stage.interposer.lose_answer("POST", f"/a{BIND}")

    for name in ("a", "b"):
        stage.add_pods(pod(name))
        stage.witness.node_of(name)
    stage.add_pods(pod("c"))

    stage.wait_for_waiting(1)
    assert len(stage.interposer.calls_of("POST", f"/a{BIND}")) == 1
    assert stage.count("error") == 0
    assert sorted(stage.witness.bound.values()) == ["n1", "n2"]
    eventually(lambda: stage.reasons("a") == ["Scheduled"])


def test_a_binding_that_never_reached_the_server_is_sent_again(stage: Stage) -> None:
    """A connection that breaks before costs a moment, and it is no failure."""
    stage.start()
    stage.add_nodes(place("n1"))
    stage.interposer.drop("POST", f"/a{BIND}", times=2)

    stage.add_pods(pod("a"))

    assert stage.witness.node_of("a") == "n1"
    assert len(stage.interposer.calls_of("POST", f"/a{BIND}")) == 3
    assert stage.count("error") == 0


@pytest.mark.parametrize("status", [500, 503])
def test_bind_is_resolved_after_a_server_error(stage: Stage, status: int) -> None:
    """A failure leaves open whether the pod is bound; if it isn't, it is tried again."""
    stage.start()
    stage.add_nodes(place("n1"))
    stage.interposer.answer("POST", f"/a{BIND}", status, times=2)

    stage.add_pods(pod("a"))

    assert stage.witness.node_of("a") == "n1"
    assert len(stage.interposer.calls_of("POST", f"/a{BIND}")) == 3
    assert len(stage.interposer.calls_of("GET", "/pods/a$")) == 2
    assert stage.count("error") == 0


@pytest.mark.parametrize("news_comes_first", [True, False])
def test_bind_is_resolved_after_a_false_conflict(stage: Stage, news_comes_first: bool) -> None:
    """If etcd fails during a binding, the API server answers 409 whether it is done or not.

    If it is, the pod counts where it is, and is not tried again.
    """
    stage.start()
    stage.add_nodes(place("n1"), place("n2"))
    blocked = stage.interposer.hold("POST", f"/a{BIND}", times=1)
    with stage.interposer.hold_answer("POST", f"/a{BIND}", 409, FAILED_HALF_WAY) as done:
        stage.add_pods(pod("a"))
        blocked.wait_for_call()
        let_news_through = stage.interposer.stall_streams(PODS_WATCH)
        if news_comes_first:
            let_news_through()
        blocked.end()
        taken = stage.witness.node_of("a")
        if news_comes_first:
            eventually(lambda: stage.handled("AssignedPodUpdate"))
    eventually(lambda: done.calls[0].status == 409)
    if not news_comes_first:
        eventually(lambda: stage.cached("assumed_pods") == 0)
        let_news_through()
    stage.add_pods(pod("b"))
    assert stage.witness.node_of("b") != taken
    stage.add_pods(pod("c"))

    stage.wait_for_waiting(1)
    assert not overcommitted(stage.api)
    assert len(stage.interposer.calls_of("POST", f"/a{BIND}")) == 1
    eventually(lambda: stage.reasons("a") == ["Scheduled"])


def test_an_outage_that_outlasts_our_patience(stage: Stage) -> None:
    """A place that was given up in doubt is not given out before the events are there."""
    everything = [(method, ".") for method in ("GET", "POST", "PATCH")]
    stage.start()
    stage.add_nodes(place("n1"))
    blocked = stage.interposer.hold("POST", f"/a{BIND}", times=1)
    stage.interposer.lose_answer("POST", f"/a{BIND}")
    stage.add_pods(pod("a"))
    blocked.wait_for_call()
    stage.add_pods(pod("b"))
    stage.wait_for_waiting(1)
    outage = [stage.interposer.drop(*it, times=None) for it in everything]
    stage.interposer.cut_streams()
    blocked.end()
    eventually(lambda: stage.count("error"), 90)

    with stage.interposer.hold("GET", r"^/api/v1/pods\?") as wakeup:
        for rule in outage:
            rule.end()
        stage.add_nodes(place("n2"))
        wakeup.wait_for_call()
        eventually(lambda: stage.handled("NodeAdd") == 2)

    assert {stage.witness.node_of(name) for name in ("a", "b")} == {"n1", "n2"}
    assert not overcommitted(stage.api)
