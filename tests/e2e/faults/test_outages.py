"""The API server, etcd or the streams go away while hundreds of pods are being bound."""

import time
from collections.abc import Callable, Iterator

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.fleet import create, node, pod
from tests.e2e.interposer import WATCH, Interposer
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually
from tests.e2e.witness import Witness, overcommitted, pods

PODS, NODES = 500, 10
SLOWLY = {
    "leaderElection": {"leaderElect": False},
    "clientConnection": {"qps": 100, "burst": 1},  # so that there is a middle of the run
}
OUTAGE_S = 20
RECOVERY_S = 90


@pytest.fixture
def own_pods(namespace: str) -> str:
    """The path of the pods of the test."""
    return f"/api/v1/namespaces/{namespace}/pods"


@pytest.fixture
def crowd(controlplane: ControlPlane, own_pods: str) -> int:
    """Many pods, for which there is just enough room; returns how many."""
    api = controlplane.api
    create(api, "/api/v1/nodes", [node(f"n{i}", cpu="5", pods=60) for i in range(NODES)])
    create(api, own_pods, [pod(f"p{i:03}") for i in range(PODS)])
    return PODS


@pytest.fixture
def direct(controlplane: ControlPlane, crowd: int) -> Iterator[SchedulerProcess]:
    """A slow scheduler without anything between it and the API server."""
    with SchedulerProcess(controlplane, SLOWLY, name="koord-scheduler-outages") as running:
        yield running
        assert running.is_running
        assert "Traceback" not in running.log.read_text()


def check_all_bound(api: Endpoint, witness: Witness) -> None:
    """Wait until every pod has a node; no node may have more than it can bear."""
    witness.wait_for(PODS, RECOVERY_S)
    assert all(it["spec"].get("nodeName") for it in pods(api))
    assert not overcommitted(api)


def test_the_api_server_is_killed_and_comes_back(
    controlplane: ControlPlane, direct: SchedulerProcess, witness: Witness
) -> None:
    """Whatever was under way, every pod is bound in the end and no node bears too much."""
    witness.wait_for(PODS // 5)
    controlplane.stop_apiserver()
    assert len(witness.bound) < PODS
    controlplane.start_apiserver()

    check_all_bound(controlplane.api, witness)


def test_etcd_is_gone_for_a_while(
    controlplane: ControlPlane, direct: SchedulerProcess, witness: Witness
) -> None:
    """The API server lives and fails at everything; afterwards all is as if it had not been."""
    witness.wait_for(PODS // 5)
    controlplane.stop_etcd()
    assert len(witness.bound) < PODS
    time.sleep(OUTAGE_S)  # longer than any single request is waited for
    assert direct.is_running
    controlplane.start_etcd()

    check_all_bound(controlplane.api, witness)


@pytest.mark.usefixtures("crowd")
@pytest.mark.parametrize("scheduler", [SLOWLY], indirect=True)
def test_streams_that_break_are_resumed(
    controlplane: ControlPlane,
    scheduler: SchedulerProcess,
    interposer: Interposer,
    witness: Witness,
) -> None:
    """Nothing is listed again, and nothing is missed."""
    kinds = len(interposer.lists())
    witness.wait_for(PODS // 5)
    opened = len(interposer.calls_of("GET", WATCH))

    assert interposer.cut_streams() == opened
    assert len(witness.bound) < PODS

    check_all_bound(controlplane.api, witness)
    eventually(lambda: len(interposer.calls_of("GET", WATCH)) == 2 * opened)
    assert len(interposer.lists()) == kinds
    assert scheduler.metric('scheduler_cache_size{type="pods"}') == PODS
