"""The image of ``make release``, built from the current commit."""

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import pytest
from release.layout import Layout
from release.pins import MIRROR, ROOT
from tests.e2e import network

_PROBE = "import sys, urllib.request; urllib.request.urlopen(sys.argv[1], timeout=30)"


@dataclass(frozen=True)
class Image:
    """An image as an OCI layout."""

    folder: Path

    @cached_property
    def manifest(self) -> dict[str, Any]:
        """The manifest of the image."""
        index = json.loads((self.folder / "index.json").read_text())
        return Layout(self.folder).find_image(index["manifests"][0]["digest"], "amd64")

    @cached_property
    def settings(self) -> dict[str, Any]:
        """User, environment and entry point."""
        config = json.loads(Layout(self.folder).read(self.manifest["config"]["digest"]))
        settings: dict[str, Any] = config["config"]
        return settings

    def unpack(self, root: Path) -> None:
        """Unpack the layers; only root can, because the files belong to it."""
        for layer in self.manifest["layers"]:
            path = self.folder / "blobs" / layer["digest"].replace(":", "/")
            with tarfile.open(path) as archive:
                archive.extractall(root, filter="fully_trusted")  # noqa: S202 -- just built here


def _run(command: Sequence[str]) -> subprocess.CompletedProcess[str]:
    here = network.on_machine(list(command))
    return subprocess.run(here, cwd=ROOT, capture_output=True, text=True, check=False)


def build_image(folder: Path, architecture: str = "amd64") -> Image:
    """Build the release; packages and wheels are downloaded the first time, about 150 MB.

    Skips the test where only root could go on, or without Debian's mirror.
    """
    if os.geteuid() != 0:
        pytest.skip("the image's files belong to root, and only root can enter its file system")
    url = f"{MIRROR}/debian/dists/trixie/InRelease"
    probed = _run([sys.executable, "-c", _PROBE, url])
    if probed.returncode:
        pytest.skip(f"{url}: {probed.stderr.strip().splitlines()[-1]}")
    bill = folder / "bill.json"
    bill.write_text("{}")
    command = [sys.executable, "-m", "release", f"--dist={folder}", f"--sbom={bill}"]
    command.append(f"--architecture={architecture}")
    built = _run([*command, "--repository-url=https://example.com/koordinator"])
    assert built.returncode == 0, built.stderr
    return Image(folder / "image")
