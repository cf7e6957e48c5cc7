"""Node agents on machines of files, and pods whose CPUs they set.

An agent that has lost a watch, a credential or a timer leaves the CPUs of a new pod as they were.
"""

import json
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.e2e.controlplane import ControlPlane
from tests.e2e.controlplane.endpoint import Endpoint, free_port
from tests.e2e.fleet import node, pod
from tests.e2e.koord_process import KoordProcess
from tests.e2e.koordlet.agent_process import CPUS, MachineOfFiles

from koordinator.api.qos import KubeQos
from koordinator.domain.cgroups.files import CgroupFile

_CONTAINER = "1"
_CPUSET = "2-3"
_ALLOCATION = {"scheduling.koordinator.sh/resource-status": json.dumps({"cpuset": _CPUSET})}


class NodeAgent(KoordProcess):
    """``koord koordlet`` of a node of its own, on which the scheduler places nothing."""

    def __init__(
        self, cluster: ControlPlane, name: str, kubeconfig: Path, program: Sequence[str]
    ) -> None:
        folder = cluster.state_dir / name
        self.machine = MachineOfFiles(folder)
        port = free_port()
        command = [
            *program,
            "koordlet",
            f"--node-name={name}",
            f"--kubeconfig={kubeconfig}",
            f"--addr=127.0.0.1:{port}",
            f"--cgroup-root-dir={folder}/cgroup",
            f"--proc-root-dir={folder}/proc",
            f"--sys-root-dir={folder}/sys",
            f"--sys-fs-root-dir={folder}/sys/fs",
            f"--var-lib-kubelet-dir={folder}/kubelet",
            f"--var-run-root-dir={folder}/run",
            f"--audit-log-dir={folder}/audit",
            f"--prediction-checkpoint-filepath={folder}/checkpoints",
        ]
        super().__init__(cluster, name, command, port)
        self.node = name
        made = node(name, cpu=str(CPUS))
        made["spec"] = {"unschedulable": True}
        cluster.api.request("POST", "/api/v1/nodes", made)


class BoundPod:
    """A pod on the node of an agent that has CPUs of its own; this class plays the kubelet."""

    def __init__(self, agent: NodeAgent, api: Endpoint, pods: str) -> None:
        self._agent, self._api = agent, api
        self.path = f"{pods}/{agent.node}"
        made: dict[str, Any] = pod(agent.node, cpu="2")
        made["metadata"] |= {
            "labels": {"koordinator.sh/qosClass": "LSR"},
            "annotations": _ALLOCATION,
        }
        made["spec"]["nodeName"] = agent.node
        uid = api.request("POST", pods, made)["metadata"]["uid"]
        self._folder = agent.machine.layout.pod(KubeQos.BURSTABLE, uid)
        for each in (self._folder, self._container):
            agent.machine.add(each)
        container = {
            "name": "main",
            "containerID": f"containerd://{_CONTAINER}",
            "image": "app",
            "imageID": "app",
            "ready": True,
            "restartCount": 0,
            "started": True,
        }
        status = {"phase": "Running", "containerStatuses": [container]}
        merge = "application/merge-patch+json"
        api.request("PATCH", f"{self.path}/status", {"status": status}, content_type=merge)

    def has_its_cpus(self) -> bool:
        """Return whether the agent has given the container the CPUs of the pod."""
        return self._agent.machine.read(CgroupFile.CPUSET, self._container) == _CPUSET

    def end(self) -> None:
        """Delete the pod and its cgroups."""
        self._api.request("DELETE", self.path, {"gracePeriodSeconds": 0})
        for hierarchy in (self._agent.machine.folder / "cgroup").iterdir():
            shutil.rmtree(hierarchy / self._folder, ignore_errors=True)

    @property
    def _container(self) -> str:
        return f"{self._folder}/{_CONTAINER}"
