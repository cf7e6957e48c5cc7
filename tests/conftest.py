"""What holds for all tests."""

import logging
import os
from collections.abc import Iterator

import pytest
from hypothesis import settings

# How long an example takes says more about what else the machine does than about the code.
settings.register_profile("koordinator", deadline=None)
# Whoever submits a change is told of that change: new examples are looked for at the desk.
settings.register_profile("ci", settings.get_profile("koordinator"), derandomize=True)
settings.load_profile("ci" if os.environ.get("CI") else "koordinator")


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
