"""Background threads of the API client, with back-off and rate limit."""

import asyncio
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from socket import SHUT_RDWR, socket
from typing import Any, Final, TypeVar
from weakref import WeakSet

import numpy as np
import uvloop

from koordinator.foundation.errors import ClusterError

ResultT = TypeVar("ResultT")


_CLOSED: Final = "the handler is closed"  # how uvloop's error ends
_POLL_S: Final = 0.001
_END_S: Final = 2.0  # for all connections together; each takes one or two turns of the loop


class SocketLoop(uvloop.Loop):
    """uvloop's loop, which owns a socket from the moment that it is to connect over it."""

    def __init__(self) -> None:
        super().__init__()
        self._sockets: WeakSet[socket] = WeakSet()
        self.set_exception_handler(_report)

    async def create_connection(
        self, *args: Any, sock: socket | None = None, **options: Any
    ) -> Any:
        """Connect as asyncio does; after a failure ``sock`` is closed or about to be."""
        if sock is not None:
            self._sockets.add(sock)
        try:
            return await super().create_connection(*args, sock=sock, **options)
        except BaseException:
            # uvloop (0.23) forgets it when the other side left before TLS began; then the object
            # would at its end close a descriptor that may be another connection's by now.
            if sock is not None:
                sock.detach()
            raise

    async def end_connections(self) -> None:
        """End every connection in any state, without an answer of the other side.

        A connection that is in its TLS shutdown belongs to no session any more.  uvloop can't close
        a loop with such a connection: its callbacks fail on the closed loop (EBUSY).
        """
        deadline_s = self.time() + _END_S
        while self.time() < deadline_s:
            connected = [
                it for it in self._sockets if it.fileno() >= 0
            ]  # uvloop detaches it at the end
            if not connected:
                return
            for each in connected:
                with suppress(OSError):  # disconnected in the meantime
                    each.shutdown(SHUT_RDWR)
            await asyncio.sleep(_POLL_S)


def _report(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Report an error of a callback, unless uvloop used a connection that was closed before.

    uvloop (0.23) reads once more from a connection that is closed when its handshake is complete,
    and reads or writes when TLS ends after the connection, which has no transport then.  Of a
    transport that an error closed, ``is_closing`` is false.
    """
    transport, error = context.get("transport"), context.get("exception")
    is_lost = transport is None and "protocol" in context
    is_closed = is_lost or (transport is not None and transport.is_closing())
    is_closed |= transport is not None and str(error).endswith(_CLOSED)
    if not (is_closed and isinstance(error, RuntimeError | AttributeError)):
        loop.default_exception_handler(context)


class EventLoopThread:
    """An event loop in a daemon thread."""

    def __init__(self, name: str) -> None:
        self.loop = SocketLoop()  # an eighth less CPU per request than asyncio's own
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, ResultT]) -> ResultT:
        """Run a coroutine on the loop and wait for its result.  Raises the coroutine's error."""
        return self.wait(self.start(work))

    def wait(self, future: Future[ResultT]) -> ResultT:
        """Wait for a started coroutine.  Raises the coroutine's error."""
        try:
            return future.result()
        except CancelledError:
            raise ClusterError("the connection was closed meanwhile") from None
        except BaseException:
            future.cancel()  # an interrupted caller doesn't leave its work behind
            raise
        finally:
            del future  # its error's traceback refers to this frame

    def start(self, work: Coroutine[Any, Any, ResultT]) -> Future[ResultT]:
        """Start a coroutine on the loop.  Raises ClusterError after ``close``."""
        if self.loop.is_closed():
            work.close()
            raise ClusterError("the connection is closed")
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def call_soon(self, function: Callable[..., object], *arguments: object) -> None:
        """Schedule a function on the loop; calls run in the order of scheduling."""
        if self.loop.is_closed():
            raise ClusterError("the connection is closed")
        self.loop.call_soon_threadsafe(function, *arguments)

    @property
    def is_closed(self) -> bool:
        return self.loop.is_closed()

    def close(self, disconnect: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Cancel all tasks, disconnect, and stop the thread."""
        self.run(_end(self.loop, disconnect))
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()

    def _work(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.loop.run_forever()


async def _end(loop: SocketLoop, disconnect: Callable[[], Coroutine[Any, Any, None]]) -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for task in others:
        task.cancel()
    # Before the tasks notice: they would close their connections with a TLS farewell, for whose
    # answer no caller waits.
    await disconnect()
    await asyncio.gather(*others, return_exceptions=True)
    await loop.end_connections()
    await loop.shutdown_asyncgens()
    await loop.shutdown_default_executor()


class WorkerPool:
    """Runs ``work`` several times at once; each run ends when it finds nothing to do."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        self._work = work
        self._tasks: set[asyncio.Task[None]] = set()
        self.size = 0  # exact, unlike the number of tasks: one that has ended is there a bit longer

    def start_workers(self, wanted: int) -> None:
        """Start workers until at least the wanted number runs."""
        while self.size < wanted:
            self.size += 1
            task = asyncio.create_task(self._run())
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _run(self) -> None:
        try:
            await self._work()
        finally:
            self.size -= 1


class Backoff:
    """Delays that double from ``first_s`` up to ``last_s``, each with up to 50 % jitter on top."""

    def __init__(self, first_s: float, last_s: float, chance: np.random.Generator) -> None:
        self._first_s, self._last_s = first_s, last_s
        self._chance = chance
        self._delay_s = first_s

    def next_s(self) -> float:
        """Return the next delay in seconds."""
        delay_s = self._delay_s * (1 + self._chance.random() / 2)
        self._delay_s = min(2 * self._delay_s, self._last_s)
        return delay_s

    def reset(self) -> None:
        """Reset the delay after a success."""
        self._delay_s = self._first_s


class TokenBucket:
    """Token bucket of ``rate_per_s`` and ``burst``; a rate of None does not limit.

    Belongs to one event loop.
    """

    def __init__(self, rate_per_s: float | None, burst: int) -> None:
        self._rate_per_s = rate_per_s
        self._burst = float(burst)
        self._tokens = float(burst)
        self._counted_s: float | None = None

    async def take(self) -> None:
        """Wait for a token; callers are served in order."""
        if self._rate_per_s is None:
            return
        self._refill(self._rate_per_s)
        self._tokens -= 1
        if self._tokens < 0:
            await asyncio.sleep(-self._tokens / self._rate_per_s)

    def try_take(self) -> bool:
        """Take a token if one is available."""
        if self._rate_per_s is None:
            return True
        self._refill(self._rate_per_s)
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True

    def _refill(self, rate_per_s: float) -> None:
        now_s = asyncio.get_running_loop().time()
        if self._counted_s is not None:
            earned = (now_s - self._counted_s) * rate_per_s
            self._tokens = min(self._burst, self._tokens + earned)
        self._counted_s = now_s
