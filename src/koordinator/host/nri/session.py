"""One plugin's conversation with the runtime, without a socket: bytes in, calls and bytes out.

The plugin registers; the runtime then configures it, tells it what exists, and calls it.
Two streams: on one the runtime calls the plugin, on the other the plugin calls the runtime.
Source: containerd/nri pkg/stub/stub.go, pkg/adaptation/plugin.go.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from koordinator.foundation.errors import HostError, InputError
from koordinator.foundation.protobuf import decode_message, encode_message
from koordinator.host.nri.messages import (
    PACKAGE,
    ConfigureRequest,
    CreateContainerRequest,
    NriEmpty,
    RegisterPluginRequest,
    StateChangeEvent,
    SynchronizeRequest,
    UpdateContainerRequest,
)
from koordinator.host.nri.mux import FrameReader, frames_of
from koordinator.host.nri.ttrpc import (
    TtrpcCode,
    TtrpcKind,
    TtrpcMessage,
    TtrpcReader,
    TtrpcRequest,
    TtrpcResponse,
    TtrpcStatus,
    pack_message,
)

PLUGIN_STREAM, RUNTIME_STREAM = 1, 2
_REGISTRATION = 1  # the number of the only call that is made
_REQUESTS: Final[Mapping[str, type[object]]] = MappingProxyType(
    {
        "Configure": ConfigureRequest,
        "Synchronize": SynchronizeRequest,
        "CreateContainer": CreateContainerRequest,
        "UpdateContainer": UpdateContainerRequest,
        "StateChange": StateChangeEvent,
        "Shutdown": NriEmpty,
    }
)


class NriRefusalError(HostError):
    """The plugin wants the runtime to give up what it asked about; raised by an answer."""


@dataclass(frozen=True, slots=True)
class NriCall:
    """What the runtime wants to know; ``number`` goes into the answer.

    ``request`` is None, and ``problem`` says why, where it can't be read.
    """

    number: int
    method: str
    request: object | None
    problem: str = ""


class NriSession:
    """A plugin that is connected; made anew for every connection."""

    def __init__(self, name: str, index: str) -> None:
        self.is_registered = False
        self._name = name
        self._index = index
        self._frames = FrameReader()
        self._streams = {PLUGIN_STREAM: TtrpcReader(), RUNTIME_STREAM: TtrpcReader()}
        self._unanswered: list[bytes] = []

    def opening(self) -> bytes:
        """Return what the plugin says first."""
        register = RegisterPluginRequest(plugin_name=self._name, plugin_idx=self._index)
        request = TtrpcRequest(
            service=f"{PACKAGE}.Runtime",
            method="RegisterPlugin",
            payload=encode_message(register),
        )
        message = TtrpcMessage(_REGISTRATION, TtrpcKind.REQUEST, encode_message(request))
        return frames_of(RUNTIME_STREAM, pack_message(message))

    def receive(self, data: bytes) -> Iterator[NriCall]:
        """Yield the calls that are in what the runtime sent.

        Whatever can't be a call gets its answer from ``refusals``.  Raises HostError where nothing
        can be made of the bytes, and if the runtime refuses the plugin.
        """
        for stream, payload in self._frames.feed(data):
            reader = self._streams.get(stream)
            if reader is None:
                continue  # of another plugin's making; nobody here listens
            for message in reader.feed(payload):
                if stream == RUNTIME_STREAM:
                    self._note_answer(message)
                elif message.kind == TtrpcKind.REQUEST:
                    call = self._call_of(message)
                    if call is not None:
                        yield call

    def refusals(self) -> bytes:
        """Return answers to what was no call that is known."""
        sent, self._unanswered = b"".join(self._unanswered), []
        return sent

    def answer(self, number: int, payload: object) -> bytes:
        """Return the answer to a call."""
        return _response(number, TtrpcResponse(payload=encode_message(payload)))

    def failure(self, number: int, text: str, code: TtrpcCode = TtrpcCode.UNKNOWN) -> bytes:
        """Return the answer to a call that failed: the runtime gives up what it was about."""
        return _response(number, TtrpcResponse(status=TtrpcStatus(code=code, message=text)))

    def _note_answer(self, message: TtrpcMessage) -> None:
        if message.kind != TtrpcKind.RESPONSE or message.call != _REGISTRATION:
            return
        try:
            response = decode_message(TtrpcResponse, message.data)
        except InputError as error:
            raise HostError(f"the runtime's answer to the registration: {error}") from None
        if response.status is not None and response.status.code:
            raise HostError(f"the runtime refused the plugin: {response.status.message[:200]}")
        self.is_registered = True

    def _call_of(self, message: TtrpcMessage) -> NriCall | None:
        method = ""
        try:
            envelope = decode_message(TtrpcRequest, message.data)
            method = envelope.method
            declared = _REQUESTS.get(method)
            if declared is not None:
                return NriCall(message.call, method, decode_message(declared, envelope.payload))
            text, code = f"no method {method[:80]}", TtrpcCode.UNIMPLEMENTED
        except InputError as error:
            if method:
                return NriCall(message.call, method, None, str(error))
            text, code = str(error), TtrpcCode.INVALID_ARGUMENT
        self._unanswered.append(self.failure(message.call, text, code))
        return None


def _response(number: int, response: TtrpcResponse) -> bytes:
    message = TtrpcMessage(number, TtrpcKind.RESPONSE, encode_message(response))
    return frames_of(PLUGIN_STREAM, pack_message(message))
