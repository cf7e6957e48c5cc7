"""Changes of claims in Protocol Buffers, which keep opaque parts byte by byte.

The API server stores the opaque parameters of drivers as raw bytes, including whitespace, and
compares these bytes.  When it applies a JSON patch it re-encodes them, and then rejects the patch,
because the parameters are immutable.  In Protocol Buffers, the format of Go clients, the bytes are
returned unchanged.

Source: k8s.io/api resource/v1/generated.proto; k8s.io/apimachinery runtime.Unknown.
"""

from dataclasses import replace
from typing import Annotated, Any

from koordinator.api.meta import JsonObject
from koordinator.foundation.errors import ConflictError, InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.foundation.protobuf import (
    FieldNumber,
    UnknownFields,
    decode_message,
    encode_message,
)

PROTOBUF = "application/vnd.kubernetes.protobuf"
REFUSAL = "field is immutable"  # the server's response to such a patch
_MAGIC = b"k8s\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class WireEnvelope:
    """Wrapper of an object in the protobuf format of Kubernetes."""

    type_meta: Annotated[bytes, FieldNumber(1)] = b""
    raw: Annotated[bytes, FieldNumber(2)] = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireMeta:
    """ObjectMeta."""

    uid: Annotated[str, FieldNumber(5)] = ""
    resource_version: Annotated[str, FieldNumber(6)] = ""
    finalizers: Annotated[tuple[str, ...], FieldNumber(14)] = ()
    rest: Annotated[bytes, UnknownFields()] = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireConsumer:
    """ResourceClaimConsumerReference."""

    api_group: Annotated[str, FieldNumber(1)] = ""
    resource: Annotated[str, FieldNumber(3)] = ""
    name: Annotated[str, FieldNumber(4)] = ""
    uid: Annotated[str, FieldNumber(5)] = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireClaimStatus:
    """ResourceClaimStatus."""

    allocation: Annotated[bytes, FieldNumber(1)] = b""
    reserved_for: Annotated[tuple[WireConsumer, ...], FieldNumber(2)] = ()
    devices: Annotated[tuple[bytes, ...], FieldNumber(4)] = ()
    rest: Annotated[bytes, UnknownFields()] = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class WireClaim:
    """ResourceClaim."""

    metadata: Annotated[WireMeta | None, FieldNumber(1)] = None
    spec: Annotated[bytes, FieldNumber(2)] = b""
    status: Annotated[WireClaimStatus | None, FieldNumber(3)] = None


def amended_claim(stored: bytes, patch: JsonObject) -> bytes | None:
    """Return a stored claim as a merge patch changes it, both in Protocol Buffers.

    None if the patch changes anything but finalizers, consumers, or that there is an allocation.
    Raises ConflictError if it is made from another version; InputError for bytes that are no
    object.
    """
    if not stored.startswith(_MAGIC):
        raise InputError("must be an object in Protocol Buffers")
    envelope = decode_message(WireEnvelope, stored.removeprefix(_MAGIC))
    claim = decode_message(WireClaim, envelope.raw)
    meta, status = claim.metadata or WireMeta(), claim.status or WireClaimStatus()
    changes, news = {**patch.get("metadata", {})}, {**patch.get("status", {})}
    given = changes.pop("uid", meta.uid), changes.pop("resourceVersion", meta.resource_version)
    if given != (meta.uid, meta.resource_version):
        raise ConflictError("the object has been modified; please apply your changes to the latest")
    if "finalizers" in changes:
        meta = replace(meta, finalizers=tuple(changes.pop("finalizers") or ()))
    if "reservedFor" in news:
        users = news.pop("reservedFor") or ()
        status = replace(status, reserved_for=tuple(map(_consumer, users)))
    if news.get("allocation", ...) is None:
        status = replace(status, allocation=b"")
        del news["allocation"]
    if news.get("devices", ...) in (None, []):
        status = replace(status, devices=())
        del news["devices"]
    if changes or news or set(patch) - {"metadata", "status"}:
        return None
    claim = replace(claim, metadata=meta, status=status)
    return _MAGIC + encode_message(replace(envelope, raw=encode_message(claim)))


def _consumer(user: dict[str, Any]) -> WireConsumer:
    return WireConsumer(
        api_group=user.get("apiGroup", ""),
        resource=user["resource"],
        name=user["name"],
        uid=user["uid"],
    )
