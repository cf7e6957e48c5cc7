"""Status of the container runtime, from its CRI socket."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import grpc

from koordinator.foundation.protobuf import FieldNumber, decode_message, encode_message

_STATUS = "/runtime.v1.RuntimeService/Status"
_TIMEOUT_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _StatusRequest:
    verbose: Annotated[bool, FieldNumber(1)] = True


@dataclass(frozen=True, slots=True, kw_only=True)
class _StatusResponse:
    info: Annotated[Mapping[str, str], FieldNumber(2)] = field(default_factory=dict)


def runtime_status(socket: Path) -> Mapping[str, str]:
    """Return what the runtime has to say, as JSON texts by topic."""
    with grpc.insecure_channel(f"unix:{socket}") as channel:
        answer = channel.unary_unary(_STATUS)(encode_message(_StatusRequest()), timeout=_TIMEOUT_S)
    return decode_message(_StatusResponse, answer).info
