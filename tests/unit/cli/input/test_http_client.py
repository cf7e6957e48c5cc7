"""Requests to a running component: over TLS, with an identity, or rejected with a remedy."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route
from typer.testing import CliRunner

from koordinator.cli.input.http_client import ComponentClient
from koordinator.cli.main import app
from koordinator.foundation.clock import SystemClock
from koordinator.foundation.errors import ClusterError, InputError
from koordinator.process.certificates import context_of_directory
from koordinator.process.http_server import HttpServer

TOKEN = "secret"  # noqa: S105 -- of this test
NAMES = ("localhost", "127.0.0.1")


def audit(request: Request) -> Response:
    """Answer who asks with the token, as the scheduler's secure port does."""
    given = request.headers.get("authorization")
    if given is None:
        return JSONResponse({"message": "forbidden"}, 403)
    if given != f"Bearer {TOKEN}":
        return JSONResponse({"message": "Unauthorized"}, 401)
    return JSONResponse({"entries": [{"atS": 1.0, "outcome": "bound", "pods": [["a/x", "n1", 1]]}]})


def other(_: Request) -> Response:
    return Response("<html>")


def away(_: Request) -> Response:
    return RedirectResponse("/apis/v1/audit")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("serving") / "server.crt"


@pytest.fixture(scope="module")
def url(certificate: Path) -> Iterator[str]:
    """Serve with a certificate of its own making."""
    tls = context_of_directory(certificate.parent, "server", NAMES, SystemClock())
    routes = [Route("/apis/v1/audit", audit), Route("/away", away)]
    routes.append(Route("/other/apis/v1/audit", other))
    server = HttpServer(Starlette(routes=routes), "127.0.0.1", 0, tls)
    server.start()
    yield f"https://127.0.0.1:{server.port}"
    server.stop()


def kubeconfig(folder: Path, **user: str) -> str:
    """Write a kubeconfig of one user; its cluster is another server."""
    path = folder / "config"
    path.write_text(
        yaml.safe_dump(
            {
                "current-context": "c",
                "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
                "clusters": [{"name": "k", "cluster": {"server": "https://nowhere.invalid"}}],
                "users": [{"name": "u", "user": user}],
            }
        )
    )
    return str(path)


def run(*flags: str) -> object:
    """Return what ``koord audit --list`` shows."""
    done = CliRunner().invoke(app, ["audit", "--list", "-o", "json", *flags])
    if done.exception is not None:
        raise done.exception
    return [it["pods"] for it in json.loads(done.stdout)["entries"]]


def test_requests_carry_the_token_of_the_kubeconfig(
    url: str, certificate: Path, tmp_path: Path
) -> None:
    """The token is sent to the scheduler, whatever server the kubeconfig names."""
    flags = ("--server", url, "--certificate-authority", str(certificate))
    assert run(*flags, "--kubeconfig", kubeconfig(tmp_path, token=TOKEN)) == [[["a/x", "n1", 1]]]
    assert run(*flags, "--token", TOKEN) == [[["a/x", "n1", 1]]]
    assert run("--server", url, "--insecure-skip-tls-verify", "--token", TOKEN)


def test_a_refusal_names_the_missing_permission(url: str, certificate: Path) -> None:
    """A user without rights is rejected; a wrong token is no identity."""
    flags = ("--server", url, "--certificate-authority", str(certificate))
    with pytest.raises(
        ClusterError, match=r"403: .*client certificates are not looked at.*--token"
    ):
        run(*flags)
    with pytest.raises(ClusterError, match=r"401: .*run out"):
        run(*flags, "--token", "wrong")


def test_an_unknown_certificate_is_not_trusted(url: str) -> None:
    """The message names both ways out."""
    with pytest.raises(ClusterError, match=r"--certificate-authority.*--insecure-skip-tls-verify"):
        run("--server", url, "--token", TOKEN)


def test_a_token_is_not_sent_in_the_clear_nor_on() -> None:
    """Over plain HTTP, or to wherever a server points."""
    with pytest.raises(InputError, match="https"):
        run("--server", "http://127.0.0.1:1", "--token", TOKEN)


def test_a_redirect_is_not_followed(url: str, certificate: Path) -> None:
    """The target of a redirect would receive the token."""
    client = ComponentClient(token=TOKEN, certificate_authority=certificate)
    with pytest.raises(ClusterError, match="answered 307"):
        client.get(url, "/away", {})


def test_another_server_is_distinguished_from_a_scheduler(url: str, certificate: Path) -> None:
    """The other server's answer is of another kind than requested."""
    flags = ("--server", f"{url}/other", "--token", TOKEN)
    with pytest.raises(ClusterError, match="is not a scheduler"):
        run(*flags, "--certificate-authority", str(certificate))


def test_credentials_are_for_a_server(tmp_path: Path) -> None:
    """Files need none."""
    with pytest.raises(InputError, match="requires --server"):
        run(str(tmp_path), "--token", TOKEN)
