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

GIVEN_UP = CreateContainerResponse(adjust=NriAdjustment(annotations={"given": "up"}))
CREATE = CreateContainerRequest(pod=NriPod(uid="u"), container=NriContainer(name="main"))


class Plugin:
    """Answers as ``behave`` does; what it gives up it says in an annotation."""

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
def connected(plugin: Plugin, path: Path) -> Iterator[RuntimePeer]:
    """Let a plugin and a runtime meet."""
    settings = NriSettings(
        socket_path=str(path), backoff_s=0.01, backoff_cap_s=0.02, answer_timeout_s=0.1
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
    """Let the runtime make a container; return what the plugin says."""
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


def test_it_comes_back_whenever_the_runtime_has_gone(path: Path) -> None:
    """A runtime that restarts finds the plugin again by itself, and one that sends noise, too."""
    with connected(Plugin(adjusted), path) as runtime:
        for _ in range(3):
            runtime.accept()
            runtime.hang_up()
        runtime.accept()
        runtime.send(struct.pack(">II", 1, 2**32 - 1))
        runtime.accept()  # it has hung up and come again
        assert create(runtime).adjust


@pytest.mark.slow
def test_a_hook_that_hangs_costs_no_container_its_start(path: Path) -> None:
    """The answer changes nothing and comes in time, even when nobody is left to answer."""
    released = threading.Event()

    def hang(call: NriCall) -> object:
        if call.method == "CreateContainer":
            released.wait(30)
        return GIVEN_UP

    plugin = Plugin(hang)
    with connected(plugin, path) as runtime:
        runtime.accept()
        for _ in range(6):
            assert create(runtime) == GIVEN_UP
        released.set()
    assert plugin.why == ["no answer within 0.1 s"] * 6


@pytest.mark.slow
def test_hooks_are_asked_again_when_those_that_hang_are_back(path: Path) -> None:
    """Each call has one answer, whoever gives it."""
    released = threading.Event()

    def hang_at_first(call: NriCall) -> object:
        if call.method == "CreateContainer" and not released.is_set():
            released.wait(30)
        return adjusted(call)

    plugin = Plugin(hang_at_first)
    with connected(plugin, path) as runtime:
        runtime.accept()
        for _ in range(5):
            assert create(runtime) == GIVEN_UP
        released.set()
        for _ in range(100):
            last = create(runtime)
            if last != GIVEN_UP:
                break
            time.sleep(0.01)
        assert last.adjust is not None
        assert last.adjust.env


def test_a_hook_that_breaks_costs_no_container_its_start(path: Path) -> None:
    """A mistake of ours is told, and the container is made as the kubelet wants it."""

    def fail(call: NriCall) -> object:
        if call.method == "CreateContainer":
            raise ZeroDivisionError("by mistake")
        return GIVEN_UP

    plugin = Plugin(fail)
    with connected(plugin, path) as runtime:
        runtime.accept()
        assert create(runtime) == GIVEN_UP
    assert plugin.why == ["ZeroDivisionError: by mistake"]


def test_what_is_refused_does_not_start(path: Path) -> None:
    """By policy Fail the runtime is told, and why."""

    def refuse(call: NriCall) -> object:
        if call.method == "CreateContainer":
            raise NriRefusalError("CPUSetAllocator failed")
        return GIVEN_UP

    with connected(Plugin(refuse), path) as runtime:
        runtime.accept()
        status = runtime.call("CreateContainer", CREATE).status
        assert status is not None
        assert (status.code, status.message) == (2, "CPUSetAllocator failed")


def test_a_request_that_can_not_be_read_starts_as_it_is(path: Path) -> None:
    """As if there were no plugin."""
    plugin = Plugin(adjusted)
    with connected(plugin, path) as runtime:
        runtime.accept()
        response = runtime.call("CreateContainer", b"\x0a\x05")
        assert decode_message(CreateContainerResponse, response.payload) == GIVEN_UP
    assert plugin.why == ["truncated: got 0 of 5 bytes"]
