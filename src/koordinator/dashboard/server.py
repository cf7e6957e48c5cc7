"""The dashboard over HTTP: one page, what it asks, and a stream of what changes.

The page is ours alone: nothing but our own files may run in it (Content-Security-Policy), texts of
the cluster reach it as JSON.  Nothing here writes to a cluster.
"""

import asyncio
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.resources import files
from typing import Any, TypeVar, cast

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from koordinator.api.kubescheduler import KubeSchedulerConfiguration, decode_configuration
from koordinator.api.meta import KubeObject
from koordinator.dashboard import queries
from koordinator.dashboard.access import (
    EVERY_RIGHT,
    RIGHTS_LAST_S,
    AccessDeniedError,
    AccessPolicy,
    OpenAccess,
    ViewRights,
    ViewScope,
)
from koordinator.dashboard.answers import AnswerCache
from koordinator.dashboard.attention import attention
from koordinator.dashboard.broadcast import OverviewReader
from koordinator.dashboard.changes import MOST_MARKS
from koordinator.dashboard.decisions import (
    MOST_REMEMBERED,
    DecisionArchive,
    DecisionQuestion,
    decisions,
    nothing_kept,
)
from koordinator.dashboard.feed import Feed
from koordinator.dashboard.move_planner import MovePlanner, unfollowed_objects
from koordinator.dashboard.node_details import node_details
from koordinator.dashboard.redaction import Redactor
from koordinator.dashboard.sources import (
    ReportedSource,
    SourceControl,
    SourceKind,
    TimelineMark,
)
from koordinator.dashboard.whatif import (
    QuotaGrant,
    changed_objects,
    expected_start,
    what_if,
    with_grants,
)
from koordinator.domain.audit import AuditChoice, AuditEntry
from koordinator.foundation.clock import Clock
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import ClusterError, InputError, NotFoundError
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.process.guard import bearer_token
from koordinator.process.review_queue import QueueFullError, ReviewQueue
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.simulator.device_bars import MOST_LANES
from koordinator.simulator.limited_descheduler import owned_by_jobs

#: A stream ends so that rights are looked at again, and before a connection has had its time.
STREAM_LASTS_S = RIGHTS_LAST_S
KEEP_ALIVE_S = 10.0
LONGEST_BODY_BYTES = 4 << 20
OTHER = "other"  # the run that is compared with
#: While rights are still being asked about, so that who has more of them soon sees more.
STREAM_OF_SOME_RIGHTS_LASTS_S = 2.0
USERS_AT_ONCE = 32  # who may wait for what the API server says about their rights
USERS_WAITING = 32  # beside them, of one address, which may be that of a proxy

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_MOST_DIGITS = 9
_FILES = ("index.html", "dashboard.js", "dashboard.css")

ReportT = TypeVar("ReportT")

#: Turns the manifests that a reader wrote into objects.  Raises InputError.
ManifestReader = Callable[[str], Sequence[KubeObject]]


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """The same run with another configuration, which ``title`` names."""

    title: str
    feed: Feed


class _WhatIfRequest(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    manifests: str = ""
    remove: list[str] = []
    configuration: str = ""
    grants: list[QuotaGrant] = []


class _PlanRequest(msgspec.Struct, forbid_unknown_fields=True):
    policy: str


def dashboard_application(
    feed: Feed,
    read_manifests: ManifestReader,
    clock: Clock,
    policy: AccessPolicy | None = None,
    *,
    hosts: Sequence[str] = (),
    other: ComparedRun | None = None,
    archive: DecisionArchive | None = None,
    planner: MovePlanner | None = None,
) -> Starlette:
    """Return the ASGI application.

    ``other`` goes at the same pace, to be compared with over time.  ``archive`` has the decisions
    of the scheduler that counts; None: those of the source's own are shown, if it decides.
    ``planner`` plans what a descheduler would move; None: nobody can.

    ``hosts`` are the names by which it may be called, any if there are none: a page of somebody
    else that has its own name point to this machine gets nothing.
    """
    pages = _Pages(
        feed,
        read_manifests,
        clock,
        policy or OpenAccess(),
        other=other,
        archive=archive,
        planner=planner,
    )
    routes = [
        Route("/", _static("index.html")),
        *(Route(f"/{name}", _static(name)) for name in _FILES[1:]),
        Route("/healthz", _healthy),
        Route("/api/events", pages.events),
        Route("/api/pod", pages.get(pages.pod)),
        Route("/api/waiting", pages.get(pages.waiting)),
        Route("/api/node", pages.get(pages.node)),
        Route("/api/quotas", pages.get(pages.quotas)),
        Route("/api/gangs", pages.get(pages.gangs)),
        Route("/api/attention", pages.get(pages.attention)),
        Route("/api/timeline", pages.get(pages.timeline)),
        Route("/api/devices", pages.get(pages.devices)),
        Route("/api/decisions", pages.get(pages.decisions)),
        Route("/api/find", pages.get(pages.find)),
        Route("/api/queue", pages.get(pages.queue)),
        Route("/api/control", pages.control, methods=["POST"]),
        Route("/api/start", pages.get(pages.start)),
        Route("/api/try", pages.what_if, methods=["POST"]),
        Route("/api/report", pages.get(pages.report)),
        Route("/api/policy", pages.get(pages.policy)),
        Route("/api/plan", pages.plan, methods=["POST"]),
    ]
    return Starlette(
        routes=routes,
        middleware=[Middleware(_Headers, hosts=tuple(hosts))],
        exception_handlers={
            NotFoundError: _problem(404),
            InputError: _problem(400),
            TimeoutError: _problem(503),
            ClusterError: _problem(502),
            AccessDeniedError: _denied,
        },
        max_body_size=LONGEST_BODY_BYTES,
    )


class _Headers:
    """Says with every answer what a browser may do with it, and turns away other hosts' names."""

    def __init__(self, app: ASGIApp, hosts: tuple[str, ...]) -> None:
        self._app, self._hosts = app, hosts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers["content-security-policy"] = _POLICY
                headers["referrer-policy"] = "no-referrer"
                headers["cross-origin-resource-policy"] = "same-origin"
            await send(message)

        if self._hosts and Request(scope).url.hostname not in self._hosts:
            refusal = PlainTextResponse("this is not called so\n", 421)
            await refusal(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


class _EventStream(Response):
    """Sends a reader its frames until it leaves, or rights have to be looked at again.

    As little as can be for each frame, since there may be very many readers.
    """

    media_type = "text/event-stream"

    def __init__(
        self, reader: OverviewReader, first: bytes, lasts_s: float, close: Callable[[], None]
    ) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._reader, self._first, self._lasts_s, self._close = reader, first, lasts_s, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 -- ASGI
        reader, loop = self._reader, asyncio.get_running_loop()
        until_s = loop.time() + self._lasts_s

        async def leave_with_client() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            reader.leave()

        leaving = loop.create_task(leave_with_client())
        try:
            head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(head)
            frame: bytes | None = self._first
            while not reader.is_gone:
                body = _KEEP_ALIVE if frame is None else frame
                await send({"type": "http.response.body", "body": body, "more_body": True})
                if (left_s := until_s - loop.time()) <= 0:
                    break
                frame = await reader.next(min(KEEP_ALIVE_S, left_s))
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._close()
            leaving.cancel()


_KEEP_ALIVE = b":\n\n"


class _Pages:
    def __init__(
        self,
        feed: Feed,
        read_manifests: ManifestReader,
        clock: Clock,
        policy: AccessPolicy,
        *,
        other: ComparedRun | None,
        archive: DecisionArchive | None,
        planner: MovePlanner | None,
    ) -> None:
        self._feed, self._read_manifests, self._clock = feed, read_manifests, clock
        self._other, self._archive, self._planner = other, archive, planner
        self._policy = policy
        self._reviews = ReviewQueue(
            ThreadPoolExecutor(USERS_AT_ONCE, "reviews"),
            at_once=USERS_AT_ONCE,
            most_waiting=USERS_WAITING,
        )
        self._answers = AnswerCache(clock)
        self._trying = threading.Lock()

    # -- rights ------------------------------------------------------------------------------

    async def _rights(self, request: Request) -> ViewRights:
        if isinstance(self._policy, OpenAccess):
            return EVERY_RIGHT
        token = bearer_token(request.headers.get("authorization", ""))
        try:
            rights = await self._reviews.decide(
                request.scope, lambda: self._policy.rights_of(token, self._known_namespaces)
            )
        except QueueFullError:
            raise AccessDeniedError(503, "too many of your requests wait for a review") from None
        if rights is None:
            raise AccessDeniedError(503, "the connection was lost")  # seen by none
        return rights

    async def _scope(self, request: Request) -> ViewScope:
        return (await self._rights(request)).scope

    def _known_namespaces(self) -> Sequence[str]:
        found = self._answers.get("namespaces", lambda: self._feed.ask(_namespaces_of))
        return cast(Sequence[str], found)

    # -- the stream --------------------------------------------------------------------------

    async def events(self, request: Request) -> Response:
        rights = await self._rights(request)
        reader = self._feed.broadcast.open(rights.scope, rights.owner)
        if reader is None:
            text = "there are too many readers, or you have this page open too often\n"
            return PlainTextResponse(text, 503)
        lasts_s = STREAM_OF_SOME_RIGHTS_LASTS_S if rights.unasked else STREAM_LASTS_S
        first = b"retry: 500\n\n"
        if rights.unasked:
            told = msgspec.json.encode({"kind": "rights", "unasked": rights.unasked})
            first += b"data: " + told + b"\n\n"

        def close() -> None:
            self._feed.broadcast.close(rights.scope, reader)

        return _EventStream(reader, first, lasts_s, close)

    # -- queries -----------------------------------------------------------------------------

    def get(
        self, answer: Callable[[Mapping[str, str], ViewScope], object]
    ) -> Callable[[Request], Any]:
        """Return the page of a query; it is answered in a thread, as it may have to wait."""

        async def show(request: Request) -> Response:
            scope = await self._scope(request)
            return _json(await run_in_threadpool(answer, dict(request.query_params), scope))

        return show

    def pod(self, asked: Mapping[str, str], scope: ViewScope) -> object:
        name = _required(asked, "name")
        return self._feed.ask(lambda handle: queries.explanation(handle, name, scope))

    def waiting(self, asked: Mapping[str, str], scope: ViewScope) -> object:
        overview = self._feed.overview
        if overview is None:
            raise NotFoundError("nothing has been read yet")
        cause = _required(asked, "cause")
        redactor = self._feed.ask(lambda handle: Redactor.of(handle.state, scope))
        return {"pods": queries.waiting_pods(overview, redactor, cause)}

    def node(self, asked: Mapping[str, str], scope: ViewScope) -> object:
        name = _required(asked, "name")
        return self._feed.ask(lambda handle: node_details(handle, name, scope))

    def quotas(self, _: Mapping[str, str], scope: ViewScope) -> object:
        report = self._shared(queries.quota_report)
        return self._told("quotas", scope, lambda: report.visible_to(scope))

    def gangs(self, _: Mapping[str, str], scope: ViewScope) -> object:
        report = self._shared(queries.gang_report)
        return self._told("gangs", scope, lambda: report.visible_to(scope))

    def attention(self, _: Mapping[str, str], scope: ViewScope) -> object:
        feed, gangs = self._feed, self._shared(queries.gang_report).gangs

        def look(handle: SchedulerHandle) -> object:
            overview = feed.overview
            if overview is None:
                raise NotFoundError("nothing has been read yet")
            return attention(handle, overview, scope, feed.changes, feed.components, gangs=gangs)

        return self._told("attention", scope, lambda: feed.ask(look))

    def timeline(self, _: Mapping[str, str], scope: ViewScope) -> object:
        if not scope.is_everything:
            raise AccessDeniedError(403, "only who may list all pods and nodes sees the timeline")
        feed = self._feed

        def happened(_: SchedulerHandle) -> list[TimelineMark]:
            marks = [*feed.source.marks(), *feed.changes.marks()]
            return sorted(marks, key=lambda mark: mark.at_s)[-MOST_MARKS:]

        told = {**feed.timeline.as_data(), "marks": feed.ask(happened)}
        if self._other is not None:
            told[OTHER] = {
                "title": self._other.title,
                **self._other.feed.timeline.as_data(),
            }
        return told

    def devices(self, asked: Mapping[str, str], scope: ViewScope) -> object:
        """Tell who held which GPU, and when."""
        if not scope.sees_nodes:
            raise AccessDeniedError(403, "only who may list nodes sees their GPUs over time")
        if asked.get("of") == OTHER:
            if self._other is None:
                raise NotFoundError("there is no other run")
            return self._lanes(self._other.feed, asked, scope)
        return self._lanes(self._feed, asked, scope)

    def _lanes(self, feed: Feed, asked: Mapping[str, str], scope: ViewScope) -> object:
        first = _number(asked.get("first", "0"), "first")
        most = _number(asked.get("most", str(MOST_LANES)), "most")
        text = asked.get("text", "")

        def look(handle: SchedulerHandle) -> object:
            found = feed.devices.lanes(first, most, text, scope.sees)
            return Redactor.of(handle.state, scope).data(msgspec.to_builtins(found))

        return feed.ask(look)

    def decisions(self, asked: Mapping[str, str], scope: ViewScope) -> object:
        """Tell what was decided, and what that says together."""
        question = DecisionQuestion.of(asked)
        archive = self._archive
        if archive is None and self._feed.source.trail is None:
            return nothing_kept(
                "This dashboard decides nothing. Where the scheduler keeps its decisions is told "
                "by --audit-server or --audit."
            )
        title = archive.title if archive is not None else "the scheduler of this dashboard"

        def look() -> object:
            entries = self._answers.get("decisions", self._newest_decisions)
            redactor = self._feed.ask(lambda handle: Redactor.of(handle.state, scope))
            told = decisions(cast(Sequence[AuditEntry], entries), question, redactor, title)
            return msgspec.Raw(msgspec.json.encode(told))

        return self._answers.get(("decisions", scope, question), look)

    def _newest_decisions(self) -> Sequence[AuditEntry]:
        if self._archive is not None:
            return self._archive.newest(MOST_REMEMBERED)

        def newest(_: SchedulerHandle) -> Sequence[AuditEntry]:
            trail = self._feed.source.trail
            return trail.entries(AuditChoice(), MOST_REMEMBERED) if trail is not None else ()

        return self._feed.ask(newest)

    def queue(self, _: Mapping[str, str], scope: ViewScope) -> object:
        """Tell who is tried next."""

        def look(handle: SchedulerHandle) -> object:
            overview = self._feed.overview
            if overview is None:
                raise NotFoundError("nothing has been read yet")
            return queries.queue(handle, overview, scope)

        return self._told("queue", scope, lambda: self._feed.ask(look))

    def find(self, asked: Mapping[str, str], scope: ViewScope) -> object:
        """Find pods by a part of their names, also those that don't wait."""
        text = _required(asked, "text").strip().lower()
        return self._told(
            f"find {text}",
            scope,
            lambda: self._feed.ask(lambda handle: queries.find(handle, text, scope)),
        )

    def start(self, asked: Mapping[str, str], scope: ViewScope) -> object:
        """Tell when a pod would start; a copy of the cluster is run forward for that."""
        name = _required(asked, "name")
        if not scope.is_everything:
            raise AccessDeniedError(403, "only who sees everything is told when a pod would start")

        def look() -> object:
            objects = self._feed.ask(queries.objects_of)
            source = self._feed.source
            with self._only_one():
                return expected_start(
                    objects, name, source.configuration, self._feed.status().now_s
                )

        return self._answers.get(("start", name), look)

    def _shared(self, question: Callable[[SchedulerHandle], ReportT]) -> ReportT:
        """Return what is worked out once for all readers, whatever they may see of it."""
        found = self._answers.get(question, lambda: self._feed.ask(question))
        return cast(ReportT, found)

    def _told(self, what: str, scope: ViewScope, answer: Callable[[], object]) -> object:
        """Return the answer to all who may see the same."""
        return self._answers.get((what, scope), lambda: msgspec.Raw(msgspec.json.encode(answer())))

    # -- what readers want -------------------------------------------------------------------

    async def control(self, request: Request) -> Response:
        scope = await self._scope(request)
        if not scope.is_everything:
            raise AccessDeniedError(403, "only who sees everything may choose the time")
        wanted = await _body(request, SourceControl)
        if self._other is not None:
            await run_in_threadpool(self._other.feed.control, wanted)
        return _json(await run_in_threadpool(self._feed.control, wanted))

    async def what_if(self, request: Request) -> Response:
        scope = await self._scope(request)
        if not scope.is_everything:
            raise AccessDeniedError(403, "only who sees everything may try changes")
        wanted = await _body(request, _WhatIfRequest)
        return _json(await run_in_threadpool(self._try, wanted))

    def _try(self, wanted: _WhatIfRequest) -> object:
        before = self._feed.source.configuration
        after = _configuration(wanted.configuration) if wanted.configuration.strip() else before
        given = self._read_manifests(wanted.manifests) if wanted.manifests.strip() else []
        objects = self._feed.ask(queries.objects_of)
        changed = changed_objects(objects, given, wanted.remove)
        changed = with_grants(changed, wanted.grants)
        with self._only_one():
            return what_if(objects, changed, before, after, self._feed.status().now_s)

    def report(self, _: Mapping[str, str], scope: ViewScope) -> object:
        """Tell what came of a run, once it has ended."""
        source = self._feed.source
        if not scope.is_everything:
            raise AccessDeniedError(403, "only who sees everything sees the report")
        page = self._feed.ask(
            lambda _: source.report() if isinstance(source, ReportedSource) else None
        )
        if page is None:
            raise NotFoundError("there is no report, or not yet")
        return page

    def policy(self, _: Mapping[str, str], scope: ViewScope) -> object:
        """Tell by which policy a plan of moves begins."""
        planner = self._may_plan(scope)
        return {"policy": planner.policy, "origin": planner.origin}

    async def plan(self, request: Request) -> Response:
        scope = await self._scope(request)
        planner = self._may_plan(scope)
        wanted = await _body(request, _PlanRequest)
        return _json(await run_in_threadpool(self._plan, planner, wanted.policy))

    def _may_plan(self, scope: ViewScope) -> MovePlanner:
        if not scope.is_everything:
            raise AccessDeniedError(403, "only who sees everything is told what would move")
        if self._planner is None:
            raise NotFoundError("nobody plans moves here")
        return self._planner

    def _plan(self, planner: MovePlanner, policy: str) -> object:
        objects = self._feed.ask(queries.objects_of)
        if planner.read is None:
            objects = [*self._feed.ask(unfollowed_objects), *objects]
        source = self._feed.source
        if source.kind is SourceKind.SIMULATION:
            objects = owned_by_jobs(objects)
        with self._only_one():
            return planner.plan(objects, policy, source.configuration, self._feed.status().now_s)

    @contextmanager
    def _only_one(self) -> Iterator[None]:
        """Let nobody else run schedulers meanwhile; raises TimeoutError if somebody does."""
        if not self._trying.acquire(blocking=False):
            raise TimeoutError("somebody else is trying something; wait a moment")
        try:
            yield
        finally:
            self._trying.release()


def _namespaces_of(handle: SchedulerHandle) -> Sequence[str]:
    """Return namespaces with pods, those first in which some wait: their readers come first."""
    keys = (*handle.state.unbound, *handle.state.pods.by_key)
    return list(dict.fromkeys(key.partition("/")[0] for key in keys))


def _configuration(text: str) -> KubeSchedulerConfiguration:
    return decode_configuration(yaml_document(text.encode(), "configuration"), "configuration")


def _required(asked: Mapping[str, str], name: str) -> str:
    if not asked.get(name):
        raise InputError("required, but missing", source=name)
    return asked[name]


def _number(text: str, source: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise InputError(f"found {text[:20]!r}; accepted is a whole number from 0", source=source)
    return int(text)


async def _body(request: Request, kind: type[Any]) -> Any:
    """Decode what was sent.  A page of somebody else can't send JSON here without asking first."""
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise InputError("accepted is application/json", source="content-type")
    try:
        return decode_json(await request.body(), kind)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise InputError(str(error), source="body") from None


def _json(answer: object) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")


def _problem(status: int) -> Callable[[Request, Exception], Response]:
    def show(_: Request, error: Exception) -> Response:
        body = msgspec.json.encode({"message": str(error)})
        return Response(body, status, media_type="application/json")

    return show


def _denied(_: Request, error: Exception) -> Response:
    status = error.status if isinstance(error, AccessDeniedError) else 500
    body = msgspec.json.encode({"message": str(error)})
    return Response(body, status, media_type="application/json")


async def _healthy(_: Request) -> Response:
    return PlainTextResponse("ok")


def _static(name: str) -> Callable[[Request], Any]:
    async def show(_: Request) -> Response:
        content = files("koordinator.dashboard").joinpath("static", name).read_bytes()
        return Response(content, media_type=_TYPES[name.rpartition(".")[2]])

    return show
