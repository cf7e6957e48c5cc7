"""Namespace reviews: rights follow the API server's answers, with bounded and cached requests."""

import time
from threading import Barrier, Condition, Lock
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from koordinator.api.control_plane import (
    SubjectAccessReview,
    SubjectAccessReviewStatus,
    TokenReview,
    TokenReviewStatus,
    UserInfo,
)
from koordinator.api.meta import KubeObject
from koordinator.dashboard import access as access_module
from koordinator.dashboard.access import (
    GRANT_TTL_S,
    MAX_CONCURRENT_REVIEWS,
    MIN_REFUSAL_TTL_S,
    AccessDeniedError,
    ReviewedAccess,
    ViewRights,
    ViewScope,
)
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError

KindT = TypeVar("KindT", bound=KubeObject)
NAMESPACES = [f"team-{number}" for number in range(3 * MAX_CONCURRENT_REVIEWS)]
PATIENCE_S = 60.0  # real time, never used up if the code is right


@pytest.fixture(autouse=True)
def _patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for all reviews, also on a busy machine."""
    monkeypatch.setattr(access_module, "REVIEW_WAIT_S", PATIENCE_S)


class Reviews:
    """API server with permissions to list pods by namespace; a token is a user name."""

    def __init__(self, **allowed: tuple[str, ...]) -> None:
        self.allowed = allowed  # namespaces by user; "": all
        self.requests: list[tuple[str, str]] = []
        self.problem: ClusterError | None = None
        self._lock = Lock()

    def create(self, obj: KindT) -> KindT:
        if self.problem is not None:
            raise self.problem
        answer: Any = None
        if isinstance(obj, TokenReview):
            name = obj.spec.token
            known = UserInfo(username=name) if name in self.allowed else UserInfo()
            status = TokenReviewStatus(authenticated=name in self.allowed, user=known)
            answer = replace(obj, status=status)
        elif isinstance(obj, SubjectAccessReview):
            about = obj.spec.resource_attributes
            assert about is not None
            with self._lock:
                self.requests.append((obj.spec.user, about.namespace))
            if about.namespace:
                self.take_time(obj.spec.user)
            own = self.allowed.get(obj.spec.user, ())
            allowed = about.resource == "pods" and about.namespace in own
            answer = replace(obj, status=SubjectAccessReviewStatus(allowed=allowed))
        return answer

    def take_time(self, user: str) -> None:
        """Answer immediately."""


class SlowReviews(Reviews):
    """API server that answers when ``MAX_CONCURRENT_REVIEWS`` reviews are in flight."""

    def __init__(self, **allowed: tuple[str, ...]) -> None:
        super().__init__(**allowed)
        self._together = Barrier(MAX_CONCURRENT_REVIEWS, timeout=30)

    def take_time(self, user: str) -> None:  # noqa: ARG002 -- the same for all users
        self._together.wait()


class StuckReviews(Reviews):
    """API server that answers some reviews of one user, and the rest after ``resume``."""

    def __init__(self, user: str, answered: int, **allowed: tuple[str, ...]) -> None:
        super().__init__(**allowed)
        self._user, self._left = user, answered
        self._turn = Condition()

    def take_time(self, user: str) -> None:
        with self._turn:
            if user == self._user:
                self._turn.wait_for(lambda: self._left > 0, timeout=60)
                self._left -= 1

    def resume(self) -> None:
        with self._turn:
            self._left = 10**6
            self._turn.notify_all()


def test_reviews_of_many_namespaces_run_concurrently() -> None:
    """The scope has exactly the permitted namespaces."""
    reviews = SlowReviews(ann=("team-3", "team-11"))

    rights = ReviewedAccess(reviews, VirtualClock()).rights_of("ann", lambda: NAMESPACES)

    assert rights.pending_reviews == 0
    assert rights.scope == ViewScope(frozenset({"team-3", "team-11"}), sees_nodes=False)


def test_user_with_all_namespaces_needs_two_reviews() -> None:
    """No review is sent for single namespaces."""
    reviews = Reviews(ann=("",))

    access = ReviewedAccess(reviews, VirtualClock())
    assert access.rights_of("ann", lambda: NAMESPACES).scope.namespaces is None
    assert len(reviews.requests) == 2


def rights_with_pending(access: ReviewedAccess, many: list[str], count: int) -> ViewRights:
    """Request the rights of ann until so many reviews are pending."""
    ends_s = time.monotonic() + PATIENCE_S
    while (rights := access.rights_of("ann", lambda: many)).pending_reviews != count:
        assert time.monotonic() < ends_s, rights.pending_reviews
        time.sleep(0.01)
    return rights


def test_scope_grows_while_reviews_are_pending(monkeypatch: pytest.MonkeyPatch) -> None:
    """A call returns before the last answer; later calls return more namespaces."""
    monkeypatch.setattr(access_module, "REVIEW_WAIT_S", 0.05)
    many = [f"n{number}" for number in range(2000)]
    reviews = StuckReviews("ann", 300, ann=("n7", "n1999"))
    access = ReviewedAccess(reviews, VirtualClock())

    first = rights_with_pending(access, many, 2000 - 300)
    assert first.scope.namespaces == frozenset({"n7"})
    reviews.resume()
    assert rights_with_pending(access, many, 0).scope.namespaces == frozenset({"n7", "n1999"})


def test_user_with_many_namespaces_does_not_delay_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """Users take turns, and an administrator needs no turn."""
    reviews = StuckReviews("ann", 0, ann=("team-1",), bob=("team-2",), admin=("",))
    access = ReviewedAccess(reviews, VirtualClock())
    # All workers but one wait for answers to her reviews.
    with monkeypatch.context() as hasty:
        hasty.setattr(access_module, "REVIEW_WAIT_S", 0.05)
        ann = access.rights_of("ann", lambda: NAMESPACES[: MAX_CONCURRENT_REVIEWS - 1])

    assert ann.pending_reviews == MAX_CONCURRENT_REVIEWS - 1
    assert access.rights_of("bob", lambda: NAMESPACES).scope.namespaces == frozenset({"team-2"})
    assert access.rights_of("admin", lambda: NAMESPACES).scope.namespaces is None
    reviews.resume()


def test_own_namespace_of_service_account_is_reviewed_first() -> None:
    """The likeliest namespace comes first."""
    own = "system:serviceaccount:team-40:viewer"
    reviews = Reviews(**{own: ("team-40",)})

    ReviewedAccess(reviews, VirtualClock()).rights_of(own, lambda: NAMESPACES)

    first, *_ = (namespace for _, namespace in reviews.requests if namespace)
    assert first == "team-40"


def test_cached_rights_are_not_reviewed_again() -> None:
    """Refusals are cached for half a minute; permissions are refreshed before they expire."""
    clock = VirtualClock()
    reviews = Reviews(ann=("team-1",))
    access = ReviewedAccess(reviews, clock)
    first = access.rights_of("ann", lambda: NAMESPACES)
    count = len(reviews.requests)

    clock.advance_to(clock.now_s() + GRANT_TTL_S / 2 - 1)
    assert access.rights_of("ann", lambda: NAMESPACES) == first
    assert len(reviews.requests) == count
    clock.advance_to(clock.now_s() + MIN_REFUSAL_TTL_S)
    access.rights_of("ann", lambda: NAMESPACES)
    assert len(reviews.requests) == 2 * count


def test_a_revoked_permission_expires_soon() -> None:
    """Not later than it lasts, be the API server asked in time or not."""
    clock = VirtualClock()
    reviews = Reviews(ann=("team-1", "team-2"))
    access = ReviewedAccess(reviews, clock)
    access.rights_of("ann", lambda: NAMESPACES)

    reviews.allowed = {"ann": ("team-2",)}
    clock.advance_to(clock.now_s() + GRANT_TTL_S + 1)
    assert access.rights_of("ann", lambda: NAMESPACES).scope.namespaces == frozenset({"team-2"})


def test_unreachable_api_server_is_not_reported_as_invalid_token() -> None:
    """The answer is 503 with the error, so the page does not request another token."""
    clock = VirtualClock()
    reviews = Reviews(ann=("team-1",))
    access = ReviewedAccess(reviews, clock)
    access.rights_of("ann", lambda: NAMESPACES)

    reviews.problem = ClusterError("connection refused")
    clock.advance_to(clock.now_s() + GRANT_TTL_S + 1)
    with pytest.raises(AccessDeniedError, match="connection refused") as denied:
        access.rights_of("ann", lambda: NAMESPACES)
    assert denied.value.status == 503
    reviews.problem = None
    assert access.rights_of("ann", lambda: NAMESPACES).scope.namespaces == frozenset({"team-1"})


def test_request_without_token_sends_no_namespace_reviews() -> None:
    """An anonymous request cannot cause thousands of reviews."""
    reviews = Reviews()
    with pytest.raises(AccessDeniedError) as denied:
        ReviewedAccess(reviews, VirtualClock()).rights_of("", lambda: NAMESPACES)
    assert denied.value.status == 403
    assert len(reviews.requests) == 2
