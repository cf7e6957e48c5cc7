"""Immutable node labels and control-plane taints.

A label that names the hardware, the machine type or the location of a node is a fact: with another
value, pods would be scheduled to nodes that don't match.  The control plane removes its taints when
their cause ends, and restores them while the cause lasts.
"""

from typing import Final

from koordinator.api.kube_version import V1_36, V1_37, KubeVersion
from koordinator.api.pod import PodSpec

#: Last parts of keys (after ``/``) of immutable labels.
_FACTS: Final = frozenset(
    (
        "arch",
        "instance-type",
        "instance-category",
        "instance-family",
        "instance-size",
        "gke-accelerator",
        "gpu",
        "gpu-arch",
        "gpu-count",
        "gpu-driver-version",
        "gpu-memory",
        "gpu-model",
        "gpu-type",
        "gpu-vendor",
        "gpu_model",
        "gpu_type",
        "accelerator",
        "accelerator-type",
        "cpu-family",
        "cpu-model",
        "hostname",
        "machine-family",
        "machine-type",
        "os",
        "rack",
        "region",
        "zone",
    )
)
#: Prefixes of keys that hardware discovery agents write.
_WRITTEN: Final = (
    "feature.node.kubernetes.io/",
    "topology.kubernetes.io/",
    "failure-domain.beta.kubernetes.io/",
    "nvidia.com/gpu.",
    "nvidia.com/cuda.",
    "nvidia.com/mig.",
    "amd.com/gpu.",
    "beta.amd.com/gpu.",
    "gpu.intel.com/",
    "karpenter.k8s.aws/instance-",
    "node.koordinator.sh/gpu-",
)
_CONTROL_PLANE: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")

#: Last part of a taint's key -> the event after which the control plane removes it.
_ENDS: Final = {
    "not-ready": "{node} becomes Ready",
    "unreachable": "the kubelet of {node} answers again",
    "memory-pressure": "{node} is no longer short of memory",
    "disk-pressure": "{node} is no longer short of disk space",
    "pid-pressure": "{node} is no longer short of process numbers",
    "network-unavailable": "the network of {node} is set up",
    "out-of-service": "{node} is back in service",
    "uninitialized": "the cloud provider has set up {node}",
    "shutdown": "{node} is started again",
}

RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
HOST_NETWORK_IN_USER_NAMESPACE: Final = "UserNamespacesHostNetworkSupport"
BIND_MOUNT_OPTIONS: Final = "VolumeBindMountOptions"
#: Features that pods can require; nodes may declare others.
NEEDED_BY_PODS: Final = (RESTART_ALL, HOST_NETWORK_IN_USER_NAMESPACE, BIND_MOUNT_OPTIONS)


def is_fact(label: str) -> bool:
    """Return whether a label, by its key, describes the hardware or location of a node."""
    return label.startswith(_WRITTEN) or label.rpartition("/")[2].lower() in _FACTS


def is_put_by_control_plane(taint: str) -> bool:
    """Return whether the control plane manages a taint, by its key."""
    return taint.startswith(_CONTROL_PLANE)


def what_ends(taint: str, node: str) -> str:
    """Return the event after which the control plane removes a taint, such as "n becomes Ready"."""
    ending = _ENDS.get(taint.rpartition("/")[2], "its cause on {node} has gone")
    return ending.format(node=node)


def needed_features(spec: PodSpec, level: KubeVersion) -> tuple[str, ...]:
    """Return the features that a node must declare for the pod."""
    containers = (*spec.init_containers, *spec.containers)
    needed = []
    if any(rule.action == "RestartAllContainers" for c in containers for rule in c.restart_rules):
        needed.append(RESTART_ALL)
    if level >= V1_36 and spec.host_network and spec.host_users is False:
        needed.append(HOST_NETWORK_IN_USER_NAMESPACE)
    if level >= V1_37 and any(mount.bind_mount_options for c in containers for mount in c.mounts):
        needed.append(BIND_MOUNT_OPTIONS)
    return tuple(needed)
