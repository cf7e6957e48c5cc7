"""Who may see what: namespaces and nodes, as far as their rights in the cluster go."""

from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from itertools import compress
from typing import Protocol

from koordinator.api.authorization import ResourceAttributes
from koordinator.foundation.clock import Clock
from koordinator.process.authorization import AuthorizationOutcome, Authorizer, Reviewer

AT_ONCE = 8  # questions to the API server about namespaces
RIGHTS_LAST_S = 45.0  # refusals less: see ``Authorizer``


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


class AccessDeniedError(Exception):
    """Somebody may not see anything; ``status`` is the HTTP status that says so."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class AccessPolicy(Protocol):
    """Says what the owner of a token may see."""

    def scope_of(self, token: str, namespaces: Iterable[str]) -> ViewScope:
        """Return what may be seen of a cluster with these namespaces.

        Raises AccessDeniedError for whoever may see nothing.  May ask an API server, and wait.
        """


class OpenAccess:
    """Everybody sees everything: for manifests, simulations, and whoever is on this machine."""

    def scope_of(self, token: str, namespaces: Iterable[str]) -> ViewScope:  # noqa: ARG002 -- nothing to ask
        return EVERYTHING


class ReviewedAccess:
    """What the API server lets the owner of a token list: pods by namespace, nodes.

    Of all namespaces ``AT_ONCE`` are asked about at a time, for all users together.
    """

    def __init__(self, reviewer: Reviewer, clock: Clock) -> None:
        """``reviewer`` is asked by several threads at once."""
        self._authorizer = Authorizer(reviewer, clock, cached_s=RIGHTS_LAST_S)
        self._at_once = ThreadPoolExecutor(AT_ONCE, "reviews-of-namespaces")

    def scope_of(self, token: str, namespaces: Iterable[str]) -> ViewScope:
        """Return the namespaces whose pods the user may list.

        Raises AccessDeniedError: 401 for a token that is no good, 403 for a user without rights,
        500 where the API server can't be asked.
        """
        sees_nodes = self._may(token, ResourceAttributes(verb="list", resource="nodes"))
        if self._may(token, ResourceAttributes(verb="list", resource="pods")):
            return ViewScope(None, sees_nodes)
        asked = sorted(set(namespaces))
        allowed = self._at_once.map(partial(self._may_list_pods, token), asked)
        own = frozenset(compress(asked, allowed))
        if not own and not sees_nodes:
            raise AccessDeniedError(403, "you may list pods in no namespace of this cluster")
        return ViewScope(own, sees_nodes)

    def _may_list_pods(self, token: str, namespace: str) -> bool:
        asked = ResourceAttributes(namespace=namespace, verb="list", resource="pods")
        return self._may(token, asked)

    def _may(self, token: str, asked: ResourceAttributes) -> bool:
        decision = self._authorizer.decide_resource(token, asked)
        if decision.outcome is AuthorizationOutcome.UNAUTHENTICATED:
            raise AccessDeniedError(401, "the token is no good, or missing")
        if decision.outcome is AuthorizationOutcome.UNKNOWN:
            raise AccessDeniedError(500, "the API server can't be asked about your rights")
        return decision.outcome is AuthorizationOutcome.ALLOWED
