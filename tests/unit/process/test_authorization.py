"""The API server decides who may read what a component serves."""

from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from koordinator.api.codec import to_manifest
from koordinator.api.control_plane import (
    SubjectAccessReview,
    SubjectAccessReviewStatus,
    TokenReview,
    TokenReviewStatus,
    UserInfo,
)
from koordinator.api.meta import KubeObject
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.process.authorization import (
    CACHED_ANSWERS,
    CACHED_S,
    AuthorizationOutcome,
    Authorizer,
    Decision,
    PathPatterns,
)

KindT = TypeVar("KindT", bound=KubeObject)

ALICE = UserInfo(username="alice", uid="u1", groups=("ops",), extra={"scopes": ("a", "b")})


@dataclass
class Reviews:
    """An API server that knows tokens and what users may read."""

    tokens: dict[str, UserInfo] = field(default_factory=dict)
    readable: dict[str, set[str]] = field(default_factory=dict)
    down: bool = False
    created: list[KubeObject] = field(default_factory=list)

    def create(self, obj: KindT) -> KindT:
        self.created.append(obj)
        if self.down:
            raise ClusterError("connection refused")
        answer: Any = None
        if isinstance(obj, TokenReview):
            user = self.tokens.get(obj.spec.token)
            known = TokenReviewStatus(authenticated=True, user=user or UserInfo())
            answer = replace(obj, status=known if user else TokenReviewStatus(error="expired"))
        elif isinstance(obj, SubjectAccessReview):
            request = obj.spec.non_resource_attributes
            assert request is not None
            allowed = request.verb == "get" and request.path in self.readable[obj.spec.user]
            status = SubjectAccessReviewStatus(allowed=allowed, reason="" if allowed else "no rule")
            answer = replace(obj, status=status)
        return answer


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


@pytest.fixture
def reviews() -> Reviews:
    """Alice may read metrics; anonymous users may read the version."""
    return Reviews(
        tokens={"secret": ALICE},
        readable={"alice": {"/metrics"}, "system:anonymous": {"/version"}},
    )


@pytest.fixture
def authorizer(reviews: Reviews, clock: VirtualClock) -> Authorizer:
    return Authorizer(reviews, clock)


def test_a_known_user_reads_what_rbac_lets_him(authorizer: Authorizer, reviews: Reviews) -> None:
    """The whole user of the token is asked about: RBAC may go by group."""
    assert authorizer.decide("secret", "get", "/metrics").outcome is AuthorizationOutcome.ALLOWED
    assert to_manifest(reviews.created[0])["spec"] == {"token": "secret"}
    assert to_manifest(reviews.created[1])["spec"] == {
        "nonResourceAttributes": {"path": "/metrics", "verb": "get"},
        "user": "alice",
        "uid": "u1",
        "groups": ["ops"],
        "extra": {"scopes": ["a", "b"]},
    }


def test_everything_else_is_forbidden(authorizer: Authorizer) -> None:
    """The API server would answer the same text."""
    assert authorizer.decide("secret", "put", "/metrics") == Decision(
        AuthorizationOutcome.FORBIDDEN,
        'forbidden: User "alice" cannot put path "/metrics": no rule',
    )


def test_without_a_token_the_user_is_anonymous(authorizer: Authorizer) -> None:
    """A cluster may grant paths to anonymous users."""
    assert authorizer.decide("", "get", "/version").outcome is AuthorizationOutcome.ALLOWED
    refused = authorizer.decide("", "get", "/metrics")
    assert refused.message.startswith('forbidden: User "system:anonymous" cannot get')


def test_a_bad_token_is_not_anonymous(authorizer: Authorizer) -> None:
    """An invalid claim of identity is rejected."""
    assert authorizer.decide("wrong", "get", "/version") == Decision(
        AuthorizationOutcome.UNAUTHENTICATED, "Unauthorized"
    )


def test_answers_are_cached_for_ten_seconds(
    authorizer: Authorizer, reviews: Reviews, clock: VirtualClock
) -> None:
    """Prometheus scrapes more often than permissions change; refusals are kept as well."""
    for token in ("secret", "secret", "wrong", "wrong"):
        authorizer.decide(token, "get", "/metrics")
    assert len(reviews.created) == 3  # two tokens, one permission

    reviews.readable["alice"].clear()
    clock.advance_to(CACHED_S - 0.1)
    assert authorizer.decide("secret", "get", "/metrics").outcome is AuthorizationOutcome.ALLOWED
    clock.advance_to(CACHED_S)
    assert authorizer.decide("secret", "get", "/metrics").outcome is AuthorizationOutcome.FORBIDDEN
    assert len(reviews.created) == 5


def test_an_api_server_that_is_down_opens_nothing(
    authorizer: Authorizer, reviews: Reviews, clock: VirtualClock
) -> None:
    """The missing answer is not cached."""
    authorizer.decide("secret", "get", "/version")
    reviews.down = True
    assert authorizer.decide("secret", "get", "/metrics").outcome is AuthorizationOutcome.UNKNOWN
    clock.advance_to(CACHED_S)
    assert (
        authorizer.decide("secret", "get", "/metrics").outcome
        is AuthorizationOutcome.UNAUTHENTICATED
    )
    reviews.down = False
    assert authorizer.decide("secret", "get", "/metrics").outcome is AuthorizationOutcome.ALLOWED


def test_memory_is_bounded(authorizer: Authorizer, reviews: Reviews) -> None:
    """Invalid tokens cannot fill the cache; the oldest answer is dropped first."""
    for number in range(CACHED_ANSWERS + 1):
        authorizer.decide(f"wrong-{number}", "get", "/")
    count = len(reviews.created)
    authorizer.decide(f"wrong-{CACHED_ANSWERS}", "get", "/")
    assert len(reviews.created) == count
    authorizer.decide("wrong-0", "get", "/")
    assert len(reviews.created) == count + 1


@pytest.mark.parametrize(
    ("pattern", "path", "matches"),
    [
        ("/healthz", "/healthz", True),
        ("/healthz", "/healthz/ping", False),
        ("healthz", "/healthz", True),
        ("/healthz/*", "/healthz/ping", True),
        ("/healthz*", "/healthzero", True),
        ("*", "/metrics", True),
        ("/", "/", True),
        ("/", "/metrics", False),
    ],
)
def test_paths_open_to_all(pattern: str, path: str, matches: bool) -> None:
    """A path is itself only, unless a star ends it; the leading slash may be left out."""
    assert (path in PathPatterns([pattern])) is matches


def test_star_is_accepted_at_the_end_only() -> None:
    """Anything else would be read differently by different people."""
    with pytest.raises(InputError, match=r"must have \* at the end only, got '/a\*b'"):
        PathPatterns(["/a*b"])
