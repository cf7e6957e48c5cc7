"""OCI image layouts: a folder of blobs by digest, and an index.

Source: opencontainers image-spec v1.1, image-layout.md, manifest.md, descriptor.md.
"""

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

INDEX: Final = "application/vnd.oci.image.index.v1+json"
MANIFEST: Final = "application/vnd.oci.image.manifest.v1+json"
CONFIG: Final = "application/vnd.oci.image.config.v1+json"
LAYER: Final = "application/vnd.oci.image.layer.v1.tar+gzip"
EMPTY: Final = "application/vnd.oci.empty.v1+json"
_DOCKER_MANIFEST: Final = "application/vnd.docker.distribution.manifest.v2+json"
_DOCKER_INDEX: Final = "application/vnd.docker.distribution.manifest.list.v2+json"
_INDEXES: Final = (INDEX, _DOCKER_INDEX)
_MANIFESTS: Final = (MANIFEST, _DOCKER_MANIFEST)

Descriptor = dict[str, Any]


class LayoutError(Exception):
    """A layout is incomplete, or a blob does not have its digest."""


def encoded(tree: Any) -> bytes:
    """Return JSON with sorted keys: equal trees have equal digests."""
    return json.dumps(tree, sort_keys=True, separators=(",", ":")).encode()


def digest_of(data: bytes) -> str:
    """Return the digest of a blob."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


class Layout:
    """Layout in a folder; blobs are checked against their digests when they are read."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def add(self, data: bytes, media_type: str) -> Descriptor:
        """Store a blob and return its descriptor."""
        digest = digest_of(data)
        path = self._path(digest)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        return {"mediaType": media_type, "digest": digest, "size": len(data)}

    def add_manifest(self, fields: Mapping[str, Any]) -> Descriptor:
        """Store an image manifest and return its descriptor."""
        manifest = {"schemaVersion": 2, "mediaType": MANIFEST, **fields}
        return self.add(encoded(manifest), MANIFEST)

    def read(self, digest: str) -> bytes:
        """Return a blob.  Raises LayoutError if it is missing or another one."""
        try:
            data = self._path(digest).read_bytes()
        except OSError as error:
            raise LayoutError(f"{self.folder}: blob {digest}: {error.strerror}") from None
        if digest_of(data) != digest:
            raise LayoutError(f"{self.folder}: blob {digest} has the digest {digest_of(data)}")
        return data

    def write_index(self, manifests: Sequence[Descriptor]) -> None:
        """Write the index and the marker of the layout."""
        self.folder.mkdir(parents=True, exist_ok=True)
        index = {"schemaVersion": 2, "mediaType": INDEX, "manifests": list(manifests)}
        (self.folder / "index.json").write_bytes(encoded(index))
        (self.folder / "oci-layout").write_bytes(encoded({"imageLayoutVersion": "1.0.0"}))

    def find_image(self, digest: str, architecture: str) -> dict[str, Any]:
        """Return the manifest with a digest, or the one of a platform in the index with it.

        Raises LayoutError if there is none for the platform.
        """
        tree: dict[str, Any] = json.loads(self.read(digest))
        if tree.get("mediaType") in _MANIFESTS or "layers" in tree:
            return tree
        for each in tree.get("manifests", ()):
            platform = each.get("platform", {})
            if (platform.get("os"), platform.get("architecture")) == ("linux", architecture):
                return self.find_image(each["digest"], architecture)
        raise LayoutError(f"{self.folder}: {digest} has no image for linux/{architecture}")

    def _path(self, digest: str) -> Path:
        algorithm, _, name = digest.partition(":")
        if algorithm != "sha256" or len(name) != 64 or not set(name) <= set("0123456789abcdef"):
            raise LayoutError(f"digest must be sha256:<64 hexadecimal digits>, got {digest!r}")
        return self.folder / "blobs" / algorithm / name
