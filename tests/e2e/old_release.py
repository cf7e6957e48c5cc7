"""The release before, in an environment of its own, for tests of an upgrade.

``KOORD_OLD_COMMIT`` names its commit; without it the last tag counts.  Tests are skipped without
both.
"""

import os
import subprocess
import sys
import sysconfig
import tarfile
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.e2e import network
from tests.e2e.controlplane.builds import cached

VARIABLE = "KOORD_OLD_COMMIT"

_ROOT = Path(__file__).parents[2]
_REQUIREMENTS = "requirements/image.txt"
_MAIN = "from koordinator.cli.main import main; main()"


def old_commit() -> str:
    """Return the commit of the old release; skip the test if there is none."""
    named = os.environ.get(VARIABLE)
    if named:
        return _git("rev-parse", f"{named}^{{commit}}")
    tags = _git("tag", "--merged", "HEAD", "--sort=-creatordate").splitlines()
    if not tags:
        pytest.skip(f"there is no tag of a release, and {VARIABLE} names no commit")
    return _git("rev-parse", f"{tags[0]}^{{commit}}")


def old_koord() -> Sequence[str]:
    """Return the command of the old release; the first call installs it."""
    commit = old_commit()
    folder = cached("koord-old", commit[:12], lambda made: _install(commit, made))
    return (str(folder / "venv/bin/python"), "-c", _MAIN)


def _install(commit: str, folder: Path) -> None:
    """Export the sources of a commit, and make an environment with its own requirements.

    If the requirements are the same as here, the packages of this environment are used.
    """
    packed = folder / "sources.tar"
    _git("archive", f"--output={packed}", commit)
    with tarfile.open(packed) as archive:
        archive.extractall(folder, filter="data")
    packed.unlink()
    own = folder / _REQUIREMENTS
    is_same = own.read_bytes() == (_ROOT / _REQUIREMENTS).read_bytes()
    pip = ["--without-pip"] if is_same else []
    subprocess.run([sys.executable, "-m", "venv", *pip, str(folder / "venv")], check=True)
    python = folder / "venv/bin/python"
    if not is_same:
        install = [
            str(python),
            "-m",
            "pip",
            "install",
            "--quiet",
            "--require-hashes",
            "-r",
            str(own),
        ]
        subprocess.run(network.on_machine(install), check=True)
    (packages,) = (folder / "venv").glob("lib/python*/site-packages")
    # The folder is renamed once it is complete.
    paths = ["../../../../src", *([sysconfig.get_paths()["purelib"]] if is_same else [])]
    (packages / "koordinator.pth").write_text("\n".join(paths) + "\n")


def _git(*arguments: str) -> str:
    command = ["/usr/bin/env", "git", *arguments]
    done = subprocess.run(command, cwd=_ROOT, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout.strip()
