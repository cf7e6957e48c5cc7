"""Requests that wait to be authorized: a few at a time are reviewed, of each client in turn."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Executor, Future
from threading import Lock
from typing import Final, TypeVar

from starlette.responses import PlainTextResponse
from starlette.types import Scope

from koordinator.process.connections import CONNECTION, ConnectionState

ResultT = TypeVar("ResultT")

MOST_WAITING: Final = 8
_OPEN: Final = ConnectionState()

#: The answer to a request that can't wait.
BUSY: Final = PlainTextResponse(
    "too many requests of this client wait for authorization\n", 503, headers={"retry-after": "1"}
)


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
