"""Real cgroups of this machine, below a folder of our own; no control plane is needed."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.e2e.host.machine import PodsMachine, missing


@pytest.fixture(autouse=True)
def _left_as_found() -> None:
    """Take the place of the fixture that cleans up a cluster: there is none here."""


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[PodsMachine]:
    """Make cgroups as the kubelet makes them, and remove them with all that runs in them."""
    problem = missing()
    if problem:
        pytest.skip(problem)
    made = PodsMachine(tmp_path)
    yield made
    made.remove()
