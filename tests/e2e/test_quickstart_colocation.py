"""The quick start of co-location on a cluster, command by command as the page has it.

What the images would run is run beside the cluster, under the rights that the chart gives it.
"""

import json
import shlex
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.koordlet.agent_process import CPUS, AgentProcess, MachineOfFiles
from tests.e2e.kubelet import FakeKubelet
from tests.e2e.manager_process import NAMESPACE, ManagerProcess
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.session.manifests import node
from tests.e2e.waiting import eventually
from tests.markdown import code_blocks

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs/quickstart-colocation.md").read_text("utf-8")
HOOKS = "/apis/admissionregistration.k8s.io/v1"
MERGE = "application/merge-patch+json"
CONTROLLERS = ["deployment-controller", "replicaset-controller", "serviceaccount-controller"]


def commands(program: str) -> list[list[str]]:
    """Return the arguments of the page's commands of this program."""
    lines = "".join(code_blocks(PAGE, "console")).replace("\\\n", " ").splitlines()
    split = [shlex.split(line.removeprefix("$ ")) for line in lines]
    return [arguments[1:] for arguments in split if arguments[0] == program]


def stored(controlplane: ControlPlane, what: str) -> Any:
    """Return an object of the chart."""
    return json.loads(controlplane.kubectl("get", what, f"-n={NAMESPACE}", "-o=json"))


def without_services(controlplane: ControlPlane, port: int) -> None:
    """Route webhook calls of the API server, which is outside the pod network, to the manager."""
    for kind in ("mutating", "validating"):
        path = f"{HOOKS}/{kind}webhookconfigurations/koordinator-{kind}-webhook-configuration"
        annotations = controlplane.api.request("GET", path)["metadata"]["annotations"]
        template = json.loads(annotations["template"])
        for hook in template:
            service = hook["clientConfig"].pop("service")
            hook["clientConfig"]["url"] = f"https://127.0.0.1:{port}{service['path']}"
        change = {"metadata": {"annotations": {"template": json.dumps(template)}}}
        controlplane.api.request("PATCH", path, change, content_type=MERGE)


def listed(controlplane: ControlPlane) -> Any:
    """Return the webhooks that the manager has listed: the API server calls it."""
    path = f"{HOOKS}/mutatingwebhookconfigurations/koordinator-mutating-webhook-configuration"
    return controlplane.api.request("GET", path).get("webhooks")


@pytest.fixture
def installed(
    controlplane: ControlPlane, helm: Callable[..., str], tmp_path: Path
) -> Iterator[None]:
    """Install with the page's command, and run what the pods of the chart run."""
    values = tmp_path / "colocation-values.yaml"
    values.write_text(code_blocks(PAGE, "yaml")[0], "utf-8")
    own = {"charts/koordinator": str(ROOT / "charts/koordinator"), values.name: str(values)}
    (command,) = commands("helm")
    soon = "--set=manager.config.colocation-config.metricReportIntervalSeconds=3"
    helm(*(own.get(argument, argument) for argument in command), soon)

    def rights(account: str, node: str = "") -> Path:
        return controlplane.service_account_kubeconfig(NAMESPACE, account, node)

    file = stored(controlplane, "configmap/koord-scheduler-config")["data"]
    controlplane.api.request("POST", "/api/v1/nodes", node("n1", str(CPUS)))
    manager = ManagerProcess(controlplane, kubeconfig=rights("koord-manager"), elects=True)
    without_services(controlplane, manager.webhook_port)
    agent = AgentProcess(controlplane, rights("koordlet", "n1"), MachineOfFiles(tmp_path))
    scheduler = SchedulerProcess(
        controlplane,
        yaml.safe_load(file["koord-scheduler-config"]),
        name="quickstart",
        kubeconfig=rights("koord-scheduler"),
    )
    with ExitStack() as running:
        running.callback(helm, "uninstall", "koordinator", f"--namespace={NAMESPACE}")
        running.enter_context(FakeKubelet(controlplane.api))
        running.enter_context(manager)
        eventually(lambda: listed(controlplane), 30)
        running.callback(agent.kill)
        agent.start()
        running.enter_context(scheduler)
        yield


@pytest.mark.usefixtures("installed")
def test_commands_of_the_page_have_the_documented_results(
    controlplane: ControlPlane, namespace: str
) -> None:
    """The node shows what it gives, and the pods of the Deployment live on it."""
    assert "`kubernetes.io/batch-cpu: 1k`" in PAGE
    kubectl = controlplane.kubectl
    table, objects = commands("kubectl")
    # An idle machine of eight CPUs; the values offer 65 % of it.
    eventually(lambda: ["n1", "5200"] in map(str.split, kubectl(*table).splitlines()), 60)
    shown = kubectl(*objects)
    assert "nodemetric.slo.koordinator.sh/n1" in shown
    assert "nodeslo.slo.koordinator.sh/n1" in shown

    _, profile, deployment = code_blocks(PAGE, "yaml")
    inside = f"--namespace={namespace}"
    kubectl("apply", "--filename=-", stdin=profile)
    controlplane.start_controller_manager(CONTROLLERS)

    def pods() -> list[Any]:
        looking = ("get", "pods", "-l", "app=etl", "-o", "json", inside)
        assert " ".join(looking[:4]) in PAGE
        items: list[Any] = json.loads(kubectl(*looking))["items"]
        return items

    kubectl("apply", "--filename=-", inside, stdin=deployment)
    eventually(lambda: len(pods()) == 3, 30)
    eventually(lambda: all(pod["spec"].get("nodeName") == "n1" for pod in pods()), 30)
    for pod in pods():
        (container,) = pod["spec"]["containers"]
        assert container["resources"]["requests"]["kubernetes.io/batch-cpu"] == "1k"
        assert pod["metadata"]["labels"]["koordinator.sh/qosClass"] == "BE"
        assert (pod["spec"]["priority"], pod["spec"]["schedulerName"]) == (5000, "koord-scheduler")
