"""Admission request, and the port to the objects that a review needs.

Source: k8s.io/api admission/v1/types.go.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import field
from enum import StrEnum
from typing import Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from koordinator.api.annotations.quota import GUARANTEED, NAMESPACES
from koordinator.api.colocation import ClusterColocationProfile
from koordinator.api.control_plane import ResourceAttributes, UserInfo
from koordinator.api.core import ConfigMap, Namespace
from koordinator.api.elastic_quota import ElasticQuota, ElasticQuotaProfile, ElasticQuotaSpec
from koordinator.api.labels import (
    QUOTA_ALLOW_FORCE_UPDATE,
    QUOTA_IS_PARENT,
    QUOTA_IS_ROOT,
    QUOTA_PARENT,
    QUOTA_TREE_ID,
)
from koordinator.api.meta import JsonObject, ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.policy import PriorityClass
from koordinator.domain.quota.spec import QuotaTopology
from koordinator.foundation.errors import KoordinatorError
from koordinator.foundation.lazy_dataclass import dataclass

_LABELS = (QUOTA_PARENT, QUOTA_IS_PARENT, QUOTA_IS_ROOT, QUOTA_TREE_ID, QUOTA_ALLOW_FORCE_UPDATE)
_ANNOTATIONS = (NAMESPACES.key, GUARANTEED.key)


class AdmissionOperation(StrEnum):
    """Operation of an admission request."""

    CREATE = "CREATE"
    UPDATE = "UPDATE"
    DELETE = "DELETE"


@dataclass(frozen=True, slots=True, kw_only=True)
class AdmissionRequest:
    """An admission request: ``obj`` as it would be stored, ``old`` as it is stored.

    Hooks must not modify either object.
    """

    operation: str
    namespace: str = ""
    name: str = ""
    subresource: str = ""
    obj: JsonObject
    old: JsonObject | None = None
    requester: UserInfo = field(default_factory=UserInfo)
    is_of_component: bool = False  # the requester is a component of Koordinator
    is_dry_run: bool = False

    @property
    def user(self) -> str:
        """The name of the requester."""
        return self.requester.username

    def service_account_of(self, pod: Pod) -> UserInfo:
        """Return the service account of a pod as a user."""
        name = pod.spec.service_account_name or "default"
        prefix = "system:serviceaccount"
        return UserInfo(
            username=f"{prefix}:{self.namespace}:{name}",
            groups=(f"{prefix}s", f"{prefix}s:{self.namespace}", "system:authenticated"),
        )


class Denial(KoordinatorError):  # noqa: N818 -- a regular response, not a failure
    """Denial of an admission request; ``code`` is the HTTP status that the client receives."""

    def __init__(self, message: str, code: int = 400) -> None:
        self.code = code
        super().__init__(message)


class QuotaChange(msgspec.Struct, frozen=True, kw_only=True):
    """An admitted change.  ``quota`` is the object to be stored, or the one to be deleted.

    ``previous_version`` is the resourceVersion that the change replaces; empty for a creation.
    """

    operation: AdmissionOperation
    quota: ElasticQuota
    previous_version: str = ""

    @property
    def key(self) -> str:
        """Return ``namespace/name`` of the quota."""
        return self.quota.key

    def shortened(self) -> "QuotaChange":
        """Return the change with only the fields that decisions about other quotas read."""
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
#: Decision on a request, given the quotas: the result, and the change that later requests must
#: see.  Raises InputError to deny the request.  May be called repeatedly, with newer quotas.
QuotaDecision = Callable[[QuotaTopology], tuple[ResultT, QuotaChange | None]]


class Lookup(Protocol):
    """The objects of the cluster that admission has seen."""

    def namespace(self, name: str) -> Namespace | None: ...

    def priority_class(self, name: str) -> PriorityClass | None: ...

    def profiles(self) -> Iterable[ClusterColocationProfile]:
        """Return all colocation profiles."""

    def quota_profiles(self) -> Iterable[ElasticQuotaProfile]: ...

    def quotas(self) -> QuotaTopology:
        """Return all quotas; the caller must not modify them."""

    def decide_on_quota(self, quota: ElasticQuota, decide: QuotaDecision[ResultT]) -> ResultT:
        """Return the result of ``decide`` for a request on a quota, given as it would be stored.

        ``decide`` sees every change that was admitted before by any replica, including changes
        that the watch has not delivered yet.  Raises what ``decide`` raises, and ClusterError.
        """

    def quotas_named(self, name: str) -> Sequence[ElasticQuota]:
        """Return the stored quotas of that name in all namespaces."""

    def charge_quota(
        self,
        quota: ElasticQuota,
        charge: Callable[[ElasticQuota], ElasticQuota],
        *,
        is_dry_run: bool,
    ) -> None:
        """Store the result of ``charge``, unless it is the same object or this is a dry run.

        ``charge`` may be called repeatedly, each time with a newer quota.  Raises what ``charge``
        raises, ConflictError if every attempt met a concurrent update, and ClusterError.
        """

    def pods_of_quota(self, name: str, namespaces: Sequence[str]) -> Sequence[str]:
        """Return the names of the pods that use a quota, by label or by their namespace."""

    def nodes(self) -> Iterable[Node]: ...

    def config_map(self, namespace: str, name: str) -> ConfigMap | None: ...

    def pod(self, namespace: str, name: str) -> Pod | None: ...

    def permits(self, user: UserInfo, access: ResourceAttributes) -> bool:
        """Return whether a user has access.  Raises ClusterError if the API server is unavailable.

        The API server decides it by a SubjectAccessReview.
        """

    def percent(self) -> int:
        """Return a random number in 0..99."""
