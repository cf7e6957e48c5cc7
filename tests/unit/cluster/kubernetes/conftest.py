"""A scripted API server for every test that wants one."""

from collections.abc import Iterator

import pytest
from tests.unit.cluster.kubernetes.scripted_server import ScriptedServer


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running
