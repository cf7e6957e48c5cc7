"""Schedulers that can be looked at from outside while something goes wrong."""

import sys
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import pytest
from tests.e2e.controlplane import ControlPlane
from tests.e2e.interposer import Interposer
from tests.e2e.scheduler_process import SchedulerProcess
from tests.e2e.witness import Witness

_SHOWN_BYTES = 20_000


@pytest.fixture
def interposer(controlplane: ControlPlane) -> Iterator[Interposer]:
    """Stands between the scheduler and the API server."""
    with Interposer(controlplane.api) as running:
        yield running


@pytest.fixture
def witness(controlplane: ControlPlane) -> Iterator[Witness]:
    """Sees where pods are bound; nobody may ever be moved."""
    with Witness(controlplane.api) as watching:
        yield watching
        watching.check_nobody_moved()


@pytest.fixture
def start_scheduler(
    controlplane: ControlPlane, interposer: Interposer
) -> Iterator[Callable[..., SchedulerProcess]]:
    """``start_scheduler(configuration)`` runs one behind the interposer and waits for its start.

    Whatever happens from then on, it must not end nor show a traceback.
    """
    started: list[SchedulerProcess] = []

    def start(configuration: Mapping[str, Any] | None = None) -> SchedulerProcess:
        made = SchedulerProcess(
            controlplane,
            configuration,
            name=f"koord-scheduler-{interposer.endpoint.port}-{len(started)}",
            kubeconfig=interposer.kubeconfig(controlplane),
        )
        started.append(made)
        made.start()
        return made

    yield start
    ended = [made.log for made in started if not made.is_running]
    for made in started:
        made.kill()
        sys.stdout.write(made.log.read_text()[-_SHOWN_BYTES:])  # shown if the test failed
    assert not ended
    assert not [made.log for made in started if "Traceback" in made.log.read_text()]


@pytest.fixture
def scheduler(
    request: pytest.FixtureRequest, start_scheduler: Callable[..., SchedulerProcess]
) -> SchedulerProcess:
    """Works behind the interposer; its configuration is the fixture's parameter, if any."""
    return start_scheduler(getattr(request, "param", None))
