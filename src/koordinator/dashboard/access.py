"""Access of users: the namespaces and nodes that they may list, and redaction of other names.

Messages of plugins name other pods, gangs and quotas: the pod that uses a port, the gang ahead in
the queue, the quota that lends.  Names that the reader may not list are replaced in all of them.
"""

import re
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from threading import Condition
from typing import Any, Protocol

import msgspec
import numpy as np

from koordinator.api.control_plane import ResourceAttributes, UserInfo
from koordinator.api.elastic_quota import ElasticQuota
from koordinator.api.reservation import Reservation
from koordinator.dashboard.overview import NO_NODES, NO_TOTALS, ClusterTotals, NodeColumns
from koordinator.dashboard.waiting_pods import WaitingPods
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import ClusterError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.process.authorization import Authorizer, ReviewClient
from koordinator.scheduler.snapshot import ClusterState

REDACTED = "(another tenant)"
#: ``namespace/name``, or a word that may be an object's name.
_NAME = re.compile(r"[\w](?:[\w.-]*\w)?(?:/[\w](?:[\w.-]*\w)?)?")
#: Words of the scheduler's messages that look like ``namespace/name``.
_WORDS = frozenset({"affinity/selector", "and/or"})
_COUNT = re.compile(r"\d+/\d+")
MAX_CONCURRENT_REVIEWS = 16  # requests to the API server about namespaces
REVIEW_WAIT_S = 3.0  # a request for rights waits this long, then returns the known part of them
GRANT_TTL_S = 45.0
MIN_REFUSAL_TTL_S = 30.0  # longer where the reviews of all namespaces take long
REFUSAL_TTL_FACTOR = 20  # multiple of the time that the reviews of all namespaces took
MAX_REFUSAL_TTL_S = 600.0
MAX_USERS = 256  # users with cached rights

_NO_NAMES: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class ViewScope:
    """Namespaces and nodes that a user may see; ``namespaces`` None means all of them."""

    namespaces: frozenset[str] | None = None
    sees_nodes: bool = True

    @property
    def is_everything(self) -> bool:
        """Whether the scope covers all namespaces and the nodes."""
        return self.namespaces is None and self.sees_nodes

    def includes_namespace(self, namespace: str) -> bool:
        """Return whether the scope includes a namespace."""
        return self.namespaces is None or namespace in self.namespaces


EVERYTHING = ViewScope()


@dataclass(frozen=True, slots=True)
class ViewRights:
    """The scope of a user according to the reviews that the API server has answered so far."""

    scope: ViewScope
    owner: Hashable = None  # the user; None where access is open to all
    #: Namespaces whose review has not been answered yet; ``scope`` may grow while it is not 0.
    pending_reviews: int = 0


EVERY_RIGHT = ViewRights(EVERYTHING)


class AccessDeniedError(Exception):
    """Refusal of a request for lack of rights; ``status`` is the HTTP status of the answer."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


#: Returns the namespaces of a cluster; those that a user is likely to look for come first.
NamespaceLister = Callable[[], Iterable[str]]


class AccessPolicy(Protocol):
    """Policy that maps a bearer token to view rights."""

    def rights_of(self, token: str, namespaces: NamespaceLister) -> ViewRights:
        """Return the view rights of a token's owner in a cluster with these namespaces.

        May block on requests to an API server.  Raises AccessDeniedError for a user without rights.
        """


class OpenAccess:
    """Policy without restrictions, for manifests, simulations and local users."""

    def rights_of(self, token: str, namespaces: NamespaceLister) -> ViewRights:  # noqa: ARG002 -- every token has all rights
        return EVERY_RIGHT


class ReviewedAccess:
    """Policy that follows the API server's permissions to list pods by namespace, and nodes.

    Each namespace needs a SubjectAccessReview of its own, as the API server has no list of another
    user's rights.  At most ``MAX_CONCURRENT_REVIEWS`` run at a time, and users take turns, so that
    a user with thousands of namespaces does not delay the others.  A call returns after
    ``REVIEW_WAIT_S`` with the rights known by then; a later call returns more.
    """

    def __init__(self, reviewer: ReviewClient, clock: Clock) -> None:
        """``reviewer`` must be thread-safe."""
        self._authorizer = Authorizer(reviewer, clock, cached_s=GRANT_TTL_S)
        self._clock = clock
        self._pool = ThreadPoolExecutor(MAX_CONCURRENT_REVIEWS, "reviews-of-namespaces")
        self._changed = Condition()
        self._users: OrderedDict[bytes, _UserRights] = OrderedDict()  # least recent request first
        self._waiting: deque[_UserRights] = deque()  # users with queued reviews, in turn
        self._workers = 0

    def rights_of(self, token: str, namespaces: NamespaceLister) -> ViewRights:
        """Return the namespaces whose pods the user may list.

        Raises AccessDeniedError: 401 for an invalid token, 403 for a user without rights, 503 if
        the API server does not answer.
        """
        try:
            user = self._authorizer.user_of(token)
            if user is None:
                raise AccessDeniedError(401, "the bearer token is invalid or missing")
            sees_nodes = self._may(user, "nodes")
            if self._may(user, "pods"):
                return ViewRights(ViewScope(None, sees_nodes), msgspec.json.encode(user))
        except ClusterError as error:
            raise _unknown(error) from None
        if not token and not sees_nodes:
            raise AccessDeniedError(403, "without a token you may list nothing in this cluster")
        known = self._user(user)
        own, pending, problem = self._namespaces(known, list(dict.fromkeys(namespaces())))
        if not own and not sees_nodes and not pending:
            if problem is not None:
                raise _unknown(problem)
            raise AccessDeniedError(403, "you may list pods in no namespace of this cluster")
        return ViewRights(ViewScope(own, sees_nodes), known.key, pending)

    def _may(self, user: UserInfo, resource: str) -> bool:
        return self._authorizer.permits(user, ResourceAttributes(verb="list", resource=resource))

    def _user(self, user: UserInfo) -> "_UserRights":
        key = msgspec.json.encode(user)
        with self._changed:
            known = self._users.get(key)
            if known is None:
                known = self._users[key] = _UserRights(key, user)
                if len(self._users) > MAX_USERS:
                    self._users.popitem(last=False)
            self._users.move_to_end(key)
            return known

    def _namespaces(
        self, known: "_UserRights", namespaces: Sequence[str]
    ) -> tuple[frozenset[str], int, ClusterError | None]:
        """Return the permitted namespaces, the number of pending reviews, and their last error."""
        began_s = self._clock.now_s()
        with self._changed:
            known.forget_others(namespaces)
            if known.enqueue_reviews(namespaces, began_s):
                self._waiting.append(known)
            queued = sum(len(user.reviews) for user in self._waiting)
            while self._workers < min(MAX_CONCURRENT_REVIEWS, queued):
                self._workers += 1
                self._pool.submit(self._review_queued)
            self._changed.wait_for(lambda: not known.unknown, known.remaining_wait_s(began_s))
            now_s = self._clock.now_s()
            own = frozenset(n for n in namespaces if known.allowed_until_s.get(n, 0.0) > now_s)
            return own, len(known.unknown), known.problem

    def _review_queued(self) -> None:
        """Send queued reviews, one of each user in turn, until the queue is empty."""
        while True:
            with self._changed:
                if not self._waiting:
                    self._workers -= 1
                    return
                user = self._waiting.popleft()
                namespace = user.reviews.popleft()
                if user.reviews:
                    self._waiting.append(user)
            request = ResourceAttributes(namespace=namespace, verb="list", resource="pods")
            allowed: bool | ClusterError
            try:
                allowed = self._authorizer.permits(user.info, request, uncached=True)
            except ClusterError as error:
                allowed = error.with_traceback(None)  # which refers to this frame
            except Exception as error:  # noqa: BLE001 -- must not end the worker of all users
                allowed = ClusterError(str(error))
            with self._changed:
                user.record_review(namespace, allowed, self._clock.now_s())
                if not user.unknown:
                    self._changed.notify_all()


class _UserRights:
    """Reviewed namespaces of one user; guarded by the lock of ReviewedAccess."""

    def __init__(self, key: bytes, info: UserInfo) -> None:
        self.key, self.info = key, info
        self.reviews: deque[str] = deque()  # namespaces whose review has not been sent
        self.unknown: set[str] = set()  # namespaces without a valid answer
        self.allowed_until_s: dict[str, float] = {}
        self.problem: ClusterError | None = None
        self._pending: set[str] = set()  # namespaces whose review is queued or in flight
        self._refused_at_s: dict[str, float] = {}
        self._refresh_s: dict[str, float] = {}  # time from which a permission is reviewed again
        self._began_s = 0.0
        self._refusal_ttl_s = MIN_REFUSAL_TTL_S

    def enqueue_reviews(self, namespaces: Iterable[str], now_s: float) -> bool:
        """Queue the reviews that are needed; return whether the queue was empty before."""
        had = bool(self.reviews)
        if not self._pending:
            self._began_s, self.problem = now_s, None
        # Namespaces that were permitted before, and a service account's own, are the most likely.
        first: list[str] = []
        then: list[str] = []
        # the namespace of a service account; empty for other users
        prefix, _, rest = self.info.username.partition("system:serviceaccount:")
        home = "" if prefix else rest.partition(":")[0]
        for name in namespaces:
            until_s = self.allowed_until_s.get(name, 0.0)
            refused_s = self._refused_at_s.get(name)
            if until_s > now_s and self._refresh_s[name] > now_s:
                continue
            if refused_s is not None and now_s < refused_s + self._refusal_ttl_s:
                continue
            if until_s <= now_s:
                self.unknown.add(name)
            if name not in self._pending:
                (first if until_s or name == home else then).append(name)
        self._pending.update(first, then)
        self.reviews.extendleft(reversed(first))
        self.reviews.extend(then)
        return bool(self.reviews) and not had

    def remaining_wait_s(self, now_s: float) -> float:
        """Return the seconds left to wait since the first request of the pending reviews."""
        return max(self._began_s + REVIEW_WAIT_S - now_s, 0.0)

    def record_review(self, namespace: str, allowed: "bool | ClusterError", now_s: float) -> None:
        """Record the answer of a review; an error leaves earlier answers valid."""
        self._pending.discard(namespace)
        self.unknown.discard(namespace)
        if isinstance(allowed, ClusterError):
            self.problem = allowed
        elif allowed:
            self.allowed_until_s[namespace] = now_s + GRANT_TTL_S
            self._refresh_s[namespace] = now_s + GRANT_TTL_S / 2
            self._refused_at_s.pop(namespace, None)
        else:
            self.allowed_until_s.pop(namespace, None)
            self._refused_at_s[namespace] = now_s
        if not self._pending:
            took_s = now_s - self._began_s
            self._refusal_ttl_s = min(
                max(MIN_REFUSAL_TTL_S, REFUSAL_TTL_FACTOR * took_s), MAX_REFUSAL_TTL_S
            )

    def forget_others(self, namespaces: Sequence[str]) -> None:
        """Remove the answers for namespaces that do not exist any more."""
        if len(self._refused_at_s) + len(self.allowed_until_s) > 2 * len(namespaces) + 64:
            remaining = set(namespaces)
            for known in (self._refused_at_s, self.allowed_until_s, self._refresh_s):
                for name in known.keys() - remaining:
                    del known[name]


def _unknown(error: ClusterError) -> AccessDeniedError:
    return AccessDeniedError(503, f"the API server did not answer a review of your rights: {error}")


@dataclass(frozen=True, slots=True)
class PrivateNames:
    """Names that messages mention without a namespace; the same object serves all readers."""

    #: Owning namespaces by name of a quota or namespace; the reader must see all of them.
    owners: Mapping[str, frozenset[str]]
    reservations: frozenset[str]
    nodes: frozenset[str]

    @classmethod
    def of(cls, state: ClusterState, namespaces: Iterable[str] | None = None) -> "PrivateNames":
        """Return the names of a cluster; ``namespaces`` are the pending pods' namespaces, if known.

        Namespaces of placed pods are left out: messages mention these pods with their namespace
        only, and there are too many to collect for each frame.
        """
        if namespaces is None:
            namespaces = {key.partition("/")[0] for key in state.unbound}
        owners: dict[str, set[str]] = {name: {name} for name in namespaces}
        for quota in state.objects.all(ElasticQuota):
            for name in (quota.metadata.name, quota.metadata.namespace):
                owners.setdefault(name, set()).add(quota.metadata.namespace)
        return cls(
            {name: frozenset(own) for name, own in owners.items()},
            frozenset(one.metadata.name for one in state.objects.all(Reservation)),
            frozenset(state.nodes.rows),
        )

    def hide(self, name: str, scope: ViewScope) -> bool:
        """Return whether a name is outside a scope."""
        if name in self.nodes and not scope.sees_nodes:
            return True
        if scope.namespaces is None:
            return False
        return name in self.reservations or not self.owners.get(name, _NO_NAMES) <= scope.namespaces


NOTHING_PRIVATE = PrivateNames({}, _NO_NAMES, _NO_NAMES)


@dataclass(frozen=True, slots=True)
class Redactor:
    """Replaces names in texts for one reader.

    Resource names stay: their first part contains a dot, which a namespace cannot.
    """

    scope: ViewScope
    names: PrivateNames = NOTHING_PRIVATE

    @classmethod
    def of(cls, state: ClusterState, scope: ViewScope) -> "Redactor":
        """Return the redactor for a scope."""
        return cls(scope, NOTHING_PRIVATE if scope.is_everything else PrivateNames.of(state))

    def text(self, text: str) -> str:
        """Return a text with the names outside the scope replaced."""
        return text if self.scope.is_everything else _NAME.sub(self._replacement, text)

    def data(self, data: Any) -> Any:
        """Return JSON data with the names outside the scope replaced in keys and values."""
        if self.scope.is_everything:
            return data
        if isinstance(data, str):
            return self.text(data)
        if isinstance(data, Mapping):
            return {self.text(key): self.data(value) for key, value in data.items()}
        if isinstance(data, list | tuple):
            return [self.data(one) for one in data]
        return data

    def _replacement(self, match: re.Match[str]) -> str:
        name = match[0]
        if self.names.hide(name, self.scope):
            return REDACTED
        namespace, slash, _ = name.partition("/")
        is_object = bool(slash) and "." not in namespace and namespace == namespace.lower()
        if not is_object or name in _WORDS or _COUNT.fullmatch(name):
            return name
        return name if self.scope.includes_namespace(namespace) else REDACTED


def visible_pods(waiting: WaitingPods, redactor: Redactor) -> WaitingPods:
    """Return the pods in the redactor's scope, with redacted causes."""
    scope = redactor.scope
    if scope.is_everything:
        return waiting
    if scope.namespaces is not None:
        own = [namespace in scope.namespaces for namespace in waiting.namespaces.texts]
        waiting = waiting.only(np.array(own, np.bool_)[waiting.namespaces.place])
    used = set(waiting.causes.used().tolist())
    texts = enumerate(waiting.causes.texts)
    return waiting.with_causes([redactor.text(text) if n in used else "" for n, text in texts])


def visible_nodes(
    nodes: NodeColumns, totals: ClusterTotals, scope: ViewScope
) -> tuple[NodeColumns, ClusterTotals]:
    """Return the nodes and totals, or empty ones for a scope without nodes."""
    if scope.sees_nodes:
        return nodes, totals
    return NO_NODES, NO_TOTALS
