"""HTTP and HTTPS servers of a component's pages, and the authorization of requests.

Health needs no authorization.  The API server authorizes all other requests, unless the server
listens on a loopback address.
"""

import ssl
from collections.abc import Callable, Mapping, Sequence

from prometheus_client import CollectorRegistry
from starlette.types import ASGIApp

from koordinator.cli.component.page_settings import PageSettings
from koordinator.cli.component.process import ComponentProcess
from koordinator.foundation.clock import Clock
from koordinator.process.authorization import Authorizer, ReviewClient
from koordinator.process.certificates import (
    context_of_files,
    self_signed_context,
)
from koordinator.process.endpoints import (
    EndpointHandler,
    Endpoints,
    application,
    probes,
    thread_stacks,
)
from koordinator.process.guard import Guard
from koordinator.process.health import Check, shutdown_check
from koordinator.process.http_server import HttpServer, is_loopback
from koordinator.process.logs import set_verbosity

#: As in the kubelet: every node is scraped, and most scrapes should not need the API server.
ANSWERS_CACHED_S = 120.0
REVIEWS_PER_S = 20.0  # protects the API server from a flood of unauthenticated requests


def process_servers(
    parts: ComponentProcess,
    settings: PageSettings,
    connect: Callable[[], ReviewClient],
    name: str,
    *,
    alive: Sequence[Check],
    ready: Sequence[Check],
    metrics: Mapping[str, CollectorRegistry] | None = None,
    pages: Mapping[str, EndpointHandler] | None = None,
    probe_address: tuple[str, int] | None = None,
) -> list[HttpServer]:
    """Return the servers of a component's health, metrics and debugging pages, not started yet.

    ``metrics`` are the component's own by default; ``pages`` are added to the stacks of threads.
    At ``probe_address`` only health is served.  Raises InputError as ``page_servers``.
    """
    checks = {
        "healthz": alive,
        "livez": alive,
        "readyz": [*ready, shutdown_check(parts.stopping)],
    }
    endpoints = Endpoints(
        health=checks,
        metrics={"/metrics": parts.registry} if metrics is None else metrics,
        pages={"/debug/threads": thread_stacks, **(pages or {})},
        flags={"v": set_verbosity},
        on_fault=parts.faults,
    )
    servers = page_servers(application(endpoints), settings, connect, parts.clock, name)
    if probe_address is not None:
        servers.append(HttpServer(probes(checks), *probe_address))
    return servers


def page_servers(
    app: ASGIApp,
    settings: PageSettings,
    connect: Callable[[], ReviewClient],
    clock: Clock,
    name: str,
) -> list[HttpServer]:
    """Return the servers, not started yet; ``connect`` is called if requests need authorization.

    ``name`` is a subject of the self-signed certificate.
    Raises InputError for files that can't be loaded and for invalid patterns.
    """
    plain, servers = settings.plain, []
    guarded = app
    if settings.secure_port or (plain is not None and not is_loopback(plain[0])):
        authorizer = Authorizer(
            connect(), clock, settings.always_allowed, cached_s=ANSWERS_CACHED_S
        )
        guarded = Guard(app, authorizer)
    if plain is not None:
        servers.append(HttpServer(app if is_loopback(plain[0]) else guarded, *plain))
    if settings.secure_port:
        tls = _tls(settings, name, clock)
        servers.append(HttpServer(guarded, settings.bind_address, settings.secure_port, tls))
    return servers


def _tls(settings: PageSettings, name: str, clock: Clock) -> ssl.SSLContext:
    if settings.certificate is not None and settings.key is not None:
        return context_of_files(settings.certificate, settings.key, settings.terms)
    return self_signed_context(("localhost", "127.0.0.1", name), clock, settings.terms)
