"""The runtime's side of NRI on a real socket, with the messages that a plugin uses."""

import socket
from pathlib import Path
from types import TracebackType
from typing import Self

from koordinator.foundation.protobuf import decode_message, encode_message
from koordinator.host.nri.messages import ConfigureRequest, RegisterPluginRequest
from koordinator.host.nri.session import (
    PLUGIN_STREAM,
    RUNTIME_STREAM,
    FrameReader,
    TtrpcKind,
    TtrpcMessage,
    TtrpcReader,
    TtrpcRequest,
    TtrpcResponse,
    frames_of,
    pack_message,
)

_PATIENCE_S = 60.0


class RuntimePeer:
    """Listens at a path; ``accept`` takes one plugin, ``call`` asks it."""

    def __init__(self, path: Path) -> None:
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._listener.settimeout(_PATIENCE_S)
        self._listener.bind(str(path))
        self._listener.listen()
        self._plugin: socket.socket | None = None
        self._next = 1

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.hang_up()
        self._listener.close()

    def accept(self) -> RegisterPluginRequest:
        """Take a plugin that registers, and configure it; return what it registered as."""
        self.hang_up()
        plugin, _ = self._listener.accept()
        plugin.settimeout(_PATIENCE_S)
        self._plugin = plugin
        self._frames = FrameReader()
        self._readers = {PLUGIN_STREAM: TtrpcReader(), RUNTIME_STREAM: TtrpcReader()}
        message = self._receive(RUNTIME_STREAM)
        request = decode_message(TtrpcRequest, message.data)
        answer = TtrpcMessage(message.call, TtrpcKind.RESPONSE, encode_message(TtrpcResponse()))
        self.send(frames_of(RUNTIME_STREAM, pack_message(answer)))
        self.call("Configure", ConfigureRequest(runtime_name="peer", request_timeout=2000))
        return decode_message(RegisterPluginRequest, request.payload)

    def call(self, method: str, payload: object | bytes) -> TtrpcResponse:
        """Ask the plugin; return its answer."""
        body = payload if isinstance(payload, bytes) else encode_message(payload)
        request = TtrpcRequest(service="nri.pkg.api.v1alpha1.Plugin", method=method, payload=body)
        number, self._next = self._next, self._next + 2
        message = TtrpcMessage(number, TtrpcKind.REQUEST, encode_message(request))
        self.send(frames_of(PLUGIN_STREAM, pack_message(message)))
        answer = self._receive(PLUGIN_STREAM)
        assert answer.call == number
        return decode_message(TtrpcResponse, answer.data)

    def send(self, data: bytes) -> None:
        """Send any bytes."""
        assert self._plugin is not None
        self._plugin.sendall(data)

    def hang_up(self) -> None:
        """Drop the plugin, as a runtime does that ends."""
        if self._plugin is not None:
            self._plugin.close()
            self._plugin = None

    def _receive(self, stream: int) -> TtrpcMessage:
        assert self._plugin is not None
        while True:
            data = self._plugin.recv(1 << 16)
            assert data, "the plugin hung up"
            for frame_stream, payload in self._frames.feed(data):
                for message in self._readers[frame_stream].feed(payload):
                    assert frame_stream == stream
                    return message
