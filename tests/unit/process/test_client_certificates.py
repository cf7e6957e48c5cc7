"""Webhooks that answer the API server only, identified by its certificate."""

import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from http.client import HTTPSConnection
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from tests.e2e.controlplane.certificates import Authority
from tests.unit.process.clients import PATIENCE_S

from koordinator.foundation.errors import InputError
from koordinator.process.certificates import Pair, ReplaceableContext
from koordinator.process.http_server import HttpServer
from koordinator.process.serving_secret import self_signed

NOW_S = 1_767_225_600.0
SERVER = self_signed(("localhost",), NOW_S)


async def hello(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer."""
    await PlainTextResponse("hello")(scope, receive, send)


@dataclass
class Clients:
    """An authority, and the certificates of clients that it vouches for."""

    folder: Path

    def __post_init__(self) -> None:
        self._authority = Authority(self.folder)

    def ca(self) -> bytes:
        return self._authority.ca_path.read_bytes()

    def issue(self, name: str) -> Pair:
        certificate, key = self._authority.issue_client(name)
        return Pair(certificate.read_bytes(), key.read_bytes())


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Clients:
    """Return the clients of the authority that the server knows."""
    return Clients(tmp_path_factory.mktemp("known"))


@pytest.fixture(scope="module")
def unknown(tmp_path_factory: pytest.TempPathFactory) -> Clients:
    """Return the clients of another authority."""
    return Clients(tmp_path_factory.mktemp("unknown"))


@pytest.fixture(scope="module")
def apiserver(known: Clients) -> Pair:
    """Return the certificate of a client that is known."""
    return known.issue("kube-apiserver")


@pytest.fixture
def authority(tmp_path: Path, known: Clients) -> Path:
    """Return the file that vouches for known clients."""
    path = tmp_path / "ca.crt"
    path.write_bytes(known.ca())
    return path


@pytest.fixture
def context(authority: Path) -> ReplaceableContext:
    return ReplaceableContext(SERVER, authority)


@pytest.fixture
def port(context: ReplaceableContext) -> Iterator[int]:
    server = HttpServer(hello, "127.0.0.1", 0, context.context)
    server.start()
    yield server.port
    server.stop()


def answered(port: int, folder: Path, shown: Pair | None) -> bool:
    """Return whether a client that shows a certificate is answered."""
    tls = ssl.create_default_context(cadata=SERVER.certificate.decode())
    tls.check_hostname = False
    if shown is not None:
        path = folder / "client.pem"
        path.write_bytes(shown.certificate + shown.key)
        tls.load_cert_chain(path)
    connection = HTTPSConnection("localhost", port, timeout=PATIENCE_S, context=tls)
    try:
        connection.request("GET", "/")
        return connection.getresponse().read() == b"hello"
    except (ssl.SSLError, OSError):
        return False
    finally:
        connection.close()


def test_only_certificates_of_the_authority_are_accepted(
    port: int, tmp_path: Path, apiserver: Pair, unknown: Clients
) -> None:
    """No certificate, and one of another authority with the same name, get no answer."""
    assert answered(port, tmp_path, apiserver)
    assert not answered(port, tmp_path, None)
    assert not answered(port, tmp_path, unknown.issue("kube-apiserver"))


def test_a_new_authority_counts_with_the_next_look(  # noqa: PLR0917 -- one fixture each
    port: int,
    tmp_path: Path,
    apiserver: Pair,
    authority: Path,
    context: ReplaceableContext,
    unknown: Clients,
) -> None:
    """Rotation needs no restart; a file that can't be read leaves the last one in force."""
    authority.write_bytes(b"half a fi")
    context.replace(SERVER)
    assert answered(port, tmp_path, apiserver)

    authority.write_bytes(unknown.ca())
    context.replace(SERVER)
    assert answered(port, tmp_path, unknown.issue("new-apiserver"))
    assert not answered(port, tmp_path, apiserver)


def test_client_names_restrict_accepted_certificates(
    context: ReplaceableContext, tmp_path: Path, apiserver: Pair
) -> None:
    """Where one authority vouches for more than the API server."""
    for names, expected in ((("kube-apiserver", "x"), True), (("front-proxy",), False)):
        server = HttpServer(hello, "127.0.0.1", 0, context.context, client_names=names)
        server.start()
        try:
            assert answered(server.port, tmp_path, apiserver) is expected
        finally:
            server.stop()


@pytest.mark.parametrize("content", [None, b"", b"no certificate"])
def test_unreadable_authority_is_an_error(tmp_path: Path, content: bytes | None) -> None:
    """Rather than an open door; the message names the file."""
    path = tmp_path / "ca.crt"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"ca\.crt"):
        ReplaceableContext(SERVER, path)
