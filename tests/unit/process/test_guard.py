"""Only who is authorized reads what is not open to all."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from contextlib import ExitStack
from typing import TypeVar

import pytest
from msgspec.structs import replace
from tests.unit.process.clients import PATIENCE_S, ask

from koordinator.api.control_plane import (
    SubjectAccessReview,
    SubjectAccessReviewStatus,
    TokenReview,
    TokenReviewStatus,
    UserInfo,
)
from koordinator.api.meta import KubeObject
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError
from koordinator.process.authorization import Authorizer
from koordinator.process.endpoints import Endpoints, application
from koordinator.process.guard import MOST_WAITING, Guard, bearer_token
from koordinator.process.http_server import HttpServer

KindT = TypeVar("KindT", bound=KubeObject)


class Reviews:
    """An API server where a token is a user's name, and admin may read everything."""

    def create(self, obj: KindT) -> KindT:
        if isinstance(obj, TokenReview):
            name = obj.spec.token
            known = TokenReviewStatus(authenticated=name != "mallory", user=UserInfo(username=name))
            return replace(obj, status=known)
        assert isinstance(obj, SubjectAccessReview)
        if obj.spec.user == "unlucky":
            raise ClusterError("connection refused")
        return replace(obj, status=SubjectAccessReviewStatus(allowed=obj.spec.user == "admin"))


@pytest.fixture(scope="module")
def port() -> Iterator[int]:
    guard = Guard(application(Endpoints()), Authorizer(Reviews(), VirtualClock()))
    server = HttpServer(guard, "localhost", 0)
    server.start()
    yield server.port
    server.stop()


def as_user(name: str) -> dict[str, str]:
    return {"authorization": f"Bearer {name}"}


def test_health_is_open(port: int) -> None:
    """The kubelet has no token, and needs none even with a bad one."""
    assert ask(port, "/healthz").status == 200
    assert ask(port, "/healthz", headers=as_user("mallory")).status == 200


def test_authorized_user_reads(port: int) -> None:
    """The application behind is unchanged."""
    assert ask(port, "/version", headers=as_user("admin")).json["major"].isdigit()


def test_unknown_user_is_unauthorized(port: int) -> None:
    """With the Status that clients of Kubernetes understand."""
    reply = ask(port, "/version", headers=as_user("mallory"))

    assert reply.status == 401
    assert reply.json == {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": "Unauthorized",
        "reason": "Unauthorized",
        "code": 401,
    }


@pytest.mark.parametrize(("headers", "user"), [({}, "system:anonymous"), (as_user("bob"), "bob")])
def test_forbidden_user_learns_the_missing_permission(
    port: int, headers: dict[str, str], user: str
) -> None:
    """Verb and path are what a ClusterRole has to name."""
    reply = ask(port, "/livez/ping", headers=headers)

    assert reply.status == 403
    assert reply.json["reason"] == "Forbidden"
    assert reply.json["message"] == f'forbidden: User "{user}" cannot get path "/livez/ping"'


def test_disguised_paths_are_guarded(port: int) -> None:
    """Authorization is decided for the path that is served."""
    assert ask(port, "/healthz/../version").status == 403
    assert ask(port, "/%76ersion").status == 403


def test_an_api_server_that_is_down_is_an_error(port: int) -> None:
    """The answer is no refusal, which would suggest an RBAC problem."""
    reply = ask(port, "/version", headers=as_user("unlucky"))

    assert (reply.status, reply.text) == (
        500,
        'Internal Server Error: "/version": connection refused\n',
    )


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer abc", "abc"),
        (" bearer abc ", "abc"),
        ("Bearer abc def", "abc"),
        ("Bearer", ""),
        ("Bearer  abc", ""),
        ("Basic abc", ""),
        ("", ""),
    ],
)
def test_tokens_are_found_in_the_header(header: str, token: str) -> None:
    """As the API server reads it."""
    assert bearer_token(header) == token


class SlowReviews(Reviews):
    """Reviews that wait for ``go_on``; ``asked`` are the tokens, in order."""

    def __init__(self) -> None:
        self.tokens: list[str] = []
        self.arrived, self.go_on = threading.Event(), threading.Event()

    def create(self, obj: KindT) -> KindT:
        if isinstance(obj, TokenReview):
            self.tokens.append(obj.spec.token)
            self.arrived.set()
            assert self.go_on.wait(PATIENCE_S)
        return super().create(obj)


@pytest.fixture
def slow() -> Iterator[tuple[SlowReviews, HttpServer]]:
    """Run a server whose API server does not answer yet."""
    reviews = SlowReviews()
    app = application(Endpoints())
    server = HttpServer(Guard(app, Authorizer(reviews, VirtualClock())), "127.0.0.1", 0)
    server.start()
    yield reviews, server
    reviews.go_on.set()
    server.stop()


def send(server: HttpServer, token: str, source: str = "127.0.0.2") -> socket.socket:
    """Request a page from an address of this machine, on a connection of its own."""
    there = ("127.0.0.1", server.port)
    connection = socket.create_connection(there, PATIENCE_S, source_address=(source, 0))
    head = f"GET /version HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n"
    connection.sendall(head.encode() + b"Connection: close\r\n\r\n")
    return connection


def status_of(connection: socket.socket) -> int:
    """Return the status that is answered."""
    received = b""
    while chunk := connection.recv(4096):
        received += chunk
    return int(received.split(b" ", 2)[1])


def test_a_client_with_many_requests_waits_for_itself(slow: tuple[SlowReviews, HttpServer]) -> None:
    """Beyond a few it is answered with 503 at once; a request of another is the next reviewed."""
    reviews, server = slow
    with ExitStack() as opened, ThreadPoolExecutor(40) as pool:
        flood = [opened.enter_context(send(server, f"bob{n}")) for n in range(MOST_WAITING + 9)]
        answers: list[Future[int]] = [pool.submit(status_of, each) for each in flood]
        assert reviews.arrived.wait(PATIENCE_S)
        for _, done in zip(range(8), as_completed(answers, PATIENCE_S), strict=False):
            assert done.result() == 503
        other = opened.enter_context(send(server, "admin", "127.0.0.3"))
        answer = pool.submit(status_of, other)
        assert ask(server.port, "/healthz").status == 200
        reviews.go_on.set()

        assert answer.result(PATIENCE_S) == 200
        statuses = sorted(each.result(PATIENCE_S) for each in answers)
    assert statuses == [403] * (MOST_WAITING + 1) + [503] * 8
    assert reviews.tokens.index("admin") <= 2


def test_requests_of_lost_connections_are_not_reviewed(
    slow: tuple[SlowReviews, HttpServer],
) -> None:
    """A client that sends and leaves costs the API server nothing."""
    reviews, server = slow
    first = send(server, "bob")
    assert reviews.arrived.wait(PATIENCE_S)
    for number in range(MOST_WAITING):
        with send(server, f"gone{number}") as connection:
            connection.shutdown(socket.SHUT_WR)
    with send(server, "admin", "127.0.0.3") as other:
        assert ask(server.port, "/healthz").status == 200
        reviews.go_on.set()
        assert status_of(other) == 200
    with first:
        assert status_of(first) == 403
    assert set(reviews.tokens) == {"bob", "admin"}
