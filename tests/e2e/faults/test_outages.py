"""The API server or etcd goes away while hundreds of pods are being bound."""

import time
from collections.abc import Iterator

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.fleet import create, node, pod
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.witness import Witness, overcommitted, pods

PODS, NODES = 1500, 30
OUTAGE_S = 20
RECOVERY_S = 90


@pytest.fixture
def scheduler(controlplane: ControlPlane, namespace: str) -> Iterator[SchedulerProcess]:
    """Run one, with nothing between it and the API server, on pods that need all the room."""
    api = controlplane.api
    create(api, "/api/v1/nodes", [node(f"n{i}", "5") for i in range(NODES)])
    create(api, f"/api/v1/namespaces/{namespace}/pods", [pod(f"p{i}") for i in range(PODS)])
    with SchedulerProcess(controlplane, name=f"koord-scheduler-{namespace}") as running:
        yield running
        assert running.is_running
        assert "Traceback" not in running.log.read_text()


def check_all_bound(api: Endpoint, witness: Witness) -> None:
    """Wait until every pod has a node; no node may have more than it can bear."""
    witness.wait_for(PODS, RECOVERY_S)
    assert len(witness.nodes_of) == PODS
    assert all(it["spec"].get("nodeName") for it in pods(api))
    assert not overcommitted(api)


@pytest.mark.usefixtures("scheduler")
def test_scheduler_survives_a_restart_of_the_api_server(
    controlplane: ControlPlane, witness: Witness
) -> None:
    """Every pod is bound in the end, and no node is overcommitted."""
    witness.wait_for(PODS // 5)
    controlplane.stop_apiserver()
    assert len(witness.bound) < PODS
    controlplane.start_apiserver()

    check_all_bound(controlplane.api, witness)


def test_scheduler_survives_an_outage_of_etcd(
    controlplane: ControlPlane, scheduler: SchedulerProcess, witness: Witness
) -> None:
    """The API server lives and fails at everything; afterwards all is as if it had not been."""
    witness.wait_for(PODS // 5)
    controlplane.stop_etcd()
    assert len(witness.bound) < PODS
    time.sleep(OUTAGE_S)  # longer than any single request is waited for
    assert scheduler.is_running
    controlplane.start_etcd()

    check_all_bound(controlplane.api, witness)
