"""The agent that asks the kubelet for pods, instead of watching them at the API server."""

import json
import signal
from pathlib import Path
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.node.conftest import StartAgent
from tests.e2e.real_node import RealNode
from tests.e2e.real_node.node import CGROUPS, Manifest, pod
from tests.e2e.waiting import eventually

if not (CGROUPS / "cpuset").is_dir():
    pytest.skip("these tests read the files of cgroup v1", allow_module_level=True)

#: Who asks is looked up with the API server, as on a node of a real cluster.
LOOKS_UP = {
    "authentication": {"anonymous": {"enabled": False}, "webhook": {"enabled": True}},
    "authorization": {"mode": "Webhook"},
}
FLAGS = (
    "--pods-from-kubelet",
    "--kubelet-sync-interval=2s",
    "--kubelet-sync-timeout=1s",
    "--enable-nri-runtime-hook=false",  # what is set is the reconciler's, which has to know pods
)
_COUNT = 'koordlet_kubelet_request_duration_seconds_count{{code="{}",path="/pods/",verb="get"}}'


def bound(name: str) -> Manifest:
    """Return a pod with a CPU of its own."""
    status = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": "1"})}
    return guaranteed(name, "LSR", "1", annotations=status)


def guaranteed(name: str, qos: str, cpu: str, **more: Any) -> Manifest:
    """Return a pod whose limits are its requests."""
    each = {"cpu": cpu, "memory": "32Mi"}
    resources = {"requests": each, "limits": each}
    return pod(name, labels={"koordinator.sh/qosClass": qos}, resources=resources, **more)


def cpus(node: RealNode, made: Manifest) -> str:
    """Return the CPUs of a container."""
    folder = CGROUPS / f"cpuset/kubepods/pod{made['metadata']['uid']}"
    return (folder / node.container_id(made) / "cpuset.cpus").read_text().strip()


def notes(controlplane: ControlPlane) -> list[str]:
    """Return the agent's events about the kubelet."""
    response = controlplane.api.request("GET", "/apis/events.k8s.io/v1/namespaces/default/events")
    return [it["note"] for it in response["items"] if it["reason"] == "KubeletNotAsked"]


def restart_kubelet(node: RealNode, further: dict[str, Any]) -> None:
    """Start it with these settings."""
    node.stop_kubelet()
    node.start_kubelet(further)


def test_pods_of_the_kubelet_get_their_settings(
    controlplane: ControlPlane, node: RealNode, start_agent: StartAgent
) -> None:
    """The kubelet has a certificate of its own, and reviews the agent's token at the API server."""
    restart_kubelet(node, LOOKS_UP)
    agent = start_agent(*FLAGS, is_called=False)
    (first,) = node.run(bound("first"))
    eventually(lambda: cpus(node, first) == "1")
    node.delete(first)
    (second,) = node.run(bound("second"))
    eventually(lambda: cpus(node, second) == "1")

    assert agent.metric(_COUNT.format("200")) > 0
    assert notes(controlplane) == []


def test_static_pods_are_known_without_a_mirror(
    node: RealNode, start_agent: StartAgent, tmp_path: Path
) -> None:
    """The kubelet knows under which UID they run."""
    manifests = tmp_path / "manifests"
    manifests.mkdir()
    static = bound("static")
    del static["spec"]["nodeName"]
    (manifests / "static.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Pod", **static})
    )
    restart_kubelet(node, {"staticPodPath": str(manifests)})
    start_agent(*FLAGS, is_called=False)

    def set_right() -> bool:
        files = (CGROUPS / "cpuset/kubepods").glob("pod*/*/cpuset.cpus")
        return "1" in [file.read_text().strip() for file in files]

    eventually(set_right, 60)
    (manifests / "static.json").unlink()


def test_hanging_or_restarted_kubelet_affects_no_pod(
    controlplane: ControlPlane, node: RealNode, start_agent: StartAgent
) -> None:
    """The last answer of the kubelet stays in effect, with an event; later pods are known, too."""
    agent = start_agent(*FLAGS, is_called=False)
    (made,) = node.run(bound("made"))
    eventually(lambda: cpus(node, made) == "1")

    node.signal("kubelet", signal.SIGSTOP)
    eventually(lambda: any("within 1 s" in note for note in notes(controlplane)))
    assert agent.get("/readyz") == "ok"
    file = CGROUPS / f"cpuset/kubepods/pod{made['metadata']['uid']}"
    (file / node.container_id(made) / "cpuset.cpus").write_text("0-1")
    eventually(lambda: cpus(node, made) == "1", 90)  # looked at again each minute
    node.signal("kubelet", signal.SIGCONT)

    node.kill("kubelet")
    (late,) = node.run(guaranteed("late", "LS", "100m"))
    eventually(lambda: cpus(node, late) == "0")
    assert cpus(node, made) == "1"


def test_refusal_by_the_kubelet_is_reported(
    controlplane: ControlPlane, node: RealNode, start_agent: StartAgent, tmp_path: Path
) -> None:
    """A server without the kubelet's certificate is not trusted, and gets no credentials."""
    other = tmp_path / "other.crt"
    other.write_text("")
    wrong = f"--kubelet-certificate-authority={other}"
    agent = start_agent(*FLAGS, wrong, is_called=False, ready=False)
    eventually(lambda: any("certificate verify failed" in note for note in notes(controlplane)))
    assert agent.get("/readyz") != "ok"
    agent.kill()

    no_authentication = {"anonymous": {"enabled": False}, "webhook": {"enabled": False}}
    restart_kubelet(node, {"authentication": no_authentication})
    agent = start_agent(*FLAGS, is_called=False, ready=False)
    eventually(lambda: any("answered 401" in note for note in notes(controlplane)))
    assert any("nodes/proxy" in note for note in notes(controlplane))
    assert agent.get("/readyz") != "ok"
