"""The page about YARN, command by command and manifest by manifest, on a real YARN and API server.

What the images would run is run beside the cluster, with the arguments, the files and the rights
that the chart gives it.
"""

import json
import re
import shlex
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.koord_process import KOORD, KoordProcess
from tests.e2e.manager_process import NAMESPACE, ManagerProcess
from tests.e2e.session.manifests import node
from tests.e2e.waiting import eventually
from tests.e2e.yarn.real_yarn import Amounts, RealYarn
from tests.e2e.yarn.test_yarn_operator import Machine
from tests.markdown import code_blocks

from koordinator.host.linux.sockets import SocketCopilot
from koordinator.yarn.app import BAD_REFERENCE

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/how-to/run-yarn.md").read_text("utf-8")
CHART = ROOT / "charts/koordinator-yarn-copilot"
HADOOP = "hadoop-yarn"
COLOCATION = {
    "enable": True,
    "cpuReclaimThresholdPercent": 100,
    "memoryReclaimThresholdPercent": 100,
}


def block(language: str, containing: str) -> str:
    """Return the block of the page in this language that has this text."""
    blocks = [text for text in code_blocks(PAGE, language) if containing in text]
    assert len(blocks) == 1, containing
    return str(blocks[0])


def inline(beginning: str) -> list[str]:
    """Return the arguments of a command within the page's text."""
    (command,) = re.findall(rf"`({re.escape(beginning)}[^`]*)`", PAGE)
    return shlex.split(command)[1:]


def node_manager(name: str, node_id: str, on: str) -> Any:
    """Return the pod of the page, with what a StatefulSet adds to it."""
    pod = yaml.safe_load(block("yaml", "node-manager"))
    pod["metadata"] |= {"name": name}
    assert pod["metadata"]["annotations"] == {
        "yarn.hadoop.apache.org/node-id": "node-7.example:8041"
    }
    pod["metadata"]["annotations"]["yarn.hadoop.apache.org/node-id"] = node_id
    pod["spec"] |= {"nodeName": on, "containers": [{"name": "nm", "image": "hadoop"}]}
    return pod


class Installed(KoordProcess):
    """Process of a pod of the chart, run beside the cluster."""

    def __init__(
        self, controlplane: ControlPlane, pod: Any, changes: Sequence[str], kubeconfig: Path | None
    ) -> None:
        """Take ``changes`` for flags that name folders and ports of a pod."""
        (container,) = pod["containers"]
        arguments = container["args"]
        for change in changes:
            flag = change.partition("=")[0] + "="
            (place,) = (i for i, each in enumerate(arguments) if each.startswith(flag))
            arguments[place] = change
        port = next((int(each.rpartition(":")[2]) for each in changes if "health-probe" in each), 0)
        if kubeconfig is not None:
            arguments.append(f"--kubeconfig={kubeconfig}")
        super().__init__(controlplane, f"page-{container['name']}", [str(KOORD), *arguments], port)


@pytest.fixture
def conf_dir(
    controlplane: ControlPlane, helm: Callable[..., str], yarn: RealYarn, tmp_path: Path
) -> Iterator[Path]:
    """Install by the page's command; return the folder that is mounted into the pods."""
    controlplane.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": NAMESPACE}})
    controlplane.api.request("POST", "/api/v1/namespaces", {"metadata": {"name": HADOOP}})
    whole = helm("template", "koordinator", str(ROOT / "charts/koordinator"))
    classes = [x for x in yaml.safe_load_all(whole) if x and x["kind"] == "PriorityClass"]
    controlplane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(classes))
    _, *command = shlex.split(block("sh", "helm install").replace("\\\n", " "))
    own = {
        "charts/koordinator-yarn-copilot": str(CHART),
        "yarnConfiguration.resourceManager.address=resource-manager.hadoop-yarn": (
            "yarnConfiguration.resourceManager.address=localhost"
        ),
    }
    assert own.keys() <= set(command)
    ports = [
        f"--set=yarnConfiguration.resourceManager.{name}={yarn.port_of(what)}"
        for name, what in (
            ("port", "address"),
            ("adminPort", "admin.address"),
            ("webPort", "webapp.address"),
        )
    ]
    assert "| `copilot.enabled` | false |" in PAGE
    helm(*(own.get(each, each) for each in command), *ports, "--set=copilot.enabled=true")
    folder = tmp_path / "hadoop-conf"
    folder.mkdir()
    config_map = controlplane.api.request(
        "GET", f"/api/v1/namespaces/{NAMESPACE}/configmaps/yarn-config"
    )
    for name, text in config_map["data"].items():
        (folder / name).write_text(text)
    yield folder
    helm("uninstall", "koordinator-yarn-copilot", f"--namespace={NAMESPACE}")


@pytest.fixture
def configured(controlplane: ControlPlane, conf_dir: Path) -> Iterator[None]:
    """Run a manager with the page's configuration and colocation switched on."""
    assert conf_dir.is_dir()
    data = {**yaml.safe_load(block("yaml", "host-application-config"))}
    data["colocation-config"] = json.dumps(COLOCATION)
    body = {"metadata": {"name": "slo-controller-config"}, "data": data}
    path = f"/api/v1/namespaces/{NAMESPACE}/configmaps"
    with ManagerProcess(controlplane):
        controlplane.api.request("POST", path, body)
        yield


def workload(controlplane: ControlPlane, kind: str, name: str) -> Any:
    """Return the pod that a workload of the chart makes."""
    path = f"/apis/apps/v1/namespaces/{NAMESPACE}/{kind}/{name}"
    return controlplane.api.request("GET", path)["spec"]["template"]["spec"]


class PageMachine(Machine):
    """The node ``n1`` with the pod of the page."""

    def __init__(self, controlplane: ControlPlane, yarn: RealYarn) -> None:
        self._api = controlplane.api
        self._api.request("POST", "/api/v1/nodes", node("n1", "10"))
        pods = f"/api/v1/namespaces/{HADOOP}/pods"
        self._api.request("POST", pods, node_manager("node-manager-0", yarn.node_id, "n1"))


@pytest.mark.usefixtures("configured")
def test_commands_of_the_page_have_the_documented_results(
    controlplane: ControlPlane, yarn: RealYarn, conf_dir: Path, tmp_path: Path
) -> None:
    """After the documented installation a node offers the amounts of the documented formula."""
    rights = controlplane.service_account_kubeconfig(NAMESPACE, "koord-yarn-operator")
    kubectl, port = controlplane.kubectl, free_port()
    operator = Installed(
        controlplane,
        workload(controlplane, "deployments", "koord-yarn-operator"),
        [
            f"--hadoop-conf-dir={conf_dir}",
            f"--secure-port={port}",
            f"--health-probe-addr=127.0.0.1:{free_port()}",
        ],
        rights,
    )
    socket = tmp_path / "copilot.sock"
    copilot = Installed(
        controlplane,
        workload(controlplane, "daemonsets", "koord-yarn-copilot"),
        [
            f"--server-endpoint={socket}",
            f"--node-manager-endpoint=localhost:{yarn.node_web}",
            "--cgroup-root-dir=/sys/fs/cgroup",
            f"--hadoop-conf-dir={conf_dir}",
        ],
        None,
    )
    with ExitStack() as running:
        running.enter_context(operator)
        running.callback(copilot.kill)
        copilot.start(wait=False)
        machine = PageMachine(controlplane, yarn)
        machine.uses(0, "0")
        eventually(lambda: yarn.own_limit() == Amounts(9, 14745), 60)

        assert "headroom (10 % of all batch resources)" in PAGE
        looked = inline("kubectl get node NAME")
        output = eventually(lambda: kubectl(*(each.replace("NAME", "n1") for each in looked)))
        (entry,) = json.loads(output)["allocations"]
        assert entry["resources"]["kubernetes.io/batch-cpu"] == "9k"
        etl = {
            "metadata": {"name": "etl"},
            "spec": {"nodeName": "n1", "containers": [_batch_container("2k", "2Gi")]},
        }
        controlplane.api.request("POST", "/api/v1/namespaces/default/pods", etl)
        eventually(lambda: yarn.own_limit() == Amounts(7, 12697), 60)

        # Impossible requests are reported at the documented place.
        pods = f"/api/v1/namespaces/{HADOOP}/pods"
        controlplane.api.request("POST", "/api/v1/nodes", node("n2", "10"))
        controlplane.api.request("POST", pods, node_manager("node-manager-1", "n2", "n2"))
        message = eventually(
            lambda: (
                events
                if BAD_REFERENCE in (events := kubectl(*inline("kubectl get events")))
                else ""
            ),
            60,
        )
        assert "must be host:port" in message

        # The copilot that the chart installs ends the newest where there are no cgroups.
        app = yarn.run_tasks(2)
        try:
            eventually(lambda: len(yarn.tasks()) == 2, 60)
            eventually(socket.is_socket, 60)
            newest = max(yarn.tasks())
            SocketCopilot(str(socket)).release(
                {"kubernetes.io/batch-memory": 1.0}, node_cpu_ratio=-1, node_memory_ratio=-1
            )
            eventually(lambda: newest not in yarn.tasks())
        finally:
            yarn.end(app)


def _batch_container(cpu: str, memory: str) -> Any:
    amounts = {"kubernetes.io/batch-cpu": cpu, "kubernetes.io/batch-memory": memory}
    return {"name": "c", "image": "c", "resources": {"requests": amounts, "limits": amounts}}


def test_documented_messages_are_in_the_code() -> None:
    """Reasons of events and texts of refusals are spelt as the code spells them."""
    sources = "".join(
        path.read_text("utf-8")
        for folder in ("yarn", "hadoop")
        for path in (ROOT / "src/koordinator" / folder).rglob("*.py")
    )
    for text in ("Kerberos is not supported", *re.findall(r"Event `(\w+)", PAGE)):
        assert text in sources
    for metric in re.findall(r"`(koord_yarn_operator_\w+|yarn_node_\w+)`", PAGE):
        assert metric in sources
