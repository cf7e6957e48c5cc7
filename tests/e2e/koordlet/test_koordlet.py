"""The agent with a real API server: it applies configurations and reports measurements."""

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from tests.e2e.controlplane import ControlPlane, ControlPlaneError
from tests.e2e.controlplane.endpoint import Endpoint
from tests.e2e.controlplane.errors import ApiError
from tests.e2e.guarded import assert_guarded, unverified
from tests.e2e.koordlet.agent_process import CPUS, KOORD, AgentProcess, MachineOfFiles
from tests.e2e.waiting import eventually
from tests.unit.deploy.installed import NAMESPACE

from koordinator.api.qos import KubeQos
from koordinator.domain.cgroups.files import CgroupFile

NODE = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}
NODE_STATUS = {
    amounts: {"cpu": str(CPUS), "memory": "8Gi", "pods": "110"}
    for amounts in ("capacity", "allocatable")
}
SLO = {
    "apiVersion": "slo.koordinator.sh/v1alpha1",
    "kind": "NodeSLO",
    "metadata": {"name": "n1"},
    "spec": {
        "resourceUsedThresholdWithBE": {
            "enable": True,
            "cpuSuppressThresholdPercent": 50,
            "cpuSuppressPolicy": "cfsQuota",
        }
    },
}
METRIC = {
    "apiVersion": "slo.koordinator.sh/v1alpha1",
    "kind": "NodeMetric",
    "metadata": {"name": "n1"},
    "spec": {"metricCollectPolicy": {"reportIntervalSeconds": 30}},
}


class Cluster:
    """One node and a best-effort pod on it."""

    def __init__(self, controlplane: ControlPlane, namespace: str, machine: MachineOfFiles) -> None:
        self._kubectl = controlplane.kubectl
        self.namespace = namespace
        pod = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {
                "name": "job",
                "namespace": namespace,
                "labels": {"koordinator.sh/qosClass": "BE"},
            },
            "spec": {
                "nodeName": "n1",
                "tolerations": [{"operator": "Exists"}],
                "containers": [{"name": "c", "image": "x"}],
            },
        }
        self.apply(NODE, METRIC, SLO, pod)
        self.patch_status("node", "n1", NODE_STATUS)
        container = {"name": "c", "containerID": "containerd://1", "image": "x", "imageID": "x"}
        whole = {**container, "ready": True, "restartCount": 0, "started": True}
        status = {"phase": "Running", "containerStatuses": [whole]}
        self.patch_status("pod", "job", status, "--namespace", namespace)
        uid = self.get("pod", "job", "--namespace", namespace)["metadata"]["uid"]
        self.pod_folder = machine.layout.pod(KubeQos.BEST_EFFORT, uid)
        machine.add(self.pod_folder)
        machine.add(f"{self.pod_folder}/1")

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create objects, or change them."""
        text = yaml.safe_dump_all(objects)
        self._kubectl("apply", "--server-side", "--force-conflicts", "--filename=-", stdin=text)

    def patch_status(self, kind: str, name: str, status: dict[str, Any], *flags: str) -> None:
        """Play the kubelet."""
        patch = json.dumps({"status": status})
        self._kubectl(
            "patch", kind, name, "--subresource=status", "--type=merge", f"--patch={patch}", *flags
        )

    def get(self, kind: str, name: str, *flags: str) -> Any:
        """Return an object."""
        return json.loads(self._kubectl("get", kind, name, "--output=json", *flags))

    def events(self) -> list[Any]:
        """Return the events about the node."""
        listed = self._kubectl("get", "events", "--all-namespaces", "--output=json")
        return list(json.loads(listed)["items"])


def quota(machine: MachineOfFiles) -> str:
    """Return the quota of best effort."""
    return machine.read(CgroupFile.CFS_QUOTA, machine.layout.besteffort)


def test_the_life_of_an_agent(
    controlplane: ControlPlane, namespace: str, agent: AgentProcess, machine: MachineOfFiles
) -> None:
    """With no more rights than it is installed with."""
    cluster = Cluster(controlplane, namespace, machine)
    agent.start()

    # The NodeSLO is applied: half of eight CPUs.
    eventually(lambda: quota(machine) == "400000")
    # The topology is there.
    topology = eventually(lambda: cluster.get("noderesourcetopology", "n1"))
    annotations = topology["metadata"]["annotations"]
    pools = json.loads(annotations["node.koordinator.sh/cpu-shared-pools"])
    assert pools == [{"socket": 0, "node": 0, "cpuset": f"0-{CPUS - 1}"}]

    # A NodeSLO that makes no sense changes nothing, and an event names the field.
    nonsense = json.loads(json.dumps(SLO))
    nonsense["spec"]["resourceUsedThresholdWithBE"]["cpuSuppressPolicy"] = "quota"
    cluster.apply(nonsense)
    event = eventually(
        lambda: next((e for e in cluster.events() if e["reason"] == "NodeSLONotFollowed"), None)
    )
    assert event is not None
    assert "cpuSuppressPolicy: must be one of cpuset, cfsQuota, got 'quota'" in (
        event.get("message") or event.get("note")
    )
    assert quota(machine) == "400000"

    # Usage is reported, the pod's too.
    status = eventually(
        lambda: (
            cluster.get("nodemetric", "n1").get("status", {}).get("nodeMetric")
            and cluster.get("nodemetric", "n1")["status"]
        ),
        90,
    )
    assert status["nodeMetric"]["nodeUsage"]["resources"]["memory"] == "4Gi"
    assert [pod["name"] for pod in status["podsMetric"]] == ["job"]

    # What was done can be read, while it runs and afterwards.
    assert "CPU suppress" in agent.get("/events?size=5")
    assert "koordlet_be_suppress_cpu_cores" in agent.get("/metrics")
    output = subprocess.run(
        [KOORD, "koordlet", "audit", f"--audit-log-dir={agent.audit}", "--type=cgroup"],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    ).stdout
    assert "cpu.cfs_quota_us: -1 -> 400000 (CPU suppress: 50 % of 8000m" in output

    # A restarted agent keeps the limit.
    cluster.apply(SLO)
    agent.kill()
    assert quota(machine) == "400000"
    agent.start()
    assert quota(machine) == "400000"

    # An outage of the API server does not stop it; afterwards it reports again.
    before = cluster.get("nodemetric", "n1")["status"]["updateTime"]
    controlplane.stop_apiserver()
    eventually(lambda: "node_used_cpu_cores" in agent.get("/metrics"))
    assert agent.get("/livez") == "ok"
    controlplane.restart_apiserver()
    eventually(lambda: cluster.get("nodemetric", "n1")["status"]["updateTime"] > before, 120)
    assert agent.stop() == 0


def test_an_agent_reports_on_its_own_node_only(controlplane: ControlPlane, rights: Path) -> None:
    """The credentials of one agent can't change the reports of others."""
    metrics = "/apis/slo.koordinator.sh/v1alpha1/nodemetrics"
    for name in ("n1", "n2"):
        metric = {**METRIC, "metadata": {"name": name}}
        controlplane.api.request("POST", metrics, metric)
    unbound = controlplane.service_account_kubeconfig(NAMESPACE, "koordlet")

    def refusal(kubeconfig: Path, name: str) -> str:
        """Return why a Device may not be made, and a NodeMetric not reported on."""
        device = {
            "apiVersion": "scheduling.koordinator.sh/v1alpha1",
            "kind": "Device",
            "metadata": {"name": name},
            "spec": {"devices": []},
        }
        metric = json.loads(controlplane.kubectl("get", f"nodemetric/{name}", "-o=json"))
        errors = []
        for command, obj in (("create", device), ("replace --subresource=status", metric)):
            try:
                controlplane.kubectl(
                    *command.split(),
                    "--dry-run=server",  # judged, but not stored before the policy counts
                    "--filename=-",
                    stdin=json.dumps(obj),
                    kubeconfig=kubeconfig,
                )
            except ControlPlaneError as error:
                errors.append(str(error))
        return "\n".join(errors)

    message = "must be the node of this node agent, n1, got n2"
    eventually(lambda: refusal(rights, "n2").count(message) == 2)
    assert "names no node" in refusal(unbound, "n1")
    assert refusal(rights, "n1") == ""


def event(name: str, *, reporter: str = "koordlet", kind: str = "Pod", about: str = "p") -> Any:
    """Return an event in the namespace default."""
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": name, "namespace": "default"},
        "eventTime": "2024-01-01T00:00:00.000000Z",
        "type": "Warning",
        "reason": "Tried",
        "action": "Try",
        "note": "as it was",
        "regarding": {"apiVersion": "v1", "kind": kind, "name": about, "namespace": "default"},
        "reportingController": reporter,
        "reportingInstance": reporter,
    }


def test_an_agent_writes_events_of_its_own_only(controlplane: ControlPlane, rights: Path) -> None:
    """The agent's credentials can't change events of others or write events for other nodes."""
    (user,) = yaml.safe_load(rights.read_text())["users"]
    agent = replace(controlplane.api, token=user["user"]["token"])
    listed = "events.k8s.io/v1/namespaces/default/events?dryRun=All"

    def refusal(method: str, path: str, body: Any) -> str:
        """Return why the agent may not write an event; empty if it may."""
        kind = "application/merge-patch+json" if method == "PATCH" else "application/json"
        try:
            agent.request(method, path, body, content_type=kind)
        except ApiError as error:
            return str(error)
        return ""

    def made(one: Any) -> str:
        return refusal("POST", f"/apis/{listed}", one)

    def changed(name: str, **fields: str) -> str:
        path = f"/api/v1/namespaces/default/events/{name}?dryRun=All"
        return refusal("PATCH", path, {"message": "another text", **fields})

    where = "/apis/events.k8s.io/v1/namespaces/default/events"
    for one in (event("own"), event("foreign", reporter="kubelet")):
        controlplane.api.request("POST", where, one)
    message = "events that koordlet reports only"
    eventually(lambda: message in made(event("a", reporter="kube-scheduler")))
    assert made(event("a")) == ""
    assert made(event("a", kind="Node", about="n1")) == ""
    assert "own node only" in made(event("a", kind="Node", about="n2"))
    assert "own node only" in made(event("a", kind="Secret", about="s"))
    assert changed("own") == ""
    assert message in changed("foreign")
    assert message in changed("foreign", reportingComponent="koordlet")
    assert message in changed("own", reportingComponent="kubelet")
    patch = '{"message":"by an operator"}'
    controlplane.kubectl(
        "patch", "events", "foreign", "--namespace=default", "--type=merge", f"--patch={patch}"
    )


def test_metrics_require_authorization_by_the_api_server(
    controlplane: ControlPlane, agent: AgentProcess
) -> None:
    """On every address that others reach: the agent asks with the rights it is installed with."""
    controlplane.api.request("POST", "/api/v1/nodes", NODE)
    agent.start()

    assert_guarded(Endpoint(agent.secure_port, unverified()), controlplane.api.token)
    assert agent.stop() == 0
