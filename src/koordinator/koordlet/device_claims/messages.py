"""Messages between the kubelet and drivers of dynamic resource allocation.

Source: k8s.io/kubelet pkg/apis/dra/v1/api.proto; pkg/apis/pluginregistration/v1/api.proto.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from koordinator.foundation.protobuf import FieldNumber

PLUGIN_TYPE: Final = "DRAPlugin"
SERVICE: Final = "v1.DRAPlugin"  # as announced at the registration


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo:
    """Registration of a plugin: its type, name, endpoint and versions."""

    type: Annotated[str, FieldNumber(1)] = ""
    name: Annotated[str, FieldNumber(2)] = ""
    endpoint: Annotated[str, FieldNumber(3)] = ""
    versions: Annotated[tuple[str, ...], FieldNumber(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReference:
    """Identity of a claim."""

    namespace: Annotated[str, FieldNumber(1)] = ""
    uid: Annotated[str, FieldNumber(2)] = ""
    name: Annotated[str, FieldNumber(3)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReferences:
    """Claims of a request."""

    claims: Annotated[tuple[ClaimReference, ...], FieldNumber(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """Device of a claim, with its requests and the runtime's CDI ids."""

    requests: Annotated[tuple[str, ...], FieldNumber(1)] = ()
    pool: Annotated[str, FieldNumber(2)] = ""
    device: Annotated[str, FieldNumber(3)] = ""
    cdi_ids: Annotated[tuple[str, ...], FieldNumber(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClaim:
    """Devices of a claim, or the error of its preparation."""

    devices: Annotated[tuple[PreparedDevice, ...], FieldNumber(1)] = ()
    error: Annotated[str, FieldNumber(2)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAnswer:
    """Entry of a protobuf map: a message of key and value on the wire."""

    uid: Annotated[str, FieldNumber(1)] = ""
    prepared: Annotated[PreparedClaim, FieldNumber(2)] = PreparedClaim()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAnswers:
    """Response by claim UID."""

    claims: Annotated[tuple[ClaimAnswer, ...], FieldNumber(1)] = ()
