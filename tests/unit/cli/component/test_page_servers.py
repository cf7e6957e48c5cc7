"""Access to the pages of the agent and the manager, by port."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from tests.keywords import as_keywords
from tests.unit.process.clients import ask, certificate_of
from tests.unit.process.test_guard import Reviews, as_user

from koordinator.cli.component.page_servers import page_servers
from koordinator.cli.component.page_settings import PageSettings
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import InputError
from koordinator.process.authorization import ALWAYS_ALLOWED, ReviewClient
from koordinator.process.endpoints import Endpoints, application, probes, thread_stacks
from koordinator.process.health import PING
from koordinator.process.http_server import HttpServer, is_loopback

ANYWHERE = "0.0.0.0"  # noqa: S104 -- the default of the original
HEALTH = {"healthz": [PING], "livez": [PING], "readyz": [PING]}
#: All but probes: what the agent and the manager show, and what can be changed.
PAGES = ("/metrics", "/metrics/slis", "/debug/threads", "/version", "/livez/ping", "/nothing")


def settings(plain: str | None, **fields: Any) -> PageSettings:
    """Return settings of a plain port, whichever is free."""
    stated = {
        "secure_port": 0,
        "bind_address": "127.0.0.1",
        "certificate": None,
        "key": None,
        "always_allowed": ALWAYS_ALLOWED,
    }
    return PageSettings(plain=None if plain is None else (plain, 0), **as_keywords(stated | fields))


@contextmanager
def serving(
    stated: PageSettings,
    changed: Callable[[str], str],
    connect: Callable[[], ReviewClient] = Reviews,
) -> Iterator[list[int]]:
    """Serve the pages; yield the ports."""
    endpoints = Endpoints(
        health=HEALTH,
        metrics={"/metrics": CollectorRegistry()},
        pages={"/debug/threads": thread_stacks},
        flags={"v": changed},
    )
    servers = page_servers(application(endpoints), stated, connect, SystemClock(), "agent")
    for server in servers:
        server.start()
    try:
        yield [server.port for server in servers]
    finally:
        for server in servers:
            server.stop()


def test_strangers_read_health_and_nothing_else() -> None:
    """On an address that others reach, in the clear as well; and change nothing."""
    changes: list[str] = []

    def change(text: str) -> str:
        changes.append(text)
        return text

    with serving(settings(ANYWHERE), change) as (port,):
        assert [ask(port, path).status for path in ALWAYS_ALLOWED] == [200, 200, 200]
        assert {ask(port, path).status for path in PAGES} == {403}
        for user, status in (("mallory", 401), ("bob", 403), ("", 403)):
            reply = ask(
                port,
                "/debug/flags/v",
                method="PUT",
                body="9",
                headers=as_user(user) if user else {},
            )
            assert reply.status == status
        assert changes == []

        assert ask(port, "/metrics", headers=as_user("admin")).status == 200
        ask(port, "/debug/flags/v", method="PUT", body="9", headers=as_user("admin"))
        assert changes == ["9"]


def test_a_loopback_address_requires_no_token() -> None:
    """Users on the machine and of a forwarded port have access; no API server is needed."""

    def connect() -> ReviewClient:
        raise AssertionError("nobody is to be asked")

    with serving(settings("127.0.0.1"), lambda text: text, connect) as (port,):
        assert ask(port, "/metrics").status == 200


def test_a_page_may_be_configured_without_authentication() -> None:
    """As for kube-scheduler, by the flag of the same name."""
    opened = settings(ANYWHERE, always_allowed=(*ALWAYS_ALLOWED, "/metrics"))
    with serving(opened, lambda text: text) as (port,):
        assert ask(port, "/metrics").status == 200
        assert ask(port, "/debug/threads").status == 403


@pytest.mark.slow
def test_the_secure_port_requires_a_token_from_every_client() -> None:
    """On loopback too, with a certificate of its own making; probes need none."""
    free = HttpServer(probes(HEALTH), "127.0.0.1", 0)
    free.start()
    port = free.port
    free.stop()
    with serving(settings(None, secure_port=port), lambda text: text) as (bound_port,):
        assert bound_port == port
        trusted = certificate_of(port)
        assert ask(port, "/livez", trusted=trusted).text == "ok"
        assert ask(port, "/metrics", trusted=trusted).status == 403
        assert ask(port, "/metrics", trusted=trusted, headers=as_user("admin")).status == 200


def test_a_health_port_has_health_only() -> None:
    """The manager's is public: no metrics of checks, no version, no reasons."""
    server = HttpServer(probes(HEALTH), "127.0.0.1", 0)
    server.start()
    try:
        assert [ask(server.port, path).status for path in ALWAYS_ALLOWED] == [200, 200, 200]
        assert {ask(server.port, path).status for path in PAGES} == {404}
    finally:
        server.stop()


@pytest.mark.parametrize(
    ("address", "only_here"),
    [("127.0.0.1", True), ("::1", True), ("localhost", True), ("::", False), ("10.0.0.1", False)],
)
def test_loopback_addresses_are_known(address: str, *, only_here: bool) -> None:
    """Text that is no address is a name; only one is certain."""
    assert is_loopback(address) is only_here


def test_certificate_and_key_come_together() -> None:
    """A certificate without a key is refused, and a key without a certificate."""
    with pytest.raises(InputError, match="must be set together"):
        PageSettings.parse(
            plain=None,
            secure_port=1,
            bind_address="::",
            tls_cert_file=Path("x"),
            tls_private_key_file=None,
            authorization_always_allow_paths="",
        )
