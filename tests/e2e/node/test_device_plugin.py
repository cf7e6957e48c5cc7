"""Shares that the scheduler decides and a vendor's device plugin gives, on a real kubelet."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.manager_process import ManagerProcess
from tests.e2e.node.conftest import StartAgent
from tests.e2e.node.smlu_plugin import CORE, MEMORY, VARIABLE, SmluPlugin
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.colocation import configure
from tests.e2e.real_node.node import Manifest, pod
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually

from koordinator.api.annotations.devices import CAMBRICON_LOCK, CAMBRICON_PROFILE

CARDS = 2
SHARED, OF_CORE, OF_MEMORY = (
    f"koordinator.sh/gpu{each}" for each in (".shared", "-core", "-memory")
)
_UNIT = 256 << 20  # bytes of one unit of memory
SCHEDULING: dict[str, Any] = {
    "leaderElection": {"leaderElect": False},
    "profiles": [
        {
            "schedulerName": "koord-scheduler",
            "plugins": {"multiPoint": {"enabled": [{"name": "DeviceShare"}]}},
        }
    ],
}


def sharer(name: str, core: int) -> Manifest:
    """Return a pod that requests a share of an MLU, in Koordinator's and the plugin's resources."""
    units = 24
    amounts = {
        SHARED: "1",
        OF_CORE: str(core),
        OF_MEMORY: str(units * _UNIT),
        CORE: str(core),
        MEMORY: str(units),
    }
    made = pod(
        name,
        f"echo profile ${VARIABLE}; sleep 2147483647",
        resources={"requests": amounts, "limits": amounts},
    )
    made["spec"] |= {"schedulerName": "koord-scheduler"}
    del made["spec"]["nodeName"]
    return made


def describe_cards(folder: Path) -> None:
    """Describe MLUs, as the device daemon does."""
    cards = [
        {
            "vendor": "cambricon",
            "model": "MLU370",
            "uuid": f"mlu-{minor}",
            "minor": str(minor),
            "resources": {OF_CORE: "100", OF_MEMORY: str(96 * _UNIT)},
            "topology": {"nodeID": "0", "pcieID": f"pci0000:0{minor}", "busID": f"000{minor}"},
        }
        for minor in range(CARDS)
    ]
    folder.mkdir()
    (folder / "mlus").write_text(json.dumps(cards))


@pytest.fixture
def site(
    controlplane: ControlPlane, node: RealNode, start_agent: StartAgent, tmp_path: Path
) -> Iterator[RealNode]:
    """Run agent, manager, scheduler and the vendor's device plugin."""
    configure(controlplane, "colocation-config")  # without it no amounts are published
    describe_cards(tmp_path / "xpus")
    start_agent("--feature-gates=Accelerators=true", f"--xpu-device-infos-dir={tmp_path}/xpus")
    gate = ["--feature-gates=DevicePluginAdaption=true"]
    with (
        ManagerProcess(controlplane),
        SchedulerProcess(controlplane, SCHEDULING, flags=gate),
        SmluPlugin(controlplane, node, CARDS),
    ):
        eventually(lambda: offered(controlplane, node, OF_CORE) == 100 * CARDS, 60)
        eventually(lambda: offered(controlplane, node, CORE) == 100 * CARDS, 60)
        yield node
        node.delete_pods()


def read_node(controlplane: ControlPlane, node: RealNode) -> Manifest:
    manifest: Manifest = controlplane.api.request("GET", f"/api/v1/nodes/{node.name}")
    return manifest


def offered(controlplane: ControlPlane, node: RealNode, resource: str) -> int:
    """Return the allocatable amount of a resource in the Node."""
    return int(read_node(controlplane, node)["status"]["allocatable"].get(resource, "-1"))


def profile(node: RealNode, made: Manifest) -> str:
    """Return the share that the container was given by the plugin."""
    return eventually(lambda: node.printed(made)).split()[1]


def test_each_pod_is_given_the_share_that_the_scheduler_decided(
    site: RealNode, controlplane: ControlPlane
) -> None:
    """Six come at once; the node is locked for one at a time, and no card is given twice."""
    names = [f"sharer-{number}" for number in range(6)]
    site.create(*(sharer(name, 30) for name in names))
    here = [{"metadata": {"name": name, "namespace": "default"}} for name in names]
    made = [site.wait_for(each, "Running", 120) for each in here]

    given = [profile(site, each) for each in made]
    assert given == [each["metadata"]["annotations"][CAMBRICON_PROFILE] for each in made]
    assert sorted(given) == ["0_30_24"] * 3 + ["1_30_24"] * 3
    node = read_node(controlplane, site)
    assert CAMBRICON_LOCK not in node["metadata"].get("annotations", {})


def test_a_kubelet_that_forgot_its_devices_keeps_no_pod_from_running(
    site: RealNode, controlplane: ControlPlane
) -> None:
    """A kubelet without a record of devices writes 0 for all of them, Koordinator's included.

    The manager writes what there is again; pods that come meanwhile wait for it, or run.
    """
    (first,) = site.run(sharer("first", 50))
    (site.kubelet_folder / "device-plugins/kubelet_internal_checkpoint").unlink()
    site.kill("kubelet")
    site.create(sharer("early", 50))
    late = {"metadata": {"name": "early", "namespace": "default"}}
    assert profile(site, site.wait_for(late, "Running", 120)).startswith(("0_50", "1_50"))
    eventually(lambda: offered(controlplane, site, OF_CORE) == 100 * CARDS, 60)
    site.create(sharer("after", 50))
    after = {"metadata": {"name": "after", "namespace": "default"}}
    site.wait_for(after, "Running", 120)
    assert site.get(first)["status"]["phase"] == "Running"
