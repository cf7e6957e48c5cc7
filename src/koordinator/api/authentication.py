"""TokenReview: authentication of a bearer token.  It is not stored: a create returns the result.

Source: k8s.io/api authentication/v1/types.go.
"""

from typing import ClassVar

from koordinator.api.meta import ApiStruct, KubeObject


class UserInfo(ApiStruct, frozen=True, kw_only=True):
    """Who asks."""

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


KINDS = (TokenReview,)
