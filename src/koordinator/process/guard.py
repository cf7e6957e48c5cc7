"""Guard of endpoints, and the queue of reviews.

Source: k8s.io/apiserver pkg/endpoints/filters/{authentication,authorization}.go.
"""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from threading import Lock
from typing import Final, TypeVar

import msgspec
from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse, Response
from starlette.types import ASGIApp, Receive, Scope, Send

from koordinator.process.authorization import AuthorizationOutcome, Authorizer, Decision
from koordinator.process.connections import CONNECTION, ConnectionState

ResultT = TypeVar("ResultT")

MOST_WAITING: Final = 8
_OPEN: Final = ConnectionState()

#: The answer to a request that can't wait.
BUSY: Final = PlainTextResponse(
    "too many requests of this client wait for authorization\n", 503, headers={"retry-after": "1"}
)

_STATUS = {
    AuthorizationOutcome.UNAUTHENTICATED: (401, "Unauthorized"),
    AuthorizationOutcome.FORBIDDEN: (403, "Forbidden"),
}


class QueueFullError(Exception):
    """A client has too many requests in the queue already."""


class ReviewQueue:
    """Fair queue of admission reviews: ``at_once`` run in threads, the others wait.

    At most ``most_waiting`` reviews of one client wait.  Clients take turns, since a review may
    wait for the API server.  Reviews whose connection is closed are dropped.  Thread-safe.
    """

    def __init__(
        self, threads: Executor, *, at_once: int = 1, most_waiting: int = MOST_WAITING
    ) -> None:
        self._threads = threads
        self._free, self._most_waiting = at_once, most_waiting
        self._lock = Lock()
        self._waiting: OrderedDict[Hashable, deque[Future[None]]] = OrderedDict()  # next is first

    async def decide(
        self, scope: Scope, review: Callable[[], ResultT], client: Hashable = None
    ) -> ResultT | None:
        """Return what ``review`` does; None if the connection was lost before its turn.

        ``client`` is who waits, unless it is the address that the request comes from.
        Raises QueueFullError.
        """
        turn = self._turn(client or (scope.get("client") or ("",))[0])
        try:
            await asyncio.wrap_future(turn)
        except asyncio.CancelledError:
            if not turn.cancelled():  # it had its turn just then
                self._next()
            raise
        try:
            if connection_of(scope).is_lost:
                return None
            return await asyncio.get_running_loop().run_in_executor(self._threads, review)
        finally:
            self._next()

    def _turn(self, client: Hashable) -> Future[None]:
        turn: Future[None] = Future()
        with self._lock:
            if self._free:
                self._free -= 1
                turn.set_result(None)
                return turn
            waiting = self._waiting.setdefault(client, deque())
            if len(waiting) >= self._most_waiting:
                raise QueueFullError
            waiting.append(turn)
        return turn

    def _next(self) -> None:
        """Give the turn to the next client; cancelled requests have left the queue."""
        with self._lock:
            while self._waiting:
                client, waiting = self._waiting.popitem(last=False)
                turn = waiting.popleft()
                if waiting:
                    self._waiting[client] = waiting
                if turn.set_running_or_notify_cancel():
                    turn.set_result(None)
                    return
            self._free += 1


def connection_of(scope: Scope) -> ConnectionState:
    """Return the state of the connection that a request came on."""
    state: ConnectionState = scope.get("extensions", {}).get(CONNECTION, {}).get("state", _OPEN)
    return state


class Guard:
    """An ASGI application in front of another.  The authorizer gets a thread of its own.

    So a slow API server delays those who must be authorized, but no health probe; and a client that
    sends many requests delays itself (``ReviewQueue``).
    """

    def __init__(self, app: ASGIApp, authorizer: Authorizer) -> None:
        self._app = app
        self._authorizer = authorizer
        self._thread = ThreadPoolExecutor(1, "authorization")
        self._queue = ReviewQueue(self._thread)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        if path not in self._authorizer.always_allowed:
            token = bearer_token(Headers(scope=scope).get("authorization", ""))
            verb = scope["method"].lower()

            def review() -> Decision:
                return self._authorizer.decide(token, verb, path)

            if not await is_allowed(self._queue, review, scope, receive, send):
                return
        await self._app(scope, receive, send)


async def is_allowed(
    queue: ReviewQueue,
    review: Callable[[], Decision],
    scope: Scope,
    receive: Receive,
    send: Send,
    *,
    client: Hashable = None,
) -> bool:
    """Return whether the review allows a request; answer the request if it does not."""
    try:
        decision = await queue.decide(scope, review, client)
    except QueueFullError:
        await BUSY(scope, receive, send)
        return False
    if decision is None:  # the connection was lost
        return False
    if decision.outcome is not AuthorizationOutcome.ALLOWED:
        await refusal_response(decision)(scope, receive, send)
        return False
    return True


def bearer_token(authorization: str) -> str:
    """Return the token of an Authorization header; empty if it has none."""
    scheme, _, rest = authorization.strip().partition(" ")
    return rest.partition(" ")[0] if scheme.lower() == "bearer" else ""


def refusal_response(decision: Decision) -> Response:
    """Return the response to a request that is not allowed."""
    if decision.outcome is AuthorizationOutcome.UNKNOWN:
        return PlainTextResponse(f"{decision.message}\n", 500)
    code, reason = _STATUS[decision.outcome]
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": decision.message,
        "reason": reason,
        "code": code,
    }
    return Response(msgspec.json.encode(body), code, media_type="application/json")
