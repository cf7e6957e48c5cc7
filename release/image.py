"""OCI image of a wheel and its dependencies on a base image, without a container engine.

The image runs as another user than root.  Beside it, the index has the bill of materials, which
refers to the image.
Source: opencontainers image-spec v1.1, config.md, layer.md, manifest.md (artifacts).
"""

import datetime as dt
import json
import zipfile
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from koordinator.cli.main import PROGRAMS
from release.archives import PROGRAM, Entry, compressed, entries_below, tar
from release.byte_code import Compiler
from release.layout import CONFIG, EMPTY, LAYER, Descriptor, Layout, digest_of, encoded

USER: Final = "65532:65532"
_SBOM: Final = "application/vnd.cyclonedx+json"
_HOME: Final = "opt/koordinator"
_PACKAGES: Final = f"{_HOME}/site-packages"
_PYTHON: Final = "/usr/bin/env python3"  # wherever a base has it
_PROGRAM: Final = """#!{python}
from koordinator.cli.main import main

main()
"""


@dataclass(frozen=True, slots=True)
class Base:
    """A base image: its layout, the digest of its manifest or index, and how it starts Python.

    With the compiler of its Python, modules in the layers above have byte code.
    """

    layout: Layout
    digest: str
    python: str = _PYTHON
    compiler: Compiler | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ImageParts:
    """Content of an image; ``dependencies`` is a folder as ``pip install --target`` makes it."""

    wheel: Path
    dependencies: Path | None
    sbom: bytes
    time_s: int
    version: str
    architecture: str = "amd64"
    annotations: Mapping[str, str]


def write_image(folder: Path, parts: ImageParts, base: Base | None) -> str:
    """Write an image layout with image and bill of materials, and return the image's digest.

    Without a base the image has no Python.  Raises LayoutError if the base is incomplete.
    """
    layout = Layout(folder)
    config, layers = _base_of(layout, base, parts.architecture)
    created = dt.datetime.fromtimestamp(parts.time_s, dt.UTC).isoformat().replace("+00:00", "Z")
    added = []
    if parts.dependencies is not None:
        added.append(entries_below(parts.dependencies, _PACKAGES))
    python = _PYTHON if base is None else base.python
    added.append([*_wheel_entries(parts.wheel), *_program_entries(python)])
    compiler = base.compiler if base is not None else None
    for entries in added:
        archive = tar(compiler.with_byte_code(entries) if compiler else entries, parts.time_s)
        layers.append(layout.add(compressed(archive), LAYER))
        config["rootfs"]["diff_ids"].append(digest_of(archive))
        history = {"created": created, "created_by": "release.image", "comment": "koordinator"}
        config["history"].append(history)
    config |= {"created": created, "architecture": parts.architecture, "os": "linux"}
    config["config"] |= _run_settings(config["config"])
    image = layout.add_manifest(
        {
            "config": layout.add(encoded(config), CONFIG),
            "layers": layers,
            "annotations": _annotations(parts, base, created),
        }
    )
    bill = layout.add_manifest(
        {
            "artifactType": _SBOM,
            "config": layout.add(b"{}", EMPTY),
            "layers": [layout.add(parts.sbom, _SBOM)],
            "subject": image,
        }
    )
    tag = {"org.opencontainers.image.ref.name": parts.version}
    platform = {"os": "linux", "architecture": parts.architecture}
    layout.write_index([{**image, "platform": platform, "annotations": tag}, bill])
    digest: str = image["digest"]
    return digest


def _base_of(
    layout: Layout, base: Base | None, architecture: str
) -> tuple[dict[str, Any], list[Descriptor]]:
    """Copy the layers of the base; return its configuration and the descriptors."""
    empty: dict[str, Any] = {"config": {}, "rootfs": {"type": "layers", "diff_ids": []}}
    if base is None:
        return empty | {"history": []}, []
    manifest = base.layout.find_image(base.digest, architecture)
    config = json.loads(base.layout.read(manifest["config"]["digest"]))
    config.setdefault("history", [])
    config.setdefault("config", {})
    layers = []
    for each in manifest["layers"]:
        media_type = LAYER if each["mediaType"].endswith("gzip") else each["mediaType"]
        layers.append(layout.add(base.layout.read(each["digest"]), media_type))
    return config, layers


def _run_settings(config: Mapping[str, Any]) -> dict[str, Any]:
    variables = dict(each.split("=", 1) for each in config.get("Env", ()))
    path = variables.pop("PATH", "/usr/bin:/bin")
    variables |= {
        "NUMBA_CACHE_DIR": "/tmp/numba",  # noqa: S108 -- of the container
        "PYTHONPATH": f"/{_PACKAGES}",  # also for further processes that koord starts
    }
    settings = {"PATH": f"/{_HOME}/bin:{path}", **variables}
    return {
        "User": USER,
        "Env": [f"{name}={value}" for name, value in settings.items()],
        "Entrypoint": ["koord"],
        "Cmd": [],
    }


def _wheel_entries(wheel: Path) -> Iterable[Entry]:
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith("/"):
                yield Entry(f"{_PACKAGES}/{name}", archive.read(name))


def _program_entries(python: str) -> Iterable[Entry]:
    text = _PROGRAM.format(python=python)
    yield Entry(f"{_HOME}/bin/koord", text.encode(), mode=PROGRAM)
    for program in PROGRAMS:
        yield Entry(program, target=f"/{_HOME}/bin/koord")


def _annotations(parts: ImageParts, base: Base | None, created: str) -> dict[str, str]:
    prefix = "org.opencontainers.image"
    found = {
        f"{prefix}.created": created,
        f"{prefix}.licenses": "Apache-2.0",
        f"{prefix}.title": "koordinator",
        f"{prefix}.version": parts.version,
        **parts.annotations,
    }
    if base is not None:
        found[f"{prefix}.base.digest"] = base.digest
    return found
