"""The base image that ``release/base.txt`` pins: ``python -m release.base`` updates the digest.

A build takes the image by its digest only, from the registry or from an earlier build, and checks
every blob.  Source: opencontainers distribution-spec v1.1; Docker's token authentication.
"""

import json
import re
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, replace
from http.client import HTTPMessage
from pathlib import Path
from typing import IO, Any, Final

from release.layout import INDEX, MANIFEST, MANIFEST_TYPES, Layout, digest_of

ROOT: Final = Path(__file__).parents[1]
FILE: Final = ROOT / "release/base.txt"
CONTAINERFILE: Final = ROOT / "Containerfile"
_DOCKER: Final = "docker.io"
_TIMEOUT_S: Final = 60
_REFERENCE: Final = re.compile(
    r"(?P<registry>[\w.-]+(?::\d+)?)/(?P<repository>[\w./-]+):(?P<tag>[\w.-]+)"
    r"(?:@(?P<digest>sha256:[0-9a-f]{64}))?"
)
_CHALLENGE: Final = re.compile(r'(\w+)="([^"]*)"')
_ARGUMENT: Final = re.compile(r"^ARG PYTHON=(.*)$", re.MULTILINE)


class BaseError(Exception):
    """The base image is not pinned, or the registry does not have it."""


@dataclass(frozen=True, slots=True)
class Reference:
    """An image by registry, repository and tag, and by its digest if it is pinned."""

    registry: str
    repository: str
    tag: str
    digest: str | None

    def __str__(self) -> str:
        name = f"{self.registry}/{self.repository}:{self.tag}"
        return name if self.digest is None else f"{name}@{self.digest}"


def parse_reference(text: str) -> Reference:
    """Return the image that a line names.  Raises BaseError if it isn't a whole reference."""
    found = _REFERENCE.fullmatch(text)
    if found is None:
        raise BaseError(f"must be REGISTRY/REPOSITORY:TAG[@sha256:DIGEST], got {text!r}")
    return Reference(found["registry"], found["repository"], found["tag"], found["digest"])


def read_reference(file: Path = FILE) -> Reference:
    """Return the base image of a file, whose other lines are comments."""
    lines = [line for line in file.read_text("utf-8").splitlines() if not line.startswith("#")]
    return parse_reference("".join(lines))


def update(file: Path = FILE, containerfile: Path = CONTAINERFILE) -> Reference:
    """Write the digest that the tag has now to both files, and return the reference."""
    old = read_reference(file)
    manifest = _Registry(old).manifest(old.tag)
    new = replace(old, digest=digest_of(manifest))
    text = file.read_text("utf-8")
    file.write_text(text.replace(str(old), str(new)), "utf-8")
    text = containerfile.read_text("utf-8")
    containerfile.write_text(_ARGUMENT.sub(f"ARG PYTHON={new}", text), "utf-8")
    return new


def pull(reference: Reference, layout: Layout, architecture: str) -> str:
    """Copy the image of an architecture into a layout, and return the digest of the reference.

    Raises BaseError if the reference has no digest or the registry has another image.
    """
    if reference.digest is None:
        raise BaseError(
            f"{FILE.relative_to(ROOT)}: {reference} has no digest: run 'make base' where its "
            "registry can be reached and commit the result, or set BASE to LAYOUT@sha256:DIGEST, "
            "or to scratch for an image without Python"
        )
    registry = _Registry(reference)
    _copy(registry, layout, reference.digest, MANIFEST)
    manifest = json.loads(layout.read(reference.digest))
    for each in manifest.get("manifests", ()):
        if each.get("platform", {}).get("architecture") == architecture:
            _copy(registry, layout, each["digest"], MANIFEST)
    image = layout.find_image(reference.digest, architecture)
    for blob in (image["config"], *image["layers"]):
        _copy(registry, layout, blob["digest"], blob["mediaType"])
    layout.write_index([layout.descriptor(reference.digest, manifest.get("mediaType", INDEX))])
    return reference.digest


def _copy(registry: "_Registry", layout: Layout, digest: str, media_type: str) -> None:
    if layout.has(digest):
        return
    is_manifest = media_type == MANIFEST
    data = registry.manifest(digest) if is_manifest else registry.blob(digest)
    if digest_of(data) != digest:
        raise BaseError(f"{registry.reference}: expected {digest}, got {digest_of(data)}")
    layout.add(data, media_type)


class _WithoutCredentials(urllib.request.HTTPRedirectHandler):
    """Redirects of blobs, to storage that refuses the token of the registry."""

    def redirect_request(  # noqa: PLR0917 -- the signature of the base class
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        new = super().redirect_request(req, fp, code, msg, headers, newurl)
        if new is not None:
            new.remove_header("Authorization")
        return new


class _Registry:
    """Reads of one repository of a registry."""

    def __init__(self, reference: Reference) -> None:
        self.reference = reference
        host = "registry-1.docker.io" if reference.registry == _DOCKER else reference.registry
        scheme = "http" if host.partition(":")[0] in ("localhost", "127.0.0.1") else "https"
        self._url = f"{scheme}://{host}/v2/{reference.repository}"
        self._opener = urllib.request.build_opener(_WithoutCredentials)
        self._headers: dict[str, str] = {}

    def manifest(self, name: str) -> bytes:
        """Return the manifest or the index of a tag or digest."""
        return self._get(f"{self._url}/manifests/{name}", {"Accept": ", ".join(MANIFEST_TYPES)})

    def blob(self, digest: str) -> bytes:
        """Return a blob."""
        return self._get(f"{self._url}/blobs/{digest}", {})

    def _get(self, url: str, headers: Mapping[str, str]) -> bytes:
        try:
            return self._open(url, {**headers, **self._headers})
        except urllib.error.HTTPError as error:
            challenge = error.headers.get("WWW-Authenticate", "")
            if error.code != 401 or self._headers or not challenge.startswith("Bearer "):
                raise BaseError(f"{url}: {error}") from None
            self._headers = {"Authorization": f"Bearer {self._token(challenge)}"}
            return self._get(url, headers)
        except OSError as error:
            raise BaseError(f"{url}: {error}") from None

    def _token(self, challenge: str) -> str:
        fields = dict(_CHALLENGE.findall(challenge))
        wanted = {key: fields[key] for key in ("service", "scope") if key in fields}
        query = urllib.parse.urlencode(wanted)
        answer: Any = json.loads(self._open(f"{fields['realm']}?{query}", {}))
        return str(answer.get("token") or answer["access_token"])

    def _open(self, url: str, headers: Mapping[str, str]) -> bytes:
        request = urllib.request.Request(url, headers=dict(headers))  # noqa: S310 -- http or https, see above
        with self._opener.open(request, timeout=_TIMEOUT_S) as response:
            data: bytes = response.read()
        return data


if __name__ == "__main__":
    print(update())
