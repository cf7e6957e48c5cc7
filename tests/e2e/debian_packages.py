"""Packages of Debian, of the releases that this machine's apt knows, unpacked, not installed."""

import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from tests.e2e import network
from tests.e2e.controlplane.errors import ControlPlaneError


def unpack_packages(names: Iterable[str], folder: Path) -> list[str]:
    """Download packages and unpack them into a folder; return the names of their files.

    They have the current versions of this machine's sources, whose signatures apt checks: these fit
    its libraries.  Raises ControlPlaneError if that fails.
    """
    packages = folder / "packages"
    packages.mkdir()
    run(["apt-get", "-qq", "download", *dict.fromkeys(names)], packages)
    files = sorted(packages.iterdir())
    for file in files:
        run(["dpkg-deb", "--extract", str(file), str(folder)], folder)
    shutil.rmtree(packages)
    return [file.name for file in files]


def run(command: list[str], folder: Path | None = None) -> str:
    """Return the output of a command in the machine's network; ControlPlaneError if it fails."""
    here = network.on_machine(command)
    done = subprocess.run(here, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise ControlPlaneError(f"{' '.join(command)}:\n{done.stderr}")
    return done.stdout
