"""Faults of a real cluster, one per test."""

import sys
from collections.abc import Iterator

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.faults.stage import Stage
from tests.e2e.interposer import Interposer
from tests.e2e.witness import Witness

_SHOWN_BYTES = 20_000


@pytest.fixture
def witness(controlplane: ControlPlane) -> Iterator[Witness]:
    """Observe bindings; no pod may be rebound."""
    with Witness(controlplane.api) as watching:
        yield watching
        watching.check_no_pod_moved()


@pytest.fixture
def stage(controlplane: ControlPlane, namespace: str, witness: Witness) -> Iterator[Stage]:
    """Put everything in place but the scheduler: the test starts it.

    Whatever happens from then on, it must not end nor show a traceback.
    """
    with Interposer(controlplane.api) as interposer:
        made = Stage(controlplane, namespace, interposer, witness)
        yield made
        is_running = made.scheduler.is_running
        made.scheduler.kill()
        log = made.scheduler.log.read_text()
        sys.stdout.write(log[-_SHOWN_BYTES:])  # pytest shows it if the test failed
        assert is_running
        assert "Traceback" not in log
