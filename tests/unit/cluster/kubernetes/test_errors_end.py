"""An error ends with its last reader: none waits for the garbage collector."""

import gc
import weakref
from collections.abc import Iterator

import pytest
from tests.unit.cluster.kubernetes.scripted_server import (
    Answer,
    ScriptedServer,
    client,
    eventually,
    fail,
    hang_up,
)

from koordinator.api.meta import ObjectMeta
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.cluster.kubernetes import transport
from koordinator.cluster.kubernetes.cluster import KubernetesCluster
from koordinator.foundation.errors import ClusterError

CLOSED_PORT = "http://127.0.0.1:9"  # the port discard: nothing listens
POST = "POST /api/v1/nodes"
FEW = 4


@pytest.fixture(autouse=True)
def _no_collector() -> Iterator[None]:
    """Leave to the collector what refers to itself, and keep it away."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def errors_of(cluster: KubernetesCluster) -> list[weakref.ref[BaseException]]:
    """Return references to the error of a create and to all its causes."""
    references = []
    try:
        cluster.create(Node(metadata=ObjectMeta(name="n")))
    except ClusterError as error:
        cause: BaseException | None = error
        while cause is not None:
            if not isinstance(cause, OSError) or type(cause).__module__ != "builtins":
                references.append(weakref.ref(cause))
            cause = cause.__cause__ or cause.__context__
    return references


@pytest.mark.parametrize(
    "answer",
    [fail(404), fail(409, "AlreadyExists"), fail(500), fail(503), hang_up],
    ids=["404", "409", "500", "503", "no answer"],
)
def test_error_of_a_request_ends_with_its_reader(server: ScriptedServer, answer: Answer) -> None:
    """Variables of the frames in its traceback do not refer to it."""
    server.on(POST, answer)
    with server.cluster() as cluster:
        errors = errors_of(cluster)
        assert errors
        assert eventually(lambda: all(each() is None for each in errors))


def test_error_of_a_refused_connection_ends_with_its_reader() -> None:
    """The errors of aiohttp as well, which frames in their tracebacks refer to."""
    with client(CLOSED_PORT, timeout_s=0.01) as cluster:
        errors = errors_of(cluster)
        assert len(errors) > 1
        assert eventually(lambda: all(each() is None for each in errors))


def test_errors_of_a_watch_end_with_its_next_try(monkeypatch: pytest.MonkeyPatch) -> None:
    """Errors do not accumulate while the server is unreachable."""
    monkeypatch.setattr(transport, "_PROBE_S", 0.001)
    tries: list[str] = []
    with client(CLOSED_PORT, observe=lambda *it: tries.append(it[1]), timeout_s=0.01) as cluster:
        cluster.watch([Pod])
        assert eventually(lambda: len(tries) > FEW)
        assert eventually(lambda: _living_errors() < FEW)


def _living_errors() -> int:
    return sum(isinstance(each, ClusterError) for each in gc.get_objects())
