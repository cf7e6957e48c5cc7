"""Session of one plugin with the runtime, without a socket: bytes in, calls and bytes out.

The plugin registers; the runtime then configures it, sends the existing pods, and calls it.  There
are two streams, one for calls of the runtime and one for calls of the plugin.
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
from koordinator.host.nri.ttrpc import (
    FrameReader,
    TtrpcCode,
    TtrpcKind,
    TtrpcMessage,
    TtrpcReader,
    TtrpcRequest,
    TtrpcResponse,
    TtrpcStatus,
    frames_of,
    pack_message,
)

PLUGIN_STREAM, RUNTIME_STREAM = 1, 2
_REGISTRATION = 1  # number of the plugin's only call
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
    """The plugin rejects the pod or container of a call; raised by ``answer``."""


@dataclass(frozen=True, slots=True)
class NriCall:
    """Call of the runtime; ``number`` identifies its response.

    ``request`` is None for an undecodable call, with the reason in ``problem``.
    """

    number: int
    method: str
    request: object | None
    problem: str = ""


class NriSession:
    """Session of a connected plugin; each connection has its own."""

    def __init__(self, name: str, index: str) -> None:
        self.is_registered = False
        self._name = name
        self._index = index
        self._frames = FrameReader()
        self._streams = {PLUGIN_STREAM: TtrpcReader(), RUNTIME_STREAM: TtrpcReader()}
        self._unanswered: list[bytes] = []

    def opening(self) -> bytes:
        """Return the registration, which the plugin sends first."""
        register = RegisterPluginRequest(plugin_name=self._name, plugin_idx=self._index)
        request = TtrpcRequest(
            service=f"{PACKAGE}.Runtime",
            method="RegisterPlugin",
            payload=encode_message(register),
        )
        message = TtrpcMessage(_REGISTRATION, TtrpcKind.REQUEST, encode_message(request))
        return frames_of(RUNTIME_STREAM, pack_message(message))

    def receive(self, data: bytes) -> Iterator[NriCall]:
        """Yield the calls in received bytes.

        ``refusals`` has the responses to invalid calls.  Raises HostError for undecodable bytes,
        and if the runtime rejects the plugin.
        """
        for stream, payload in self._frames.feed(data):
            reader = self._streams.get(stream)
            if reader is None:
                continue  # a stream of an unknown service
            for message in reader.feed(payload):
                if stream == RUNTIME_STREAM:
                    self._process_response(message)
                elif message.kind == TtrpcKind.REQUEST:
                    call = self._call_of(message)
                    if call is not None:
                        yield call

    def refusals(self) -> bytes:
        """Return the responses to invalid and unknown calls."""
        sent, self._unanswered = b"".join(self._unanswered), []
        return sent

    def answer(self, number: int, payload: object) -> bytes:
        """Return the response to a call."""
        return _response(number, TtrpcResponse(payload=encode_message(payload)))

    def failure(self, number: int, text: str, code: TtrpcCode = TtrpcCode.UNKNOWN) -> bytes:
        """Return an error response; the runtime then abandons the pod or container."""
        return _response(number, TtrpcResponse(status=TtrpcStatus(code=code, message=text)))

    def _process_response(self, message: TtrpcMessage) -> None:
        if message.kind != TtrpcKind.RESPONSE or message.call != _REGISTRATION:
            return
        try:
            response = decode_message(TtrpcResponse, message.data)
        except InputError as error:
            raise HostError(
                f"invalid response of the runtime to the registration: {error}"
            ) from None
        if response.status is not None and response.status.code:
            raise HostError(f"the runtime rejected the plugin: {response.status.message[:200]}")
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
