"""What admission has to know besides the request."""

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from koordinator.api.authentication import UserInfo
from koordinator.api.authorization import ResourceAttributes
from koordinator.api.cluster_colocation_profile import ClusterColocationProfile
from koordinator.api.config_map import ConfigMap
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaProfile
from koordinator.api.namespace import Namespace
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.priority import PriorityClass
from koordinator.domain.quota.topology import QuotaTopology
from koordinator.manager.admission.quota_changes import QuotaChange

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
