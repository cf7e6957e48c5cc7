"""Entry points of installed packages, in each form that packages have."""

import sys
from importlib.machinery import PathFinder
from importlib.metadata import DistributionFinder
from pathlib import Path
from zipfile import ZipFile

import pytest

from koordinator.foundation.entry_points import entry_points

GROUP = "koordinator.test"
METADATA = "Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n"
DECLARED = f"[{GROUP}]\nsecond = acme:B\nfirst = acme:A\n\n[other]\nthird = acme:C\n"


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder that is first on the import path."""
    folder = tmp_path / "site-packages"
    folder.mkdir()
    monkeypatch.syspath_prepend(folder)
    return folder


def names(group: str = GROUP) -> list[str]:
    return [point.name for point in entry_points(group)]


@pytest.mark.parametrize("folder", ["acme-1.0.dist-info", "acme.egg-info"])
def test_entry_points_of_a_package_are_sorted_by_name(site: Path, folder: str) -> None:
    """Entry points of other groups are left out."""
    metadata = site / folder
    metadata.mkdir()
    (metadata / ("METADATA" if "dist" in folder else "PKG-INFO")).write_text(METADATA)
    assert names() == []

    (metadata / "entry_points.txt").write_text(DECLARED)
    assert names() == ["first", "second"]
    assert names("koordinator.none") == []


@pytest.mark.parametrize("name", ["acme.zip", "acme-1.0-py3.11.egg"])
def test_archives_on_the_import_path_are_read(
    site: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    """As ``importlib.metadata`` does."""
    inside = "EGG-INFO" if name.endswith("egg") else "acme-1.0.dist-info"
    with ZipFile(site / name, "w") as archive:
        archive.writestr(f"{inside}/{'PKG-INFO' if name.endswith('egg') else 'METADATA'}", METADATA)
        archive.writestr(f"{inside}/entry_points.txt", DECLARED)
    monkeypatch.syspath_prepend(site / name)

    assert names() == ["first", "second"]


def test_unpacked_eggs_are_read(site: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Unpacked eggs are entries of the import path."""
    inside = site / "acme-1.0-py3.11.egg" / "EGG-INFO"
    inside.mkdir(parents=True)
    (inside / "PKG-INFO").write_text(METADATA)
    (inside / "entry_points.txt").write_text(DECLARED)
    monkeypatch.syspath_prepend(inside.parent)

    assert names() == ["first", "second"]


def test_files_that_are_no_metadata_are_skipped(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Metadata of distutils is a file; folders of the import path may be missing."""
    (site / "old-1.0.egg-info").write_text(METADATA)
    monkeypatch.syspath_prepend(site / "missing")

    assert names() == []


def test_packages_of_other_finders_are_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A finder of an editable install may know packages that are not on the import path."""
    elsewhere = tmp_path / "elsewhere"
    metadata = elsewhere / "acme-1.0.dist-info"
    metadata.mkdir(parents=True)
    (metadata / "METADATA").write_text(METADATA)
    (metadata / "entry_points.txt").write_text(DECLARED)

    class Finder:
        @staticmethod
        def find_spec(*_: object) -> None:
            return None

        @staticmethod
        def find_distributions(context: object) -> object:
            del context
            return PathFinder.find_distributions(DistributionFinder.Context(path=[str(elsewhere)]))

    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Finder])
    assert names() == ["first", "second"]
