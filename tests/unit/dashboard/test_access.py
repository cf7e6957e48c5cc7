"""What a user may see is asked of the API server: quickly, seldom, and never too much at once."""

from threading import Barrier, Condition, Lock
from typing import Any, TypeVar

import pytest
from msgspec.structs import replace

from koordinator.api.authentication import TokenReview, TokenReviewStatus, UserInfo
from koordinator.api.authorization import SubjectAccessReview, SubjectAccessReviewStatus
from koordinator.api.meta import KubeObject
from koordinator.dashboard.access import (
    AT_ONCE,
    REFUSALS_LAST_S,
    RIGHTS_LAST_S,
    AccessDeniedError,
    ReviewedAccess,
    ViewScope,
)
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError

KindT = TypeVar("KindT", bound=KubeObject)
NAMESPACES = [f"team-{number}" for number in range(3 * AT_ONCE)]


class Reviews:
    """An API server that knows who may list pods of which namespaces; a token is a user's name."""

    def __init__(self, **allowed: tuple[str, ...]) -> None:
        self.allowed = allowed  # namespaces by user; "": all
        self.asked: list[tuple[str, str]] = []
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
                self.asked.append((obj.spec.user, about.namespace))
            if about.namespace:
                self.take_time(obj.spec.user)
            own = self.allowed.get(obj.spec.user, ())
            allowed = about.resource == "pods" and about.namespace in own
            answer = replace(obj, status=SubjectAccessReviewStatus(allowed=allowed))
        return answer

    def take_time(self, user: str) -> None:
        """Answer at once."""


class SlowReviews(Reviews):
    """It answers about a namespace only once ``AT_ONCE`` have been asked about."""

    def __init__(self, **allowed: tuple[str, ...]) -> None:
        super().__init__(**allowed)
        self._together = Barrier(AT_ONCE, timeout=30)

    def take_time(self, user: str) -> None:  # noqa: ARG002 -- of whoever it is
        self._together.wait()


class StuckReviews(Reviews):
    """It answers about so many namespaces of one user, and then only once it is let go on."""

    def __init__(self, user: str, answered: int, **allowed: tuple[str, ...]) -> None:
        super().__init__(**allowed)
        self._user, self._left = user, answered
        self._turn = Condition()

    def take_time(self, user: str) -> None:
        with self._turn:
            if user == self._user:
                self._turn.wait_for(lambda: self._left > 0, timeout=60)
                self._left -= 1

    def go_on(self) -> None:
        with self._turn:
            self._left = 10**6
            self._turn.notify_all()


def test_many_namespaces_are_asked_about_a_few_at_once() -> None:
    """A user of some namespaces waits for a part of them at a time, and sees just these."""
    reviews = SlowReviews(ann=("team-3", "team-11"))

    rights = ReviewedAccess(reviews, VirtualClock()).rights_of("ann", lambda: NAMESPACES)

    assert rights.unasked == 0
    assert rights.scope == ViewScope(frozenset({"team-3", "team-11"}), sees_nodes=False)


def test_who_may_list_all_namespaces_costs_two_questions() -> None:
    """No namespace is asked about."""
    reviews = Reviews(ann=("",))

    access = ReviewedAccess(reviews, VirtualClock())
    assert access.rights_of("ann", lambda: NAMESPACES).scope.namespaces is None
    assert len(reviews.asked) == 2


def test_who_has_very_many_namespaces_sees_first_what_is_known_first() -> None:
    """Nobody waits for the last answer: the page grows while the API server is being asked."""
    many = [f"n{number}" for number in range(2000)]
    reviews = StuckReviews("ann", 300, ann=("n7", "n1999"))
    access = ReviewedAccess(reviews, VirtualClock())

    first = access.rights_of("ann", lambda: many)
    assert first.scope.namespaces == frozenset({"n7"})
    assert first.unasked == 2000 - 300
    reviews.go_on()
    while (rights := access.rights_of("ann", lambda: many)).unasked:
        pass
    assert rights.scope.namespaces == frozenset({"n7", "n1999"})


def test_who_has_very_many_namespaces_delays_nobody() -> None:
    """Users are asked about in turn, and an administrator needs no turn."""
    reviews = StuckReviews("ann", 0, ann=("team-1",), bob=("team-2",), admin=("",))
    access = ReviewedAccess(reviews, VirtualClock())
    # So many of her questions wait for answers that there is one asker left.
    ann = access.rights_of("ann", lambda: NAMESPACES[: AT_ONCE - 1])

    assert ann.unasked == AT_ONCE - 1
    assert access.rights_of("bob", lambda: NAMESPACES).scope.namespaces == frozenset({"team-2"})
    assert access.rights_of("admin", lambda: NAMESPACES).scope.namespaces is None
    reviews.go_on()


def test_a_service_account_sees_its_own_namespace_first() -> None:
    """Where it may look is asked about in an order that is likely."""
    own = "system:serviceaccount:team-40:viewer"
    reviews = Reviews(**{own: ("team-40",)})

    ReviewedAccess(reviews, VirtualClock()).rights_of(own, lambda: NAMESPACES)

    first, *_ = (namespace for _, namespace in reviews.asked if namespace)
    assert first == "team-40"


def test_rights_that_are_known_are_not_asked_about_again() -> None:
    """What was refused counts for half a minute; what is allowed is asked again meanwhile."""
    clock = VirtualClock()
    reviews = Reviews(ann=("team-1",))
    access = ReviewedAccess(reviews, clock)
    first = access.rights_of("ann", lambda: NAMESPACES)
    asked = len(reviews.asked)

    clock.advance_to(clock.now_s() + RIGHTS_LAST_S / 2 - 1)
    assert access.rights_of("ann", lambda: NAMESPACES) == first
    assert len(reviews.asked) == asked
    clock.advance_to(clock.now_s() + REFUSALS_LAST_S)
    access.rights_of("ann", lambda: NAMESPACES)
    assert len(reviews.asked) == 2 * asked


def test_a_right_that_was_taken_away_is_gone_soon() -> None:
    """Not later than it lasts, be the API server asked in time or not."""
    clock = VirtualClock()
    reviews = Reviews(ann=("team-1", "team-2"))
    access = ReviewedAccess(reviews, clock)
    access.rights_of("ann", lambda: NAMESPACES)

    reviews.allowed = {"ann": ("team-2",)}
    clock.advance_to(clock.now_s() + RIGHTS_LAST_S + 1)
    assert access.rights_of("ann", lambda: NAMESPACES).scope.namespaces == frozenset({"team-2"})


def test_an_api_server_that_is_away_is_not_a_bad_token() -> None:
    """Nobody is asked for another token: it is said that rights can't be known now."""
    clock = VirtualClock()
    reviews = Reviews(ann=("team-1",))
    access = ReviewedAccess(reviews, clock)
    access.rights_of("ann", lambda: NAMESPACES)

    reviews.problem = ClusterError("connection refused")
    clock.advance_to(clock.now_s() + RIGHTS_LAST_S + 1)
    with pytest.raises(AccessDeniedError, match="connection refused") as denied:
        access.rights_of("ann", lambda: NAMESPACES)
    assert denied.value.status == 503
    reviews.problem = None
    assert access.rights_of("ann", lambda: NAMESPACES).scope.namespaces == frozenset({"team-1"})


def test_without_a_token_no_namespace_is_asked_about() -> None:
    """Whoever has not said who they are gets no answer that costs thousands of questions."""
    reviews = Reviews()
    with pytest.raises(AccessDeniedError) as denied:
        ReviewedAccess(reviews, VirtualClock()).rights_of("", lambda: NAMESPACES)
    assert denied.value.status == 403
    assert len(reviews.asked) == 2
