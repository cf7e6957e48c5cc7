"""Tutorials: their commands are run with the files that they name, and print what they show."""

import re
from pathlib import Path

import pytest
from tests.unit.docs.console import ROOT, Block, assert_shows, blocks, run, squeezed

PAGES = ("tutorials/gangs.md", "tutorials/quotas.md", "tutorials/gpu-shares.md")
BUSY = "examples/tutorials/busy-node.yaml"
GANG = ROOT / "examples/tutorials/gang.yaml"


@pytest.fixture(autouse=True)
def checkout(monkeypatch: pytest.MonkeyPatch) -> None:
    """Go where the examples are."""
    monkeypatch.chdir(ROOT)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("page", "block"), [(page, block) for page in PAGES for block in blocks(page)]
)
def test_command_prints_what_the_tutorial_shows(page: str, block: Block) -> None:
    """``…`` replaces omitted text; all other text is there, in its order."""
    assert_shows(block, page)


def test_every_tutorial_has_commands() -> None:
    """Blocks that are written otherwise would not be run."""
    for page in PAGES:
        text = (ROOT / "docs" / page).read_text("utf-8")
        shown = len(re.findall(r"^\$ koord ", text, re.MULTILINE))
        assert shown == len(list(blocks(page))) > 0


def test_smaller_minimum_starts_a_part_of_the_gang(tmp_path: Path) -> None:
    """Step 5 of the tutorial on gangs, which the reader does by hand."""
    changed = tmp_path / "gang.yaml"
    changed.write_text(GANG.read_text("utf-8").replace("minMember: 3", "minMember: 2"))

    assert "2 placed, 1 unschedulable" in squeezed(run(f"koord schedule -f {changed} -f {BUSY}"))
