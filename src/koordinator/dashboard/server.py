"""HTTP server of the dashboard: the page, its queries, and the stream of frames.

The Content-Security-Policy permits only the dashboard's own files in the page, and texts of the
cluster reach it as JSON.  Nothing here writes to a cluster.
"""

import asyncio
import re
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from importlib.resources import files
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any, Final, TypeVar, cast

import msgspec
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from koordinator.api.kubescheduler import decode_configuration
from koordinator.api.meta import KubeObject
from koordinator.dashboard import queries
from koordinator.dashboard.access import (
    EVERY_RIGHT,
    GRANT_TTL_S,
    AccessDeniedError,
    AccessPolicy,
    OpenAccess,
    Redactor,
    ViewRights,
    ViewScope,
)
from koordinator.dashboard.attention import attention
from koordinator.dashboard.broadcast import OverviewReader
from koordinator.dashboard.decisions import (
    MAX_SEARCHED,
    DecisionArchive,
    DecisionQuery,
    decisions,
    no_archive,
)
from koordinator.dashboard.feed import Feed
from koordinator.dashboard.node_details import node_details
from koordinator.dashboard.overview import ClusterOverview
from koordinator.dashboard.queries import AnswerCache
from koordinator.dashboard.sources import (
    ReportedSource,
    SourceControl,
    SourceKind,
    TimelineMark,
)
from koordinator.dashboard.timeline import MAX_MARKS
from koordinator.dashboard.whatif import (
    MovePlanner,
    QuotaGrant,
    changed_objects,
    expected_start,
    unfollowed_objects,
    what_if,
    with_grants,
)
from koordinator.domain.audit import AuditChoice, AuditEntry
from koordinator.foundation.clock import Clock
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import ClusterError, InputError, NotFoundError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.yaml_documents import yaml_document
from koordinator.process.guard import QueueFullError, ReviewQueue, bearer_token
from koordinator.scheduler.loop.handle import SchedulerHandle
from koordinator.simulator.device_bars import MAX_LANES
from koordinator.simulator.limited_descheduler import owned_by_jobs

#: A stream ends when its rights expire; the page reconnects, and its rights are reviewed again.
STREAM_DURATION_S = GRANT_TTL_S
KEEP_ALIVE_S = 10.0
MAX_BODY_BYTES = 4 << 20
OTHER = "other"  # query parameter for the run to compare with
#: Duration of a stream while reviews are pending, so that the scope grows soon.
PENDING_STREAM_DURATION_S = 2.0
CONCURRENT_USERS = 32  # whose rights are under review
QUEUED_USERS = 32  # beside them, per address, which may be that of a proxy

_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_TYPES = {"html": "text/html", "js": "text/javascript", "css": "text/css", "svg": "image/svg+xml"}
_MOST_DIGITS = 9
_FILES = ("index.html", "dashboard.js", "dashboard.css")

ReportT = TypeVar("ReportT")

#: Decodes manifests entered by a reader.  Raises InputError.
ManifestReader = Callable[[str], Sequence[KubeObject]]

_KEEP_ALIVE = b":\n\n"

#: Folders of the pages: of an installed package, of a checkout of the sources.
_DOCUMENTATION: Final[Sequence[Traversable]] = (
    files("koordinator.dashboard").joinpath("docs"),
    Path(__file__).parents[3] / "docs" / "how-to",
)
_PAGE: Final = re.compile(r"[a-z0-9-]+\.md")


@dataclass(frozen=True, slots=True)
class ComparedRun:
    """A second run with another configuration; ``title`` names the configuration."""

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

    ``other`` is a run at the same speed for comparison over time.  ``archive`` has the decisions of
    the cluster's scheduler; the default is the source's own scheduler, if it has one.
    ``planner`` computes descheduler plans; without it, plans are not available.

    ``hosts`` are the accepted names of the Host header; empty accepts any.  They protect against
    DNS rebinding: a foreign page whose name resolves to this machine is refused.
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
        Route("/docs/{page}", _documentation),
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
        max_body_size=MAX_BODY_BYTES,
    )


class _Headers:
    """Middleware that adds security headers and refuses unknown Host headers."""

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
            refusal = PlainTextResponse("unknown Host header\n", 421)
            await refusal(scope, receive, send_with_headers)
            return
        await self._app(scope, receive, send_with_headers)


class _EventStream(Response):
    """Stream of a reader's frames until it disconnects or its rights expire.

    Does minimal work per frame, as there may be very many readers.
    """

    media_type = "text/event-stream"

    def __init__(
        self, reader: OverviewReader, first: bytes, duration_s: float, close: Callable[[], None]
    ) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._reader, self._first = reader, first
        self._duration_s, self._close = duration_s, close

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002 -- ASGI
        reader, loop = self._reader, asyncio.get_running_loop()
        until_s = loop.time() + self._duration_s

        async def close_on_disconnect() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            reader.close()

        closing = loop.create_task(close_on_disconnect())
        try:
            head = {"type": "http.response.start", "status": 200, "headers": self.raw_headers}
            await send(head)
            frame: bytes | None = self._first
            while not reader.is_closed:
                body = _KEEP_ALIVE if frame is None else frame
                await send({"type": "http.response.body", "body": body, "more_body": True})
                if (left_s := until_s - loop.time()) <= 0:
                    break
                frame = await reader.next(min(KEEP_ALIVE_S, left_s))
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._close()
            closing.cancel()


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
            ThreadPoolExecutor(CONCURRENT_USERS, "reviews"),
            at_once=CONCURRENT_USERS,
            most_waiting=QUEUED_USERS,
        )
        self._answers = AnswerCache(clock)
        #: Held while schedulers run for a query; one query at a time.
        self._run_lock = threading.Lock()

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
            raise AccessDeniedError(503, "too many requests of yours wait for a review") from None
        if rights is None:
            raise AccessDeniedError(503, "the connection was lost")  # the client has disconnected
        return rights

    async def _scope(self, request: Request) -> ViewScope:
        return (await self._rights(request)).scope

    def _known_namespaces(self) -> Sequence[str]:
        namespaces = self._answers.get("namespaces", lambda: self._feed.query(_namespaces_of))
        return cast(Sequence[str], namespaces)

    # -- the stream --------------------------------------------------------------------------

    async def events(self, request: Request) -> Response:
        rights = await self._rights(request)
        reader = self._feed.broadcast.open(rights.scope, rights.owner)
        if reader is None:
            text = "too many readers, or too many pages open by you\n"
            return PlainTextResponse(text, 503)
        is_pending = rights.pending_reviews > 0
        duration_s = PENDING_STREAM_DURATION_S if is_pending else STREAM_DURATION_S
        first = b"retry: 500\n\n"
        if is_pending:
            frame = msgspec.json.encode({"kind": "rights", "unasked": rights.pending_reviews})
            first += b"data: " + frame + b"\n\n"

        def close() -> None:
            self._feed.broadcast.close(rights.scope, reader)

        return _EventStream(reader, first, duration_s, close)

    # -- queries -----------------------------------------------------------------------------

    def get(
        self, answer: Callable[[Mapping[str, str], ViewScope], object]
    ) -> Callable[[Request], Any]:
        """Return the endpoint of a query; a worker thread answers it, as it may block."""

        async def show(request: Request) -> Response:
            scope = await self._scope(request)
            return _json(await run_in_threadpool(answer, dict(request.query_params), scope))

        return show

    def pod(self, parameters: Mapping[str, str], scope: ViewScope) -> object:
        name = _required(parameters, "name")
        return self._feed.query(lambda handle: queries.explanation(handle, name, scope))

    def waiting(self, parameters: Mapping[str, str], scope: ViewScope) -> object:
        overview = self._overview()
        cause = _required(parameters, "cause")
        redactor = self._feed.query(lambda handle: Redactor.of(handle.state, scope))
        return {"pods": queries.waiting_pods(overview, redactor, cause)}

    def _overview(self) -> ClusterOverview:
        if self._feed.overview is None:
            raise NotFoundError("the source has not been read yet")
        return self._feed.overview

    def node(self, parameters: Mapping[str, str], scope: ViewScope) -> object:
        name = _required(parameters, "name")
        return self._feed.query(lambda handle: node_details(handle, name, scope))

    def quotas(self, _: Mapping[str, str], scope: ViewScope) -> object:
        report = self._shared(queries.quota_report)
        return self._cached("quotas", scope, lambda: report.visible_to(scope))

    def gangs(self, _: Mapping[str, str], scope: ViewScope) -> object:
        report = self._shared(queries.gang_report)
        return self._cached("gangs", scope, lambda: report.visible_to(scope))

    def attention(self, _: Mapping[str, str], scope: ViewScope) -> object:
        feed, gangs = self._feed, self._shared(queries.gang_report).gangs

        def problems(handle: SchedulerHandle) -> object:
            overview, changes = self._overview(), feed.changes
            return attention(handle, overview, scope, changes, feed.components, gangs=gangs)

        return self._cached("attention", scope, lambda: feed.query(problems))

    def timeline(self, _: Mapping[str, str], scope: ViewScope) -> object:
        if not scope.is_everything:
            raise _needs_every_right("see the timeline")
        feed = self._feed

        def marks(_: SchedulerHandle) -> list[TimelineMark]:
            all_marks = [*feed.source.marks(), *feed.changes.marks()]
            return sorted(all_marks, key=lambda mark: mark.at_s)[-MAX_MARKS:]

        answer = {**feed.timeline.as_data(), "marks": feed.query(marks)}
        if self._other is not None:
            answer[OTHER] = {
                "title": self._other.title,
                **self._other.feed.timeline.as_data(),
            }
        return answer

    def devices(self, parameters: Mapping[str, str], scope: ViewScope) -> object:
        """Return the allocation of each GPU over time."""
        if not scope.sees_nodes:
            raise AccessDeniedError(403, "you need the right to list nodes to see their GPUs")
        if parameters.get("of") == OTHER:
            if self._other is None:
                raise NotFoundError("there is no other run")
            return self._lanes(self._other.feed, parameters, scope)
        return self._lanes(self._feed, parameters, scope)

    def _lanes(self, feed: Feed, parameters: Mapping[str, str], scope: ViewScope) -> object:
        first = _number(parameters.get("first", "0"), "first")
        most = _number(parameters.get("most", str(MAX_LANES)), "most")
        text = parameters.get("text", "")

        def lanes(handle: SchedulerHandle) -> object:
            data = msgspec.to_builtins(
                feed.devices.lanes(first, most, text, scope.includes_namespace)
            )
            return Redactor.of(handle.state, scope).data(data)

        return feed.query(lanes)

    def decisions(self, parameters: Mapping[str, str], scope: ViewScope) -> object:
        """Return scheduling decisions and a summary of them."""
        query = DecisionQuery.of(parameters)
        archive = self._archive
        if archive is None and self._feed.source.trail is None:
            return no_archive(
                "This dashboard's scheduler makes no decisions. Use --audit-server or --audit to "
                "show those of the cluster's scheduler."
            )
        title = archive.title if archive is not None else "the scheduler of this dashboard"

        def answer() -> object:
            entries = self._answers.get("decisions", self._newest_decisions)
            redactor = self._feed.query(lambda handle: Redactor.of(handle.state, scope))
            data = decisions(cast(Sequence[AuditEntry], entries), query, redactor, title)
            return msgspec.Raw(msgspec.json.encode(data))

        return self._answers.get(("decisions", scope, query), answer)

    def _newest_decisions(self) -> Sequence[AuditEntry]:
        if self._archive is not None:
            return self._archive.newest(MAX_SEARCHED)

        def newest(_: SchedulerHandle) -> Sequence[AuditEntry]:
            trail = self._feed.source.trail
            return trail.entries(AuditChoice(), MAX_SEARCHED) if trail is not None else ()

        return self._feed.query(newest)

    def queue(self, _: Mapping[str, str], scope: ViewScope) -> object:
        """Return the scheduling queue in order."""

        def listed(handle: SchedulerHandle) -> object:
            return queries.queue(handle, self._overview(), scope)

        return self._cached("queue", scope, lambda: self._feed.query(listed))

    def find(self, parameters: Mapping[str, str], scope: ViewScope) -> object:
        """Return pods by a part of their names, placed pods included."""
        text = _required(parameters, "text").strip().lower()
        return self._cached(
            f"find {text}",
            scope,
            lambda: self._feed.query(lambda handle: queries.find(handle, text, scope)),
        )

    def start(self, parameters: Mapping[str, str], scope: ViewScope) -> object:
        """Return the expected start time of a pod, simulated on a copy of the cluster."""
        name = _required(parameters, "name")
        if not scope.is_everything:
            raise _needs_every_right("see when a pod would start")

        def answer() -> object:
            objects = self._feed.query(queries.objects_of)
            source = self._feed.source
            with self._exclusive_run():
                return expected_start(
                    objects, name, source.configuration, self._feed.status().now_s
                )

        return self._answers.get(("start", name), answer)

    def _shared(self, report: Callable[[SchedulerHandle], ReportT]) -> ReportT:
        """Return a report that is computed once for the readers of all scopes."""
        cached = self._answers.get(report, lambda: self._feed.query(report))
        return cast(ReportT, cached)

    def _cached(self, name: str, scope: ViewScope, answer: Callable[[], object]) -> object:
        """Return an encoded answer that is computed once for the readers of a scope."""
        return self._answers.get((name, scope), lambda: msgspec.Raw(msgspec.json.encode(answer())))

    # -- requests of readers -----------------------------------------------------------------

    async def control(self, request: Request) -> Response:
        scope = await self._scope(request)
        if not scope.is_everything:
            raise _needs_every_right("control the time")
        wanted = await _body(request, SourceControl)
        if self._other is not None:
            await run_in_threadpool(self._other.feed.control, wanted)
        return _json(await run_in_threadpool(self._feed.control, wanted))

    async def what_if(self, request: Request) -> Response:
        scope = await self._scope(request)
        if not scope.is_everything:
            raise _needs_every_right("try changes")
        wanted = await _body(request, _WhatIfRequest)
        return _json(await run_in_threadpool(self._try, wanted))

    def _try(self, wanted: _WhatIfRequest) -> object:
        before = self._feed.source.configuration
        after = (
            decode_configuration(
                yaml_document(wanted.configuration.encode(), "configuration"), "configuration"
            )
            if wanted.configuration.strip()
            else before
        )
        given = self._read_manifests(wanted.manifests) if wanted.manifests.strip() else []
        objects = self._feed.query(queries.objects_of)
        changed = changed_objects(objects, given, wanted.remove)
        changed = with_grants(changed, wanted.grants)
        with self._exclusive_run():
            return what_if(objects, changed, before, after, self._feed.status().now_s)

    def report(self, _: Mapping[str, str], scope: ViewScope) -> object:
        """Return the report of a run that has ended."""
        source = self._feed.source
        if not scope.is_everything:
            raise _needs_every_right("see the report")
        page = self._feed.query(
            lambda _: source.report() if isinstance(source, ReportedSource) else None
        )
        if page is None:
            raise NotFoundError("there is no report, or the run has not ended")
        return page

    def policy(self, _: Mapping[str, str], scope: ViewScope) -> object:
        """Return the default policy for descheduler plans."""
        planner = self._permitted_planner(scope)
        return {"policy": planner.policy, "origin": planner.origin}

    async def plan(self, request: Request) -> Response:
        scope = await self._scope(request)
        planner = self._permitted_planner(scope)
        wanted = await _body(request, _PlanRequest)
        return _json(await run_in_threadpool(self._plan, planner, wanted.policy))

    def _permitted_planner(self, scope: ViewScope) -> MovePlanner:
        if not scope.is_everything:
            raise _needs_every_right("see descheduler plans")
        if self._planner is None:
            raise NotFoundError("this dashboard has no descheduler plans")
        return self._planner

    def _plan(self, planner: MovePlanner, policy: str) -> object:
        objects = self._feed.query(queries.objects_of)
        if planner.read is None:
            objects = [*self._feed.query(unfollowed_objects), *objects]
        source = self._feed.source
        gates = self._feed.query(lambda handle: handle.options.gates)
        if source.kind is SourceKind.SIMULATION:
            objects = owned_by_jobs(objects)
        with self._exclusive_run():
            now_s = self._feed.status().now_s
            return planner.plan(objects, policy, source.configuration, gates, now_s)

    @contextmanager
    def _exclusive_run(self) -> Iterator[None]:
        """Hold the lock for schedulers that run for a query; raises TimeoutError if it is taken."""
        if not self._run_lock.acquire(blocking=False):
            raise TimeoutError("another what-if query is running; try again later")
        try:
            yield
        finally:
            self._run_lock.release()


def _needs_every_right(action: str) -> AccessDeniedError:
    text = f"you need the right to list pods in all namespaces, and nodes, to {action}"
    return AccessDeniedError(403, text)


def _namespaces_of(handle: SchedulerHandle) -> Sequence[str]:
    """Return the namespaces with pods; those with pending pods, the likeliest to matter, first."""
    keys = (*handle.state.unbound, *handle.state.pods.by_key)
    return list(dict.fromkeys(key.partition("/")[0] for key in keys))


def _required(parameters: Mapping[str, str], name: str) -> str:
    if not parameters.get(name):
        raise InputError("parameter is required", source=name)
    return parameters[name]


def _number(text: str, source: str) -> int:
    if not text.isdecimal() or len(text) > _MOST_DIGITS:
        raise InputError(f"must be a non-negative integer, got {text[:20]!r}", source=source)
    return int(text)


async def _body(request: Request, kind: type[Any]) -> Any:
    """Decode a JSON body.  Raises InputError.

    Requires the JSON content type: browsers send it across origins only after a CORS preflight,
    which this server does not answer.
    """
    if request.headers.get("content-type", "").partition(";")[0] != "application/json":
        raise InputError("must be application/json", source="content-type")
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


async def _documentation(request: Request) -> Response:
    """Return a page of the documentation as its text."""
    name = request.path_params["page"]
    folder = next((one for one in _DOCUMENTATION if one.is_dir()), None)
    if folder is None or not _PAGE.fullmatch(name) or not (page := folder.joinpath(name)).is_file():
        raise NotFoundError(f"there is no page {name}")
    text = await run_in_threadpool(page.read_text, "utf-8")
    return PlainTextResponse(text, headers={"x-content-type-options": "nosniff"})


def _static(name: str) -> Callable[[Request], Any]:
    async def show(_: Request) -> Response:
        content = files("koordinator.dashboard").joinpath("static", name).read_bytes()
        return Response(content, media_type=_TYPES[name.rpartition(".")[2]])

    return show
