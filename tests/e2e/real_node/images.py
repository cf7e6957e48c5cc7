"""Two small images, made of a static busybox, as one OCI archive that containerd imports."""

import gzip
import hashlib
import io
import json
import subprocess
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import Any

PAUSE = "node.test/pause:1"  #: sleeps for ever: the sandbox's container
BUSYBOX = "node.test/busybox:1"  #: the usual small tools of a shell

_MEDIA = "application/vnd.oci.image"
FOREVER = ("/bin/busybox", "sleep", "2147483647")
SHELL = ("/bin/sh",)
_COMMANDS: Mapping[str, Sequence[str]] = MappingProxyType({PAUSE: FOREVER, BUSYBOX: SHELL})
_FOLDERS = ("bin", "etc", "tmp", "root", "var", "dev", "proc", "sys")


def pack_images(
    busybox: Path,
    archive: Path,
    commands: Mapping[str, Sequence[str]] = _COMMANDS,
    further: Mapping[str, Path] = MappingProxyType({}),
) -> None:
    """Write an archive of images by name, with their commands; by default both images.

    All have the same files: busybox, and ``further`` programs by their path.
    """
    blobs: dict[str, bytes] = {}

    def put(data: bytes, media: str) -> dict[str, Any]:
        digest = hashlib.sha256(data).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = data
        return {"mediaType": media, "digest": f"sha256:{digest}", "size": len(data)}

    def put_json(value: object, kind: str) -> dict[str, Any]:
        return put(json.dumps(value, sort_keys=True).encode(), f"{_MEDIA}.{kind}.v1+json")

    root = _root_file_system(busybox, further)
    layer = put(gzip.compress(root, mtime=0), f"{_MEDIA}.layer.v1.tar+gzip")
    platform = {"architecture": "amd64", "os": "linux"}
    manifests = []
    for name, command in commands.items():
        config = {
            **platform,
            "config": {"Cmd": command, "Env": ["PATH=/bin"]},
            "rootfs": {
                "type": "layers",
                "diff_ids": [f"sha256:{hashlib.sha256(root).hexdigest()}"],
            },
        }
        manifest = {
            "schemaVersion": 2,
            "mediaType": f"{_MEDIA}.manifest.v1+json",
            "config": put_json(config, "config"),
            "layers": [layer],
        }
        annotations = {
            "io.containerd.image.name": name,
            "org.opencontainers.image.ref.name": name.rpartition(":")[2],
        }
        manifests.append(
            {**put_json(manifest, "manifest"), "platform": platform, "annotations": annotations}
        )
    files = {
        "oci-layout": b'{"imageLayoutVersion":"1.0.0"}',
        "index.json": json.dumps({"schemaVersion": 2, "manifests": manifests}).encode(),
        **blobs,
    }
    with tarfile.open(archive, "w") as tar:
        for name, data in files.items():
            _add(tar, name, data)


def _root_file_system(busybox: Path, further: Mapping[str, Path]) -> bytes:
    """Return a tar of busybox, a link for each of its tools and the usual folders."""
    listed = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for folder in _FOLDERS:
            made = tarfile.TarInfo(folder)
            made.type, made.mode = tarfile.DIRTYPE, 0o1777 if folder == "tmp" else 0o755
            tar.addfile(made)
        _add(tar, "bin/busybox", busybox.read_bytes(), 0o755)
        for tool in listed.stdout.split():
            if tool != "busybox":
                link = tarfile.TarInfo(f"bin/{tool}")
                link.type, link.linkname = tarfile.SYMTYPE, "busybox"
                tar.addfile(link)
        for path, program in further.items():
            _add(tar, path, program.read_bytes(), 0o755)
        _add(tar, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
    return buffer.getvalue()


def _add(tar: tarfile.TarFile, name: str, data: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(data), mode
    tar.addfile(info, io.BytesIO(data))
