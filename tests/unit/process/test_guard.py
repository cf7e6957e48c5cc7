"""Only who is authorized reads what is not open to all."""

from collections.abc import Iterator
from typing import TypeVar

import pytest
from msgspec.structs import replace
from tests.unit.process.clients import ask

from koordinator.api.authentication import TokenReview, TokenReviewStatus, UserInfo
from koordinator.api.authorization import SubjectAccessReview, SubjectAccessReviewStatus
from koordinator.api.meta import KubeObject
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import ClusterError
from koordinator.process.authorization import Authorizer
from koordinator.process.endpoints import Endpoints, application
from koordinator.process.guard import Guard, bearer_token
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


def test_who_may_reads(port: int) -> None:
    """The application behind is unchanged."""
    assert ask(port, "/version", headers=as_user("admin")).json["major"].isdigit()


def test_who_is_unknown_is_told_so(port: int) -> None:
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
def test_who_may_not_is_told_what_is_missing(port: int, headers: dict[str, str], user: str) -> None:
    """Verb and path are what a ClusterRole has to name."""
    reply = ask(port, "/livez/ping", headers=headers)

    assert reply.status == 403
    assert reply.json["reason"] == "Forbidden"
    assert reply.json["message"] == f'forbidden: User "{user}" cannot get path "/livez/ping"'


def test_a_path_can_not_be_disguised(port: int) -> None:
    """What is decided about is what is served."""
    assert ask(port, "/healthz/../version").status == 403
    assert ask(port, "/%76ersion").status == 403


def test_an_api_server_that_is_down_is_an_error(port: int) -> None:
    """Not a refusal, which would send people to look at RBAC."""
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
