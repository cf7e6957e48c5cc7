"""A descheduler that proves its moves on a real API server: killed at any moment, and for GPUs."""

import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.descheduler.conftest import NODES, REPLICAS, SCHEDULER, Mover
from tests.e2e.descheduler.test_low_node_load import report, reserving
from tests.e2e.descheduler_process import DeschedulerProcess
from tests.e2e.kubelet import FakeKubelet
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.session.manifests import Manifest, deployment, node, pod_spec
from tests.e2e.waiting import eventually

KILLS = 20
LONGEST_LIFE_S = 2.0
GPU = "koordinator.sh/gpu"
PROVEN = "descheduler.koordinator.sh/proven-move"
OVER = {"Succeeded", "Failed"}
WITH_DEVICES: dict[str, Any] = {
    "leaderElection": {"leaderElect": False},
    "profiles": [
        {
            "schedulerName": "koord-scheduler",
            "plugins": {
                "multiPoint": {"enabled": [{"name": "DeviceShare"}]},
                **SCHEDULER["profiles"][0]["plugins"],  # type: ignore[index]
            },
        }
    ],
}


@pytest.fixture(scope="module")
def scheduler(controlplane: ControlPlane) -> Iterator[SchedulerProcess]:
    """Run one scheduler that also knows devices."""
    with SchedulerProcess(controlplane, WITH_DEVICES, name="koord-scheduler-gpus") as running:
        yield running


Make = Callable[[Manifest], DeschedulerProcess]


@pytest.fixture
def make(controlplane: ControlPlane, request: pytest.FixtureRequest) -> Iterator[Make]:
    """Return what makes a descheduler that proves by the scheduler's configuration."""
    file = controlplane.state_dir / f"{request.node.name[:20]}-scheduler.yaml"
    kind = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
    }
    file.write_text(yaml.safe_dump({**kind, **WITH_DEVICES}))
    made: list[DeschedulerProcess] = []

    def one(configuration: Manifest) -> DeschedulerProcess:
        name = f"koord-proving-{request.node.name[:20]}"
        flags = (f"--scheduler-config={file}",)
        made.append(DeschedulerProcess(controlplane, configuration, name=name, flags=flags))
        return made[-1]

    yield one
    for each in made:
        each.kill()
        sys.stdout.write(each.log.read_text()[-20_000:])
        assert "Traceback" not in each.log.read_text()


def test_nothing_is_lost_and_nothing_left_however_often_it_dies_while_it_proves(
    controlplane: ControlPlane, mover: Mover, make: Make
) -> None:
    """Twenty times killed at random moments, while one node or another is too hot."""
    seed = int(np.random.SeedSequence().entropy) & 0xFFFFFFFF  # type: ignore[arg-type]
    sys.stdout.write(f"seed: {seed}\n")
    chance = np.random.default_rng(seed)
    whole = reserving(moveMemory="1s", maxNoOfPodsToEvictTotal=2)
    descheduler = make(whole)
    for _ in range(KILLS):
        pods = mover.pods()
        hottest = Counter(place for place in pods.values() if place)
        report(controlplane, pods, mover.namespace, max(NODES, key=lambda name: hottest[name]))
        descheduler.start(wait=False)
        eventually(lambda: descheduler.get("/livez"), 60)
        time.sleep(float(chance.uniform(0, LONGEST_LIFE_S)))  # the moment is what is drawn
        descheduler.kill()
        assert len(mover.pods()) >= REPLICAS - 2
        assert len(mover.reservations()) <= len(mover.jobs())
    idle = reserving()
    idle["profiles"][0]["plugins"] = {}
    last = make(idle)
    last.start()
    eventually(lambda: all(it["status"].get("phase") in OVER for it in mover.jobs()), 90)
    mover.rolled_out()

    jobs = {it["metadata"]["uid"]: it for it in mover.jobs()}
    succeeded = {uid: it for uid, it in jobs.items() if it["status"]["phase"] == "Succeeded"}
    assert succeeded
    eventually(lambda: {it["metadata"]["name"] for it in mover.reservations()} <= set(succeeded))
    eventually(lambda: len(mover.pods()) == REPLICAS and all(mover.pods().values()))
    for job in succeeded.values():
        proven = json.loads(job["metadata"]["annotations"][PROVEN])
        assert job["status"]["nodeName"] not in ("", proven["source"])
    about = Counter(it["spec"]["podRef"]["uid"] for it in succeeded.values())
    assert set(about.values()) == {1}


def machine(name: str, gpus: int = 2) -> list[Manifest]:
    """Return a node with GPUs, and the Device object of its agent."""
    card = {f"{GPU}-core": "100", f"{GPU}-memory": "80Gi", f"{GPU}-memory-ratio": "100"}
    much = str(100 * gpus)
    headroom: dict[str, Any] = {
        GPU: much,
        f"{GPU}-core": much,
        f"{GPU}-memory-ratio": much,
        f"{GPU}-memory": f"{80 * gpus}Gi",
    }
    devices = [
        {"type": "gpu", "minor": minor, "health": True, "id": f"{name}-{minor}", "resources": card}
        for minor in range(gpus)
    ]
    return [
        node(name, "16", **headroom),
        {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": name},
            "spec": {"devices": devices},
        },
    ]


def with_gpus(gpus: int) -> Manifest:
    """Return a spec of a pod that requests whole GPUs."""
    spec = pod_spec("1", schedulerName="koord-scheduler")
    amounts = {f"{GPU}-core": str(100 * gpus), f"{GPU}-memory-ratio": str(100 * gpus)}
    container = spec["containers"][0]
    container["resources"] = {
        "requests": {**container["resources"]["requests"], **amounts},
        "limits": amounts,
    }
    return spec


def test_pod_is_moved_to_free_a_machine_for_a_pending_pod(
    controlplane: ControlPlane,
    scheduler: SchedulerProcess,
    kubelet: FakeKubelet,
    namespace: str,
    make: Make,
) -> None:
    """Two machines of two GPUs run a pod each; for the third one of them joins the other."""
    del kubelet, scheduler
    controlplane.start_controller_manager(("deployment-controller", "replicaset-controller"))
    mover = Mover(controlplane, namespace)
    mover.apply(*machine("g1"), *machine("g2"))
    for name, elsewhere in (("a", "g2"), ("b", "g1")):
        mover.kubectl("cordon", elsewhere)
        mover.apply(deployment(name, 1, with_gpus(1)))
        mover.kubectl("rollout", "status", f"deployment/{name}", "--timeout=60s")
        mover.kubectl("uncordon", elsewhere)
    before = mover.pods()
    assert set(before.values()) == {"g1", "g2"}
    mover.apply(deployment("train", 1, with_gpus(2)))
    args = {
        "GPUDefragmentation": {"pendingFor": "0s"},
        "MigrationController": {"skipCheckExpectedReplicas": True},
    }
    descheduler = make(
        {
            "deschedulingInterval": "1s",
            "profiles": [
                {
                    "plugins": {"balance": {"enabled": [{"name": "GPUDefragmentation"}]}},
                    "pluginConfig": [{"name": key, "args": value} for key, value in args.items()],
                }
            ],
        }
    )
    descheduler.start()

    mover.kubectl("rollout", "status", "deployment/train", "--timeout=90s")

    descheduler.stop()
    (job,) = mover.jobs()
    assert job["status"]["phase"] == "Succeeded"
    moved = job["spec"]["podRef"]["name"]
    places = mover.pods()
    (train,) = (name for name in places if name.startswith("train"))
    assert places[train] == before[moved]
    others = {place for name, place in places.items() if name != train}
    assert others == {"g1", "g2"} - {before[moved]}
    assert job["metadata"]["annotations"]["koordinator.sh/evict-trigger"] == "GPUDefragmentation"
    assert not [
        it for it in mover.reservations() if it["metadata"]["name"] != job["metadata"]["uid"]
    ]
