"""Amounts of devices that the manager writes, and what the kubelet's admission makes of them."""

import json
from typing import Any

from tests.e2e.controlplane import ControlPlane
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.node import Manifest, pod
from tests.e2e.waiting import eventually

CORE = "koordinator.sh/gpu-core"


def sharer(name: str, core: int) -> Manifest:
    """Return a pod that requests a percentage of a GPU."""
    amounts = {CORE: str(core)}
    return pod(name, resources={"requests": amounts, "limits": amounts})


def write(controlplane: ControlPlane, node: RealNode, core: int | None) -> None:
    """Write an amount as the manager does: in capacity and allocatable, or in neither."""
    amounts: dict[str, Any] = {CORE: None if core is None else str(core)}
    patch = json.dumps({"status": {"capacity": amounts, "allocatable": amounts}})
    words = ("patch", "node", node.name, "--subresource=status", "--type=merge", "--patch", patch)
    controlplane.kubectl(*words)


def test_pod_bound_before_the_amounts_are_reported_runs(
    controlplane: ControlPlane, node: RealNode
) -> None:
    """The kubelet refuses for good what exceeds an amount, but nothing that it does not know.

    So a node without devices has no amount, and not one of 0.
    """
    node.run(sharer("early", 50))
    for number in range(1, 3):
        write(controlplane, node, 100 * number)
        node.run(sharer(f"at-once-{number}", 50))


def test_pods_with_devices_outlive_a_crash_of_the_kubelet(
    controlplane: ControlPlane, node: RealNode
) -> None:
    """A restarted kubelet admits them again; the amounts are still reported."""
    write(controlplane, node, 100)
    made = node.run(sharer("first", 60), sharer("second", 40))
    before = [node.container_id(each) for each in made]
    node.kill("kubelet")
    (late,) = node.run(pod("late"))

    assert [node.container_id(each) for each in (*made, late)][:2] == before
    status = controlplane.api.request("GET", f"/api/v1/nodes/{node.name}")["status"]
    assert status["allocatable"][CORE] == "100"
    eventually(lambda: all(node.get(each)["status"]["phase"] == "Running" for each in made))
