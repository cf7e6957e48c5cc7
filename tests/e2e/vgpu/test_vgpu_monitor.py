"""``koord vgpu-monitor`` as a process, with the rights of its chart, on a real API server."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import free_port
from tests.e2e.koord_process import KOORD, KoordProcess
from tests.e2e.waiting import eventually
from tests.regions import GPUS, RegionsFolder, region
from tests.unit.deploy.installed import NAMESPACE, ROOT

from koordinator.koordlet.hooks.devices import LOCK_FOLDER

CHART = ROOT / "charts/hami-daemon"


@pytest.fixture
def rights(controlplane: ControlPlane, helm: Callable[..., str]) -> Path:
    """Install the chart; return a kubeconfig of its account on the node ``n1``."""
    rendered = helm("template", "hami-daemon", str(CHART), "--namespace", NAMESPACE)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
    text = yaml.safe_dump_all([namespace, *yaml.safe_load_all(rendered)])
    controlplane.kubectl("apply", "--server-side", "--filename=-", stdin=text)
    return controlplane.service_account_kubeconfig(NAMESPACE, "hami-daemon", node="n1")


def sharer(name: str, namespace: str, priority: str) -> dict[str, Any]:
    """Return a pod with a part of the first GPU."""
    allocated = {"gpu": [{"minor": 0, "id": GPUS[0]}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "annotations": {"scheduling.koordinator.sh/device-allocated": json.dumps(allocated)},
        },
        "spec": {
            "nodeName": "n1",
            "tolerations": [{"operator": "Exists"}],
            "containers": [
                {
                    "name": "main",
                    "image": "x",
                    "env": [{"name": "CUDA_TASK_PRIORITY", "value": priority}],
                }
            ],
        },
    }


def test_chart_requires_no_needless_rights(helm: Callable[..., str]) -> None:
    """No privileges, nothing of the node but three folders, pods to be read."""
    objects = {
        document["kind"]: document
        for document in yaml.safe_load_all(helm("template", "hami-daemon", str(CHART)))
    }
    pod = objects["DaemonSet"]["spec"]["template"]["spec"]
    contexts = [
        container["securityContext"] for container in (*pod["initContainers"], *pod["containers"])
    ]
    folders = {volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume}

    assert not {"hostPID", "hostNetwork", "hostIPC"} & pod.keys()
    assert [context["capabilities"].get("add", []) for context in contexts] == [
        [],
        ["DAC_OVERRIDE"],
    ]
    assert all(context["capabilities"]["drop"] == ["ALL"] for context in contexts)
    assert not any(context["allowPrivilegeEscalation"] for context in contexts)
    assert folders == {"/usr/local/vgpu", "/usr/local/vgpu/containers", LOCK_FOLDER}
    assert objects["ClusterRole"]["rules"][0] == {
        "apiGroups": [""],
        "resources": ["pods"],
        "verbs": ["list", "watch"],
    }

    off = helm("template", "x", str(CHART), "--set", "daemon.vgpuMonitor.enabled=false")
    kinds = [document["kind"] for document in yaml.safe_load_all(off) if document]
    assert sorted(kinds) == ["DaemonSet", "ServiceAccount"]


def test_monitor_works_with_the_rights_of_the_chart(
    controlplane: ControlPlane, rights: Path, namespace: str, tmp_path: Path
) -> None:
    """The monitor watches the node's pods, exports their usage, and blocks low-priority pods."""
    pods = [sharer("service", namespace, "0"), sharer("batch", namespace, "1")]
    controlplane.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(pods))
    regions = RegionsFolder(tmp_path)
    for pod in pods:
        name = pod["metadata"]["name"]
        regions.uids[name] = controlplane.kubectl(
            "get", "pod", name, "--namespace", namespace, "--output=jsonpath={.metadata.uid}"
        ).strip()
        regions.put(name, region(used=((1 << 30,),)))
    port = free_port()
    command = [
        str(KOORD),
        "vgpu-monitor",
        "--node-name=n1",
        f"--hook-path={tmp_path}",
        f"--kubeconfig={rights}",
        f"--metrics-bind-address=127.0.0.1:{port}",
    ]
    with KoordProcess(controlplane, "vgpu-monitor", command, port) as process:
        eventually(lambda: regions.recent("batch") == -1)

        eventually(lambda: process.metric('koord_vgpu_monitor_regions{state="waiting"}') == 1)
        assert 'podname="batch"' in process.get("/metrics")
        assert process.stop() == 0
    assert regions.recent("batch") == 0
    assert regions.recent("service") >= 0
