"""Bindings that come late, are refused, or whose answer gets lost."""

from collections.abc import Callable

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.fleet import create, node, pod
from tests.e2e.interposer import BIND, Interposer
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually
from tests.e2e.witness import Witness, overcommitted

PODS_WATCH = r"^/api/v1/pods\?watch=true"
FAILED = 'scheduler_schedule_attempts_total{profile="default-scheduler",result="error"}'


@pytest.fixture
def api(controlplane: ControlPlane) -> Endpoint:
    return controlplane.api


@pytest.fixture
def own_pods(namespace: str) -> str:
    """The path of the pods of the test."""
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def places(api: Endpoint) -> Callable[..., None]:
    """``places("n1", "n2")`` makes nodes with room for one pod each."""

    def make(*names: str) -> None:
        create(api, "/api/v1/nodes", [node(name, pods=1) for name in names])

    return make


def bind(api: Endpoint, own_pods: str, name: str, to: str) -> None:
    """Bind as another scheduler would."""
    binding = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": name},
        "target": {"apiVersion": "v1", "kind": "Node", "name": to},
    }
    api.request("POST", f"{own_pods}/{name}/binding", binding)


def binds_of(interposer: Interposer, name: str) -> int:
    """Return how often a pod's binding was sent."""
    return len(interposer.calls_of("POST", f"/{name}{BIND}"))


def has_waited(api: Endpoint, own_pods: str, name: str) -> bool:
    """Return whether the scheduler has said of a pod that it fits nowhere."""
    conditions = api.request("GET", f"{own_pods}/{name}")["status"].get("conditions", [])
    return ("PodScheduled", "Unschedulable") in [
        (it["type"], it.get("reason")) for it in conditions
    ]


def test_a_server_that_is_busy_is_asked_again_when_it_said(
    api: Endpoint,
    own_pods: str,
    scheduler: SchedulerProcess,
    interposer: Interposer,
    witness: Witness,
    places: Callable[..., None],
) -> None:
    """Retry-After is waited for; other pods are bound meanwhile, and it is no failure."""
    places("n1", "n2", "n3")
    interposer.answer("POST", f"/a{BIND}", 429, headers={"Retry-After": "3"})

    create(api, own_pods, [pod("a")])
    eventually(lambda: binds_of(interposer, "a"))
    create(api, own_pods, [pod("b"), pod("c")])

    witness.node_of("a")
    first, second = interposer.calls_of("POST", f"/a{BIND}")
    assert second.at_s - first.answered_s >= 3
    assert all(
        call.answered_s < second.at_s
        for name in ("b", "c")
        for call in interposer.calls_of("POST", f"/{name}{BIND}")
    )
    assert len(witness.bound) == 3
    assert not overcommitted(api)
    assert scheduler.metric(FAILED) == 0


@pytest.mark.parametrize("news_comes_first", [True, False])
def test_a_pod_that_another_has_bound_counts_where_it_is(
    api: Endpoint,
    own_pods: str,
    scheduler: SchedulerProcess,
    interposer: Interposer,
    witness: Witness,
    places: Callable[..., None],
    news_comes_first: bool,
) -> None:
    """The place that it was to have is given to the next pod, and no place is given twice.

    Whether the news of it comes before the refusal or after it.
    """
    places("n1", "n2")
    with interposer.hold("POST", f"/a{BIND}") as held:
        create(api, own_pods, [pod("a")])
        wanted = held.wait_for_call().manifest["target"]["name"]
        other = {"n1": "n2", "n2": "n1"}[wanted]
        let_news_through = interposer.stall_streams(PODS_WATCH)
        if news_comes_first:
            let_news_through()
        bind(api, own_pods, "a", other)
        if news_comes_first:
            create(api, own_pods, [pod("b")])
            assert witness.node_of("b") == wanted
    eventually(lambda: held.calls[0].status == 409)
    if not news_comes_first:
        eventually(lambda: scheduler.metric(FAILED) == 1)
        let_news_through()
        create(api, own_pods, [pod("b")])
        assert witness.node_of("b") == wanted
    create(api, own_pods, [pod("c")])

    eventually(lambda: has_waited(api, own_pods, "c"))
    assert set(witness.bound.values()) == {"n1", "n2"}
    assert witness.node_of("a") == other
    assert not overcommitted(api)


@pytest.mark.parametrize("news_comes_first", [True, False])
def test_a_pod_that_is_deleted_while_it_is_bound_gives_its_place_back(
    api: Endpoint,
    own_pods: str,
    scheduler: SchedulerProcess,
    interposer: Interposer,
    witness: Witness,
    places: Callable[..., None],
    news_comes_first: bool,
) -> None:
    """A new pod of the same name gets it, and counts there."""
    places("n1")
    with interposer.hold("POST", f"/a{BIND}", times=1) as held:
        create(api, own_pods, [pod("a")])
        held.wait_for_call()
        let_news_through = interposer.stall_streams(PODS_WATCH)
        if news_comes_first:
            let_news_through()
        api.request("DELETE", f"{own_pods}/a")
        create(api, own_pods, [pod("a")])
        if news_comes_first:
            assert witness.node_of("a") == "n1"
    eventually(lambda: held.calls[0].status in (404, 409))
    let_news_through()

    assert witness.node_of("a") == "n1"
    create(api, own_pods, [pod("b")])
    eventually(lambda: has_waited(api, own_pods, "b"))
    assert list(witness.bound) == [key for key in witness.bound if key.endswith("/a")]
    api.request("DELETE", f"{own_pods}/a")
    assert witness.node_of("b") == "n1"


def test_an_answer_that_got_lost_is_found_out(
    api: Endpoint,
    own_pods: str,
    scheduler: SchedulerProcess,
    interposer: Interposer,
    witness: Witness,
    places: Callable[..., None],
) -> None:
    """The pod counts once, it is not bound again, and nobody is told of a failure."""
    places("n1", "n2")
    interposer.lose_answer("POST", f"/a{BIND}")

    create(api, own_pods, [pod("a")])
    witness.node_of("a")
    create(api, own_pods, [pod("b")])
    witness.node_of("b")
    create(api, own_pods, [pod("c")])

    eventually(lambda: has_waited(api, own_pods, "c"))
    assert binds_of(interposer, "a") == 1
    assert scheduler.metric(FAILED) == 0
    assert sorted(witness.bound.values()) == ["n1", "n2"]
    eventually(lambda: reasons(api, own_pods, "a") == ["Scheduled"])


def test_a_binding_that_never_reached_the_server_is_sent_again(
    api: Endpoint,
    own_pods: str,
    scheduler: SchedulerProcess,
    interposer: Interposer,
    witness: Witness,
    places: Callable[..., None],
) -> None:
    """A connection that breaks before costs a moment, and it is no failure."""
    places("n1")
    interposer.drop("POST", f"/a{BIND}", times=2)

    create(api, own_pods, [pod("a")])

    assert witness.node_of("a") == "n1"
    assert binds_of(interposer, "a") == 3
    assert scheduler.metric(FAILED) == 0


@pytest.mark.parametrize("status", [500, 503])
def test_a_server_that_fails_is_asked_what_it_did(
    api: Endpoint,
    own_pods: str,
    scheduler: SchedulerProcess,
    interposer: Interposer,
    witness: Witness,
    places: Callable[..., None],
    status: int,
) -> None:
    """A failure leaves open whether the pod is bound; if it isn't, it is tried again."""
    places("n1")
    interposer.answer("POST", f"/a{BIND}", status, times=2)

    create(api, own_pods, [pod("a")])

    assert witness.node_of("a") == "n1"
    assert binds_of(interposer, "a") == 3
    assert len(interposer.calls_of("GET", "/pods/a$")) == 2
    assert scheduler.metric(FAILED) == 0


def reasons(api: Endpoint, own_pods: str, name: str) -> list[str]:
    """Return the reasons of the events about a pod."""
    told = api.request("GET", f"{own_pods.removesuffix('pods')}events")["items"]
    return [it["reason"] for it in told if it["involvedObject"]["name"] == name]
