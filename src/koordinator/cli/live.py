"""What exists in a cluster right now, read once."""

from collections.abc import Sequence

from koordinator.api.meta import KubeObject
from koordinator.api.namespace import Namespace
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass
from koordinator.foundation.clock import SystemClock
from koordinator.scheduler.profile import WATCHED

#: Pods last: what they refer to is there by then.
_KINDS: Sequence[type[KubeObject]] = (Namespace, PriorityClass, Node, *WATCHED, Pod)


def with_cluster(
    given: Sequence[KubeObject],
    kubeconfig: str,
    context: str,
    kinds: Sequence[type[KubeObject]] = _KINDS,
) -> Sequence[KubeObject]:
    """Return what a cluster has of some kinds, but for what is given under the same name, and that.

    Raises InputError if there is no way to the cluster, ClusterError if it can't be read.
    """
    from koordinator.cluster.kubernetes.cluster import (  # noqa: PLC0415 -- loading it takes a
        KubernetesCluster,  # quarter of a second that manifests alone should not pay
    )
    from koordinator.cluster.kubernetes.connection import find_connection  # noqa: PLC0415
    from koordinator.cluster.kubernetes.credentials import Credentials  # noqa: PLC0415

    clock = SystemClock()
    credentials = Credentials(find_connection(kubeconfig, context), clock)
    replaced = {(type(obj), obj.key) for obj in given}
    with KubernetesCluster(credentials, clock) as cluster:
        existing = [obj for kind in kinds for obj in cluster.list(kind).items]
    return [*(o for o in existing if (type(o), o.key) not in replaced), *given]
