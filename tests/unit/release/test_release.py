"""The whole release, built twice from the current commit."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest
from release.__main__ import parse_base
from tests.unit.deploy.installed import ROOT

pytestmark = pytest.mark.integration


def build(folder: Path, sbom: Path) -> str:
    command = [
        *(sys.executable, "-m", "release", f"--dist={folder}", f"--sbom={sbom}"),
        *("--repository-url=https://example.com/k/", "--base=scratch", "--without-dependencies"),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a release is built from a commit")
def test_two_builds_of_a_commit_are_the_same(tmp_path: Path) -> None:
    """Every file of wheel, source distribution, image and charts; the second build is elsewhere."""
    sbom = tmp_path / "sbom.json"
    sbom.write_text("{}")
    folders = [tmp_path / name for name in ("first", "second")]
    reports = [build(folder, sbom) for folder in folders]
    contents = [
        {
            path.relative_to(folder): path.read_bytes()
            for path in folder.rglob("*")
            if path.is_file()
        }
        for folder in folders
    ]

    assert contents[0] == contents[1]
    assert reports[0] == reports[1]
    names = {path.parts[0] for path in contents[0]}
    assert {"image", "chart-koordinator", "koordinator-0.1.0-py3-none-any.whl"} < names
    with tarfile.open(folders[0] / "koordinator-0.1.0.tar.gz") as archive:
        member = archive.extractfile("koordinator-0.1.0/PKG-INFO")
        assert member is not None
        metadata = member.read().decode()
    assert "Project-URL: Homepage, https://example.com/k\n" in metadata
    assert "](https://example.com/k/blob/v0.1.0/docs/how-to/install.md)" in metadata


@pytest.mark.skipif(not (ROOT / ".git").exists(), reason="a release is built from a commit")
def test_commit_has_no_stray_files() -> None:
    """Profiles, caches and the like would be in the source distribution."""
    command = ["git", "-C", str(ROOT), "ls-files", "-z"]
    names = subprocess.run(command, capture_output=True, text=True, check=True).stdout.split("\0")
    binary = {
        name
        for name in filter(None, names)
        if (ROOT / name).is_file() and b"\0" in (ROOT / name).read_bytes()
    }

    assert {name for name in binary if not name.endswith((".gz", ".png"))} == set()


def test_time_of_the_environment_is_not_in_a_release() -> None:
    """The bill of materials would have a time where SOURCE_DATE_EPOCH is set, and only there."""
    command = ["make", "--silent", "--eval", 'time: ; @echo "[$$SOURCE_DATE_EPOCH]"', "time"]
    done = subprocess.run(
        command,
        cwd=ROOT,
        env=os.environ | {"SOURCE_DATE_EPOCH": "12345"},
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )

    assert done.stdout == "[]\n"


@pytest.mark.parametrize("text", ["layout", "docker.io/library/python:3.13", ""])
def test_base_without_digest_is_rejected(text: str) -> None:
    """A tag may point to something else tomorrow."""
    with pytest.raises(ValueError, match="sha256:DIGEST"):
        parse_base(text)


def test_base_is_a_layout_with_a_digest(tmp_path: Path) -> None:
    """The other accepted base is scratch, which is empty."""
    base = parse_base(f"{tmp_path}@sha256:{'0' * 64}")

    assert base is not None
    assert (base.layout.folder, base.digest) == (tmp_path, f"sha256:{'0' * 64}")
    assert parse_base("scratch") is None
