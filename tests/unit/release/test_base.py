"""Base image: its pin in release/base.txt, and pulls from a registry that requires a token."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread

import pytest
from release.base import (
    CONTAINERFILE,
    BaseError,
    Reference,
    parse_reference,
    pull,
    read_reference,
    update,
)
from release.layout import INDEX, MANIFEST, Layout, digest_of, encoded

CONFIG, LAYER = b'{"config":{}}', b"layer"
IMAGE = encoded(
    {
        "schemaVersion": 2,
        "mediaType": MANIFEST,
        "config": {"mediaType": "application/json", "digest": digest_of(CONFIG)},
        "layers": [{"mediaType": "application/tar+gzip", "digest": digest_of(LAYER)}],
    }
)
OTHER = {"digest": f"sha256:{'1' * 64}", "platform": {"os": "linux", "architecture": "arm64"}}
IMAGES = encoded(
    {
        "schemaVersion": 2,
        "mediaType": INDEX,
        "manifests": [
            OTHER,
            {"digest": digest_of(IMAGE), "platform": {"os": "linux", "architecture": "amd64"}},
        ],
    }
)


class Registry:
    """A registry with one image, whose blobs are in another place that refuses tokens."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.contents = {
            "/v2/python/manifests/3.13": IMAGES,
            f"/v2/python/manifests/{digest_of(IMAGES)}": IMAGES,
            f"/v2/python/manifests/{digest_of(IMAGE)}": IMAGE,
            f"/storage/{digest_of(CONFIG)}": CONFIG,
            f"/storage/{digest_of(LAYER)}": LAYER,
        }

    def answer(self, path: str, token: str | None) -> tuple[int, dict[str, str], bytes]:
        """Return status, headers and body of a request."""
        if path.startswith("/token?"):
            is_right = "service=here" in path and "scope=repository%3Apython%3Apull" in path
            return (200, {}, b'{"token":"secret"}') if is_right else (400, {}, b"")
        if path.startswith("/storage/"):
            content = self.contents.get(path)
            return (404, {}, b"") if content is None or token else (200, {}, content)
        if token != "Bearer secret":  # noqa: S105 -- of this test
            realm = f'realm="http://{self.address}/token",service="here"'
            challenge = f'Bearer {realm},scope="repository:python:pull"'
            return 401, {"WWW-Authenticate": challenge}, b""
        if "/blobs/" in path:
            return 307, {"Location": f"/storage/{path.rpartition('/')[2]}"}, b""
        content = self.contents.get(path)
        return (404, {}, b"") if content is None else (200, {}, content)


@contextmanager
def serving() -> Iterator[Registry]:
    """Serve a registry on this machine."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, headers, body = served.answer(self.path, self.headers.get("Authorization"))
            self.send_response(status)
            for name, value in {**headers, "Content-Length": str(len(body))}.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        served = Registry(f"127.0.0.1:{server.server_port}")
        thread = Thread(target=server.serve_forever)
        thread.start()
        try:
            yield served
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as running:
        yield running


def test_update_writes_the_digest_of_the_tag_to_both_files(
    registry: Registry, tmp_path: Path
) -> None:
    """Again, once the tag points to another image."""
    pinned, containerfile = tmp_path / "base.txt", tmp_path / "Containerfile"
    pinned.write_text(f"# comment\n{registry.address}/python:3.13\n")
    containerfile.write_text("ARG PYTHON=old\n\nFROM ${PYTHON}\n")

    for images in (IMAGES, IMAGES + b"\n"):
        registry.contents["/v2/python/manifests/3.13"] = images
        text = f"{registry.address}/python:3.13@{digest_of(images)}"
        assert str(update(pinned, containerfile)) == text
        assert pinned.read_text() == f"# comment\n{text}\n"
        assert containerfile.read_text() == f"ARG PYTHON={text}\n\nFROM ${{PYTHON}}\n"


def test_pull_copies_the_image_of_one_architecture(registry: Registry, tmp_path: Path) -> None:
    """The second pull of a digest needs no registry."""
    layout = Layout(tmp_path)
    reference = Reference(registry.address, "python", "3.13", digest_of(IMAGES))

    assert pull(reference, layout, "amd64") == digest_of(IMAGES)
    assert layout.find_image(digest_of(IMAGES), "amd64")["layers"]
    assert layout.read(digest_of(LAYER)) == LAYER
    (entry,) = json.loads((tmp_path / "index.json").read_text())["manifests"]
    assert (entry["digest"], entry["mediaType"]) == (digest_of(IMAGES), INDEX)
    registry.contents.clear()
    assert pull(reference, layout, "amd64") == digest_of(IMAGES)


def test_blob_with_another_digest_is_rejected(registry: Registry, tmp_path: Path) -> None:
    """Whatever the registry or its storage does."""
    registry.contents[f"/storage/{digest_of(LAYER)}"] = b"changed"
    reference = Reference(registry.address, "python", "3.13", digest_of(IMAGES))

    with pytest.raises(BaseError, match=f"expected {digest_of(LAYER)}"):
        pull(reference, Layout(tmp_path), "amd64")


def test_image_that_is_not_in_the_registry_is_an_error(registry: Registry, tmp_path: Path) -> None:
    """The message names the address."""
    reference = Reference(registry.address, "python", "3.13", f"sha256:{'2' * 64}")

    with pytest.raises(BaseError, match=r"/v2/python/manifests/sha256:2+: HTTP Error 404"):
        pull(reference, Layout(tmp_path), "amd64")


def test_base_without_digest_is_not_pulled(tmp_path: Path) -> None:
    """A release depends on bytes, not on a day."""
    reference = parse_reference("docker.io/library/python:3.13-slim-trixie")

    with pytest.raises(BaseError, match="has no digest: run 'make base'"):
        pull(reference, Layout(tmp_path), "amd64")


@pytest.mark.parametrize("text", ["python", "docker.io/library/python", "docker.io/p:1@sha256:0"])
def test_reference_that_is_not_whole_is_rejected(text: str) -> None:
    """Registry and tag are there, and a digest has 64 digits."""
    with pytest.raises(BaseError, match="must be REGISTRY/REPOSITORY:TAG"):
        parse_reference(text)


def test_containerfile_has_the_pinned_base() -> None:
    """Both ways to build take one image."""
    assert f"\nARG PYTHON={read_reference()}\n" in CONTAINERFILE.read_text("utf-8")
