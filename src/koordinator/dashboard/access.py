"""Who may see what: namespaces and nodes, as far as their rights in the cluster go."""

from collections import OrderedDict, deque
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Condition
from typing import Protocol

import msgspec

from koordinator.api.authentication import UserInfo
from koordinator.api.authorization import ResourceAttributes
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import ClusterError
from koordinator.process.authorization import Authorizer, Reviewer

AT_ONCE = 16  # questions to the API server about namespaces
PATIENCE_S = 3.0  # for them, before somebody is shown what is known by then
RIGHTS_LAST_S = 45.0
REFUSALS_LAST_S = 30.0  # at least; where asking about all namespaces takes long, longer
TIMES_AS_LONG = 20  # as it took
REFUSALS_LAST_AT_MOST_S = 600.0
MOST_USERS = 256  # whose namespaces are known


@dataclass(frozen=True, slots=True)
class ViewScope:
    """What somebody may see; ``namespaces`` None are all of them."""

    namespaces: frozenset[str] | None = None
    sees_nodes: bool = True

    @property
    def is_everything(self) -> bool:
        """Whether nothing is kept from whoever has it."""
        return self.namespaces is None and self.sees_nodes

    def sees(self, namespace: str) -> bool:
        """Whether objects of a namespace may be seen."""
        return self.namespaces is None or namespace in self.namespaces


EVERYTHING = ViewScope()


@dataclass(frozen=True, slots=True)
class ViewRights:
    """What somebody may see, as far as the API server has been asked by now."""

    scope: ViewScope
    owner: Hashable = None  # who it is; None: nobody asks
    unasked: int = 0  # namespaces that have not been asked about yet; ``scope`` may grow


EVERY_RIGHT = ViewRights(EVERYTHING)


class AccessDeniedError(Exception):
    """Somebody may not see anything; ``status`` is the HTTP status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


#: Returns the namespaces of a cluster, those first that people look for first.
NamespacesThere = Callable[[], Iterable[str]]


class AccessPolicy(Protocol):
    """Says what the owner of a token may see."""

    def rights_of(self, token: str, namespaces: NamespacesThere) -> ViewRights:
        """Return what may be seen of a cluster with these namespaces.

        Raises AccessDeniedError for whoever may see nothing.  May ask an API server, and wait.
        """


class OpenAccess:
    """Everybody sees everything: for manifests, simulations, and whoever is on this machine."""

    def rights_of(self, token: str, namespaces: NamespacesThere) -> ViewRights:  # noqa: ARG002 -- nothing to ask
        return EVERY_RIGHT


class ReviewedAccess:
    """What the API server lets the owner of a token list: pods by namespace, nodes.

    There is one question for each namespace, as the API server lists nobody else's rights.
    ``AT_ONCE`` are asked at a time, of all users in turn, so that one with thousands of namespaces
    delays nobody; who asks is told what is known after ``PATIENCE_S``, and more the next time.
    """

    def __init__(self, reviewer: Reviewer, clock: Clock) -> None:
        """``reviewer`` is asked by several threads at once."""
        self._authorizer = Authorizer(reviewer, clock, cached_s=RIGHTS_LAST_S)
        self._clock = clock
        self._asking = ThreadPoolExecutor(AT_ONCE, "reviews-of-namespaces")
        self._changed = Condition()
        self._users: OrderedDict[bytes, _UserRights] = OrderedDict()  # who came last is the last
        self._waiting: deque[_UserRights] = deque()  # users with questions, in turn
        self._askers = 0

    def rights_of(self, token: str, namespaces: NamespacesThere) -> ViewRights:
        """Return the namespaces whose pods the user may list.

        Raises AccessDeniedError: 401 for a token that is no good, 403 for a user without rights,
        503 where the API server can't be asked.
        """
        try:
            user = self._authorizer.user_of(token)
            if user is None:
                raise AccessDeniedError(401, "the token is no good, or missing")
            sees_nodes = self._may(user, "nodes")
            if self._may(user, "pods"):
                return ViewRights(ViewScope(None, sees_nodes), msgspec.json.encode(user))
        except ClusterError as error:
            raise _unknown(error) from None
        if not token and not sees_nodes:
            raise AccessDeniedError(403, "without a token you may list nothing in this cluster")
        known = self._user(user)
        own, unasked, problem = self._namespaces(known, list(dict.fromkeys(namespaces())))
        if not own and not sees_nodes and not unasked:
            if problem is not None:
                raise _unknown(problem)
            raise AccessDeniedError(403, "you may list pods in no namespace of this cluster")
        return ViewRights(ViewScope(own, sees_nodes), known.key, unasked)

    def _may(self, user: UserInfo, resource: str) -> bool:
        return self._authorizer.permits(user, ResourceAttributes(verb="list", resource=resource))

    def _user(self, user: UserInfo) -> "_UserRights":
        key = msgspec.json.encode(user)
        with self._changed:
            known = self._users.get(key)
            if known is None:
                known = self._users[key] = _UserRights(key, user)
                if len(self._users) > MOST_USERS:
                    self._users.popitem(last=False)
            self._users.move_to_end(key)
            return known

    def _namespaces(
        self, known: "_UserRights", namespaces: Sequence[str]
    ) -> tuple[frozenset[str], int, ClusterError | None]:
        """Return those that are known to be the user's, how many aren't asked about, and why."""
        began_s = self._clock.now_s()
        with self._changed:
            known.forget_others(namespaces)
            if known.expect(namespaces, began_s):
                self._waiting.append(known)
            while self._askers < min(AT_ONCE, sum(len(one.questions) for one in self._waiting)):
                self._askers += 1
                self._asking.submit(self._ask)
            self._changed.wait_for(lambda: not known.needed, known.patience_s(began_s))
            now_s = self._clock.now_s()
            own = frozenset(n for n in namespaces if known.allowed_until_s.get(n, 0.0) > now_s)
            return own, len(known.needed), known.problem

    def _ask(self) -> None:
        """Put questions, of each user in turn, until there are none."""
        while True:
            with self._changed:
                if not self._waiting:
                    self._askers -= 1
                    return
                user = self._waiting.popleft()
                namespace = user.questions.popleft()
                if user.questions:
                    self._waiting.append(user)
            asked = ResourceAttributes(namespace=namespace, verb="list", resource="pods")
            allowed: bool | ClusterError
            try:
                allowed = self._authorizer.permits(user.info, asked, anew=True)
            except ClusterError as error:
                allowed = error
            except Exception as error:  # noqa: BLE001 -- must not end the asking for everybody
                allowed = ClusterError(str(error))
            with self._changed:
                user.learn(namespace, allowed, self._clock.now_s())
                if not user.needed:
                    self._changed.notify_all()


class _UserRights:
    """What is known of the namespaces of one user; guarded by who has it."""

    def __init__(self, key: bytes, info: UserInfo) -> None:
        self.key, self.info = key, info
        self.questions: deque[str] = deque()
        self.needed: set[str] = set()  # of which nothing is known, or not any more
        self.allowed_until_s: dict[str, float] = {}
        self.problem: ClusterError | None = None
        self._asked: set[str] = set()  # questions that are under way, or wait
        self._refused_at_s: dict[str, float] = {}
        self._refresh_s: dict[str, float] = {}  # from when on what is allowed is asked again
        self._began_s = 0.0
        self._refusals_last_s = REFUSALS_LAST_S

    def expect(self, namespaces: Iterable[str], now_s: float) -> bool:
        """Note what has to be asked; return whether there are questions and were none before."""
        had = bool(self.questions)
        if not self._asked:
            self._began_s, self.problem = now_s, None
        # What was allowed before is likely to be so again, and a service account's own namespace.
        first: list[str] = []
        then: list[str] = []
        home = _home(self.info)
        for name in namespaces:
            until_s = self.allowed_until_s.get(name, 0.0)
            refused_s = self._refused_at_s.get(name)
            if until_s > now_s and self._refresh_s[name] > now_s:
                continue
            if refused_s is not None and now_s < refused_s + self._refusals_last_s:
                continue
            if until_s <= now_s:
                self.needed.add(name)
            if name not in self._asked:
                (first if until_s or name == home else then).append(name)
        self._asked.update(first, then)
        self.questions.extendleft(reversed(first))
        self.questions.extend(then)
        return bool(self.questions) and not had

    def patience_s(self, now_s: float) -> float:
        """Return how long to wait for what is needed: not anew with every request."""
        return max(self._began_s + PATIENCE_S - now_s, 0.0)

    def learn(self, namespace: str, allowed: "bool | ClusterError", now_s: float) -> None:
        """Take in an answer."""
        self._asked.discard(namespace)
        self.needed.discard(namespace)
        if isinstance(allowed, ClusterError):
            self.problem = allowed  # what was allowed counts as long as it does
        elif allowed:
            self.allowed_until_s[namespace] = now_s + RIGHTS_LAST_S
            self._refresh_s[namespace] = now_s + RIGHTS_LAST_S / 2
            self._refused_at_s.pop(namespace, None)
        else:
            self.allowed_until_s.pop(namespace, None)
            self._refused_at_s[namespace] = now_s
        if not self._asked:
            took_s = now_s - self._began_s
            self._refusals_last_s = min(
                max(REFUSALS_LAST_S, TIMES_AS_LONG * took_s), REFUSALS_LAST_AT_MOST_S
            )

    def forget_others(self, namespaces: Sequence[str]) -> None:
        """Forget namespaces that are there no more."""
        if len(self._refused_at_s) + len(self.allowed_until_s) > 2 * len(namespaces) + 64:
            there = set(namespaces)
            for known in (self._refused_at_s, self.allowed_until_s, self._refresh_s):
                for name in known.keys() - there:
                    del known[name]


def _home(user: UserInfo) -> str:
    """Return the namespace of a service account; empty for others."""
    prefix, _, rest = user.username.partition("system:serviceaccount:")
    return "" if prefix else rest.partition(":")[0]


def _unknown(error: ClusterError) -> AccessDeniedError:
    text = f"the API server can't be asked about your rights: {error}"
    return AccessDeniedError(503, text)
