"""Objects that admission reads besides the request, and admitted changes of quotas."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from koordinator.api.annotations.quota import GUARANTEED, NAMESPACES
from koordinator.api.authentication import UserInfo
from koordinator.api.authorization import ResourceAttributes
from koordinator.api.cluster_colocation_profile import ClusterColocationProfile
from koordinator.api.config_map import ConfigMap
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaProfile, ElasticQuotaSpec
from koordinator.api.labels import (
    QUOTA_ALLOW_FORCE_UPDATE,
    QUOTA_IS_PARENT,
    QUOTA_IS_ROOT,
    QUOTA_PARENT,
    QUOTA_TREE_ID,
)
from koordinator.api.meta import ObjectMeta
from koordinator.api.namespace import Namespace
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass
from koordinator.domain.quota.topology import QuotaTopology
from koordinator.manager.admission.request import AdmissionOperation

_LABELS = (QUOTA_PARENT, QUOTA_IS_PARENT, QUOTA_IS_ROOT, QUOTA_TREE_ID, QUOTA_ALLOW_FORCE_UPDATE)
_ANNOTATIONS = (NAMESPACES.key, GUARANTEED.key)


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True):
    """What was admitted.  ``quota`` is as it will be stored; of a deletion, as it was.

    ``previous_version`` is the resourceVersion of what it replaces, empty of a creation.
    """

    operation: AdmissionOperation
    quota: ElasticQuota
    previous_version: str = ""

    @property
    def key(self) -> str:
        """Return ``namespace/name`` of the quota."""
        return self.quota.key

    def shortened(self) -> "QuotaChange":
        """Return the change with no more of the quota than decisions about others read."""
        meta = self.quota.metadata
        if self.operation is AdmissionOperation.DELETE:
            named = ObjectMeta(name=meta.name, namespace=meta.namespace)
            return replace(self, quota=ElasticQuota(metadata=named, spec=ElasticQuotaSpec()))
        kept = ObjectMeta(
            name=meta.name,
            namespace=meta.namespace,
            labels={key: meta.labels[key] for key in _LABELS if key in meta.labels},
            annotations={k: meta.annotations[k] for k in _ANNOTATIONS if k in meta.annotations},
        )
        return replace(self, quota=replace(self.quota, metadata=kept))


ResultT = TypeVar("ResultT")
#: What becomes of a request with these quotas, and what is to be known of it to later ones.
#: Raises InputError to refuse it.  May be asked several times, each with newer quotas.
QuotaDecision = Callable[[QuotaTopology], tuple[ResultT, QuotaChange | None]]


class Lookup(Protocol):
    """The objects of the cluster, as far as known."""

    def namespace(self, name: str) -> Namespace | None: ...

    def priority_class(self, name: str) -> PriorityClass | None: ...

    def profiles(self) -> Iterable[ClusterColocationProfile]:
        """Return all colocation profiles."""

    def quota_profiles(self) -> Iterable[ElasticQuotaProfile]: ...

    def quotas(self) -> QuotaTopology:
        """Return all quotas; not to be changed."""

    def decide_on_quota(self, quota: ElasticQuota, decide: QuotaDecision[ResultT]) -> ResultT:
        """Return what ``decide`` makes of a request about a quota, which is as it would be stored.

        Everything that was admitted before counts, by whichever replica and however little of it
        has been seen stored.  Raises what ``decide`` raises, and ClusterError.
        """

    def quotas_named(self, name: str) -> Sequence[ElasticQuota]:
        """Return the quotas of that name in all namespaces, as they are stored."""

    def charge_quota(
        self,
        quota: ElasticQuota,
        charge: Callable[[ElasticQuota], ElasticQuota],
        *,
        is_dry_run: bool,
    ) -> None:
        """Store what ``charge`` makes of a quota, unless it is the same object, or nothing counts.

        It may be asked several times, each with a newer quota.  Raises what it raises,
        ConflictError if others were faster each time, and ClusterError.
        """

    def pods_of_quota(self, name: str, namespaces: Sequence[str]) -> Sequence[str]:
        """Return the names of pods that use a quota: labelled so, or unlabelled in a namespace."""

    def nodes(self) -> Iterable[Node]: ...

    def config_map(self, namespace: str, name: str) -> ConfigMap | None: ...

    def pod(self, namespace: str, name: str) -> Pod | None: ...

    def permits(self, user: UserInfo, asked: ResourceAttributes) -> bool:
        """Return whether a user has a right.  Raises ClusterError if that can't be asked now."""

    def percent(self) -> int:
        """Return a random number of 0..99."""
