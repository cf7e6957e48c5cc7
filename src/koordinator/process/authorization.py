"""Delegated authentication and authorization of requests by the API server.

A TokenReview authenticates the bearer token, and a SubjectAccessReview authorizes its user for the
path.  Without a token the user is anonymous.  Client certificates are ignored.
Source: k8s.io/apiserver pkg/server/options/{authentication,authorization}.go,
plugin/pkg/authenticator/token/webhook, plugin/pkg/authorizer/webhook, pkg/authorization/path.
"""

import hashlib
import logging
from collections.abc import Callable, Hashable, Sequence
from enum import Enum, auto
from threading import Lock
from typing import Generic, Protocol, TypeVar

import msgspec

from koordinator.api.control_plane import (
    NonResourceAttributes,
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
    TokenReview,
    TokenReviewSpec,
    UserInfo,
)
from koordinator.api.meta import KubeObject
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.foundation.lazy_dataclass import dataclass

ALWAYS_ALLOWED = ("/healthz", "/readyz", "/livez")
CACHED_S = 10.0  # tokens, permissions and refusals
REFUSALS_CACHED_S = 30.0  # at most: a right that was just granted should take effect soon
CACHED_ANSWERS = 8192  # the oldest are forgotten

ANONYMOUS = UserInfo(username="system:anonymous", groups=("system:unauthenticated",))

log = logging.getLogger(__name__)

KindT = TypeVar("KindT", bound=KubeObject)
ValueT = TypeVar("ValueT")


class ReviewClient(Protocol):
    """Part of a ``cluster.port.Cluster`` that reviews need."""

    def create(self, obj: KindT) -> KindT: ...


class AuthorizationOutcome(Enum):
    """The answer to a request for access."""

    ALLOWED = auto()
    UNAUTHENTICATED = auto()  # the token is no good
    FORBIDDEN = auto()
    UNKNOWN = auto()  # the API server is unreachable


@dataclass(frozen=True, slots=True)
class Decision:
    """An outcome and, unless access is allowed, a sentence about it."""

    outcome: AuthorizationOutcome
    message: str = ""


ALLOWED = Decision(AuthorizationOutcome.ALLOWED)


class PathPatterns:
    """Paths, and prefixes of paths written with a final ``*``."""

    def __init__(self, patterns: Sequence[str]) -> None:
        for pattern in patterns:
            if "*" in pattern[:-1]:
                raise InputError(f"must have * at the end only, got {pattern!r}")
        relative = [pattern.removeprefix("/") for pattern in patterns]
        self._prefixes = tuple(p.removesuffix("*") for p in relative if p.endswith("*"))
        self._paths = frozenset(p for p in relative if not p.endswith("*"))

    def __contains__(self, path: str) -> bool:
        relative = path.removeprefix("/")
        return relative in self._paths or relative.startswith(self._prefixes)


class Authorizer:
    """Cache of authorization decisions; thread-safe if its ``reviewer`` is.

    Two threads with the same request may both send a review to the API server.
    A decision is cached for ``cached_s`` seconds, a denial for 30 s at most.
    """

    def __init__(
        self,
        reviewer: ReviewClient,
        clock: Clock,
        always_allowed: Sequence[str] = ALWAYS_ALLOWED,
        *,
        cached_s: float = CACHED_S,
    ) -> None:
        """Raise InputError for a pattern that can't be understood."""
        refusals_s = min(cached_s, REFUSALS_CACHED_S)
        self.always_allowed = PathPatterns(always_allowed)
        self._reviewer = reviewer
        self._users: _Recent[UserInfo | None] = _Recent(
            clock, lambda user: refusals_s if user is None else cached_s
        )
        self._permissions: _Recent[SubjectAccessReviewStatus] = _Recent(
            clock, lambda status: cached_s if status.allowed else refusals_s
        )

    def decide(self, token: str, verb: str, path: str) -> Decision:
        """Decide about a request for a path; ``token`` is empty if there is none.

        Sends reviews to the API server unless their results are cached.
        """
        return self._decide(token, NonResourceAttributes(path=path, verb=verb), f'"{path}"')

    def decide_token(
        self, token: str, attributes: NonResourceAttributes | ResourceAttributes
    ) -> Decision:
        """Decide whether the owner of a token has a right of any kind."""
        return self._decide(token, attributes, _described(attributes))

    def decide_user(
        self, user: UserInfo, attributes: NonResourceAttributes | ResourceAttributes
    ) -> Decision:
        """Authorize the request of a user that another server has authenticated."""
        return self._permit(user, attributes, _described(attributes))

    def user_of(self, token: str) -> UserInfo | None:
        """Return the owner of a token, anonymous without one; None if it is no good.

        Sends a TokenReview unless the result is cached.  Raises ClusterError if the review fails.
        """
        return self._user(token) if token else ANONYMOUS

    def permits(
        self, user: UserInfo, attributes: ResourceAttributes, *, uncached: bool = False
    ) -> bool:
        """Return whether a user may do something to API objects.

        Sends a SubjectAccessReview unless the result is cached; ``uncached`` neither reads nor
        writes the cache.  Raises ClusterError if the review fails.
        """
        status = (
            self._review(_spec(user, attributes))
            if uncached
            else self._permission(user, attributes)
        )
        return status.allowed and not status.denied

    def _decide(
        self, token: str, attributes: NonResourceAttributes | ResourceAttributes, subject: str
    ) -> Decision:
        try:
            user = self.user_of(token)
        except ClusterError as error:
            log.warning("token not reviewed", extra={"error": error})
            user = None
        if user is None:
            return Decision(AuthorizationOutcome.UNAUTHENTICATED, "Unauthorized")
        return self._permit(user, attributes, subject)

    def _permit(
        self, user: UserInfo, attributes: NonResourceAttributes | ResourceAttributes, subject: str
    ) -> Decision:
        try:
            permission = self._permission(user, attributes)
        except ClusterError as error:
            log.warning("access not reviewed", extra={"error": error, "path": subject})
            return Decision(
                AuthorizationOutcome.UNKNOWN, f"Internal Server Error: {subject}: {error}"
            )
        if permission.allowed and not permission.denied:
            return ALLOWED
        kind = "path " if isinstance(attributes, NonResourceAttributes) else ""
        message = f'forbidden: User "{user.username}" cannot {attributes.verb} {kind}{subject}'
        reason = f": {permission.reason}" if permission.reason else ""
        return Decision(AuthorizationOutcome.FORBIDDEN, message + reason)

    def _user(self, token: str) -> UserInfo | None:
        key = hashlib.sha256(token.encode()).digest()  # keeps tokens out of memory
        known = self._users.get(key)
        if known is not None:
            return known.value
        status = self._reviewer.create(TokenReview(spec=TokenReviewSpec(token=token))).status
        if status.error:
            log.info("token refused", extra={"error": status.error})
        return self._users.put(key, status.user if status.authenticated else None)

    def _permission(
        self, user: UserInfo, attributes: NonResourceAttributes | ResourceAttributes
    ) -> SubjectAccessReviewStatus:
        spec = _spec(user, attributes)
        key = msgspec.json.encode(spec)
        known = self._permissions.get(key)
        if known is not None:
            return known.value
        return self._permissions.put(key, self._review(spec))

    def _review(self, spec: SubjectAccessReviewSpec) -> SubjectAccessReviewStatus:
        return self._reviewer.create(SubjectAccessReview(spec=spec)).status


def _spec(
    user: UserInfo, attributes: NonResourceAttributes | ResourceAttributes
) -> SubjectAccessReviewSpec:
    return SubjectAccessReviewSpec(
        non_resource_attributes=attributes
        if isinstance(attributes, NonResourceAttributes)
        else None,
        resource_attributes=attributes if isinstance(attributes, ResourceAttributes) else None,
        user=user.username,
        groups=user.groups,
        extra=user.extra,
        uid=user.uid,
    )


def _described(attributes: NonResourceAttributes | ResourceAttributes) -> str:
    if isinstance(attributes, NonResourceAttributes):
        return f'"{attributes.path}"'
    resource = (
        f"{attributes.resource}/{attributes.subresource}"
        if attributes.subresource
        else attributes.resource
    )
    namespace_text = f' in namespace "{attributes.namespace}"' if attributes.namespace else ""
    return f'resource "{resource}"{namespace_text}'


@dataclass(frozen=True, slots=True)
class _Learnt(Generic[ValueT]):
    at_s: float
    value: ValueT


class _Recent(Generic[ValueT]):
    """Thread-safe cache whose values expire after ``lasts_s(value)`` seconds."""

    def __init__(self, clock: Clock, lasts_s: Callable[[ValueT], float]) -> None:
        self._clock = clock
        self._lasts_s = lasts_s
        self._lock = Lock()
        self._learnt: dict[Hashable, _Learnt[ValueT]] = {}  # in the order of their age

    def get(self, key: Hashable) -> _Learnt[ValueT] | None:
        """Return the cached decision if it has not expired."""
        with self._lock:
            cached = self._learnt.get(key)
        if cached is None or self._clock.now_s() >= cached.at_s + self._lasts_s(cached.value):
            return None
        return cached

    def put(self, key: Hashable, value: ValueT) -> ValueT:
        """Remember and return a value."""
        with self._lock:
            self._learnt.pop(key, None)
            if len(self._learnt) >= CACHED_ANSWERS:
                del self._learnt[next(iter(self._learnt))]
            self._learnt[key] = _Learnt(self._clock.now_s(), value)
        return value
