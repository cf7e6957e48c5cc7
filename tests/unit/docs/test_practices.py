"""Pages on Spark and on CPUs: their commands print what they show, with the files of the pages."""

import re
from pathlib import Path

import pytest
from tests.unit.docs.console import ROOT, assert_shows, blocks

PAGES = ("how-to/bind-cpus.md",)


@pytest.fixture(autouse=True)
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Go where the examples are, and where files can be written."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", PAGES)
def test_commands_print_what_the_page_shows(page: str) -> None:
    """In the order of the page, as one may read what another wrote."""
    done = 0
    for block in blocks(page):
        assert_shows(block, page)
        done += 1
    assert done >= 2


@pytest.mark.parametrize("page", PAGES)
def test_manifests_of_the_page_are_those_of_the_examples(page: str) -> None:
    """A reader who copies either has the same."""
    text = (ROOT / "docs" / page).read_text("utf-8")
    examples = "".join(
        (ROOT / name).read_text("utf-8")
        for name in sorted(set(re.findall(r"examples/[\w-]+\.yaml", text)))
    )
    shown = re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)

    assert shown
    for manifest in shown:
        for document in re.split(r"^---\n", manifest, flags=re.MULTILINE):
            assert document in examples
