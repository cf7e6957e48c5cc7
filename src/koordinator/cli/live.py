"""What exists in a cluster right now, read once."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from koordinator.api.kube_version import KubeVersion
from koordinator.api.meta import KubeObject
from koordinator.api.namespace import Namespace
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass
from koordinator.foundation.clock import SystemClock
from koordinator.scheduler.profile import SELECTORS, WATCHED

if TYPE_CHECKING:
    from koordinator.cluster.kubernetes.cluster import KubernetesCluster

#: Pods last: what they refer to is there by then.
_KINDS: Sequence[type[KubeObject]] = (Namespace, PriorityClass, Node, *WATCHED, Pod)


def with_cluster(
    given: Sequence[KubeObject],
    kubeconfig: str,
    context: str,
    kinds: Sequence[type[KubeObject]] = _KINDS,
    selectors: Mapping[type[KubeObject], str] = SELECTORS,
) -> Sequence[KubeObject]:
    """Return what a cluster has of some kinds, but for what is given under the same name, and that.

    ``selectors`` are field selectors: of these kinds only some objects are read.

    Raises InputError if there is no way to the cluster, ClusterError if it can't be read.
    """
    replaced = {(type(obj), obj.key) for obj in given}
    with _connected(kubeconfig, context) as cluster:
        existing = [
            obj
            for kind in kinds
            for obj in cluster.list(kind, field_selector=selectors.get(kind, "")).items
        ]
    return [*(o for o in existing if (type(o), o.key) not in replaced), *given]


def server_version(kubeconfig: str, context: str) -> KubeVersion:
    """Return the release of a cluster's API server.

    Raises InputError if there is no way to the cluster, ClusterError if it does not answer.
    """
    with _connected(kubeconfig, context) as cluster:
        return cluster.server_version()


def _connected(kubeconfig: str, context: str) -> "KubernetesCluster":
    from koordinator.cluster.kubernetes.cluster import (  # noqa: PLC0415 -- loading it takes a
        KubernetesCluster,  # quarter of a second that manifests alone should not pay
    )
    from koordinator.cluster.kubernetes.connection import find_connection  # noqa: PLC0415
    from koordinator.cluster.kubernetes.credentials import Credentials  # noqa: PLC0415

    clock = SystemClock()
    return KubernetesCluster(Credentials(find_connection(kubeconfig, context), clock), clock)
