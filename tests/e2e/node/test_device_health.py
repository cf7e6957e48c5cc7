"""A device that breaks on a node is known to the cluster within half a minute."""

import json
import time
from pathlib import Path
from typing import Any

from tests.e2e.controlplane import ApiError, ControlPlane
from tests.e2e.node.conftest import StartAgent
from tests.e2e.node.test_rdma_with_gpus import BUSES, describe_gpus, fake_sysfs
from tests.e2e.real_node import RealNode
from tests.e2e.waiting import eventually

LONGEST_S = 30.0
GATES = ("Accelerators", "RDMADevices")


def health(controlplane: ControlPlane, node: RealNode) -> dict[str, bool]:
    """Return whether each device is well, by type and number."""
    path = f"/apis/scheduling.koordinator.sh/v1alpha1/devices/{node.name}"
    try:
        devices = controlplane.api.request("GET", path)["spec"].get("devices", [])
    except ApiError:
        return {}
    return {f"{it['type']} {it['minor']}": it.get("health", False) for it in devices}


def break_gpu(folder: Path, *, healthy: bool) -> None:
    """Write a device daemon's description of the second GPU, atomically."""
    file = folder / "ic-device"
    cards: list[dict[str, Any]] = json.loads(file.read_text())
    cards[1]["status"] = {"healthy": healthy, "errCode": "" if healthy else "79"}
    new = folder / ".ic-device"
    new.write_text(json.dumps(cards))
    new.rename(file)


def test_broken_device_is_reported_within_half_a_minute(
    controlplane: ControlPlane, node: RealNode, start_agent: StartAgent, tmp_path: Path
) -> None:
    """A card whose port goes down, and a GPU that its vendor's tool reports; and their recovery."""
    fake_sysfs(tmp_path / "sys")
    describe_gpus(tmp_path / "xpus")
    start_agent(
        f"--feature-gates={','.join(f'{gate}=true' for gate in GATES)}",
        f"--sys-root-dir={tmp_path}/sys",
        f"--xpu-device-infos-dir={tmp_path}/xpus",
    )
    well = {"gpu 0": True, "gpu 1": True, "rdma 0": True, "rdma 1": True}
    eventually(lambda: health(controlplane, node) == well)

    root, bus = next(iter(BUSES.items()))
    card = tmp_path / f"sys/devices/{root}/{root.removeprefix('pci')}:01.0/{bus}:00.0"
    state = card / "infiniband/mlx5_0/ports/1/state"
    taken_s = []
    for broken in (True, False):
        state.write_text("1: DOWN\n" if broken else "4: ACTIVE\n")
        break_gpu(tmp_path / "xpus", healthy=not broken)
        began_s = time.monotonic()
        expected = well | {"gpu 1": not broken, "rdma 0": not broken}
        eventually(
            lambda expected=expected: health(controlplane, node) == expected,  # type: ignore[misc]
            LONGEST_S,
        )
        taken_s.append(time.monotonic() - began_s)
    assert max(taken_s) < LONGEST_S
