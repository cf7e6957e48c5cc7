"""Workloads of pods: their scale, their unavailable pods and limits relative to their replicas.

Source: koordinator pkg/descheduler/controllers/migration: controllerfinder, and util/util.go,
``GetMaxUnavailable``.  Different here: workloads of other than the built-in kinds count as having
no replicas, and pods that the kubelet ended, such as evicted ones, are no replicas.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from koordinator.api.conditions import is_condition_true
from koordinator.api.meta import KubeObject, OwnerReference
from koordinator.api.pod import Pod, is_terminal
from koordinator.api.workload import Deployment, ReplicaSet, ReplicationController, StatefulSet
from koordinator.descheduler.contract import ClusterView
from koordinator.foundation.lazy_dataclass import dataclass

WORKLOAD_KINDS: tuple[type[KubeObject], ...] = (
    ReplicationController,
    Deployment,
    ReplicaSet,
    StatefulSet,
)
_DEFAULT_REPLICAS = 1
_MANY_REPLICAS = 10  # above it the default limit is a tenth
_SOME_REPLICAS = 4  # from here on the default limit is two
_PERCENTS = 100


def _group(api_version: str) -> str:
    return api_version.rpartition("/")[0]


_BY_GROUP_AND_KIND: Mapping[tuple[str, str], type[KubeObject]] = MappingProxyType(
    {(_group(kind.API_VERSION), kind.KIND): kind for kind in WORKLOAD_KINDS}
)


@dataclass(frozen=True, slots=True)
class WorkloadScale:
    """Desired number of replicas, and the uids of the controllers that own them."""

    replicas: int
    controller_uids: tuple[str, ...] = ()
    is_ending: bool = False


UNKNOWN_SCALE = WorkloadScale(0)


class Workloads:
    """Lookup of the workloads of pods, with caches that events invalidate."""

    def __init__(self, view: ClusterView) -> None:
        self._view = view
        self._replica_sets: dict[str, dict[str, None]] = {}  # uid of a Deployment -> uids
        self._deployment_of: dict[str, str] = {}
        self._unavailable: dict[str, frozenset[str]] = {}  # uid of a controller -> its pods

    def observe(self, obj: KubeObject, *, deleted: bool) -> None:
        """Process the event of a pod or a workload."""
        if deleted:
            self._unavailable.pop(obj.metadata.uid, None)
        if isinstance(obj, Pod):
            for reference in obj.metadata.owner_references:
                self._unavailable.pop(reference.uid, None)
        elif isinstance(obj, ReplicaSet):
            owner = obj.metadata.controller
            uid = obj.metadata.uid
            before = self._deployment_of.pop(uid, None)
            if before is not None:
                siblings = self._replica_sets[before]
                del siblings[uid]
                if not siblings:
                    del self._replica_sets[before]
            if not deleted and owner is not None and owner.kind == Deployment.KIND:
                self._deployment_of[uid] = owner.uid
                self._replica_sets.setdefault(owner.uid, {})[uid] = None

    def scale_of(self, owner: OwnerReference, namespace: str) -> WorkloadScale:
        """Return the scale of a controller; for a ReplicaSet of a Deployment the Deployment's.

        It is ``UNKNOWN_SCALE`` for a kind without known replicas and for a deleted controller.
        """
        workload = self._find(owner, namespace)
        if workload is None:
            return UNKNOWN_SCALE
        above = workload.metadata.controller if isinstance(workload, ReplicaSet) else None
        if above is None or above.kind != Deployment.KIND:
            return _scale(workload, (workload.metadata.uid,))
        deployment = self._find(above, namespace)
        if deployment is None:
            return UNKNOWN_SCALE
        siblings = self._replica_sets.get(deployment.metadata.uid, {})
        return _scale(deployment, tuple(siblings) or (workload.metadata.uid,))

    def unavailable_pods(self, scale: WorkloadScale) -> frozenset[str]:
        """Return the unavailable pods of a workload, by ``namespace/name``."""
        unavailable: frozenset[str] = frozenset()
        for uid in scale.controller_uids:
            known = self._unavailable.get(uid)
            if known is None:
                pods = self._view.pods_owned_by(uid)
                known = frozenset(pod.key for pod in pods if is_unavailable(pod))
                self._unavailable[uid] = known
            unavailable |= known
        return unavailable

    def _find(self, owner: OwnerReference, namespace: str) -> KubeObject | None:
        kind = _BY_GROUP_AND_KIND.get((_group(owner.api_version), owner.kind))
        if kind is None:
            return None
        workload = self._view.objects(kind).get(f"{namespace}/{owner.name}")
        if workload is None or (owner.uid and workload.metadata.uid != owner.uid):
            return None
        return workload


def is_unavailable(pod: Pod) -> bool:
    """Return whether a pod is a replica that is finished, terminating or not ready.

    A pod that the kubelet ended, for example by an eviction, stays for days and is no replica:
    another one has its place.  The kubelet states its reason; pods that ended by themselves count,
    as in the original.
    """
    if is_terminal(pod):
        return not pod.status.reason
    return pod.metadata.deletion_timestamp is not None or not is_ready(pod)


def is_ready(pod: Pod) -> bool:
    """Return whether the condition Ready of the pod is true."""
    return is_condition_true(pod.status.conditions, "Ready")


def resolved_limit(replicas: int, amount: int | str | None) -> int:
    """Return a limit for a workload with that number of replicas.

    A percentage is rounded down and is at least 1.  Without an amount it is a tenth of more than
    ten replicas, 2 of four or more, else 1.  The result is at most ``replicas``.
    """
    if amount is None:
        if replicas > _MANY_REPLICAS:
            return replicas // 10
        return min(2 if replicas >= _SOME_REPLICAS else 1, replicas)
    if isinstance(amount, str):
        amount = int(amount.removesuffix("%")) * replicas // _PERCENTS
    return min(amount or 1, replicas)


def _scale(workload: Any, uids: tuple[str, ...]) -> WorkloadScale:
    replicas = workload.spec.replicas
    return WorkloadScale(
        replicas=_DEFAULT_REPLICAS if replicas is None else replicas,
        controller_uids=uids,
        is_ending=workload.metadata.deletion_timestamp is not None,
    )
