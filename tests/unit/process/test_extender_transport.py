"""Questions to extenders over real connections: TLS, deadlines, and services that misbehave."""

import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from koordinator.api.kubescheduler import Extender, ExtenderTLSConfig
from koordinator.foundation.clock import Duration
from koordinator.foundation.errors import ExtenderError, InputError, SilentExtenderError
from koordinator.process.extender_transport import HttpExtenderTransport, unverified
from koordinator.process.serving_secret import self_signed

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"
Serve = Callable[[socket.socket], None]


@contextmanager
def service(serve: Serve, tls: ssl.SSLContext | None = None) -> Iterator[int]:
    """Answer each connection as ``serve`` does; yield the port."""
    listener = socket.create_server(("127.0.0.1", 0))

    def accept() -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            with suppress(OSError):
                if tls is not None:
                    connection = tls.wrap_socket(connection, server_side=True)
                with connection:
                    serve(connection)

    thread = threading.Thread(target=accept, daemon=True)
    thread.start()
    try:
        yield listener.getsockname()[1]
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5)


def serving_pair(folder: Path, name: str) -> tuple[Path, Path]:
    """Return files with a certificate for a name, its own authority, and the key."""
    folder.mkdir(exist_ok=True)
    made = self_signed((name,), time.time())  # noqa: TID251 -- the clock of TLS
    certificate, key = folder / "tls.crt", folder / "tls.key"
    certificate.write_bytes(made.certificate)
    key.write_bytes(made.key)
    return certificate, key


def question(connection: socket.socket) -> bytes:
    """Read one request, whole."""
    data = b""
    while b"\r\n\r\n" not in data:
        more = connection.recv(65536)
        if not more:
            return b""
        data += more
    head, _, body = data.partition(b"\r\n\r\n")
    length = next(
        int(line.split(b":")[1])
        for line in head.lower().split(b"\r\n")
        if line.startswith(b"content-length")
    )
    while len(body) < length:
        body += connection.recv(65536)
    return head + b"\r\n\r\n" + body


@contextmanager
def transport(
    port: int, timeout: str = "60s", tls: ExtenderTLSConfig | None = None
) -> Iterator[HttpExtenderTransport]:
    """Yield a transport, over TLS if that is configured."""
    one = HttpExtenderTransport(
        Extender(
            url_prefix=f"{'https' if tls else 'http'}://127.0.0.1:{port}/prefix/",
            http_timeout=Duration.parse(timeout),
            enable_https=tls is not None,
            tls_config=tls,
        )
    )
    try:
        yield one
    finally:
        one.close()


def test_a_verb_is_posted_below_the_prefix_on_one_connection() -> None:
    """All requests use one connection."""
    requests: list[bytes] = []

    def serve(connection: socket.socket) -> None:
        while request := question(connection):
            requests.append(request)
            connection.sendall(OK)

    with service(serve) as port, transport(port) as one:
        assert [one.post("filter", b"[1]"), one.post("bind", b"[2]")] == [b"{}", b"{}"]

    assert requests[0].startswith(b"POST /prefix/filter HTTP/1.1\r\n")
    assert requests[1].endswith(b"\r\n\r\n[2]")


def test_a_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    """A service may restart between two questions."""

    def serve(connection: socket.socket) -> None:
        question(connection)
        connection.sendall(OK)

    with service(serve) as port, transport(port) as one:
        assert [one.post("filter", b"1"), one.post("filter", b"2")] == [b"{}", b"{}"]


def test_only_200_is_an_answer() -> None:
    """A redirect is not followed, and the error quotes the body in one line."""

    def serve(connection: socket.socket) -> None:
        question(connection)
        text = b"HTTP/1.1 307 Moved\r\nLocation: http://127.0.0.1:1/\r\n"
        connection.sendall(text + b"Content-Length: 8\r\n\r\nover\nhere")

    with (
        service(serve) as port,
        transport(port) as one,
        pytest.raises(ExtenderError, match=r"^307 over her"),
    ):
        one.post("filter", b"")


def _drip(connection: socket.socket) -> None:
    question(connection)
    with suppress(OSError):
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n")
        for _ in range(200):
            connection.sendall(b" ")
            time.sleep(0.05)


def _drip_head(connection: socket.socket) -> None:
    question(connection)
    with suppress(OSError):
        for _ in range(200):
            connection.sendall(b"H")
            time.sleep(0.05)


def _say_nothing(connection: socket.socket) -> None:
    question(connection)
    with suppress(OSError):
        connection.settimeout(10)
        connection.recv(1)


def _hang_up(connection: socket.socket) -> None:
    question(connection)


def _half(connection: socket.socket) -> None:
    question(connection)
    connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")


def _noise(connection: socket.socket) -> None:
    question(connection)
    connection.sendall(b"\x00\xff" * 40_000 + b"\r\n\r\n")


@pytest.mark.slow
@pytest.mark.parametrize("serve", [_drip, _drip_head, _say_nothing, _hang_up, _half, _noise])
def test_a_service_that_misbehaves_is_silent_in_time(serve: Serve) -> None:
    """A byte now and then prolongs nothing."""
    with (
        service(serve) as port,
        transport(port, "300ms") as one,
        pytest.raises(SilentExtenderError),
    ):
        one.post("filter", b"x")


def test_refused_connection_is_reported() -> None:
    """The error has the reason of the operating system."""
    with service(_hang_up) as port:
        pass
    with transport(port) as one, pytest.raises(SilentExtenderError, match="refused"):
        one.post("filter", b"")


def _answer(connection: socket.socket) -> None:
    question(connection)
    connection.sendall(OK)


@pytest.mark.parametrize("as_data", [True, False])
def test_the_certificate_of_a_service_is_verified_by_its_authority(
    tmp_path: Path, as_data: bool
) -> None:
    """Given as data or as a file."""
    certificate, key = serving_pair(tmp_path, "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    tls = (
        ExtenderTLSConfig(ca_data=certificate.read_bytes())
        if as_data
        else ExtenderTLSConfig(ca_file=str(certificate))
    )
    with service(_answer, context) as port, transport(port, tls=tls) as one:
        assert one.post("filter", b"") == b"{}"


def test_another_certificate_is_refused(tmp_path: Path) -> None:
    """The service's certificate must be the configured one, even for the right address."""
    served, key = serving_pair(tmp_path / "a", "127.0.0.1")
    trusted, _ = serving_pair(tmp_path / "b", "127.0.0.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(served, key)
    tls = ExtenderTLSConfig(ca_file=str(trusted))
    with (
        service(_answer, context) as port,
        transport(port, tls=tls) as one,
        pytest.raises(SilentExtenderError, match=r"(?i)certif"),
    ):
        one.post("filter", b"")


@pytest.mark.parametrize("name", ["extender.example", "another.example"])
def test_a_service_may_go_by_another_name(tmp_path: Path, name: str) -> None:
    """``serverName``, and no other."""
    served, key = serving_pair(tmp_path / "a", "extender.example")
    client, client_key = serving_pair(tmp_path / "b", "scheduler")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(served, key)
    tls = ExtenderTLSConfig(
        ca_file=str(served),
        server_name=name,
        cert_data=client.read_bytes(),
        key_data=client_key.read_bytes(),
    )
    with service(_answer, context) as port, transport(port, tls=tls) as one:
        if name == "extender.example":
            assert one.post("filter", b"") == b"{}"
        else:
            with pytest.raises(SilentExtenderError):
                one.post("filter", b"")


def test_https_without_an_authority_verifies_no_certificate(tmp_path: Path) -> None:
    """kube-scheduler does the same; ``unverified`` reports it to the builder of the transport."""
    certificate, key = serving_pair(tmp_path, "elsewhere")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with service(_answer, context) as port, transport(port, tls=ExtenderTLSConfig()) as one:
        assert one.post("filter", b"") == b"{}"
    assert unverified(Extender(enable_https=True))
    assert not unverified(Extender(enable_https=True, tls_config=ExtenderTLSConfig(ca_file="x")))


@pytest.mark.parametrize(
    ("tls", "path"),
    [
        (ExtenderTLSConfig(ca_file="/nowhere"), "tlsConfig"),
        (ExtenderTLSConfig(ca_data=b"\xff"), "tlsConfig"),
        (ExtenderTLSConfig(cert_data=b"x"), "tlsConfig"),
        (ExtenderTLSConfig(cert_data=b"x", key_data=b"y"), "tlsConfig"),
        (ExtenderTLSConfig(insecure=True, ca_file="x"), "tlsConfig.insecure"),
    ],
)
def test_unusable_certificates_are_refused_at_start(tls: ExtenderTLSConfig, path: str) -> None:
    """With the path in the configuration."""
    with pytest.raises(InputError, match=path), transport(1, tls=tls):
        pass
