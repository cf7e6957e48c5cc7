"""A GPU and a virtual function below one PCIe root, from the pod's request to what it sees itself.

Scheduler, manager and agent are ours; API server, kubelet, containerd and runc are real; cards are
a folder that looks like sysfs, and Multus is a CNI plugin that asks as Multus does.
"""

import json
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc
import pytest
import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.binaries import find
from tests.e2e.manager_process import ManagerProcess
from tests.e2e.node import fake_multus
from tests.e2e.node.conftest import NodeAgent, StartAgent
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.colocation import configure
from tests.e2e.real_node.node import Manifest, pod
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.waiting import eventually
from tests.markdown import code_blocks

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-to/attach-rdma-to-gpus.md").read_text("utf-8")
ALLOCATED = "scheduling.koordinator.sh/device-allocated"
RDMA, GPU = "koordinator.sh/rdma", "nvidia.com/gpu"
GATES = ["Accelerators", "RDMADevices", "GPUEnvInject", "RDMADeviceInject", "PodResourcesProxy"]
PLUGIN = "fake-multus"
SEES = (
    "cat /sys/class/net/net1/ifalias; echo gpu $NVIDIA_VISIBLE_DEVICES; "
    "ls /dev/infiniband; dd if=/dev/infiniband/uverbs0 count=0 2>&1; echo seen; sleep 2147483647"
)
#: Two roots, each with a GPU, a card and two functions: addresses end in 00.0, 00.2 and 00.3.
BUSES = {"pci0000:00": "0000:01", "pci0000:80": "0000:81"}


def documents() -> Iterator[Manifest]:
    """Yield the manifests of the page."""
    for block in code_blocks(PAGE, "yaml"):
        document = yaml.safe_load(block)
        if "kind" in document:
            yield document


def of_page(kind: str) -> Manifest:
    """Return the manifest of a kind."""
    (document,) = (each for each in documents() if each["kind"] == kind)
    return document


def trainer(name: str) -> Manifest:
    """Return the pod of the page with an image that is here."""
    made = of_page("Pod")
    del made["apiVersion"], made["kind"]
    made["metadata"]["name"] = name
    made["spec"] |= {"terminationGracePeriodSeconds": 0, "restartPolicy": "Never"}
    (container,) = made["spec"]["containers"]
    container |= {
        "image": "node.test/busybox:1",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", SEES],
    }
    return made


def fake_sysfs(sys_root: Path) -> None:
    """Make what the agent reads of CPUs and of RDMA cards."""
    system = sys_root / "devices/system"
    for folder in Path("/sys/devices/system/cpu").glob("cpu[0-9]*"):
        shutil.copytree(folder / "topology", system / "cpu" / folder.name / "topology")
    for name in ("cpu/online", "node/online"):
        with suppress(OSError):
            (system / name).parent.mkdir(parents=True, exist_ok=True)
            (system / name).write_text(Path("/sys/devices/system", name).read_text())
    _put(sys_root / "class/misc/rdma_cm/dev", "10:58")
    number = 192
    for index, (root, bus) in enumerate(BUSES.items()):
        port = sys_root / f"devices/{root}/{root.removeprefix('pci')}:01.0"
        for function in ("00.0", "00.2", "00.3"):
            card = port / f"{bus}:{function}"
            _put(card / "numa_node", "0")
            _put(card / f"infiniband_verbs/uverbs{number - 192}/dev", f"231:{number}")
            number += 1
            _link(sys_root / f"bus/pci/devices/{card.name}", card)
            if function != "00.0":
                _link(card / "physfn", port / f"{bus}:00.0")
                _link(port / f"{bus}:00.0/virtfn{function[-1]}", card)
        device = port / f"{bus}:00.0/infiniband/mlx5_{index}"
        _put(device / "ports/1/state", "4: ACTIVE")
        _link(device / "device", port / f"{bus}:00.0")
        _link(sys_root / f"class/infiniband/mlx5_{index}", device)


def _link(path: Path, target: Path) -> None:
    """Make a link as the kernel does: relative, so that it stays below the root."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(os.path.relpath(target, path.parent))


def describe_gpus(folder: Path) -> None:
    """Describe a GPU below each root, as a device daemon does."""
    cards = [
        {
            "vendor": "nvidia",
            "model": "H100",
            "uuid": f"GPU-{minor}",
            "minor": str(minor),
            "resources": {"koordinator.sh/gpu-core": "100", "koordinator.sh/gpu-memory": "80Gi"},
            "topology": {"nodeID": "0", "pcieID": root, "busID": f"{bus[:-1]}2:00.0"},
        }
        for minor, (root, bus) in enumerate(BUSES.items())
    ]
    _put(folder / "ic-device", json.dumps(cards))


def _put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


@dataclass
class Site:
    """A node with cards, its agent, and who places pods there."""

    node: RealNode
    agent: NodeAgent
    socket: str
    log: Path

    def run(self, *names: str) -> list[Manifest]:
        """Create pods of the page and return them when they have printed what they see."""
        self.node.create(*map(trainer, names))
        made = [
            self.node.wait_for(
                trainer(name) | {"metadata": {"name": name, "namespace": "default"}}, "Running"
            )
            for name in names
        ]
        for each in made:
            eventually(lambda each=each: "seen" in self.node.printed(each))  # type: ignore[misc]
        return made

    def events(self, event: str) -> list[dict[str, str]]:
        """Return what Multus did."""
        lines = map(json.loads, self.log.read_text().splitlines() if self.log.exists() else ())
        return [line for line in lines if line["event"] == event]

    def reported(self) -> dict[str, dict[str, list[str]]]:
        """Return the devices by pod in the answer of List."""
        by_type = {
            each.name: fake_multus.devices(each) for each in fake_multus.list_pods(self.socket)
        }
        return {name: devices for name, devices in by_type.items() if devices}


@pytest.fixture
def site(
    controlplane: ControlPlane, node: RealNode, start_agent: StartAgent, tmp_path: Path
) -> Iterator[Site]:
    """Equip the node, and start everything."""
    configure(controlplane, "colocation-config")  # without it no amounts are published
    fake_sysfs(tmp_path / "sys")
    describe_gpus(tmp_path / "xpus")
    log = tmp_path / "multus.log"
    socket = f"{tmp_path}/pod-resources/kubelet.sock"
    network = of_page("NetworkAttachmentDefinition")["metadata"]
    resource = network["annotations"]["k8s.v1.cni.cncf.io/resourceName"]
    node.add_cni_plugin(
        PLUGIN,
        f"#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} {fake_multus.__file__}\n",
        {
            "kubectl": [str(find("kubectl")), f"--kubeconfig={controlplane.kubeconfig()}"],
            "socket": socket,
            "log": str(log),
            "resourceNames": {network["name"]: resource},
        },
    )
    scheduling: dict[str, Any] = {
        "leaderElection": {"leaderElect": False},
        "profiles": [
            {
                "schedulerName": "koord-scheduler",
                "plugins": {"multiPoint": {"enabled": [{"name": "DeviceShare"}]}},
            }
        ],
    }
    agent = start_agent(
        f"--feature-gates={','.join(f'{gate}=true' for gate in GATES)}",
        f"--sys-root-dir={tmp_path}/sys",
        f"--xpu-device-infos-dir={tmp_path}/xpus",
        f"--pod-resources-proxy-path={tmp_path}/pod-resources",
    )
    with ManagerProcess(controlplane), SchedulerProcess(controlplane, scheduling):
        yield Site(node, agent, socket, log)
        node.delete_pods()
    node.remove_cni_plugin(PLUGIN)


def allocated(made: Manifest) -> tuple[str, str]:
    """Return UUID of the GPU and address of the function that the scheduler gave a pod."""
    allocation = json.loads(made["metadata"]["annotations"][ALLOCATED])
    ((gpu,), (card,)) = allocation["gpu"], allocation["rdma"]
    ((function,),) = (card["extension"]["vfs"],)
    return gpu["id"], function["busID"]


def test_a_pod_gets_its_gpu_its_interface_and_its_device_nodes(site: Site) -> None:
    """Two pods, two roots: what each sees is what the scheduler wrote, and nothing of the other."""
    made = site.run("trainer-a", "trainer-b")

    given = [allocated(each) for each in made]
    assert sorted(gpu for gpu, _ in given) == ["GPU-0", "GPU-1"]
    for each, (gpu, function) in zip(made, given, strict=True):
        number = int(gpu.removeprefix("GPU-"))
        assert function.startswith(list(BUSES.values())[number])
        words = site.node.printed(each).split()
        verbs = 3 * number + {"2": 1, "3": 2}[function[-1]]
        assert words[:3] == [function, "gpu", str(number)]
        assert {"rdma_cm", f"uverbs{verbs}"} <= set(words)
        assert sum(word.startswith("uverbs") for word in words) == 1 + (verbs == 0)
    assert site.reported() == {
        each["metadata"]["name"]: {RDMA: [function], GPU: [gpu]}
        for each, (gpu, function) in zip(made, given, strict=True)
    }
    one = fake_multus.get_pod(site.socket, "trainer-a")
    assert fake_multus.devices(one) == {RDMA: [given[0][1]], GPU: [given[0][0]]}
    assert not site.events("FAILED")


def test_a_copied_annotation_gets_no_device(site: Site, controlplane: ControlPlane) -> None:
    """A pod bound by its author with another pod's devices starts without them, with an event.

    The owner of the devices keeps them, even when its container restarts.
    """
    (owner,) = site.run("trainer-a")
    stolen = {ALLOCATED: owner["metadata"]["annotations"][ALLOCATED]}
    (container,) = trainer("a-thief")["spec"]["containers"]
    (thief,) = site.node.run(
        pod("a-thief", SEES, annotations=stolen, resources=container["resources"])
    )
    printed = eventually(
        lambda: site.node.printed(thief) if "seen" in site.node.printed(thief) else ""
    )

    assert [line.strip() for line in printed.splitlines() if line.startswith("gpu")] == ["gpu"]
    assert "rdma_cm" not in printed
    assert list(site.reported()) == ["trainer-a"]
    events = eventually(lambda: _warnings(controlplane, "a-thief"))
    assert any("is allocated to pod default/trainer-a on this node" in note for note in events)
    assert not _warnings(controlplane, "trainer-a")


def _warnings(controlplane: ControlPlane, name: str) -> list[str]:
    """Return the agent's events about the hooks of a pod."""
    response = controlplane.api.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
    return [
        event["note"]
        for event in response["items"]
        if event["reason"] == "RuntimeHookFailed" and event["regarding"]["name"] == name
    ]


def test_pods_that_follow_others_of_their_name_get_devices_of_their_own(site: Site) -> None:
    """No pod gets another pod's device, even if kubelet and agent are killed in between."""
    for attempt in range(4):
        made = site.run("trainer-0", "trainer-1")
        if attempt == 1:
            site.node.kill("kubelet")
        elif attempt == 2:
            site.agent.kill()
            site.agent.start()
        given = {each["metadata"]["uid"]: allocated(each)[1] for each in made}
        attached = {line["uid"]: line["text"] for line in site.events("ADD")}
        assert {uid: attached[uid] for uid in given} == given
        reported: dict[str, dict[str, list[str]]] = eventually(lambda: _reported(site), 60)
        assert {name: ids[RDMA] for name, ids in reported.items()} == {
            each["metadata"]["name"]: [allocated(each)[1]] for each in made
        }
        site.node.delete_pods()


def _reported(site: Site) -> dict[str, dict[str, list[str]]]:
    with suppress(grpc.RpcError):
        return site.reported()
    return {}
