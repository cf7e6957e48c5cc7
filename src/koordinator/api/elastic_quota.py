"""ElasticQuota and the quota trees that its profiles make.

Source: koordinator apis/thirdparty/scheduler-plugins/pkg/apis/scheduling/v1alpha1/types.go,
apis/quota/v1alpha1/elastic_quota_profile_types.go; koord-queue 1.8,
pkg/framework/apis/elasticquota/scheduling/v1beta1/types.go.
"""

from typing import Annotated, Any, ClassVar, Final

from msgspec import Meta

from koordinator.api.core import ResourceList
from koordinator.api.crd import CustomResource, StandardCondition, UntypedObject
from koordinator.api.labels import (
    QUOTA_ALLOW_LENT,
    QUOTA_IS_PARENT,
    QUOTA_IS_ROOT,
    QUOTA_PARENT,
    QUOTA_TREE_ID,
    is_true,
)
from koordinator.api.meta import ApiStruct, LabelSelector
from koordinator.api.syntax import invalid_value

ROOT_QUOTA: Final = "koordinator-root-quota"
SYSTEM_QUOTA: Final = "koordinator-system-quota"
DEFAULT_QUOTA: Final = "koordinator-default-quota"  # of pods without quota

_UNTYPED: dict[str, Any] = {"x-kubernetes-preserve-unknown-fields": True}


class ElasticQuotaSpec(ApiStruct, frozen=True, kw_only=True):
    """Guaranteed and maximum amounts of the quota."""

    min: ResourceList = {}  # guaranteed amounts
    max: ResourceList = {}  # upper bound, with what other quotas lend


class ElasticQuotaStatus(ApiStruct, frozen=True, kw_only=True):
    """Amounts that the pods of a quota use."""

    used: ResourceList = {}  # sum of the requests of the pods of the quota that have a node
    conditions: tuple[StandardCondition, ...] = ()  # ours: whether the object is valid


class ElasticQuota(CustomResource, frozen=True, kw_only=True):
    """A node of a quota tree.  Its place in the tree stands in labels."""

    API_VERSION: ClassVar[str] = "scheduling.sigs.k8s.io/v1alpha1"
    KIND: ClassVar[str] = "ElasticQuota"
    PLURAL: ClassVar[str] = "elasticquotas"
    API_APPROVED: ClassVar[str] = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"

    spec: ElasticQuotaSpec = ElasticQuotaSpec()
    status: ElasticQuotaStatus = ElasticQuotaStatus()

    @property
    def parent(self) -> str:
        """The parent's name: the root quota if none is given, and nothing for the root itself."""
        parent = self.metadata.labels.get(QUOTA_PARENT, "")
        return parent or ("" if self.metadata.name == ROOT_QUOTA else ROOT_QUOTA)

    @property
    def is_parent(self) -> bool:
        """Whether it may have children; it has no pods of its own then."""
        return is_true(self.metadata.labels, QUOTA_IS_PARENT)

    @property
    def is_tree_root(self) -> bool:
        """Whether it is the root of a quota tree of its own."""
        return is_true(self.metadata.labels, QUOTA_IS_ROOT)

    @property
    def tree_id(self) -> str:
        """The tree that it belongs to; empty for the default tree."""
        return self.metadata.labels.get(QUOTA_TREE_ID, "")

    @property
    def lends(self) -> bool:
        """Whether siblings may use what it leaves of its minimum."""
        return self.metadata.labels.get(QUOTA_ALLOW_LENT) != "false"


class ElasticQuotaProfileSpec(ApiStruct, frozen=True, kw_only=True):
    """The quota to make of the nodes selected; ``resource_ratio`` outside of (0,1] counts as 1."""

    quota_name: str  # name of the root quota that the profile maintains
    node_selector: LabelSelector  # nodes whose resources the quota gets
    quota_labels: dict[str, str] = {}  # labels of the root quota
    #: share of the allocatable resources that the quota gets, such as 0.9
    resource_ratio: str | None = None


def resource_ratio(spec: ElasticQuotaProfileSpec) -> float | None:
    """Return the share of the nodes' resources; None if all are counted as they are.

    Raises InputError unless it is above 0 and at most 1.
    """
    text = spec.resource_ratio
    if text is None:
        return None
    try:
        ratio = float(text)
    except ValueError:
        ratio = 0.0
    if not 0 < ratio <= 1:
        raise invalid_value("spec.resourceRatio", text, "a number above 0 and at most 1")
    return ratio


class ElasticQuotaProfileStatus(ApiStruct, frozen=True, kw_only=True):
    """Always empty."""


class ElasticQuotaProfile(CustomResource, frozen=True, kw_only=True):
    """A root of a quota tree that is as large as some nodes are."""

    API_VERSION: ClassVar[str] = "quota.koordinator.sh/v1alpha1"
    KIND: ClassVar[str] = "ElasticQuotaProfile"
    PLURAL: ClassVar[str] = "elasticquotaprofiles"
    SHORT_NAMES: ClassVar[tuple[str, ...]] = ("eqp",)

    spec: ElasticQuotaProfileSpec
    status: ElasticQuotaProfileStatus = ElasticQuotaProfileStatus()


class QuotaTreeNode(ApiStruct, frozen=True, kw_only=True):
    """A quota: what is always there for its jobs, and the most there ever is."""

    name: str = ""  # name of the quota
    namespaces: tuple[str, ...] = ()  # whose jobs that name no quota count here
    attributes: dict[str, str] = {}  # further properties of the quota
    children: "tuple[QuotaTreeNode, ...]" = ()  # quotas below it
    min: ResourceList = {}  # guaranteed amounts by resource
    max: ResourceList = {}  # largest amounts by resource


UntypedQuotaTreeNode = Annotated[QuotaTreeNode, Meta(extra_json_schema=_UNTYPED)]


class ElasticQuotaTreeSpec(ApiStruct, frozen=True, kw_only=True):
    """The root counts what all jobs hold."""

    root: UntypedQuotaTreeNode = QuotaTreeNode()  # root of the tree


class ElasticQuotaTree(CustomResource, frozen=True, kw_only=True):
    """All quotas of a cluster; only one in kube-system counts."""

    API_VERSION: ClassVar[str] = "scheduling.sigs.k8s.io/v1beta1"
    KIND: ClassVar[str] = "ElasticQuotaTree"
    PLURAL: ClassVar[str] = "elasticquotatrees"
    API_APPROVED: ClassVar[str] = "https://github.com/kubernetes-sigs/scheduler-plugins/pull/52"

    spec: ElasticQuotaTreeSpec = ElasticQuotaTreeSpec()
    status: UntypedObject = {}  # of the original's scheduler


KINDS = (
    ElasticQuota,
    ElasticQuotaProfile,
    ElasticQuotaTree,
)
