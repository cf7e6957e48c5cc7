"""Pages of koord-queue's aggregated API, and their server with certificate and APIService.

The pages are discovery, the schema, queues and quotas.

Every replica answers: each follows the cluster.  A thread of its own looks after certificate,
authorities and APIService.

Source: koord-queue 1.8, pkg/visibility/apis; k8s.io/apimachinery pkg/apis/meta/v1/types.go
(discovery), k8s.io/kube-aggregator pkg/controllers/{openapi,openapiv3}.
"""

import logging
from base64 import b64encode
from collections.abc import Callable
from contextlib import ExitStack
from hashlib import sha256
from http import HTTPStatus
from importlib.metadata import version
from typing import Any, Final, TypeVar

import msgspec
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from koordinator.api.control_plane import ApiService
from koordinator.api.core import ConfigMap
from koordinator.api.meta import JsonObject
from koordinator.cli.manager.serving_thread import ServingThread
from koordinator.cluster.port import Cluster
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import ClusterError, InputError, NotFoundError
from koordinator.manager.queue_units.visibility import (
    GROUP,
    GROUP_VERSION,
    MOST_UNITS,
    VERSION,
    QueueVisibility,
    UnitQuery,
    VisibleUnit,
)
from koordinator.process.authorization import Authorizer
from koordinator.process.certificates import ReplaceableContext
from koordinator.process.front_proxy import (
    CONFIG_NAME,
    CONFIG_NAMESPACE,
    FrontProxy,
    FrontProxyGuard,
)
from koordinator.process.http_server import HttpServer
from koordinator.process.serving_secret import ServingPair, ServingSecret

SERVICE: Final = "koord-queue-visibility-server"
SECRET: Final = "koord-queue-visibility-certs"  # noqa: S105 -- its name
API_SERVICE: Final = f"{VERSION}.{GROUP}"
_ORIGINAL_NAMESPACE: Final = "koord-queue"  # of the Service of the original's chart
_ANY_ADDRESS: Final = "::"
log = logging.getLogger(__name__)
_SUMMARY: Final = "QueueUnitsSummary"
#: Kinds by their plural.
KINDS: Final = {"queues": "Queue", "elasticquotas": "ElasticQuota"}
_LARGEST: Final = 10**9
_DIGITS: Final = 9

AnswerT = TypeVar("AnswerT")


def visibility_application(
    visibility: Callable[[], QueueVisibility], in_loop: Callable[[Callable[[], Any]], Any]
) -> Starlette:
    """Return the application; ``in_loop`` puts a question to the thread that owns the data."""
    base = f"/apis/{GROUP_VERSION}"
    pages = _Pages(visibility, in_loop)
    openapi = openapi_v3()
    fixed: dict[str, JsonObject] = {
        "/apis": {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]},
        f"/apis/{GROUP}": {"kind": "APIGroup", "apiVersion": "v1", **_group()},
        base: _resources(),
        "/openapi/v2": openapi_v2(),
        "/openapi/v3": {"paths": {base[1:]: {"serverRelativeURL": _hashed(openapi)}}},
        f"/openapi/v3{base}": openapi,
        "/version": {"gitVersion": f"koord-{version('koordinator')}"},
    }
    routes = [Route(path, _fixed(body)) for path, body in fixed.items()]
    routes += [Route(f"/{name}", _fine) for name in ("healthz", "livez")]
    routes.append(Route("/readyz", pages.ready))
    for plural in KINDS:
        routes += [
            Route(f"{base}/{plural}", pages.listed(plural)),
            Route(f"{base}/{plural}/{{name}}", pages.one(plural)),
            Route(f"{base}/{plural}/{{name}}/queueunits", pages.summary(plural)),
        ]
    app = Starlette(routes=routes, exception_handlers={HTTPException: _failed})
    app.router.redirect_slashes = False
    return app


class _Pages:
    def __init__(
        self,
        visibility: Callable[[], QueueVisibility],
        in_loop: Callable[[Callable[[], Any]], Any],
    ) -> None:
        self._visibility, self._in_loop = visibility, in_loop

    def ready(self, _: Request) -> Response:
        self._query_loop(lambda _: None)
        return PlainTextResponse("ok")

    def listed(self, plural: str) -> Callable[[Request], Response]:
        kind = KINDS[plural]

        def page(_: Request) -> Response:
            names = self._query_loop(lambda it: _names(it, plural))
            items = [_object(kind, name) for name in names]
            return _json({**_header(f"{kind}List"), "metadata": {}, "items": items})

        return page

    def one(self, plural: str) -> Callable[[Request], Response]:
        def page(request: Request) -> Response:
            name = request.path_params["name"]
            units = self._query_loop(lambda it: _units(it, plural, name, UnitQuery()))
            return _json(_object(KINDS[plural], name, units))

        return page

    def summary(self, plural: str) -> Callable[[Request], Response]:
        def page(request: Request) -> Response:
            name, query = request.path_params["name"], _query(request)
            units = self._query_loop(lambda it: _units(it, plural, name, query))
            body = {**_header(_SUMMARY), "metadata": {"name": name}, "items": units}
            return _json(body)

        return page

    def _query_loop(self, question: Callable[[QueueVisibility], AnswerT]) -> AnswerT:
        try:
            answer: AnswerT = self._in_loop(lambda: question(self._visibility()))
        except (ClusterError, TimeoutError) as error:
            raise HTTPException(HTTPStatus.SERVICE_UNAVAILABLE, str(error)) from None
        return answer


def _names(visibility: QueueVisibility, plural: str) -> list[str]:
    return visibility.queues() if plural == "queues" else visibility.quotas()


def _units(
    visibility: QueueVisibility, plural: str, name: str, query: UnitQuery
) -> list[VisibleUnit]:
    if name not in _names(visibility, plural):
        raise HTTPException(HTTPStatus.NOT_FOUND, f'{plural}.{GROUP} "{name}" not found')
    if plural == "queues":
        return visibility.units_of_queue(name, query)
    return visibility.units_of_quota(name, query)


def _query(request: Request) -> UnitQuery:
    parameters = request.query_params
    numbers = {}
    for name, default in (("offset", 0), ("limit", MOST_UNITS)):
        text = parameters.get(name, "")
        if text and not (text.isascii() and text.isdigit() and len(text) <= _DIGITS):
            problem = InputError(f"must be 0 to {_LARGEST - 1}, got {text!r}", path=name)
            raise HTTPException(HTTPStatus.BAD_REQUEST, str(problem))
        numbers[name] = int(text) if text else default
    return UnitQuery(
        queue=parameters.get("queue", ""), phase=parameters.get("phase", ""), **numbers
    )


def _object(kind: str, name: str, units: list[VisibleUnit] | None = None) -> JsonObject:
    return {
        **_header(kind),
        "metadata": {"name": name},
        _SUMMARY: {"metadata": {}, "items": units or []},
    }


def _header(kind: str) -> JsonObject:
    return {"kind": kind, "apiVersion": GROUP_VERSION}


# -- discovery ------------------------------------------------------------------------------------


def _group() -> JsonObject:
    group_version = {"groupVersion": GROUP_VERSION, "version": VERSION}
    return {"name": GROUP, "versions": [group_version], "preferredVersion": group_version}


def _resources() -> JsonObject:
    resources: list[JsonObject] = []
    for plural, kind in KINDS.items():
        common = {"namespaced": False, "singularName": ""}
        resources += [
            {"name": plural, **common, "singularName": kind.lower(), "kind": kind}
            | {"verbs": ["get", "list"]},
            {"name": f"{plural}/queueunits", **common, "kind": _SUMMARY, "verbs": ["get"]},
        ]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": GROUP_VERSION,
        "resources": resources,
    }


def openapi_v3() -> JsonObject:
    """Return the schema of the group."""
    schemas = _schemas("#/components/schemas/")
    return {
        "openapi": "3.0.0",
        "info": {"title": "koord-queue visibility", "version": VERSION},
        "paths": {
            path: {"get": _operation(path, kind, name, _content(kind))}
            for path, kind, name in _reads()
        },
        "components": {"schemas": schemas},
    }


def openapi_v2() -> JsonObject:
    """Return the same in the older notation."""
    return {
        "swagger": "2.0",
        "info": {"title": "koord-queue visibility", "version": VERSION},
        "paths": {
            path: {
                "get": {
                    **_operation(path, kind, name, {"schema": _ref("#/definitions/", kind)}),
                    "produces": ["application/json"],
                }
            }
            for path, kind, name in _reads()
        },
        "definitions": _schemas("#/definitions/"),
    }


def _reads() -> list[tuple[str, str, str]]:
    """Return the paths, kinds and names of the readable resources."""
    base, resources = f"/apis/{GROUP_VERSION}", []
    for plural, kind in KINDS.items():
        resources += [
            (f"{base}/{plural}", f"{kind}List", f"list{kind}"),
            (f"{base}/{plural}/{{name}}", kind, f"read{kind}"),
            (f"{base}/{plural}/{{name}}/queueunits", _SUMMARY, f"read{kind}Queueunits"),
        ]
    return resources


def _operation(path: str, kind: str, name: str, answer: JsonObject) -> JsonObject:
    action = "list" if name.startswith("list") else "get"
    made: JsonObject = {
        "operationId": name,
        "responses": {"200": {"description": "OK", **answer}},
        "x-kubernetes-action": action,
        "x-kubernetes-group-version-kind": {
            "group": GROUP,
            "version": VERSION,
            "kind": kind.removesuffix("List"),
        },
    }
    if "{name}" in path:
        named: JsonObject = {"name": "name", "in": "path", "required": True}
        is_v2 = "schema" in answer
        typed: JsonObject = {"type": "string"} if is_v2 else {"schema": {"type": "string"}}
        made["parameters"] = [named | typed]
    return made


def _content(kind: str) -> JsonObject:
    schema = _ref("#/components/schemas/", kind)
    return {"content": {"application/json": {"schema": schema}}}


def _ref(prefix: str, kind: str) -> JsonObject:
    return {"$ref": f"{prefix}{_full(kind)}"}


def _full(kind: str) -> str:
    return f"io.x-k8s.koord-queue.visibility.{VERSION}.{kind}"


def _schemas(prefix: str) -> JsonObject:
    text, number = {"type": "string"}, {"type": "integer", "format": "int32"}
    texts: JsonObject = {"type": "object", "additionalProperties": text}
    header = {"apiVersion": text, "kind": text}
    meta: JsonObject = {"type": "object", "properties": {"name": text, "namespace": text}}
    pods: JsonObject = {"type": "object", "properties": {"running": number, "pending": number}}
    unit: JsonObject = {
        "description": "A job that waits for room in its quota, or has it.",
        "type": "object",
        "properties": {
            "metadata": meta,
            "quotaName": text,
            "queueName": text,
            "request": texts,
            "resources": texts,
            "phase": text,
            "podState": pods,
        },
    }

    def listing(item: str) -> JsonObject:
        return {"type": "array", "items": _ref(prefix, item)}

    def kind_of(kind: str, about: str, **properties: JsonObject) -> JsonObject:
        return {
            "description": about,
            "type": "object",
            "properties": {**header, "metadata": meta, **properties},
            "x-kubernetes-group-version-kind": [{"group": GROUP, "version": VERSION, "kind": kind}],
        }

    schemas = {"QueueUnit": unit}
    schemas[_SUMMARY] = kind_of(_SUMMARY, "Units, in order.", items=listing("QueueUnit"))
    for kind in KINDS.values():
        about = "Who waits in a queue." if kind == "Queue" else "Who counts in a quota."
        summary = {_SUMMARY: _ref(prefix, _SUMMARY)}
        schemas[kind] = kind_of(kind, about, **summary)
        schemas[f"{kind}List"] = kind_of(f"{kind}List", f"{about} All.", items=listing(kind))
    return {_full(name): schema for name, schema in schemas.items()}


# -- answers --------------------------------------------------------------------------------------


def _hashed(document: JsonObject) -> str:
    digest = sha256(msgspec.json.encode(document)).hexdigest()
    return f"/openapi/v3/apis/{GROUP_VERSION}?hash={digest[:32].upper()}"


def _fixed(body: JsonObject) -> Callable[[Request], Response]:
    content = msgspec.json.encode(body)
    return lambda _: Response(content, media_type="application/json")


def _fine(_: Request) -> Response:
    return PlainTextResponse("ok")


def _json(body: JsonObject, status: int = HTTPStatus.OK) -> Response:
    return Response(msgspec.json.encode(body), status, media_type="application/json")


def _failed(_: Request, error: Exception) -> Response:
    code = error.status_code if isinstance(error, HTTPException) else 500
    detail = error.detail if isinstance(error, HTTPException) else ""
    body = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": detail,
        "reason": HTTPStatus(code).phrase.title().replace(" ", ""),
        "code": code,
    }
    return _json(body, code)


class VisibilityServer:
    """Serves from ``start`` until the process ends."""

    def __init__(
        self,
        port: int,
        namespace: str,
        connect: Callable[[], Cluster],
        clock: Clock,
        *,
        visibility: Callable[[], QueueVisibility],
        in_loop: Callable[[Callable[[], Any]], Any],
    ) -> None:
        """``namespace`` has the Secret and the Service."""
        self._port = port
        self._cluster = connect()
        self._authorizer = Authorizer(connect(), clock)
        places = dict.fromkeys((namespace, _ORIGINAL_NAMESPACE))
        names = [name for it in places for name in (f"{SERVICE}.{it}.svc", f"{SERVICE}.{it}")]
        self._secret = ServingSecret(self._cluster, clock, namespace, SECRET, [*names, SERVICE])
        self._pages = visibility_application(visibility, in_loop)
        self._proxy: FrontProxy | None = None
        self._tls: ReplaceableContext | None = None
        self._thread = ServingThread("visibility", self._refresh)

    def start(self, cleanup: ExitStack) -> None:
        """Serve as soon as there is a certificate and the API server is known."""
        self._thread.start(cleanup)

    def _refresh(self) -> bool:
        """Update the certificate, the front proxy's authority and the APIService."""
        serving = self._secret.current()
        config = self._cluster.get(ConfigMap, CONFIG_NAME, CONFIG_NAMESPACE)
        self._proxy = proxy = FrontProxy.of(config)
        if self._tls is None:
            tls = ReplaceableContext(serving.pair, proxy_ca=proxy.ca)
            guard = FrontProxyGuard(
                self._pages, self._authorizer, lambda: self._proxy or proxy, GROUP_VERSION
            )
            server = HttpServer(guard, _ANY_ADDRESS, self._port, tls.context)
            self._thread.serve(server)
            self._tls = tls
        else:
            self._tls.replace(serving.pair, proxy_ca=proxy.ca)
        self._name_authority(serving)
        return True  # an APIService that does not exist is no reason to hurry

    def _name_authority(self, serving: ServingPair) -> None:
        """Set the CA certificate of this server in its APIService."""
        try:
            service = self._cluster.get(ApiService, API_SERVICE)
        except NotFoundError:
            log.warning("no APIService", extra={"service": API_SERVICE})
            return
        patch = _authority_patch(service, serving.trusted)
        if patch:
            self._cluster.patch(ApiService, API_SERVICE, "", patch)


def _authority_patch(service: ApiService, trusted: bytes) -> JsonObject:
    """Return the patch of an APIService; empty if it skips verification or is up to date."""
    bundle = b64encode(trusted).decode()
    if service.spec.get("insecureSkipTLSVerify") or service.spec.get("caBundle") == bundle:
        return {}
    return {"spec": {"caBundle": bundle}}
