"""May this user do that?  A kind that is asked, not stored: creating one returns the answer.

Source: k8s.io/api authorization/v1/types.go.
"""

from typing import ClassVar

from koordinator.api.meta import ApiStruct, KubeObject


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
    """Neither allowed nor denied means that no rule speaks of it, which is a no."""

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


KINDS = (SubjectAccessReview, SelfSubjectAccessReview)
