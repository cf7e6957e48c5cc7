"""Worlds whose invariants are validated at the end of each test."""

from collections.abc import Callable, Iterator
from importlib.util import find_spec
from typing import Any

import pytest
from tests import worlds

from koordinator.api.meta import KubeObject
from koordinator.scheduler.snapshot import ClusterState
from koordinator.simulator import Embedded

#: Tests of the extra ``tracing``, which an environment from before it lacks.
collect_ignore = [] if find_spec("opentelemetry") else ["test_traces.py"]

World = Callable[..., ClusterState]
NewEmbedded = Callable[..., Embedded]


@pytest.fixture
def world() -> Iterator[World]:
    """``tests.worlds.world``, with ``validate`` at the end."""
    made: list[ClusterState] = []

    def make(*objects: KubeObject) -> ClusterState:
        made.append(worlds.world(*objects))
        return made[-1]

    yield make
    for state in made:
        state.validate()


@pytest.fixture
def embedded() -> Iterator[NewEmbedded]:
    """``tests.worlds.embedded``, with ``validate`` of the scheduler at the end."""
    made: list[Embedded] = []

    def make(*objects: KubeObject, **options: Any) -> Embedded:
        made.append(worlds.embedded(*objects, **options))
        return made[-1]

    yield make
    for one in made:
        one.scheduler.validate()
