"""Shares of GPUs that pods claim: a container has the limits of one whose pod requests as much."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.claims import PREFIX, release_claims
from tests.e2e.controlplane import ControlPlane
from tests.e2e.manager_process import ManagerProcess
from tests.e2e.node.conftest import StartAgent
from tests.e2e.node.test_claimed_gpus import (
    CORE,
    GPUS,
    MEMORY,
    describe,
    describe_to_runtime,
    slices,
)
from tests.e2e.node.test_device_plugin import SCHEDULING, offered
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.colocation import configure
from tests.e2e.real_node.node import Manifest, pod
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually

SHARED = "DRAConsumableCapacity=true"
GATES = (
    "Accelerators=true", "GPUResourceSlices=true", "GPUEnvInject=true", "HamiCoreVGPUMonitor=true",
    SHARED,
)  # fmt: skip
PROVIDER = {"koordinator.sh/gpu-isolation-provider": "HAMi-core"}
#: A kubelet that has not registered the driver again since its own restart prepares the claims of a
#: pod a second time after a minute.
PREPARED_S = 150.0


@pytest.fixture
def site(
    controlplane: ControlPlane, node: RealNode, start_agent: StartAgent, tmp_path: Path
) -> Iterator[RealNode]:
    """Run agent, manager, scheduler, and Kubernetes' controller of claims, with shares."""
    configure(controlplane, "colocation-config")
    controlplane.start_controller_manager(("resourceclaim-controller",))
    describe(tmp_path / "xpus")
    describe_to_runtime(node.var_run / "cdi")
    library = tmp_path / "vgpu/libvgpu.so"
    library.parent.mkdir()
    library.write_text("a library")
    labelled = {"metadata": {"labels": PROVIDER}}
    path, merge = f"/api/v1/nodes/{node.name}", "application/merge-patch+json"
    controlplane.api.request("PATCH", path, labelled, content_type=merge)
    start_agent(
        f"--feature-gates={','.join(GATES)}",
        f"--xpu-device-infos-dir={tmp_path}/xpus",
        f"--hami-core-library-directory-path={library}",
    )
    with (
        ManagerProcess(controlplane),
        SchedulerProcess(controlplane, SCHEDULING, flags=[f"--feature-gates={SHARED}"]),
    ):
        eventually(lambda: offered(controlplane, node, CORE) == 100 * GPUS, 60)
        eventually(lambda: slices(controlplane), 60)
        yield node
        node.delete_pods()
        release_claims(controlplane.api)
        (node.var_run / "cdi" / "nvidia.json").unlink()


def sharer(name: str, **spec: Any) -> Manifest:
    """Return a pod for the scheduler that prints its environment."""
    made = pod(name, "env; echo done; sleep 99", labels=PROVIDER, resources=spec.pop("resources"))
    del made["spec"]["nodeName"]
    made["spec"] |= {"schedulerName": "koord-scheduler", **spec}
    return made


def environment(site: RealNode, made: Manifest) -> dict[str, str]:
    """Return what of a container's environment is about its GPU."""
    text = eventually(
        lambda: printed_text if "done" in (printed_text := site.printed(made)) else ""
    )
    pairs = (line.partition("=") for line in text.splitlines())
    about = ("CUDA_", "LD_PRELOAD", "CLAIMED", "NVIDIA_")
    return {name: value for name, _, value in pairs if name.startswith(about)}


def test_claimed_share_has_the_limits_of_a_requested_one(
    site: RealNode, controlplane: ControlPlane, tmp_path: Path
) -> None:
    """Two claims of one GPU, and a pod that requests as much: library, limits and regions."""
    share = {"capacity": {"requests": {"core": "25", "memory": "4Gi"}}}
    devices = {"requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpus", **share}}]}
    selectors = [{"cel": {"expression": 'device.driver == "gpu.koordinator.sh"'}}]
    for plural, name, spec in (
        ("deviceclasses", "gpus", {"selectors": selectors}),
        ("namespaces/default/resourceclaimtemplates", "share", {"spec": {"devices": devices}}),
    ):
        controlplane.api.request(
            "POST", f"{PREFIX}/{plural}", {"metadata": {"name": name}, "spec": spec}
        )
    entries = [{"name": "gpu", "resourceClaimTemplateName": "share"}]
    used = {"claims": [{"name": "gpu"}]}
    amounts = {"koordinator.sh/gpu.shared": "1", CORE: "25", MEMORY: "4Gi"}
    first, second, other = site.run(
        sharer("a", resources=used, resourceClaims=entries),
        sharer("b", resources=used, resourceClaims=entries),
        sharer("c", resources={"requests": amounts, "limits": amounts}),
        timeout_s=PREPARED_S,
    )

    requested = environment(site, other)
    del requested["NVIDIA_VISIBLE_DEVICES"]
    assert requested["CUDA_DEVICE_MEMORY_LIMIT"] == str(4 << 30)
    assert requested["CUDA_DEVICE_SM_LIMIT"] == "25"
    for made in (first, second):
        claimed = environment(site, made)
        uid = made["metadata"]["uid"]
        own = claimed.pop("CUDA_DEVICE_MEMORY_SHARED_CACHE")
        assert own.endswith(f"/{uid}_main.cache")
        assert (tmp_path / f"vgpu/containers/{uid}_main").is_dir()
        assert claimed.pop("CLAIMED") == "GPU-0"
        assert claimed == {n: v for n, v in requested.items() if not n.endswith("SHARED_CACHE")}
