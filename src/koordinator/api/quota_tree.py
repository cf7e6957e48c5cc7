"""A tree of quotas in one object, as koord-queue's plugin ElasticQuota reads it.

Source: koord-queue 1.8, pkg/framework/apis/elasticquota/scheduling/v1beta1/types.go.
"""

from typing import Annotated, Any, ClassVar

from msgspec import Meta

from koordinator.api.core import ResourceList
from koordinator.api.crd import CustomResource, UntypedObject
from koordinator.api.meta import ApiStruct

_UNTYPED: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}


class QuotaTreeNode(ApiStruct, frozen=True, kw_only=True):
    """A quota: what is always there for its jobs, and the most there ever is."""

    name: str = ""
    namespaces: tuple[str, ...] = ()  # whose jobs that name no quota count here
    attributes: dict[str, str] = {}
    children: "tuple[QuotaTreeNode, ...]" = ()
    min: ResourceList = {}
    max: ResourceList = {}


UntypedQuotaTreeNode = Annotated[QuotaTreeNode, Meta(extra_json_schema=_UNTYPED)]


class ElasticQuotaTreeSpec(ApiStruct, frozen=True, kw_only=True):
    """The root counts what all jobs hold."""

    root: UntypedQuotaTreeNode = QuotaTreeNode()


class ElasticQuotaTree(CustomResource, frozen=True, kw_only=True):
    """All quotas of a cluster; only one in kube-system counts."""

    API_VERSION: ClassVar[str] = "scheduling.sigs.k8s.io/v1beta1"
    KIND: ClassVar[str] = "ElasticQuotaTree"
    PLURAL: ClassVar[str] = "elasticquotatrees"
    API_APPROVED: ClassVar[str] = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"

    spec: ElasticQuotaTreeSpec = ElasticQuotaTreeSpec()
    status: UntypedObject = {}  # of the original's scheduler


KINDS = (ElasticQuotaTree,)
