"""Kinds of the control plane: leases, API services, webhooks, reviews of tokens and access.

Entries are not typed: they belong to their installer, and are written as a whole.

Source: k8s.io/api coordination/v1/types.go; k8s.io/kube-aggregator
pkg/apis/apiregistration/v1/types.go; k8s.io/apiextensions-apiserver
pkg/apis/apiextensions/v1/types.go; k8s.io/api admissionregistration/v1/types.go; k8s.io/api
authentication/v1/types.go; k8s.io/api authorization/v1/types.go.
"""

from typing import ClassVar, Final

from koordinator.api.core import MicroTime
from koordinator.api.crd import UntypedObject
from koordinator.api.meta import ApiStruct, KubeObject

#: Names of the Leases: the chart sets the scheduler's, the others are defaults.
SCHEDULER_LEASE: Final = "koord-scheduler"
MANAGER_LEASE: Final = "koordinator-manager"
DESCHEDULER_LEASE: Final = "koord-descheduler"
YARN_OPERATOR_LEASE: Final = "koordinator-yarn-operator"


class LeaseSpec(ApiStruct, frozen=True, kw_only=True):
    """Lost ``lease_duration_seconds`` after ``renew_time``."""

    holder_identity: str | None = None
    lease_duration_seconds: int | None = None
    acquire_time: MicroTime | None = None
    renew_time: MicroTime | None = None
    lease_transitions: int | None = None


class Lease(KubeObject, frozen=True, kw_only=True):
    """A lock that runs out."""

    API_VERSION: ClassVar[str] = "coordination.k8s.io/v1"
    KIND: ClassVar[str] = "Lease"
    PLURAL: ClassVar[str] = "leases"

    spec: LeaseSpec = LeaseSpec()


class ApiService(KubeObject, frozen=True, kw_only=True):
    """A version of a group, and the Service that answers for it; its spec as it was written."""

    API_VERSION: ClassVar[str] = "apiregistration.k8s.io/v1"
    KIND: ClassVar[str] = "APIService"
    PLURAL: ClassVar[str] = "apiservices"
    NAMESPACED: ClassVar[bool] = False

    spec: UntypedObject = {}


class CustomResourceDefinition(KubeObject, frozen=True, kw_only=True):
    """A kind that the API server stores; spec and status as they were written."""

    API_VERSION: ClassVar[str] = "apiextensions.k8s.io/v1"
    KIND: ClassVar[str] = "CustomResourceDefinition"
    PLURAL: ClassVar[str] = "customresourcedefinitions"
    NAMESPACED: ClassVar[bool] = False

    spec: UntypedObject = {}
    status: UntypedObject = {}


class MutatingWebhookConfiguration(KubeObject, frozen=True, kw_only=True):
    """Webhooks that may change what is stored."""

    API_VERSION: ClassVar[str] = "admissionregistration.k8s.io/v1"
    KIND: ClassVar[str] = "MutatingWebhookConfiguration"
    PLURAL: ClassVar[str] = "mutatingwebhookconfigurations"
    NAMESPACED: ClassVar[bool] = False

    webhooks: tuple[UntypedObject, ...] = ()


class ValidatingWebhookConfiguration(KubeObject, frozen=True, kw_only=True):
    """Webhooks that may only refuse."""

    API_VERSION: ClassVar[str] = "admissionregistration.k8s.io/v1"
    KIND: ClassVar[str] = "ValidatingWebhookConfiguration"
    PLURAL: ClassVar[str] = "validatingwebhookconfigurations"
    NAMESPACED: ClassVar[bool] = False

    webhooks: tuple[UntypedObject, ...] = ()


class UserInfo(ApiStruct, frozen=True, kw_only=True):
    """User that sent a request to the API server."""

    username: str = ""
    uid: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}


class TokenReviewSpec(ApiStruct, frozen=True, kw_only=True):
    """A bearer token; without audiences it has to be meant for the API server."""

    token: str = ""
    audiences: tuple[str, ...] = ()


class TokenReviewStatus(ApiStruct, frozen=True, kw_only=True):
    """Result; ``error`` is the reason why the token could not be checked."""

    authenticated: bool = False
    user: UserInfo = UserInfo()
    audiences: tuple[str, ...] = ()
    error: str = ""


class TokenReview(KubeObject, frozen=True, kw_only=True):
    """A question about a token, and its answer."""

    API_VERSION: ClassVar[str] = "authentication.k8s.io/v1"
    KIND: ClassVar[str] = "TokenReview"
    PLURAL: ClassVar[str] = "tokenreviews"
    NAMESPACED: ClassVar[bool] = False

    spec: TokenReviewSpec = TokenReviewSpec()
    status: TokenReviewStatus = TokenReviewStatus()


class NonResourceAttributes(ApiStruct, frozen=True, kw_only=True):
    """A request for what is no API object; ``verb`` is the HTTP method in lower case."""

    path: str = ""
    verb: str = ""


class ResourceAttributes(ApiStruct, frozen=True, kw_only=True):
    """Request for API objects; an empty ``namespace`` means all namespaces."""

    namespace: str = ""
    verb: str = ""
    group: str = ""
    version: str = ""
    resource: str = ""  # the plural, such as pods
    subresource: str = ""
    name: str = ""


class SubjectAccessReviewSpec(ApiStruct, frozen=True, kw_only=True):
    """A user and the request, which is of one of both kinds."""

    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None
    user: str = ""
    groups: tuple[str, ...] = ()
    extra: dict[str, tuple[str, ...]] = {}
    uid: str = ""


class SubjectAccessReviewStatus(ApiStruct, frozen=True, kw_only=True):
    """Answer of a review; a request that is neither allowed nor denied is not permitted."""

    allowed: bool = False
    denied: bool = False
    reason: str = ""
    evaluation_error: str = ""


class SubjectAccessReview(KubeObject, frozen=True, kw_only=True):
    """A question about a user's rights, and its answer."""

    API_VERSION: ClassVar[str] = "authorization.k8s.io/v1"
    KIND: ClassVar[str] = "SubjectAccessReview"
    PLURAL: ClassVar[str] = "subjectaccessreviews"
    NAMESPACED: ClassVar[bool] = False

    spec: SubjectAccessReviewSpec = SubjectAccessReviewSpec()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()


class SelfSubjectAccessReviewSpec(ApiStruct, frozen=True, kw_only=True):
    """A request of the user who creates the review."""

    resource_attributes: ResourceAttributes | None = None
    non_resource_attributes: NonResourceAttributes | None = None


class SelfSubjectAccessReview(KubeObject, frozen=True, kw_only=True):
    """A question about the rights of the user who creates it, and its answer."""

    API_VERSION: ClassVar[str] = "authorization.k8s.io/v1"
    KIND: ClassVar[str] = "SelfSubjectAccessReview"
    PLURAL: ClassVar[str] = "selfsubjectaccessreviews"
    NAMESPACED: ClassVar[bool] = False

    spec: SelfSubjectAccessReviewSpec = SelfSubjectAccessReviewSpec()
    status: SubjectAccessReviewStatus = SubjectAccessReviewStatus()


KINDS = (
    Lease,
    ApiService,
    CustomResourceDefinition,
    MutatingWebhookConfiguration,
    ValidatingWebhookConfiguration,
    TokenReview,
    SubjectAccessReview,
    SelfSubjectAccessReview,
)
