"""Who may read what a component serves: the API server is asked, as by every Kubernetes component.

A bearer token goes into a TokenReview, the user that comes back and the path into a
SubjectAccessReview.  Without a token the user is anonymous.  Client certificates are not looked at.
Source: k8s.io/apiserver pkg/server/options/{authentication,authorization}.go,
plugin/pkg/authenticator/token/webhook, plugin/pkg/authorizer/webhook, pkg/authorization/path.
"""

import hashlib
import logging
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from threading import Lock
from typing import Generic, Protocol, TypeVar

import msgspec

from koordinator.api.authentication import TokenReview, TokenReviewSpec, UserInfo
from koordinator.api.authorization import (
    NonResourceAttributes,
    ResourceAttributes,
    SubjectAccessReview,
    SubjectAccessReviewSpec,
    SubjectAccessReviewStatus,
)
from koordinator.api.meta import KubeObject
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import ClusterError, InputError

ALWAYS_ALLOWED = ("/healthz", "/readyz", "/livez")
CACHED_S = 10.0  # tokens, permissions and refusals
REFUSALS_CACHED_S = 30.0  # at most: who has just been given a right shouldn't wait for long
CACHED_ANSWERS = 8192  # the oldest are forgotten

ANONYMOUS = UserInfo(username="system:anonymous", groups=("system:unauthenticated",))

log = logging.getLogger(__name__)

KindT = TypeVar("KindT", bound=KubeObject)
ValueT = TypeVar("ValueT")


class Reviewer(Protocol):
    """What is needed of a ``cluster.port.Cluster``."""

    def create(self, obj: KindT) -> KindT: ...


class AuthorizationOutcome(Enum):
    """The answer to a request for access."""

    ALLOWED = auto()
    UNAUTHENTICATED = auto()  # the token is no good
    FORBIDDEN = auto()
    UNKNOWN = auto()  # the API server can't be asked


@dataclass(frozen=True, slots=True)
class Decision:
    """An outcome and, unless access is allowed, a sentence about it."""

    outcome: AuthorizationOutcome
    message: str = ""


ALLOWED = Decision(AuthorizationOutcome.ALLOWED)


class PathPatterns:
    """Paths; one that ends in ``*`` stands for all that begin so."""

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
    """Decides about requests; threads may share one if they may share its ``reviewer``.

    Two that ask the same at the same time may both ask the API server.
    What the API server said counts for ``cached_s`` seconds, a refusal for 30 s at most.
    """

    def __init__(
        self,
        reviewer: Reviewer,
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

        Asks the API server, unless it said so not long ago.
        """
        return self._decide(token, NonResourceAttributes(path=path, verb=verb), f'"{path}"')

    def decide_resource(self, token: str, asked: ResourceAttributes) -> Decision:
        """Decide whether the owner of a token may do something to API objects.

        Asks the API server, unless it said so not long ago.
        """
        return self._decide(token, asked, _described(asked))

    def decide_token(
        self, token: str, asked: NonResourceAttributes | ResourceAttributes
    ) -> Decision:
        """Decide whether the owner of a token may do what is asked, of whatever kind it is."""
        return self._decide(token, asked, _described(asked))

    def decide_user(
        self, user: UserInfo, asked: NonResourceAttributes | ResourceAttributes
    ) -> Decision:
        """Decide whether somebody may do what is asked whom others have authenticated."""
        return self._permit(user, asked, _described(asked))

    def user_of(self, token: str) -> UserInfo | None:
        """Return the owner of a token, anonymous without one; None if it is no good.

        Asks the API server, unless it said so not long ago.  Raises ClusterError if it can't.
        """
        return self._user(token) if token else ANONYMOUS

    def permits(self, user: UserInfo, asked: ResourceAttributes, *, anew: bool = False) -> bool:
        """Return whether a user may do something to API objects.

        Asks the API server, unless it said so not long ago; ``anew``: in any case, and remembers
        nothing.  Raises ClusterError if it can't.
        """
        status = self._review(_spec(user, asked)) if anew else self._permission(user, asked)
        return status.allowed and not status.denied

    def _decide(
        self, token: str, asked: NonResourceAttributes | ResourceAttributes, what: str
    ) -> Decision:
        try:
            user = self.user_of(token)
        except ClusterError as error:
            log.warning("token not reviewed", extra={"error": error})
            user = None
        if user is None:
            return Decision(AuthorizationOutcome.UNAUTHENTICATED, "Unauthorized")
        return self._permit(user, asked, what)

    def _permit(
        self, user: UserInfo, asked: NonResourceAttributes | ResourceAttributes, what: str
    ) -> Decision:
        try:
            permission = self._permission(user, asked)
        except ClusterError as error:
            log.warning("access not reviewed", extra={"error": error, "path": what})
            return Decision(AuthorizationOutcome.UNKNOWN, f"Internal Server Error: {what}: {error}")
        if permission.allowed and not permission.denied:
            return ALLOWED
        kind = "path " if isinstance(asked, NonResourceAttributes) else ""
        message = f'forbidden: User "{user.username}" cannot {asked.verb} {kind}{what}'
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
        self, user: UserInfo, asked: NonResourceAttributes | ResourceAttributes
    ) -> SubjectAccessReviewStatus:
        spec = _spec(user, asked)
        key = msgspec.json.encode(spec)
        known = self._permissions.get(key)
        if known is not None:
            return known.value
        return self._permissions.put(key, self._review(spec))

    def _review(self, spec: SubjectAccessReviewSpec) -> SubjectAccessReviewStatus:
        return self._reviewer.create(SubjectAccessReview(spec=spec)).status


def _spec(
    user: UserInfo, asked: NonResourceAttributes | ResourceAttributes
) -> SubjectAccessReviewSpec:
    return SubjectAccessReviewSpec(
        non_resource_attributes=asked if isinstance(asked, NonResourceAttributes) else None,
        resource_attributes=asked if isinstance(asked, ResourceAttributes) else None,
        user=user.username,
        groups=user.groups,
        extra=user.extra,
        uid=user.uid,
    )


def _described(asked: NonResourceAttributes | ResourceAttributes) -> str:
    if isinstance(asked, NonResourceAttributes):
        return f'"{asked.path}"'
    resource = f"{asked.resource}/{asked.subresource}" if asked.subresource else asked.resource
    where = f' in namespace "{asked.namespace}"' if asked.namespace else ""
    return f'resource "{resource}"{where}'


@dataclass(frozen=True, slots=True)
class _Learnt(Generic[ValueT]):
    at_s: float
    value: ValueT


class _Recent(Generic[ValueT]):
    """What was learnt not long ago; ``lasts_s`` says how long a value counts.  For many threads."""

    def __init__(self, clock: Clock, lasts_s: Callable[[ValueT], float]) -> None:
        self._clock = clock
        self._lasts_s = lasts_s
        self._lock = Lock()
        self._learnt: dict[Hashable, _Learnt[ValueT]] = {}  # in the order of their age

    def get(self, key: Hashable) -> _Learnt[ValueT] | None:
        """Return what is known and still counts."""
        with self._lock:
            found = self._learnt.get(key)
        if found is None or self._clock.now_s() >= found.at_s + self._lasts_s(found.value):
            return None
        return found

    def put(self, key: Hashable, value: ValueT) -> ValueT:
        """Remember and return a value."""
        with self._lock:
            self._learnt.pop(key, None)
            if len(self._learnt) >= CACHED_ANSWERS:
                del self._learnt[next(iter(self._learnt))]
            self._learnt[key] = _Learnt(self._clock.now_s(), value)
        return value
