"""Proxy between a client and the API server with faults that a test configures.

What no rule is about is passed on as it is, watches line by line.  The client speaks plain HTTP and
needs no credentials: to the API server everything comes from the admin.
"""

import asyncio
import json
import re
import threading
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import aiohttp
from aiohttp import web
from tests.e2e.controlplane import ControlPlane, kubeconfig
from tests.e2e.controlplane.endpoint import Endpoint, free_port
from tests.e2e.waiting import eventually
from yarl import URL

Manifest = dict[str, Any]
Change = Callable[[Manifest], Manifest]

WATCH = r"[?&]watch=true"
BIND = r"/binding\?"

_LONGEST_EVENT_BYTES = 16 << 20
_LARGEST_BODY_BYTES = 16 << 20
_HANDED_BACK = ("Content-Type", "Retry-After", "Audit-Id")


@dataclass(slots=True, eq=False)
class Call:
    """A request that came in.  ``at_s`` and ``answered_s`` are times of one monotonic clock.

    ``status`` is the status of the answer, 0 until there is one.
    """

    method: str
    path: str  # with its query
    body: bytes
    at_s: float
    status: int = 0
    answered_s: float = 0.0

    @property
    def manifest(self) -> Manifest:
        """The object that was sent."""
        sent: Manifest = json.loads(self.body)
        return sent


Play = Callable[[web.Request, Call], Awaitable[web.StreamResponse]]


@dataclass(slots=True, eq=False)
class Rule:
    """Replacement for the answer to requests of a method with a matching path.

    The first rule that matches applies, ``times`` times; None is until ``end``, which is also the
    end of ``with``.  ``calls`` are the requests that matched.
    """

    method: str
    pattern: re.Pattern[str]
    play: Play
    times: int | None
    loop: asyncio.AbstractEventLoop
    calls: list[Call] = field(default_factory=list)
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.end()

    def fits(self, call: Call) -> bool:
        """Whether a request is to be played with; for the loop."""
        return (
            not self.ended.is_set()
            and self.times != len(self.calls)
            and self.method == call.method
            and self.pattern.search(call.path) is not None
        )

    def end(self) -> None:
        """Play no more; what is held goes on."""
        self.loop.call_soon_threadsafe(self.ended.set)

    def wait_for_call(self, count: int = 1) -> Call:
        """Wait for so many requests and return the last of them."""
        eventually(lambda: len(self.calls) >= count)
        return self.calls[count - 1]


class Interposer:
    """Runs in a thread of its own from ``start`` to ``stop``."""

    def __init__(self, api: Endpoint) -> None:
        self.endpoint = Endpoint(free_port())
        self.calls: list[Call] = []
        self._api = api
        self._rules: list[Rule] = []
        self._changes: list[tuple[re.Pattern[str], Change]] = []
        self._streams: dict[Call, web.Request] = {}
        self._stalls: list[tuple[re.Pattern[str], asyncio.Event]] = []
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="interposer")

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        self._run(self._open())

    def stop(self) -> None:
        """Break off everything that is under way."""
        self._run(self._close())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def kubeconfig(self, controlplane: ControlPlane) -> Path:
        """Write and return the path of a kubeconfig that leads here."""
        path = controlplane.state_dir / f"interposer-{self.endpoint.port}.kubeconfig"
        return kubeconfig.write(path, self.endpoint.url, controlplane.authority.ca_path, {})

    # ---- what goes wrong

    def hold(self, method: str, path: str, times: int | None = None) -> Rule:
        """Keep requests until the rule ends; then the rules after it are looked at.

        Those whose client gave up are never passed on.
        """

        async def play(request: web.Request, call: Call) -> web.StreamResponse:
            await rule.ended.wait()
            return await self._go_on(request, call, self._rules[self._rules.index(rule) + 1 :])

        rule = self._add(method, path, play, times)
        return rule

    def hold_answer(
        self, method: str, path: str, status: int, body: Manifest, times: int | None = 1
    ) -> Rule:
        """Forward the request; when the rule ends, send another answer."""

        async def play(request: web.Request, call: Call) -> web.StreamResponse:
            await self._pass_on(request, call)
            await rule.ended.wait()
            return web.json_response(body, status=status)

        rule = self._add(method, path, play, times)
        return rule

    def answer(
        self,
        method: str,
        path: str,
        status: int,
        body: Manifest | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        times: int | None = 1,
    ) -> Rule:
        """Answer requests here; the API server doesn't see them."""

        async def play(_request: web.Request, _call: Call) -> web.StreamResponse:
            return web.json_response(body or {}, status=status, headers=headers)

        return self._add(method, path, play, times)

    def drop(self, method: str, path: str, times: int | None = 1) -> Rule:
        """Break the connection; the API server doesn't see the request."""

        async def play(request: web.Request, _call: Call) -> web.StreamResponse:
            return _hang_up(request)

        return self._add(method, path, play, times)

    def lose_answer(self, method: str, path: str, times: int | None = 1) -> Rule:
        """Break the connection when the API server has done what was asked."""

        async def play(request: web.Request, call: Call) -> web.StreamResponse:
            await self._pass_on(request, call)
            return _hang_up(request)

        return self._add(method, path, play, times)

    def change(self, path: str, change: Change) -> Callable[[], None]:
        """Change every object in the lists and watches of a path; return what ends it."""
        entry = (re.compile(path), change)
        self._changes = [*self._changes, entry]

        def end() -> None:
            self._changes = [it for it in self._changes if it is not entry]

        return end

    def cut_streams(self, path: str = "") -> int:
        """Break the watches that are open; return how many."""

        async def cut() -> int:
            met = [it for call, it in self._streams.items() if re.search(path, call.path)]
            for request in met:
                _hang_up(request)
            return len(met)

        return self._run(cut())

    def stall_streams(self, path: str = "") -> Callable[[], None]:
        """Hold events of watches; return a function that releases them."""
        stall = re.compile(path), asyncio.Event()
        self._stalls = [*self._stalls, stall]

        def end() -> None:
            self._loop.call_soon_threadsafe(stall[1].set)

        return end

    # ---- what came

    def calls_of(self, method: str, path: str) -> list[Call]:
        """Return the requests so far, oldest first."""
        return [it for it in self.calls if it.method == method and re.search(path, it.path)]

    def lists(self) -> list[Call]:
        """Return the lists so far of whatever kind."""
        whole = r"^/(api/v1|apis/[^/]+/[^/]+)/[a-z]+(\?|$)"
        return [it for it in self.calls_of("GET", whole) if not re.search(WATCH, it.path)]

    # ---- on the loop

    def _run(self, work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(30)

    async def _open(self) -> None:
        self._connector = aiohttp.TCPConnector(ssl=self._api.tls or False, limit=0)
        self._session = aiohttp.ClientSession(
            headers={"Authorization": f"Bearer {self._api.token}"},
            connector=self._connector,
            timeout=aiohttp.ClientTimeout(total=None),
            read_bufsize=_LONGEST_EVENT_BYTES,
        )
        app = web.Application(client_max_size=_LARGEST_BODY_BYTES)
        app.router.add_route("*", "/{path:.*}", self._handle)
        # A client that disconnects cancels its request.
        self._runner = web.AppRunner(
            app, access_log=None, handler_cancellation=True, shutdown_timeout=0.1
        )
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", self.endpoint.port).start()

    async def _close(self) -> None:
        for rule in self._rules:
            rule.ended.set()
        for request in list(self._streams.values()):
            _hang_up(request)
        await self._runner.cleanup()
        await self._connector.close(abort_ssl=True)
        await self._session.close()

    def _add(self, method: str, path: str, play: Play, times: int | None) -> Rule:
        rule = Rule(method, re.compile(path), play, times, self._loop)
        self._rules = [*self._rules, rule]
        return rule

    async def _handle(self, request: web.Request) -> web.StreamResponse:
        body = await request.read()
        call = Call(request.method, request.path_qs, body, self._loop.time())
        self.calls.append(call)
        answer = await self._go_on(request, call, self._rules)
        call.status, call.answered_s = answer.status, self._loop.time()
        return answer

    async def _go_on(
        self, request: web.Request, call: Call, rules: Sequence[Rule]
    ) -> web.StreamResponse:
        for rule in rules:
            if rule.fits(call):
                rule.calls.append(call)
                return await rule.play(request, call)
        return await self._pass_on(request, call)

    async def _pass_on(self, request: web.Request, call: Call) -> web.StreamResponse:
        url = URL(self._api.url + call.path, encoded=True)
        headers = {it: request.headers[it] for it in ("Accept", "Content-Type", "User-Agent")
                   if it in request.headers}  # fmt: skip
        try:
            async with self._session.request(
                call.method, url, data=call.body or None, headers=headers
            ) as answer:
                if re.search(WATCH, call.path) and answer.status == web.HTTPOk.status_code:
                    return await self._stream(request, call, answer)
                content = await answer.read()
        except (aiohttp.ClientError, OSError):
            return _hang_up(request)
        handed_back = {it: answer.headers[it] for it in _HANDED_BACK if it in answer.headers}
        return web.Response(
            status=answer.status, headers=handed_back, body=self._changed_list(call, content)
        )

    async def _stream(
        self, request: web.Request, call: Call, answer: aiohttp.ClientResponse
    ) -> web.StreamResponse:
        passed_on = web.StreamResponse(headers={"Content-Type": "application/json"})
        call.status = answer.status
        self._streams[call] = request
        try:
            await passed_on.prepare(request)
            async for line in answer.content:
                for stalled, goes_on in self._stalls:
                    if stalled.search(call.path):
                        await goes_on.wait()
                await passed_on.write(self._changed_line(call, line))
        except (aiohttp.ClientError, OSError):
            _hang_up(request)
        finally:
            del self._streams[call]
            if answer.connection is not None and answer.connection.transport is not None:
                answer.connection.transport.abort()  # a farewell would have to be waited for
        return passed_on

    def _changes_for(self, call: Call) -> list[Change]:
        return [change for path, change in self._changes if path.search(call.path)]

    def _changed_list(self, call: Call, content: bytes) -> bytes:
        changes = self._changes_for(call)
        if not changes or call.method != "GET" or b'"items":' not in content:
            return content
        listed = json.loads(content)
        for change in changes:
            listed["items"] = [change(it) for it in listed["items"]]
        return json.dumps(listed).encode()

    def _changed_line(self, call: Call, line: bytes) -> bytes:
        changes = self._changes_for(call)
        if not changes:
            return line
        event = json.loads(line)
        if event["type"] in ("ADDED", "MODIFIED", "DELETED"):
            for change in changes:
                event["object"] = change(event["object"])
        # As Go does it, since clients may look for it at the beginning of the line.
        return json.dumps(event, separators=(",", ":")).encode() + b"\n"


def _hang_up(request: web.Request) -> web.StreamResponse:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=499)  # for the record: the client has left
