"""The plugin's side of the conversation: whatever pieces the bytes come in, nothing is lost.

What the runtime would send is made with the same codec; tests/e2e/node talks to a real one.
"""

import struct
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koordinator.foundation.errors import HostError
from koordinator.foundation.protobuf import decode_message, encode_message
from koordinator.host.nri.messages import (
    ConfigureRequest,
    ConfigureResponse,
    CreateContainerRequest,
    NriContainer,
    NriEvent,
    NriPod,
    RegisterPluginRequest,
)
from koordinator.host.nri.session import (
    MOST_DATA,
    MOST_SENT,
    PLUGIN_STREAM,
    RUNTIME_STREAM,
    FrameReader,
    NriCall,
    NriSession,
    TtrpcKind,
    TtrpcMessage,
    TtrpcReader,
    TtrpcRequest,
    TtrpcResponse,
    TtrpcStatus,
    frames_of,
    pack_message,
)


def cut(data: bytes, places: list[int]) -> list[bytes]:
    """Return the data in pieces."""
    bounds = [0, *sorted(place % (len(data) + 1) for place in places), len(data)]
    return [data[start:end] for start, end in pairwise(bounds)]


def request(number: int, method: str, payload: object | bytes) -> bytes:
    """Return what the runtime sends to call the plugin."""
    body = payload if isinstance(payload, bytes) else encode_message(payload)
    envelope = TtrpcRequest(service="nri.pkg.api.v1alpha1.Plugin", method=method, payload=body)
    message = TtrpcMessage(number, TtrpcKind.REQUEST, encode_message(envelope))
    return frames_of(PLUGIN_STREAM, pack_message(message))


def answers(data: bytes) -> list[tuple[int, TtrpcResponse]]:
    """Return what the plugin answered, as the runtime reads it."""
    frames, reader = FrameReader(), TtrpcReader()
    return [
        (message.call, decode_message(TtrpcResponse, message.data))
        for stream, payload in frames.feed(data)
        if stream == PLUGIN_STREAM
        for message in reader.feed(payload)
    ]


@given(
    st.lists(st.tuples(st.sampled_from((1, 2)), st.binary(max_size=9000)), max_size=4),
    st.lists(st.integers(0, 40_000), max_size=8),
)
def test_streams_survive_any_cuts(sent: list[tuple[int, bytes]], places: list[int]) -> None:
    """Frames may be torn and joined anywhere; each stream comes out as it went in."""
    reader, got = FrameReader(), {1: b"", 2: b""}
    for piece in cut(b"".join(frames_of(*each) for each in sent), places):
        for stream, payload in reader.feed(piece):
            got[stream] += payload
    assert got == {one: b"".join(data for stream, data in sent if stream == one) for one in (1, 2)}


@given(st.binary(min_size=1, max_size=20_000))
def test_no_frame_is_larger_than_the_runtime_takes(data: bytes) -> None:
    """Header and payload are at most 4,096 bytes."""
    sent, at = frames_of(1, data), 0
    while at < len(sent):
        _, length = struct.unpack_from(">II", sent, at)
        assert 0 < length <= MOST_SENT - 8
        at += 8 + length


@given(
    st.lists(
        st.builds(TtrpcMessage, st.integers(1, 2**32 - 1), st.just(1), st.binary(max_size=500)),
        max_size=5,
    ),
    st.lists(st.integers(0, 3000), max_size=8),
)
def test_messages_survive_any_cuts(sent: list[TtrpcMessage], places: list[int]) -> None:
    """A message may be spread over many frames."""
    reader = TtrpcReader()
    pieces = cut(b"".join(map(pack_message, sent)), places)
    assert [message for piece in pieces for message in reader.feed(piece)] == sent


def test_invalid_length_ends_the_session() -> None:
    """The header alone is refused: no message of that size is ever kept."""
    with pytest.raises(HostError, match="frame of 4294967295 bytes"):
        list(FrameReader().feed(struct.pack(">II", 1, 2**32 - 1)))
    with pytest.raises(HostError, match="message of 4194305 bytes"):
        list(TtrpcReader().feed(struct.pack(">IIBB", MOST_DATA + 1, 1, 1, 0)))
    with pytest.raises(HostError, match="the limit is"):
        pack_message(TtrpcMessage(1, 2, b"x" * (MOST_DATA + 1)))


@given(st.binary(max_size=300))
def test_noise_raises_nothing_but_host_errors(noise: bytes) -> None:
    """The plugin closes the connection or waits for more, whatever bytes arrive."""
    session = NriSession("koordlet_nri", "00")
    try:
        list(session.receive(noise))
    except HostError:
        return


def test_the_plugin_registers_first() -> None:
    """Name and place in the order of plugins go to the runtime's service."""
    ((stream, payload),) = FrameReader().feed(NriSession("koordlet_nri", "00").opening())
    (message,) = TtrpcReader().feed(payload)
    sent = decode_message(TtrpcRequest, message.data)
    assert (stream, sent.service) == (RUNTIME_STREAM, "nri.pkg.api.v1alpha1.Runtime")
    assert decode_message(RegisterPluginRequest, sent.payload) == RegisterPluginRequest(
        plugin_name="koordlet_nri", plugin_idx="00"
    )


def test_a_call_is_answered_under_its_number() -> None:
    """A long request comes in many frames, the answer goes out in frames that fit."""
    session = NriSession("koordlet_nri", "00")
    container_request = CreateContainerRequest(
        pod=NriPod(uid="u", annotations={"a": "x" * 100_000}), container=NriContainer(name="main")
    )
    (call,) = session.receive(request(7, "CreateContainer", container_request))
    assert call == NriCall(7, "CreateContainer", container_request)
    events = NriEvent.RUN_POD_SANDBOX.bit | NriEvent.REMOVE_POD_SANDBOX.bit
    events |= NriEvent.CREATE_CONTAINER.bit | NriEvent.UPDATE_CONTAINER.bit
    assert events == 0b1000_1101  # as the original's plugin answers
    ((number, response),) = answers(session.answer(7, ConfigureResponse(events=events)))
    assert (number, response.status) == (7, None)
    assert decode_message(ConfigureResponse, response.payload).events == events


def test_unknown_method_is_answered_and_undecodable_request_is_reported() -> None:
    """A method of a later NRI is refused; a request that can't be read is still a call."""
    session = NriSession("koordlet_nri", "00")
    assert list(session.receive(request(1, "ValidateEverything", b""))) == []
    ((number, response),) = answers(session.refusals())
    assert (number, response.status) == (1, TtrpcStatus(code=12, message="no method "
                                                        "ValidateEverything"))  # fmt: skip
    (call,) = session.receive(request(3, "Configure", b"\x0a\x05"))
    assert call == NriCall(3, "Configure", None, "truncated: got 0 of 5 bytes")
    (call,) = session.receive(request(5, "Configure", ConfigureRequest(config="x")))
    assert call.request == ConfigureRequest(config="x")


def test_rejection_of_the_plugin_has_the_reason() -> None:
    """The runtime may not want a second plugin of the name."""
    session = NriSession("koordlet_nri", "00")
    refused = encode_message(TtrpcResponse(status=TtrpcStatus(code=2, message="in use")))
    answer = frames_of(RUNTIME_STREAM, pack_message(TtrpcMessage(1, TtrpcKind.RESPONSE, refused)))
    with pytest.raises(HostError, match="rejected the plugin: in use"):
        list(session.receive(answer))
    assert not session.is_registered
    accepted = frames_of(RUNTIME_STREAM, pack_message(TtrpcMessage(1, TtrpcKind.RESPONSE, b"")))
    assert list(session.receive(accepted)) == []
    assert session.is_registered
