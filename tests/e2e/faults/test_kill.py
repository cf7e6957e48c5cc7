"""A scheduler that is killed again and again while it works."""

import sys
from collections.abc import Iterator

import numpy as np
import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.faults.stage import DEVICES
from tests.e2e.fleet import (
    Manifest,
    claim,
    create,
    device,
    gpu_node,
    node,
    pod,
    storage_class,
    volume,
)
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually
from tests.e2e.witness import ALLOCATED, Witness, overcommitted, overgiven_gpus, pods

KILLS = 20
PLAIN, GPU, WITH_VOLUMES = 4_760, 200, 40
PODS = PLAIN + GPU + WITH_VOLUMES
NODES, GPU_NODES, GPUS = 60, 22, 8
MOST_BINDS_IN_A_LIFE = 400
PATIENCE_S = 120
CONFIGURATION = {
    "leaderElection": {"leaderElect": False},
    "profiles": [
        {
            "plugins": {"multiPoint": {"enabled": [{"name": "DeviceShare"}]}},
            "pluginConfig": [
                {
                    "name": "DeviceShare",
                    # Or parts of GPUs would be left over for which whole ones are asked.
                    "args": {
                        "scoringStrategy": {
                            "type": "MostAllocated",
                            "resources": [{"name": "koordinator.sh/gpu-memory-ratio", "weight": 1}],
                        }
                    },
                }
            ],
        }
    ],
}


def crowd(chance: np.random.Generator) -> list[Manifest]:
    """Return pods of all sorts and sizes, in any order."""
    sizes = [("50m", "32Mi"), ("100m", "64Mi"), ("100m", "512Mi"), ("250m", "128Mi")]
    plain = [pod(f"plain-{i:04}", *sizes[chance.integers(4)]) for i in range(PLAIN)]
    shares = chance.permutation([50] * (GPU // 2) + [100] * (GPU // 2 - 10) + [200] * 10)
    on_gpus = [
        # Without a request for CPU: plain pods also fill the nodes with GPUs, and the last GPU
        # may be on a node without free CPU.
        pod(f"gpu-{i:03}", "0", **{"koordinator.sh/gpu": str(share)})
        for i, share in enumerate(shares)
    ]
    keeping = [pod(f"volume-{i:02}", claims=[f"claim-{i:02}"]) for i in range(WITH_VOLUMES)]
    everyone = [*plain, *on_gpus, *keeping]
    return [everyone[i] for i in chance.permutation(len(everyone))]


@pytest.fixture
def chance() -> np.random.Generator:
    """Seeded; a failure shows the seed."""
    seed = int(np.random.SeedSequence().entropy) & 0xFFFFFFFF  # type: ignore[arg-type]
    sys.stdout.write(f"seed: {seed}\n")
    return np.random.default_rng(seed)


@pytest.fixture
def cluster(controlplane: ControlPlane, namespace: str, chance: np.random.Generator) -> Endpoint:
    """Nodes that will be almost full, GPUs, volumes, and all pods."""
    api, inside = controlplane.api, f"/api/v1/namespaces/{namespace}"
    controlplane.start_controller_manager(("persistentvolume-binder-controller",))
    names = [f"gpu-{i:02}" for i in range(GPU_NODES)]
    create(api, "/api/v1/nodes", [node(f"node-{i:02}", "10", "12Gi", 80) for i in range(NODES)])
    create(api, "/api/v1/nodes", [gpu_node(name, GPUS) for name in names])
    create(api, DEVICES, [device(name, GPUS) for name in names])
    create(api, "/apis/storage.k8s.io/v1/storageclasses", [storage_class("local")])
    volumes = [volume(f"volume-{i:02}", "local", f"node-{i:02}") for i in range(WITH_VOLUMES)]
    create(api, "/api/v1/persistentvolumes", volumes)
    claims = [claim(f"claim-{i:02}", "local") for i in range(WITH_VOLUMES)]
    create(api, f"{inside}/persistentvolumeclaims", claims)
    create(api, f"{inside}/pods", crowd(chance))
    return api


@pytest.fixture
def scheduler(controlplane: ControlPlane) -> Iterator[SchedulerProcess]:
    made = SchedulerProcess(controlplane, CONFIGURATION, name="koord-scheduler-mortal")
    yield made
    made.kill()
    sys.stdout.write(made.log.read_text()[-20_000:])
    assert "Traceback" not in made.log.read_text()


def test_every_pod_is_bound_once_however_often_the_scheduler_dies(
    cluster: Endpoint,
    chance: np.random.Generator,
    scheduler: SchedulerProcess,
    witness: Witness,
) -> None:
    """No node bears too much, no GPU is given twice, no volume has two owners."""
    for _ in range(KILLS):
        more = max(0, int(chance.integers(-MOST_BINDS_IN_A_LIFE // 4, MOST_BINDS_IN_A_LIFE)))
        wanted = min(len(witness.bound) + more, PODS)
        scheduler.start(wait=False)
        eventually(lambda: scheduler.get("/healthz"), PATIENCE_S)  # it doesn't know much yet
        witness.wait_for(wanted, PATIENCE_S)
        scheduler.kill()
    scheduler.start()
    witness.wait_for(PODS, PATIENCE_S)

    assert len(pods(cluster)) == len(witness.nodes_of) == PODS
    assert not overcommitted(cluster)
    assert not overgiven_gpus(cluster)
    assert sum(ALLOCATED in it["metadata"].get("annotations", {}) for it in pods(cluster)) == GPU
    check_volumes(cluster)


def check_volumes(api: Endpoint) -> None:
    """Every claim has a volume of its own, on the node of its pod."""
    listed = api.request("GET", "/api/v1/persistentvolumes")["items"]
    owner = {it["metadata"]["name"]: it["spec"]["claimRef"]["name"] for it in listed}
    assert len(set(owner.values())) == WITH_VOLUMES
    node_of = {it["metadata"]["name"]: it["spec"]["nodeName"] for it in pods(api)}
    for volume_name, claim_name in owner.items():
        number = claim_name.removeprefix("claim-")
        assert node_of[f"volume-{number}"] == volume_name.replace("volume", "node")
