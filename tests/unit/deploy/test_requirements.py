"""Locked dependencies: what make, CI and the image install, never what an index offers today."""

import re
import tomllib
from functools import cache
from itertools import chain
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.unit.deploy.installed import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
EXTRAS: dict[str, Any] = PROJECT["project"]["optional-dependencies"]
GROUPS: dict[str, Any] = PROJECT["dependency-groups"]
RUNTIME: list[str] = PROJECT["project"]["dependencies"]
OF_FILE = {
    "all": [*RUNTIME, *chain(*EXTRAS.values(), *GROUPS.values())],
    "image": [*RUNTIME, *EXTRAS["cri"], *EXTRAS["hook-server"], *EXTRAS["pod-resources"]],
    "dev": [*RUNTIME, *GROUPS["dev"], *GROUPS["build"]],
    "build": GROUPS["build"],
    "e2e": GROUPS["e2e"],
    "browser": GROUPS["browser"],
    "docs": GROUPS["docs"],
    "release": GROUPS["release"],
}


@cache
def locked(file: str) -> dict[str, set[str]]:
    """Return the versions of each package in a file; asserts that every one has a hash."""
    text = (ROOT / "requirements" / f"{file}.txt").read_text("utf-8").replace("\\\n", "")
    versions: dict[str, set[str]] = {}
    for line in text.splitlines():
        if line.startswith((" ", "#")):
            continue
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", line), line
        name, version = re.split("[ ;]", line, maxsplit=1)[0].split("==")
        versions.setdefault(canonicalize_name(name), set()).add(version)
    return versions


@pytest.mark.parametrize("file", OF_FILE)
def test_each_dependency_is_locked_to_a_version_that_it_accepts(file: str) -> None:
    """A dependency that is added or raised without ``make lock`` fails here."""
    for text in OF_FILE[file]:
        requirement = Requirement(text)
        versions = locked(file).get(canonicalize_name(requirement.name), set())
        assert versions, f"{text}: not in requirements/{file}.txt; run make lock"
        assert all(requirement.specifier.contains(it, prereleases=True) for it in versions), text


@pytest.mark.parametrize("file", OF_FILE)
def test_all_files_lock_the_same_versions(file: str) -> None:
    """The tested versions are those in the image."""
    assert {name: locked("all")[name] for name in locked(file)} == locked(file)


def test_the_files_name_no_package_index() -> None:
    """An installation behind a mirror takes the same bytes: hashes, not addresses, name them."""
    for path in (ROOT / "requirements").iterdir():
        assert "://" not in path.read_text("utf-8"), path.name
