"""The connection to the runtime is kept up, and every call gets its answer in time."""

import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.unit.host.nri.runtime_peer import RuntimePeer

from koordinator.foundation.protobuf import decode_message
from koordinator.host.linux.nri_connection import NriConnection, NriSettings
from koordinator.host.nri.messages import (
    CreateContainerRequest,
    CreateContainerResponse,
    NriAdjustment,
    NriContainer,
    NriPod,
    NriVariable,
)
from koordinator.host.nri.session import NriCall, NriRefusalError

PATIENCE_S = 30.0  # real time, never used up if the code is right
GIVEN_UP = CreateContainerResponse(adjust=NriAdjustment(annotations={"given": "up"}))
CREATE = CreateContainerRequest(pod=NriPod(uid="u"), container=NriContainer(name="main"))


class Plugin:
    """Plugin with the answers of ``behave``; abandoned calls get an annotation with the reason."""

    is_ready = True

    def __init__(self, behave: Callable[[NriCall], object]) -> None:
        self.answer = behave
        self.why: list[str] = []

    def give_up(self, call: NriCall, why: str) -> object:
        """Note why."""
        assert call.method
        self.why.append(why)
        return GIVEN_UP


@contextmanager
def connected(
    plugin: Plugin, path: Path, answer_timeout_s: float = PATIENCE_S
) -> Iterator[RuntimePeer]:
    """Connect a plugin to a runtime."""
    settings = NriSettings(
        socket_path=str(path),
        backoff_s=0.01,
        backoff_cap_s=0.02,
        answer_timeout_s=answer_timeout_s,
    )
    with RuntimePeer(path) as runtime:
        connection = NriConnection(plugin, settings)
        connection.start()
        try:
            yield runtime
        finally:
            connection.stop()


def adjusted(call: NriCall) -> object:
    """Answer each call with one that is too large for a frame."""
    if call.method == "Configure":
        return GIVEN_UP
    variable = NriVariable(key="LONG", value="x" * 100_000)
    return CreateContainerResponse(adjust=NriAdjustment(env=(variable,)))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Return where the runtime listens; short enough for a socket."""
    return tmp_path / "nri.sock"


def create(runtime: RuntimePeer) -> CreateContainerResponse:
    """Send a CreateContainer request; return the plugin's response."""
    response = runtime.call("CreateContainer", CREATE)
    assert response.status is None
    return decode_message(CreateContainerResponse, response.payload)


def test_it_registers_and_answers(path: Path) -> None:
    """An answer of any size goes over in frames that fit."""
    with connected(Plugin(adjusted), path) as runtime:
        registered = runtime.accept()
        assert (registered.plugin_name, registered.plugin_idx) == ("koordlet_nri", "00")
        adjust = create(runtime).adjust
        assert adjust is not None
        assert len(adjust.env[0].value) == 100_000


def test_connection_is_restored_after_the_runtime_closes_it(path: Path) -> None:
    """A runtime that restarts finds the plugin again by itself, and one that sends noise, too."""
    with connected(Plugin(adjusted), path) as runtime:
        for _ in range(3):
            runtime.accept()
            runtime.hang_up()
        runtime.accept()
        runtime.send(struct.pack(">II", 1, 2**32 - 1))
        runtime.accept()  # the runtime closed the connection and restarted
        assert create(runtime).adjust


@pytest.mark.slow
def test_hanging_hook_does_not_block_a_container(path: Path) -> None:
    """The response arrives in time and changes nothing, even if all threads hang."""
    released = threading.Event()

    def hang(call: NriCall) -> object:
        if call.method == "CreateContainer":
            released.wait(PATIENCE_S)
        return GIVEN_UP

    plugin = Plugin(hang)
    with connected(plugin, path, 0.1) as runtime:
        runtime.accept()
        for _ in range(6):
            assert create(runtime) == GIVEN_UP
        released.set()
    assert plugin.why == ["no answer within 0.1 s"] * 6


@pytest.mark.slow
def test_hooks_run_again_after_hanging_ones_have_returned(path: Path) -> None:
    """Each call has exactly one response, from the leader or the watchdog."""
    released = threading.Event()

    def hang_at_first(call: NriCall) -> object:
        if call.method == "CreateContainer" and not released.is_set():
            released.wait(PATIENCE_S)
        return adjusted(call)

    plugin = Plugin(hang_at_first)
    with connected(plugin, path, 0.1) as runtime:
        runtime.accept()
        for _ in range(5):
            assert create(runtime) == GIVEN_UP
        released.set()
        ends_s = time.monotonic() + PATIENCE_S
        while (last := create(runtime)) == GIVEN_UP and time.monotonic() < ends_s:
            time.sleep(0.01)
        assert last.adjust is not None
        assert last.adjust.env


def test_failing_hook_does_not_block_a_container(path: Path) -> None:
    """The error is reported, and the container is created as the kubelet requested."""

    def fail(call: NriCall) -> object:
        if call.method == "CreateContainer":
            raise ZeroDivisionError("by mistake")
        return GIVEN_UP

    plugin = Plugin(fail)
    with connected(plugin, path) as runtime:
        runtime.accept()
        assert create(runtime) == GIVEN_UP
    assert plugin.why == ["ZeroDivisionError: by mistake"]


def test_refusal_is_returned_to_the_runtime(path: Path) -> None:
    """With policy Fail the runtime receives the error and its reason."""

    def refuse(call: NriCall) -> object:
        if call.method == "CreateContainer":
            raise NriRefusalError("CPUSetAllocator failed")
        return GIVEN_UP

    with connected(Plugin(refuse), path) as runtime:
        runtime.accept()
        status = runtime.call("CreateContainer", CREATE).status
        assert status is not None
        assert (status.code, status.message) == (2, "CPUSetAllocator failed")


def test_undecodable_request_starts_the_container_unchanged(path: Path) -> None:
    """As if there were no plugin."""
    plugin = Plugin(adjusted)
    with connected(plugin, path) as runtime:
        runtime.accept()
        response = runtime.call("CreateContainer", b"\x0a\x05")
        assert decode_message(CreateContainerResponse, response.payload) == GIVEN_UP
    assert plugin.why == ["truncated: got 0 of 5 bytes"]
