"""History that the server has forgotten: the differences are taken in from a list."""

from tests.e2e.controlplane import ControlPlane
from tests.e2e.fleet import create, node, pod
from tests.e2e.interposer import WATCH, Interposer
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually
from tests.e2e.witness import Witness, overcommitted


def test_what_happened_in_a_gap_is_taken_in(
    controlplane: ControlPlane,
    namespace: str,
    scheduler: SchedulerProcess,
    interposer: Interposer,
    witness: Witness,
) -> None:
    """A pod that went, a node that went, a node that came and a pod that came, all unseen."""
    api, own_pods = controlplane.api, f"/api/v1/namespaces/{namespace}/pods"
    create(api, "/api/v1/nodes", [node("n0", pods=0), node("n1", pods=1), node("n2", pods=1)])
    create(api, own_pods, [pod("a"), pod("b")])
    witness.wait_for(2)
    left = witness.node_of("a")
    create(api, own_pods, [pod("c")])
    eventually(lambda: scheduler.metric('scheduler_pending_pods{queue="unschedulable"}') == 1)
    lists = len(interposer.lists())

    with interposer.hold("GET", WATCH) as held:
        opened = interposer.cut_streams()
        held.wait_for_call(opened)  # nothing that happens now is seen
        api.request("DELETE", f"{own_pods}/a")
        api.request("DELETE", "/api/v1/nodes/n0")
        create(api, "/api/v1/nodes", [node("n3", pods=1)])
        create(api, own_pods, [pod("d")])
        controlplane.compact_history()

    assert {witness.node_of("c", 60), witness.node_of("d", 60)} == {left, "n3"}
    assert len(interposer.lists()) > lists
    assert not overcommitted(api)
    assert scheduler.metric('scheduler_cache_size{type="nodes"}') == 3
    assert scheduler.metric('scheduler_cache_size{type="pods"}') == 3
