"""Wheel and source distribution, built from committed files with absolute links in the README."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from release.archives import recompress_gzip, recompress_zip

#: Links of Markdown to a path of the repository: the text before it, and the path.
_LINK: Final = re.compile(r"(!?\[[^\]]*\]\()(?!https?:|mailto:|#)([^)\s]+)\)")


def copy_tracked(repository: Path, folder: Path) -> None:
    """Copy the committed files of the current commit to a folder."""
    archive = subprocess.run(
        ["git", "-C", str(repository), "archive", "HEAD"],
        stdout=subprocess.PIPE,
        check=True,
    ).stdout
    folder.mkdir(parents=True)
    subprocess.run(
        ["tar", "--extract", "--directory", str(folder)],
        input=archive,
        check=True,
    )


def with_absolute_links(text: str, repository_url: str, version: str) -> str:
    """Return Markdown whose links to the repository name the files of a version at its URL."""

    def absolute(match: re.Match[str]) -> str:
        kind = "raw" if match[1].startswith("!") else "blob"
        return f"{match[1]}{repository_url}/{kind}/v{version}/{match[2]})"

    return _LINK.sub(absolute, text)


def with_urls(pyproject: str, urls: Mapping[str, str]) -> str:
    """Return a pyproject.toml with the URLs of the project."""
    lines = ["", "[project.urls]", *(f'{name} = "{url}"' for name, url in urls.items()), ""]
    return pyproject + "\n".join(lines)


def prepare(source: Path, repository_url: str, version: str) -> None:
    """Set links and URLs in a copy of the source."""
    readme, pyproject = source / "README.md", source / "pyproject.toml"
    text = with_absolute_links(readme.read_text("utf-8"), repository_url, version)
    readme.write_text(text, "utf-8")
    urls = {
        "Homepage": repository_url,
        "Documentation": f"{repository_url}/tree/v{version}/docs",
        "Changelog": f"{repository_url}/blob/v{version}/CHANGELOG.md",
        "Issues": f"{repository_url}/issues",
    }
    pyproject.write_text(with_urls(pyproject.read_text("utf-8"), urls), "utf-8")


def build(source: Path, folder: Path, time_s: int) -> Path:
    """Build both distributions into a folder, and return the wheel."""
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "--directory", str(folder.resolve())],
        cwd=source,
        env=os.environ | {"SOURCE_DATE_EPOCH": str(time_s)},
        check=True,
        stdout=subprocess.DEVNULL,
    )
    (wheel,), (sdist,) = folder.glob("*.whl"), folder.glob("*.tar.gz")
    recompress_zip(wheel)
    recompress_gzip(sdist)
    return wheel


def install_dependencies(requirements: Path, folder: Path, python: str, platform: str) -> None:
    """Install locked wheels of a platform into a folder; scripts are left out.

    They name the Python of this machine, and the records of packages have their digests.
    """
    subprocess.run(
        [
            *(sys.executable, "-m", "uv", "pip", "install", "--quiet", "--no-config", "--no-deps"),
            *("--only-binary=:all:", "--require-hashes", "--link-mode=copy"),
            *("--target", str(folder), "--python-version", python, "--python-platform", platform),
            *("--requirement", str(requirements)),
        ],
        check=True,
    )
    for left in (folder / ".lock", *(folder / "bin").glob("*")):
        left.unlink(missing_ok=True)
    for record in folder.glob("*.dist-info/RECORD"):
        record.write_text(without_scripts(record.read_text("utf-8")), "utf-8")


def without_scripts(record: str) -> str:
    """Return a record of installed files (PEP 376) without those in bin."""
    lines = record.splitlines(keepends=True)
    return "".join(line for line in lines if not line.startswith("bin/"))
