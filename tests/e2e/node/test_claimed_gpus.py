"""GPUs that the agent offers to claims, too: from the card to the container, on a real kubelet."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.claims import PREFIX, release_claims
from tests.e2e.controlplane import ControlPlane
from tests.e2e.manager_process import ManagerProcess
from tests.e2e.node.conftest import StartAgent
from tests.e2e.node.test_device_plugin import SCHEDULING, offered
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.colocation import configure
from tests.e2e.real_node.node import Manifest, pod
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually

from koordinator.api.annotations.devices import ALLOCATED

GPUS = 3
CORE, RATIO, MEMORY = (f"koordinator.sh/gpu-{each}" for each in ("core", "memory-ratio", "memory"))
GATES = ("Accelerators=true", "GPUResourceSlices=true")


def describe(folder: Path) -> None:
    """Describe GPUs, as a device daemon does."""
    cards = [
        {
            "vendor": "nvidia",
            "model": "T4",
            "uuid": f"GPU-{minor}",
            "minor": str(minor),
            "resources": {CORE: "100", MEMORY: "16Gi"},
            "topology": {"nodeID": "0", "pcieID": f"pci0000:0{minor}", "busID": f"000{minor}"},
        }
        for minor in range(GPUS)
    ]
    folder.mkdir()
    (folder / "gpus").write_text(json.dumps(cards))


def describe_to_runtime(folder: Path) -> None:
    """Write what the vendor's toolkit writes for the container runtime."""
    folder.mkdir(parents=True, exist_ok=True)
    devices = [
        {"name": f"GPU-{i}", "containerEdits": {"env": [f"CLAIMED=GPU-{i}"]}} for i in range(GPUS)
    ]
    specification = {"cdiVersion": "0.6.0", "kind": "nvidia.com/gpu", "devices": devices}
    (folder / "nvidia.json").write_text(json.dumps(specification))


@pytest.fixture
def site(
    controlplane: ControlPlane, node: RealNode, start_agent: StartAgent, tmp_path: Path
) -> Iterator[RealNode]:
    """Run agent, manager, scheduler, and Kubernetes' controller of claims."""
    configure(controlplane, "colocation-config")  # without it no amounts are published
    controlplane.start_controller_manager(("resourceclaim-controller",))
    describe(tmp_path / "xpus")
    describe_to_runtime(node.var_run / "cdi")
    start_agent(
        f"--feature-gates={','.join(GATES)}",
        f"--xpu-device-infos-dir={tmp_path}/xpus",
        is_called=False,
    )
    with ManagerProcess(controlplane), SchedulerProcess(controlplane, SCHEDULING):
        eventually(lambda: offered(controlplane, node, CORE) == 100 * GPUS, 60)
        eventually(lambda: slices(controlplane), 60)
        yield node
        node.delete_pods()
        release_claims(controlplane.api)
        (node.var_run / "cdi" / "nvidia.json").unlink()


def slices(controlplane: ControlPlane) -> list[Manifest]:
    """Return what is offered to claims."""
    items: list[Manifest] = controlplane.api.request("GET", f"{PREFIX}/resourceslices")["items"]
    return items


def pod_of(name: str, **spec: Any) -> Manifest:
    """Return a pod for the scheduler that prints the GPU that the runtime gave it."""
    made = pod(name, "echo gpu $CLAIMED; sleep 2147483647", resources=spec.pop("resources", {}))
    del made["spec"]["nodeName"]
    made["spec"] |= {"schedulerName": "koord-scheduler", **spec}
    return made


def claiming(name: str) -> Manifest:
    """Return a pod with a claim of its own."""
    entries = [{"name": "gpu", "resourceClaimTemplateName": "one"}]
    return pod_of(name, resourceClaims=entries, resources={"claims": [{"name": "gpu"}]})


def requesting(name: str) -> Manifest:
    """Return a pod that requests a GPU."""
    amounts = {CORE: "100", RATIO: "100"}
    return pod_of(name, resources={"requests": amounts, "limits": amounts})


def requested(site: RealNode, made: Manifest) -> str:
    """Return the GPU that a pod got for its request."""
    text = site.get(made)["metadata"]["annotations"][ALLOCATED.key]
    (gpu,) = json.loads(text)["gpu"]
    return f"GPU-{gpu['minor']}"


def test_gpu_is_allocated_to_a_claim_or_a_request(
    site: RealNode, controlplane: ControlPlane
) -> None:
    """Three GPUs, four pods: the last one waits for the first that ends, whichever way it asks."""
    api = controlplane.api
    selectors = [{"cel": {"expression": 'device.driver == "gpu.koordinator.sh"'}}]
    devices = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpus"}}]}
    for plural, name, spec in (
        ("deviceclasses", "gpus", {"selectors": selectors}),
        ("namespaces/default/resourceclaimtemplates", "one", {"spec": {"devices": devices}}),
    ):
        api.request("POST", f"{PREFIX}/{plural}", {"metadata": {"name": name}, "spec": spec})

    claimed = site.run(claiming("a"), claiming("b"))
    seen = {site.printed(each).split()[1] for each in claimed}
    (other,) = site.run(requesting("c"))
    assert seen | {requested(site, other)} == {f"GPU-{i}" for i in range(GPUS)}

    late = requesting("late")
    site.create(late)
    site.delete(claimed[0])
    now = site.wait_for(late, "Running", 120)
    assert requested(site, now) not in {requested(site, other), site.printed(claimed[1]).split()[1]}

    site.create(claiming("later"))
    site.delete(other)
    last = site.wait_for({"metadata": {"name": "later", "namespace": "default"}}, "Running", 120)
    assert site.printed(last).split()[1] == left_by(claimed[1], now, site)


def left_by(claimed: Manifest, request: Manifest, site: RealNode) -> str:
    """Return the GPU that neither of two pods has."""
    taken = {site.printed(claimed).split()[1], requested(site, request)}
    (left,) = {f"GPU-{i}" for i in range(GPUS)} - taken
    return left


def test_slices_are_restored_after_a_restart_of_the_kubelet(
    site: RealNode, controlplane: ControlPlane
) -> None:
    """The kubelet deletes slices of drivers that have not registered yet."""
    (before,) = slices(controlplane)
    site.kill("kubelet")
    name = before["metadata"]["name"]
    controlplane.api.request("DELETE", f"{PREFIX}/resourceslices/{name}")
    (after,) = eventually(lambda: slices(controlplane), 90)
    assert after["spec"]["devices"] == before["spec"]["devices"]
