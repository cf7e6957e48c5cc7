"""Configuration files of the programs of the node."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml
from tests.e2e.real_node.images import PAUSE
from tests.e2e.real_node.programs import Programs

NODE_IP = "10.244.255.1"  #: on lo of our own network namespace
KUBELET_PORT = 20250
POD_SUBNET = "10.244.0.0/24"


def containerd_toml(programs: Programs, etc: Path) -> str:
    """Return containerd's: runc, cgroupfs, the bridge of CNI, and NRI."""
    return f"""version = 3
[plugins.'io.containerd.cri.v1.images'.pinned_images]
sandbox = '{PAUSE}'
[plugins.'io.containerd.cri.v1.runtime']
restrict_oom_score_adj = true
[plugins.'io.containerd.cri.v1.runtime'.containerd.runtimes.runc]
runtime_type = 'io.containerd.runc.v2'
options = {{ BinaryName = '{programs.runc}', SystemdCgroup = false }}
[plugins.'io.containerd.cri.v1.runtime'.cni]
bin_dirs = ['{programs.cni}', '{etc}/cni-bin']
conf_dir = '{etc}/cni'
[plugins.'io.containerd.nri.v1.nri']
disable = false
socket_path = '/run/nri/nri.sock'
plugin_registration_timeout = '5s'
plugin_request_timeout = '2s'
"""


def cni_conflist(bridge: str, *further: Mapping[str, Any]) -> str:
    """Return that of a bridge with addresses of its own, and further plugins after it."""
    network = {
        "type": "bridge",
        "bridge": bridge,
        "isGateway": True,
        "ipMasq": False,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": POD_SUBNET}]],
            "routes": [{"dst": "0.0.0.0/0"}],
        },
    }
    return json.dumps({"cniVersion": "1.0.0", "name": "node", "plugins": [network, *further]})


def kubelet_yaml(further: Mapping[str, Any]) -> str:
    """Return kubelet's: without authentication, evictions and garbage collection."""
    signals: tuple[str, ...] = ("memory.available", "nodefs.available", "nodefs.inodesFree")
    signals = (*signals, "imagefs.available", "imagefs.inodesFree")
    return yaml.safe_dump(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": NODE_IP,
            "port": KUBELET_PORT,
            "healthzPort": 0,
            "containerRuntimeEndpoint": "unix:///run/containerd/containerd.sock",
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
            "authorization": {"mode": "AlwaysAllow"},
            "evictionHard": dict.fromkeys(signals, "0%"),
            "imageGCHighThresholdPercent": 100,
            "kubeReserved": {"cpu": "100m", "memory": "128Mi"},
            "resolvConf": "",
            "registryPullQPS": 0,
            **further,
        }
    )
