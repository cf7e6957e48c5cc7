"""GPUs, NICs, CPUs and NUMA nodes: reported by kubectl, given out once, and still known later."""

import json
import subprocess
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.koord_process import KOORD
from tests.e2e.kubelet import FakeKubelet
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.session.manifests import Manifest, node
from tests.e2e.session.user import User
from tests.e2e.waiting import eventually
from tests.fuzz.rules import cpu_numbers
from tests.keywords import as_keywords

GPU, RDMA = "koordinator.sh/gpu", "koordinator.sh/rdma"
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
STATUS = "scheduling.koordinator.sh/resource-status"
_PLUGINS = [{"name": "NodeNUMAResource"}, {"name": "DeviceShare"}]
CONFIGURATION = {
    "leaderElection": {"leaderElect": False},
    "profiles": [
        {
            "schedulerName": "default-scheduler",
            "plugins": {"multiPoint": {"enabled": _PLUGINS}},
        }
    ],
}
JOINT = {
    "scheduling.koordinator.sh/device-joint-allocate": json.dumps(
        {"deviceTypes": ["gpu", "rdma"], "requiredScope": "SamePCIe"}
    )
}


def machine(name: str) -> list[Manifest]:
    """Return a node of two NUMA nodes: 16 CPUs, four GPUs in pairs, and a NIC beside each pair."""
    headroom = {GPU: "400", f"{GPU}-core": "400", f"{GPU}-memory-ratio": "400", RDMA: "200"}
    labels = {"node.koordinator.sh/numa-topology-policy": "SingleNUMANode"}
    return [node(name, "16", labels=labels, **headroom), report(name), topology(name)]


def report(name: str, *, minors: tuple[int, ...] = (0, 1, 2, 3)) -> Manifest:
    """Return the devices of a node."""
    card = {f"{GPU}-core": "100", f"{GPU}-memory": "80Gi", f"{GPU}-memory-ratio": "100"}
    gpus = [_device("gpu", minor, minor // 2, card) for minor in minors]
    nics = [_device("rdma", minor, minor, {RDMA: "100"}) for minor in range(2)]
    table = {
        "1": [{"minors": [minor]} for minor in range(4)],
        "2": [{"minors": [0, 1]}, {"minors": [2, 3]}],
    }
    return {
        "apiVersion": "scheduling.koordinator.sh/v1alpha1",
        "kind": "Device",
        "metadata": {
            "name": name,
            "labels": {"node.koordinator.sh/gpu-partition-policy": "Honor"},
            "annotations": {"scheduling.koordinator.sh/gpu-partitions": json.dumps(table)},
        },
        "spec": {"devices": gpus + nics},
    }


def _device(kind: str, minor: int, numa: int, resources: dict[str, str]) -> Manifest:
    root, bus = f"pci000{numa}", f"{kind}-{minor}"
    return {
        "type": kind,
        "minor": minor,
        "health": True,
        "id": bus,
        "resources": resources,
        "topology": {"socketID": numa, "nodeID": numa, "pcieID": root, "busID": bus},
    }


def topology(name: str) -> Manifest:
    """Return the CPUs and NUMA nodes of a node."""
    cpus = [{"id": i, "core": i // 2, "socket": i // 8, "node": i // 8} for i in range(16)]
    amounts = {"cpu": "8", "memory": "8Gi"}
    resources = [
        {"name": key, "capacity": much, "allocatable": much, "available": much}
        for key, much in amounts.items()
    ]
    return {
        "apiVersion": "topology.node.k8s.io/v1alpha1",
        "kind": "NodeResourceTopology",
        "metadata": {
            "name": name,
            "annotations": {"node.koordinator.sh/cpu-topology": json.dumps({"detail": cpus})},
        },
        "topologyPolicies": ["None"],
        "zones": [
            {"name": f"node-{zone}", "type": "Node", "resources": resources} for zone in range(2)
        ],
    }


def asking(name: str, *, annotations: dict[str, str] | None = None, **requests: str) -> Manifest:
    """Return a pod with two CPUs of its own, and devices."""
    named = {f"koordinator.sh/{key}": amount for key, amount in requests.items()}
    resources = {"cpu": "2", "memory": "1Gi", **named}
    container = {
        "name": "main",
        "image": "app",
        "resources": {"requests": resources, "limits": resources},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "labels": {"koordinator.sh/qosClass": "LSR"},
            "annotations": annotations or {},
        },
        "spec": {"terminationGracePeriodSeconds": 1, "containers": [container]},
    }


@pytest.fixture
def scheduler(controlplane: ControlPlane) -> Iterator[SchedulerProcess]:
    """Run one scheduler with both plugins; a test may end and restart it."""
    with SchedulerProcess(controlplane, CONFIGURATION) as running:
        yield running


@pytest.fixture
def user(controlplane: ControlPlane, namespace: str, kubelet: FakeKubelet) -> User:
    """Work in a separate namespace with fake nodes."""
    del kubelet
    return User(controlplane, namespace)


def annotation_of(user: User, pod: str, key: str) -> Any:
    return json.loads(user.get("pods", pod)["metadata"]["annotations"][key])


def assert_nothing_is_given_out_twice(user: User) -> None:
    """CPUs have one holder; of no card more than all of it is taken."""
    cpus: Counter[tuple[str, int]] = Counter()
    cards: Counter[tuple[str, int]] = Counter()
    for each in user.get("pods"):
        on, name = each["spec"].get("nodeName"), each["metadata"]["name"]
        if on:
            cpus.update(
                (on, cpu) for cpu in set(cpu_numbers(annotation_of(user, name, STATUS)["cpuset"]))
            )
            for card in annotation_of(user, name, ALLOCATED)["gpu"]:
                cards[on, card["minor"]] += int(card["resources"][f"{GPU}-core"])
    assert not [cpu for cpu, times in cpus.items() if times > 1]
    assert not [card for card, percent in cards.items() if percent > 100]


@pytest.mark.usefixtures("scheduler")
def test_a_pod_gets_its_devices_and_cpus_from_one_numa_node(user: User) -> None:
    """The pair of GPUs that is a partition, the NIC at their root, and CPUs beside them."""
    user.apply(*machine("n0"))
    user.apply(asking("share", gpu="50"))
    user.node_of("share")
    user.apply(asking("pair", gpu="200", rdma="1", annotations=JOINT))
    user.node_of("pair")

    allocated, status = annotation_of(user, "pair", ALLOCATED), annotation_of(user, "pair", STATUS)
    assert [card["minor"] for card in allocated["gpu"]] == [2, 3]
    assert [card["id"] for card in allocated["gpu"]] == ["gpu-2", "gpu-3"]
    assert [nic["minor"] for nic in allocated["rdma"]] == [1]
    assert set(cpu_numbers(status["cpuset"])) <= set(range(8, 16))
    assert [part["node"] for part in status["numaNodeResources"]] == [1]
    assert_nothing_is_given_out_twice(user)


def test_a_restarted_scheduler_gives_nothing_out_twice(
    controlplane: ControlPlane, user: User, scheduler: SchedulerProcess
) -> None:
    """Allocations are read from annotations; ``koord node show`` reads them there, too."""
    user.apply(*machine("n0"), *machine("n1"))
    before = [asking(f"a{i}", gpu="50") for i in range(4)] + [asking("pair", gpu="200")]
    user.apply(*before)
    user.nodes_of(*(each["metadata"]["name"] for each in before))
    scheduler.kill()
    after = [asking(f"b{i}", gpu="100") for i in range(2)]
    user.apply(*after)

    scheduler.start()

    user.nodes_of(*(each["metadata"]["name"] for each in after))
    assert_nothing_is_given_out_twice(user)
    user.apply(asking("too-many", gpu="400"))
    user.wait_for_refusal("too-many", f"Insufficient {GPU}")
    drawn = shown(controlplane, user.node_of("pair"))
    assert "NUMA node 1" in drawn
    assert f"{user.namespace}/pair" in drawn


def shown(controlplane: ControlPlane, name: str) -> str:
    """Return what ``koord node show`` draws of a node of the cluster."""
    command = [str(KOORD), "node", "show", name, f"--kubeconfig={controlplane.kubeconfig()}"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("scheduler")
def test_a_bad_device_report_has_an_event(controlplane: ControlPlane, user: User) -> None:
    """The event names the field; the other devices of the node are allocated."""
    plain, _, numa = machine("n0")
    user.apply(plain, report("n0", minors=(0, 1, 2, 3, 3)), numa)

    def warnings() -> list[Manifest]:
        events = controlplane.api.request("GET", "/api/v1/namespaces/default/events")["items"]
        return [
            it
            for it in events
            if (it["involvedObject"]["kind"], it["type"]) == ("Device", "Warning")
        ]

    (event,) = eventually(warnings) or []
    assert event["reason"] == "InvalidDevice"
    assert (
        "Device n0: spec.devices[4].minor: must be unique among the gpu devices, got 3 again"
        in event["message"]
    )
    user.apply(asking("p", gpu="100"))
    assert user.node_of("p") == "n0"
    assert len(warnings()) == 1


@pytest.mark.usefixtures("scheduler")
def test_impossible_device_request_is_reported(user: User) -> None:
    """Contradicting names, and a hint that is no JSON."""
    hint = {"scheduling.koordinator.sh/device-allocate-hint": "no JSON"}
    user.apply(*machine("n0"))
    user.apply(asking("core-alone", **as_keywords({"gpu-core": "100"})))
    user.apply(asking("no-hint", gpu="100", annotations=hint))

    user.wait_for_refusal("core-alone", f"invalid resource device requests: [{GPU}-core]")
    user.wait_for_refusal("no-hint", "device-allocate-hint")
