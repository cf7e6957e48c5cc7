"""HTTP endpoints of a component: health, metrics, configuration, debugging.

Paths and texts match Kubernetes components and koord-scheduler's services.

Source: kubernetes cmd/kube-scheduler/app/server.go ``newEndpointsHandler``; k8s.io/apiserver
pkg/server/routes/flags.go; koordinator pkg/scheduler/frameworkext/services;
k8s.io/component-base configz/configz.go.
"""

import importlib.metadata
import platform
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from typing import cast

import msgspec
from prometheus_client import CollectorRegistry, Metric, disable_created_metrics
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Receive, Scope, Send

from koordinator.api.codec import with_all_fields
from koordinator.foundation.errors import (
    FaultHandler,
    InputError,
    NotFoundError,
    fault_of,
    raise_fault,
)
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.process.health import Check, HealthEndpoint, Indicators

_Encoder = Callable[[CollectorRegistry], bytes]

SERVICES = "/apis/v1"
LONGEST_BODY_BYTES = 4096  # a flag's value is all that is ever sent

_ANY_METHOD = ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE")


class _Families:
    """A registry of collected metrics."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = tuple(families)

    def collect(self) -> Iterable[Metric]:
        return self._families


def exposed(registry: CollectorRegistry, accept: str, on_fault: FaultHandler) -> tuple[bytes, str]:
    """Return the text of all metrics in the format that ``accept`` selects, and its content type.

    Exceptions of collectors are passed to ``on_fault``; the text has the families of the others,
    and those that a failed collector had yielded before.  Raises TimeoutError of a collector,
    since a scrape would time out as well.
    """
    encode, content_type = choose_encoder(accept)
    try:
        return encode(registry), content_type
    except TimeoutError:
        raise
    except Exception:  # noqa: BLE001 -- comes up again below, where it is known over which family
        families = _encodable_families(registry, encode, on_fault)
    return _encoded(encode, families), content_type


def joined(*registries: CollectorRegistry) -> CollectorRegistry:
    """Return a registry that has what all of these have, now and later."""
    together = CollectorRegistry()
    for registry in registries:
        together.register(_Joined(registry))
    return together


class _Joined(Collector):
    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry

    def collect(self) -> Iterable[Metric]:
        return self._registry.collect()


def _encodable_families(
    registry: CollectorRegistry, encode: _Encoder, on_fault: FaultHandler
) -> list[Metric]:
    """Collect again; return the families that can be collected and encoded."""
    sound: list[Metric] = []
    for collector, names in dict(registry._collector_to_names).items():  # noqa: SLF001 -- else a registry is collected as a whole only
        source = names[0] if names else type(collector).__name__
        try:
            for family in collector.collect():
                if _can_be_encoded(family, encode, on_fault):
                    sound.append(family)  # noqa: PERF401 -- what comes before a break is kept
        except TimeoutError:
            raise
        except Exception as error:  # noqa: BLE001 -- reported
            on_fault(fault_of("metrics", error, source))
    return sound


def _can_be_encoded(family: Metric, encode: _Encoder, on_fault: FaultHandler) -> bool:
    try:
        _encoded(encode, [family])
    except Exception as error:  # noqa: BLE001 -- reported
        on_fault(fault_of("metrics", error, family.name))
        return False
    return True


def _encoded(encode: _Encoder, families: Iterable[Metric]) -> bytes:
    return encode(cast("CollectorRegistry", _Families(families)))


RequestParameters = Mapping[str, str]  # of the path's {placeholders} and of the query
EndpointHandler = Callable[[RequestParameters], object]
Setter = Callable[[str], str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Endpoints:
    """Endpoints of one component.

    An answer is sent as text if it is a string, else as JSON.  NotFoundError becomes 404 (of a
    service with a message in JSON), InputError 400, TimeoutError 503; any other error is passed to
    ``on_fault`` and becomes 500; a failed metric family is left out.  Answers, setters and metric
    collectors run in threads of the server and must read data of the component's own thread
    through ``LoopCalls``.
    """

    #: By name: healthz, livez, readyz.
    health: Mapping[str, Sequence[Check]] = field(
        default_factory=lambda: {"healthz": (), "livez": (), "readyz": ()}
    )
    #: By path.
    metrics: Mapping[str, CollectorRegistry] = field(default_factory=dict)
    #: By path, which may have {placeholders}.
    pages: Mapping[str, EndpointHandler] = field(default_factory=dict)
    #: By path below /apis/v1, which may have {placeholders}; only a leader answers.
    services: Mapping[str, EndpointHandler] = field(default_factory=dict)
    is_leader: Callable[[], bool] = lambda: True
    #: By name below /debug/flags: take the text that was PUT, return what to say about it.
    flags: Mapping[str, Setter] = field(default_factory=dict)
    on_fault: FaultHandler = raise_fault


def application(endpoints: Endpoints) -> Starlette:
    """Return the ASGI application."""
    disable_created_metrics()  # type: ignore[no-untyped-call]  # as in every Kubernetes component
    indicators = Indicators()
    routes: list[BaseRoute] = []
    for name, checks in endpoints.health.items():
        routes += _health_routes(HealthEndpoint(name, checks, indicators))
    for path, registry in {**endpoints.metrics, "/metrics/slis": indicators.registry}.items():
        routes.append(Route(path, _exposition(registry, endpoints.on_fault)))
    for path, answer in {"/version": version, **endpoints.pages}.items():
        routes.append(Route(path, _apart(path, _page(answer), endpoints.on_fault)))
    if endpoints.services:
        services = {"/__services__": _index(endpoints.services), **endpoints.services}
        for path, answer in services.items():
            show = _leaders_page(answer, endpoints.is_leader)
            full = SERVICES + path
            routes.append(Route(full, _apart(full, show, endpoints.on_fault)))
    for name, setter in endpoints.flags.items():
        routes.append(Route(f"/debug/flags/{name}", _flag(setter), methods=_ANY_METHOD))
    return Starlette(
        routes=routes,
        exception_handlers={
            NotFoundError: lambda _, error: PlainTextResponse(f"{error}\n", 404),
            InputError: lambda _, error: PlainTextResponse(f"{error}\n", 400),
            TimeoutError: lambda _, error: PlainTextResponse(f"{error}\n", 503),
        },
        max_body_size=LONGEST_BODY_BYTES,
    )


class ReplaceableApplication:
    """An ASGI application that another one takes the place of while it is served."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    def replace(self, app: ASGIApp) -> None:
        """Serve another one from the next request on."""
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)


def probes(health: Mapping[str, Sequence[Check]]) -> Starlette:
    """Return the ASGI application of health endpoints, which need no authorization."""
    indicators = Indicators()
    routes = [
        _health_routes(HealthEndpoint(name, checks, indicators))[0]
        for name, checks in health.items()
    ]
    return Starlette(routes=routes, max_body_size=LONGEST_BODY_BYTES)


def version(_: RequestParameters) -> object:
    """Return version and platform in the form of Kubernetes' ``version.Info``."""
    number = importlib.metadata.version("koordinator")
    major, minor, *_rest = number.split(".")
    return {
        "major": major,
        "minor": minor,
        "gitVersion": f"v{number}",
        "compiler": platform.python_implementation().lower(),
        "platform": f"{sys.platform}/{platform.machine()}",
    }


def thread_stacks(_: RequestParameters) -> str:
    """Return the stack of each thread, for /debug/threads."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"thread {ident} {names.get(ident, '')}\n{''.join(traceback.format_stack(frame))}"
        for ident, frame in sys._current_frames().items()  # noqa: SLF001 -- made for debuggers
    )


_RequestHandler = Callable[[Request], Response]


def _health_routes(endpoint: HealthEndpoint) -> list[BaseRoute]:
    async def report(request: Request) -> Response:
        query = request.query_params
        verdict = endpoint.report(query.getlist("exclude"), verbose="verbose" in query)
        return PlainTextResponse(verdict.text, 200 if verdict.healthy else 500)

    def reporting(check: Check) -> Callable[[Request], object]:
        async def report_one(_: Request) -> Response:
            verdict = endpoint.report_one(check)
            return PlainTextResponse(verdict.text, 200 if verdict.healthy else 500)

        return report_one

    path = f"/{endpoint.name}"
    single = [Route(f"{path}/{check.name}", reporting(check)) for check in endpoint.checks]
    return [Route(path, report), *single]


def _exposition(registry: CollectorRegistry, on_fault: FaultHandler) -> _RequestHandler:
    def expose(request: Request) -> Response:
        text, content_type = exposed(registry, request.headers.get("accept", ""), on_fault)
        return Response(text, headers={"content-type": content_type})

    return expose


def _apart(path: str, show: _RequestHandler, on_fault: FaultHandler) -> _RequestHandler:
    """Wrap a handler so that an exception is reported and answered with 500."""

    def respond(request: Request) -> Response:
        try:
            return show(request)
        except (InputError, NotFoundError, TimeoutError):
            raise
        except Exception as error:  # noqa: BLE001 -- reported
            on_fault(fault_of("page", error, path))
            return PlainTextResponse("internal error, see the log\n", 500)

    return respond


def _page(answer: EndpointHandler) -> _RequestHandler:
    def show(request: Request) -> Response:
        return _response(answer({**request.query_params, **request.path_params}))

    return show


def _leaders_page(answer: EndpointHandler, is_leader: Callable[[], bool]) -> _RequestHandler:
    show = _page(answer)

    def show_if_leader(request: Request) -> Response:
        if not is_leader():
            return _response({"message": "the instance is not leader"}, 503)
        try:
            return show(request)
        except NotFoundError as error:
            return _response({"message": str(error)}, 404)

    return show_if_leader


def _index(services: Mapping[str, EndpointHandler]) -> EndpointHandler:
    """Return the list of services; what varies in a path is spelt ``:name``, as clients know it."""
    paths = (path.replace("{", ":").replace("}", "") for path in services)
    listed = sorted(SERVICES + path for path in paths)
    return lambda _: {"GET": listed}


def _flag(setter: Setter) -> Callable[[Request], object]:
    async def put(request: Request) -> Response:
        if request.method != "PUT":
            return PlainTextResponse("unsupported http method\n", 406)
        text = (await request.body()).decode(errors="replace")
        return PlainTextResponse(await run_in_threadpool(setter, text) + "\n")

    return put


def _response(answer: object, status: int = 200) -> Response:
    if isinstance(answer, str):
        return PlainTextResponse(answer, status)
    return Response(msgspec.json.encode(answer), status, media_type="application/json")


def configz(configuration: Callable[[], msgspec.Struct]) -> EndpointHandler:
    """Return the page of a configuration: every field, spelt as in the file, defaults as well.

    Of bytes only the number is shown: they are keys and certificates.
    """
    return lambda _: {"componentconfig": with_all_fields(configuration())}
