"""Notes for the next release can be put together, and all places name one version."""

import re
import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
KINDS = {kind["directory"] for kind in PROJECT["tool"]["towncrier"]["type"]}
PAGE = (ROOT / "changes/README.md").read_text("utf-8")


def test_every_note_has_a_kind_and_a_sentence() -> None:
    """A file of another name would be left out of the release silently."""
    notes = [file for file in (ROOT / "changes").iterdir() if file.name != "README.md"]

    for note in notes:
        match = re.fullmatch(r"[a-z0-9-]+\.([a-z]+)\.md", note.name)
        assert match is not None, f"changes/{note.name}: expected <what>.<kind>.md"
        assert match[1] in KINDS, f"changes/{note.name}: kinds are {sorted(KINDS)}"
        assert note.read_text("utf-8").strip().endswith("."), f"{note.name}: no sentence"


def test_the_page_names_the_kinds_that_there_are() -> None:
    """The page for contributors lists the kinds that the tool accepts."""
    assert set(re.findall(r"^\| `([a-z]+)` \|", PAGE, re.MULTILINE)) == KINDS


def test_package_chart_and_changelog_have_one_version() -> None:
    """The newest version of the changelog is that of package, chart and image."""
    version = PROJECT["project"]["version"]
    chart = yaml.load((ROOT / "charts/koordinator/Chart.yaml").read_text("utf-8"), yaml.CSafeLoader)
    changelog = (ROOT / "CHANGELOG.md").read_text("utf-8")

    assert (chart["version"], chart["appVersion"]) == (version, version)
    assert re.findall(r"^## ([0-9.]+) ", changelog, re.MULTILINE)[0] == version
