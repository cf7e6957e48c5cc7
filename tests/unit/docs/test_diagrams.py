"""Diagrams of the concept pages: committed as the script draws them, and shown by a page."""

from pathlib import Path
from xml.etree import ElementTree as ET

import pytest
from docs.generate.diagrams import DIAGRAMS, FOLDER

CONCEPTS = Path(__file__).parents[3] / "docs/concepts"


@pytest.mark.parametrize("name", sorted(DIAGRAMS))
def test_committed_diagram_is_the_one_that_the_script_draws(name: str) -> None:
    """``python -m docs.generate.diagrams`` writes them again."""
    drawn = DIAGRAMS[name].svg()

    assert (FOLDER / f"{name}.svg").read_text("utf-8") == drawn
    assert ET.fromstring(drawn).tag.endswith("svg")  # noqa: S314 # our own text


@pytest.mark.parametrize("name", sorted(DIAGRAMS))
def test_every_concept_page_shows_its_diagram(name: str) -> None:
    """Page and diagram have the same name."""
    assert f"images/concepts/{name}.svg)" in (CONCEPTS / f"{name}.md").read_text("utf-8")


def test_arrows_connect_boxes_of_the_diagram() -> None:
    """A misspelled name would fail at drawing; a box without an arrow explains nothing."""
    for diagram in DIAGRAMS.values():
        ends = {end for arrow in diagram.arrows for end in (arrow.source, arrow.target)}
        assert ends == diagram.boxes.keys()
