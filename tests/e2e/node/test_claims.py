"""From a claim to a container that has the device, and back, on a real kubelet and runtime."""

from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.claims import PREFIX, release_claims
from tests.e2e.controlplane import ControlPlane
from tests.e2e.node.dra_driver import DRIVER, UNITS, DraDriver
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.node import Manifest, pod
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually

PATIENCE_S = 60.0


@pytest.fixture
def driver(controlplane: ControlPlane, node: RealNode) -> Iterator[DraDriver]:
    """Run driver, scheduler, and Kubernetes' controller of claims."""
    controlplane.start_controller_manager(("resourceclaim-controller",))
    with DraDriver(controlplane, node) as serving:
        scheduler = SchedulerProcess(controlplane)
        scheduler.start()
        api = controlplane.api
        eventually(lambda: api.request("GET", f"{PREFIX}/resourceslices")["items"], PATIENCE_S)
        yield serving
        node.delete_pods()
        release_claims(api)
        scheduler.kill()


def claiming(name: str) -> Manifest:
    """Return a pod for the scheduler that claims a unit of its own, and prints it."""
    made = pod(name, "echo unit $UNIT; sleep 2147483647")
    del made["spec"]["nodeName"]
    made["spec"] |= {
        "schedulerName": "default-scheduler",
        "resourceClaims": [{"name": "unit", "resourceClaimTemplateName": "one"}],
    }
    made["spec"]["containers"][0].setdefault("resources", {})["claims"] = [{"name": "unit"}]
    return made


def test_containers_see_the_devices_of_their_claims(
    controlplane: ControlPlane, node: RealNode, driver: DraDriver
) -> None:
    """Pods get different devices; a waiting pod gets the device of an ended one."""
    selectors = [{"cel": {"expression": f'device.driver == "{DRIVER}"'}}]
    devices = {"requests": [{"name": "unit", "exactly": {"deviceClassName": "units"}}]}
    api = controlplane.api
    for plural, name, spec in (
        ("deviceclasses", "units", {"selectors": selectors}),
        ("namespaces/default/resourceclaimtemplates", "one", {"spec": {"devices": devices}}),
    ):
        api.request("POST", f"{PREFIX}/{plural}", {"metadata": {"name": name}, "spec": spec})
    pods = [claiming(f"user{i}") for i in range(UNITS)]

    running = node.run(*pods)
    assert sorted(node.printed(each).strip() for each in running) == ["unit unit0", "unit unit1"]
    claims = {owner(each): each for each in api.request("GET", f"{PREFIX}/resourceclaims")["items"]}
    assert all(driver.prepared(each["metadata"]["uid"]) for each in claims.values())

    waiting = claiming("waiting")
    node.create(waiting)
    node.delete(running[0])
    (now,) = [node.wait_for(waiting, "Running")]
    assert node.printed(now).strip() == node_unit(claims["user0"])
    assert not driver.prepared(claims["user0"]["metadata"]["uid"])


def owner(claim: Any) -> str:
    """Return the pod that a claim was made for."""
    name: str = claim["metadata"]["ownerReferences"][0]["name"]
    return name


def node_unit(claim: Any) -> str:
    """Return what a container with that claim's device prints."""
    (given,) = claim["status"]["allocation"]["devices"]["results"]
    return f"unit {given['device']}"
