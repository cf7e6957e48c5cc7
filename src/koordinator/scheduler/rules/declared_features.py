"""What a pod needs of the kubelet of its node: names of features that nodes declare.

Source: kubernetes component-helpers nodedeclaredfeatures, ``InferForScheduling`` of its features.
"""

from typing import Final

from koordinator.api.kube_version import V1_36, V1_37, KubeVersion
from koordinator.api.pod import PodSpec

RESTART_ALL: Final = "RestartAllContainersOnContainerExits"
HOST_NETWORK_IN_USER_NAMESPACE: Final = "UserNamespacesHostNetworkSupport"
BIND_MOUNT_OPTIONS: Final = "VolumeBindMountOptions"
#: Those that any pod needs in order to be placed; nodes declare others, too.
NEEDED_BY_PODS: Final = (RESTART_ALL, HOST_NETWORK_IN_USER_NAMESPACE, BIND_MOUNT_OPTIONS)


def needed_features(spec: PodSpec, level: KubeVersion) -> tuple[str, ...]:
    """Return the features that a node must declare to be a place for a pod."""
    containers = (*spec.init_containers, *spec.containers)
    needed = []
    if any(rule.action == "RestartAllContainers" for c in containers for rule in c.restart_rules):
        needed.append(RESTART_ALL)
    if level >= V1_36 and spec.host_network and spec.host_users is False:
        needed.append(HOST_NETWORK_IN_USER_NAMESPACE)
    if level >= V1_37 and any(mount.bind_mount_options for c in containers for mount in c.mounts):
        needed.append(BIND_MOUNT_OPTIONS)
    return tuple(needed)
