"""A scripted API server for every test that wants one, and retries that take no time."""

from collections.abc import Iterator

import pytest
from tests.unit.cluster.kubernetes.scripted_server import ScriptedServer

from koordinator.cluster.kubernetes import binding, reflector, reports, watch

SOON_S = 0.02


@pytest.fixture
def server() -> Iterator[ScriptedServer]:
    with ScriptedServer() as running:
        yield running


@pytest.fixture(autouse=True)
def _retried_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the first delays after failures."""
    for module in (binding, reflector, reports):
        monkeypatch.setattr(module, "_FIRST_DELAY_S", SOON_S)
    monkeypatch.setattr(watch, "_RETRY_S", SOON_S)
