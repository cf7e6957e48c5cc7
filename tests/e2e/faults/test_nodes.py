"""Nodes that go while pods are on them or on their way to them, and come back."""

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.fleet import create, node, pod
from tests.e2e.interposer import BIND, Interposer
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually
from tests.e2e.witness import Witness, overcommitted

NODES = 'scheduler_cache_size{type="nodes"}'
WAITING = 'scheduler_pending_pods{queue="unschedulable"}'


@pytest.fixture
def api(controlplane: ControlPlane) -> Endpoint:
    return controlplane.api


@pytest.fixture
def own_pods(namespace: str) -> str:
    """The path of the pods of the test."""
    return f"/api/v1/namespaces/{namespace}/pods"


def has_seen_node_go(scheduler: SchedulerProcess) -> bool:
    """Return whether both changes of nodes were taken in: one came and one went."""
    deletions = 'scheduler_event_handling_duration_seconds_count{event="NodeDelete"}'
    additions = 'scheduler_event_handling_duration_seconds_count{event="NodeAdd"}'
    return (scheduler.metric(additions), scheduler.metric(deletions)) == (2, 1)


def test_a_node_that_comes_back_bears_its_pods_again(
    api: Endpoint, own_pods: str, scheduler: SchedulerProcess, witness: Witness
) -> None:
    """Meanwhile the other nodes go on as ever."""
    create(api, "/api/v1/nodes", [node("n1", pods=2)])
    create(api, own_pods, [pod("a")])
    assert witness.node_of("a") == "n1"

    api.request("DELETE", "/api/v1/nodes/n1")
    create(api, "/api/v1/nodes", [node("n2", pods=1)])
    create(api, own_pods, [pod("b")])
    assert witness.node_of("b") == "n2"
    create(api, own_pods, [pod("c"), pod("d")])
    eventually(lambda: scheduler.metric(WAITING) == 2)

    create(api, "/api/v1/nodes", [node("n1", pods=2)])
    witness.wait_for(3)
    eventually(lambda: scheduler.metric(WAITING) == 1)
    assert sorted(witness.bound.values()) == ["n1", "n1", "n2"]
    assert not overcommitted(api)


@pytest.mark.parametrize("answer", [None, 403])
def test_a_node_goes_while_a_pod_is_on_its_way_to_it(
    api: Endpoint,
    own_pods: str,
    scheduler: SchedulerProcess,
    interposer: Interposer,
    witness: Witness,
    answer: int | None,
) -> None:
    """When the node comes back, the pod counts there if it was bound to it, else where it is."""
    create(api, "/api/v1/nodes", [node("n1", pods=1)])
    with interposer.hold("POST", f"/a{BIND}", times=1, then=answer) as held:
        create(api, own_pods, [pod("a")])
        held.wait_for_call()
        api.request("DELETE", "/api/v1/nodes/n1")
        create(api, "/api/v1/nodes", [node("n2", pods=1)])
        eventually(lambda: has_seen_node_go(scheduler))
    was_bound_to = witness.node_of("a")
    assert was_bound_to == ("n1" if answer is None else "n2")

    create(api, "/api/v1/nodes", [node("n1", pods=1)])
    create(api, own_pods, [pod("b")])
    assert witness.node_of("b") == {"n1": "n2", "n2": "n1"}[was_bound_to]
    create(api, own_pods, [pod("c")])
    eventually(lambda: scheduler.metric(WAITING) == 1)
    assert not overcommitted(api)
    assert len(witness.bound) == 2
