"""The page of threats names tests that there are."""

import re
from pathlib import Path

TESTS = Path(__file__).parents[1]
PAGE = (TESTS.parent / "docs/threat-model.md").read_text("utf-8")


def test_every_line_of_the_threat_model_names_existing_tests() -> None:
    """A test that is renamed or deleted takes its promise with it: the page must say so."""
    named = set(re.findall(r"`(test_\w+)`", PAGE))
    declared = re.compile(r"^\s*def (test_\w+)|^(test_\w+) = ", re.MULTILINE)
    there = {
        name
        for file in TESTS.rglob("test_*.py")
        for names in declared.findall(file.read_text("utf-8"))
        for name in names
    }

    assert named
    assert named <= there
