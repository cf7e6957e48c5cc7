"""An API server with scripted answers, for faults that a real one doesn't show."""

import asyncio
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from aiohttp import web
from yarl import URL

from koordinator.api.meta import JsonObject
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.cluster.kubernetes.connection import ApiServer, Connection, Identity
from koordinator.cluster.kubernetes.credentials import Credentials
from koordinator.foundation.clock import VirtualClock

PATIENCE_S = 60.0  # real time, never used up if the code is right
NOW_S = 1_700_000_000.0

Answer = Callable[[web.Request], Awaitable[web.StreamResponse]]


@dataclass(frozen=True, slots=True)
class Received:
    """A request as it arrived."""

    verb: str
    path: str
    query: dict[str, str]
    body: bytes
    headers: dict[str, str]

    def __str__(self) -> str:
        return f"{'WATCH' if 'watch' in self.query else self.verb} {self.path}"


class ScriptedServer:
    """Answers requests by ``VERB /path``: the answers in order, the last one for ever.

    The verb of a watch is WATCH. What is not in the script is answered with 404.
    """

    def __init__(self) -> None:
        self.received: list[Received] = []
        self.url = ""
        self._script: dict[str, list[Answer]] = {}
        self._arrived = threading.Condition()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._runner = web.AppRunner(
            self._application(), shutdown_timeout=0, handler_cancellation=True, access_log=None
        )

    def __enter__(self) -> Self:
        """Listen."""
        self._thread.start()
        self._run(self._listen())
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Stop."""
        self._run(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def on(self, request: str, *answers: Answer) -> None:
        """Set the answers to a request."""
        self._script[request] = list(answers)

    def count(self, request: str) -> int:
        """Return how often a request has come."""
        return sum(str(received) == request for received in self.received)

    def queries(self, request: str) -> list[dict[str, str]]:
        """Return the parameters of a request, each time it came."""
        return [received.query for received in self.received if str(received) == request]

    def wait_for(self, request: str, count: int = 1) -> None:
        """Wait until a request has come so often."""
        with self._arrived:
            assert self._arrived.wait_for(lambda: self.count(request) >= count, PATIENCE_S), [
                str(received) for received in self.received
            ]

    def go_away(self) -> None:
        """Break all connections and refuse new ones."""
        self._run(self._leave())

    def come_back(self) -> None:
        """Listen on the old port again."""
        self._run(self._listen_at(URL(self.url).port or 0))

    def cluster(self, **options: Any) -> KubernetesCluster:
        """Return a client of this server."""
        return client(self.url, **options)

    def _run(self, work: Any) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_S)

    async def _listen(self) -> None:
        await self._runner.setup()
        await self._listen_at(0)
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _listen_at(self, port: int) -> None:
        self._site = web.TCPSite(self._runner, "127.0.0.1", port)
        await self._site.start()

    async def _end(self) -> None:
        await self._stop_listening()
        await self._runner.cleanup()
        await _run_callbacks()

    async def _stop_listening(self) -> None:
        """Stop listening while no connection is being accepted: asyncio never closes such a one."""
        await _run_callbacks()
        await self._site.stop()

    async def _leave(self) -> None:
        await self._stop_listening()
        assert self._runner.server is not None
        for connection in self._runner.server.connections:
            if connection.transport is not None:
                connection.transport.abort()

    def _application(self) -> web.Application:
        application = web.Application(client_max_size=1 << 24)
        application.router.add_route("*", "/{anything:.*}", self._answer)
        return application

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        received = Received(
            request.method,
            request.path,
            dict(request.query),
            await request.read(),
            dict(request.headers),
        )
        answers = self._script.get(str(received), [not_found])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        with self._arrived:
            self.received.append(received)
            self._arrived.notify_all()
        return await answer(request)


async def _run_callbacks() -> None:
    """Run what the event loop has scheduled: it opens and closes transports in several steps."""
    for _ in range(5):
        await asyncio.sleep(0)


def eventually(holds: Callable[[], bool]) -> bool:
    """Return whether a condition comes true; for effects that follow an answer of the server."""
    ends_at = time.monotonic() + PATIENCE_S
    while not holds():
        if time.monotonic() > ends_at:
            return False
        time.sleep(0.005)
    return True


def client(url: str, proxy_url: str = "", **options: Any) -> KubernetesCluster:
    """Return a client of a server."""
    clock = VirtualClock(NOW_S)
    connection = Connection(ApiServer(url, proxy_url=proxy_url), Identity(), source="the test")
    return KubernetesCluster(Credentials(connection, clock, {}), clock, **options)


def reply(body: JsonObject | str, code: int = 200, **headers: str) -> Answer:
    """Answer with JSON, or its text; ``retry_after`` becomes the header Retry-After."""
    named = {key.replace("_", "-"): value for key, value in headers.items()}

    async def answer(_: web.Request) -> web.StreamResponse:
        if isinstance(body, str):
            return web.json_response(text=body, status=code, headers=named)
        return web.json_response(body, status=code, headers=named)

    return answer


def fail(code: int, reason: str = "", message: str = "no", **headers: str) -> Answer:
    """Answer with a Status object."""
    body = {"kind": "Status", "reason": reason, "message": message, "code": code}
    return reply(body, code, **headers)


not_found = fail(HTTPStatus.NOT_FOUND, "NotFound", "not here")


async def hang_up(request: web.Request) -> web.StreamResponse:
    """Close the connection without an answer."""
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def stream(*lines: bytes, then_wait: bool = True) -> Answer:
    """Answer with the events of a watch, then be silent or end the stream."""

    async def answer(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for line in lines:
            await response.write(line + b"\n")
        if then_wait:
            await asyncio.sleep(PATIENCE_S)
        return response

    return answer


def write_kubeconfig(path: Path, url: str, user: str = "token: t") -> Path:
    """Write a kubeconfig of one cluster and one user, given in YAML."""
    path.write_text(
        "current-context: c\n"
        f"clusters: [{{name: c, cluster: {{server: '{url}'}}}}]\n"
        f"users: [{{name: u, user: {{{user}}}}}]\n"
        "contexts: [{name: c, context: {cluster: c, user: u}}]\n"
    )
    return path
