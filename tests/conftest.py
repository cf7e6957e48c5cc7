"""What holds for all tests."""

import logging
from collections.abc import Iterator

import pytest
from hypothesis import settings

# The same code draws the same examples, so that a test fails by a change and never by chance, and
# a failure prints how to repeat it. An example may take any time: other programs share the machine.
settings.register_profile("koordinator", deadline=None, derandomize=True, print_blob=True)
# New examples at each run: make fuzz and make soak (--hypothesis-profile=explore).
settings.register_profile(
    "explore", settings.get_profile("koordinator"), derandomize=False, max_examples=500
)
settings.load_profile("koordinator")


@pytest.fixture(autouse=True)
def _logs_as_found() -> Iterator[None]:
    """Whatever a command that runs in a test does to logging, the next test begins as always."""
    root, ours = logging.getLogger(), logging.getLogger("koordinator")
    before = root.level, ours.level
    yield
    for handler in root.handlers[:]:
        if type(handler) is logging.StreamHandler:  # pytest's own are others
            root.removeHandler(handler)
    root.setLevel(before[0])
    ours.setLevel(before[1])
