"""Messages between the kubelet and drivers of devices that are claimed.

Source: k8s.io/kubelet pkg/apis/dra/v1/api.proto; pkg/apis/pluginregistration/v1/api.proto.
"""

from dataclasses import dataclass
from typing import Annotated, Final

from koordinator.foundation.protobuf import FieldNumber

PLUGIN_TYPE: Final = "DRAPlugin"
SERVICE: Final = "v1.DRAPlugin"  # as a driver says that it serves it


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginInfo:
    """Who a plugin is, and where it serves what."""

    type: Annotated[str, FieldNumber(1)] = ""
    name: Annotated[str, FieldNumber(2)] = ""
    endpoint: Annotated[str, FieldNumber(3)] = ""
    versions: Annotated[tuple[str, ...], FieldNumber(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReference:
    """Which claim is meant."""

    namespace: Annotated[str, FieldNumber(1)] = ""
    uid: Annotated[str, FieldNumber(2)] = ""
    name: Annotated[str, FieldNumber(3)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimReferences:
    """The claims of a call."""

    claims: Annotated[tuple[ClaimReference, ...], FieldNumber(1)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedDevice:
    """A device, for which requests, and how the runtime calls it."""

    requests: Annotated[tuple[str, ...], FieldNumber(1)] = ()
    pool: Annotated[str, FieldNumber(2)] = ""
    device: Annotated[str, FieldNumber(3)] = ""
    cdi_ids: Annotated[tuple[str, ...], FieldNumber(4)] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class PreparedClaim:
    """The devices of a claim, or why there are none."""

    devices: Annotated[tuple[PreparedDevice, ...], FieldNumber(1)] = ()
    error: Annotated[str, FieldNumber(2)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAnswer:
    """An entry of a map by uid: on the wire a message of a key and a value."""

    uid: Annotated[str, FieldNumber(1)] = ""
    prepared: Annotated[PreparedClaim, FieldNumber(2)] = PreparedClaim()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimAnswers:
    """The answer of a call."""

    claims: Annotated[tuple[ClaimAnswer, ...], FieldNumber(1)] = ()
