"""What a user may see is asked of the API server: quickly, seldom, and never too much at once."""

from threading import Barrier, Lock
from typing import Any, TypeVar

from msgspec.structs import replace

from koordinator.api.authentication import TokenReview, TokenReviewStatus, UserInfo
from koordinator.api.authorization import SubjectAccessReview, SubjectAccessReviewStatus
from koordinator.api.meta import KubeObject
from koordinator.dashboard.access import AT_ONCE, RIGHTS_LAST_S, ReviewedAccess, ViewScope
from koordinator.foundation.clock import VirtualClock

KindT = TypeVar("KindT", bound=KubeObject)
NAMESPACES = [f"team-{number}" for number in range(3 * AT_ONCE)]


class SlowReviews:
    """An API server that answers about a namespace only once ``AT_ONCE`` have been asked about."""

    def __init__(self, *allowed: str) -> None:
        self.allowed = allowed  # namespaces; "": all
        self.asked = 0
        self.most_at_once = 0
        self._lock = Lock()
        self._at_once = 0
        self._together = Barrier(AT_ONCE, timeout=10)

    def create(self, obj: KindT) -> KindT:
        answer: Any = None
        if isinstance(obj, TokenReview):
            status = TokenReviewStatus(authenticated=True, user=UserInfo(username="ann"))
            answer = replace(obj, status=status)
        elif isinstance(obj, SubjectAccessReview):
            about = obj.spec.resource_attributes
            assert about is not None
            with self._lock:
                self.asked += 1
                self._at_once += 1
                self.most_at_once = max(self.most_at_once, self._at_once)
            if about.namespace:
                self._together.wait()
            with self._lock:
                self._at_once -= 1
            allowed = about.resource == "pods" and about.namespace in self.allowed
            answer = replace(obj, status=SubjectAccessReviewStatus(allowed=allowed))
        return answer


def test_many_namespaces_are_asked_about_a_few_at_once() -> None:
    """A user of some namespaces waits for a part of them at a time, and sees just these."""
    reviews = SlowReviews("team-3", "team-11")

    scope = ReviewedAccess(reviews, VirtualClock()).scope_of("token", NAMESPACES)

    assert scope == ViewScope(frozenset({"team-3", "team-11"}), sees_nodes=False)
    assert reviews.most_at_once == AT_ONCE


def test_who_may_list_all_namespaces_costs_two_questions() -> None:
    """No namespace is asked about."""
    reviews = SlowReviews("")

    assert ReviewedAccess(reviews, VirtualClock()).scope_of("t", NAMESPACES).namespaces is None
    assert reviews.asked == 2


def test_rights_that_are_known_are_not_asked_about_again() -> None:
    """They count as long as a stream lasts, refusals for shorter."""
    clock = VirtualClock()
    reviews = SlowReviews(*NAMESPACES)
    access = ReviewedAccess(reviews, clock)
    first = access.scope_of("token", NAMESPACES)
    asked = reviews.asked

    clock.advance_to(clock.now_s() + RIGHTS_LAST_S - 16)
    assert access.scope_of("token", NAMESPACES) == first
    assert reviews.asked == asked
    clock.advance_to(clock.now_s() + 2)
    access.scope_of("token", NAMESPACES)
    assert reviews.asked == asked + 2  # what was refused: nodes, and pods of all namespaces
