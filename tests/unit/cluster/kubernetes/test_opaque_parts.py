"""Claims that are changed in Protocol Buffers, so that their opaque parts stay as they came."""

from typing import Any

import pytest

from koordinator.cluster.kubernetes.opaque_parts import (
    WireClaim,
    WireClaimStatus,
    WireConsumer,
    WireEnvelope,
    WireMeta,
    amended_claim,
)
from koordinator.foundation.errors import ConflictError, InputError
from koordinator.foundation.protobuf import decode_message, encode_message

MAGIC = b"k8s\0"
META = WireMeta(uid="u", resource_version="7", finalizers=("a",), rest=b"\x0a\x01c")
STATUS = WireClaimStatus(
    allocation=b"{ }", reserved_for=(WireConsumer(resource="pods", name="p", uid="1"),)
)
CLAIM = WireClaim(metadata=META, spec=b'{"mode": "fast"}', status=STATUS)
VERSION = {"uid": "u", "resourceVersion": "7"}


def stored() -> bytes:
    """Return the claim as the API server sends it."""
    return MAGIC + encode_message(WireEnvelope(type_meta=b"\x0a\x02v1", raw=encode_message(CLAIM)))


def changed(patch: dict[str, Any]) -> WireClaim:
    """Return the claim after a patch."""
    result = amended_claim(stored(), patch)
    assert result is not None
    envelope = decode_message(WireEnvelope, result.removeprefix(MAGIC))
    assert envelope.type_meta == b"\x0a\x02v1"
    return decode_message(WireClaim, envelope.raw)


def test_finalizers_and_consumers_change_and_nothing_else_does() -> None:
    """Opaque and unknown parts stay unchanged byte by byte."""
    claim = changed({"metadata": {**VERSION, "finalizers": ["a", "b"]}})
    assert claim.metadata == WireMeta(
        uid="u", resource_version="7", finalizers=("a", "b"), rest=META.rest
    )
    assert (claim.spec, claim.status) == (CLAIM.spec, STATUS)

    users = [{"resource": "pods", "name": n, "uid": n} for n in ("p", "q")]
    claim = changed({"metadata": VERSION, "status": {"reservedFor": users}})
    assert claim.status is not None
    assert claim.status.allocation == b"{ }"
    assert [user.name for user in claim.status.reserved_for] == ["p", "q"]


def test_an_allocation_is_taken_away() -> None:
    """The status of its devices and consumers is removed as well."""
    cleared = {"allocation": None, "reservedFor": None, "devices": None}
    assert changed({"metadata": VERSION, "status": cleared}).status in (None, WireClaimStatus())


@pytest.mark.parametrize(
    "patch",
    [
        {"metadata": {"labels": {"a": "b"}}},
        {"spec": {}},
        {"status": {"allocation": {"devices": {}}}},
        {"status": {"devices": [{}]}},
    ],
)
def test_other_changes_are_not_made(patch: dict[str, Any]) -> None:
    """The refusal of the API server then stands."""
    assert amended_claim(stored(), patch) is None


def test_another_version_is_not_changed() -> None:
    """Objects of other versions, and values that are no objects, stay unchanged."""
    with pytest.raises(ConflictError, match="has been modified"):
        amended_claim(stored(), {"metadata": {"uid": "u", "resourceVersion": "6"}})
    with pytest.raises(InputError):
        amended_claim(b"{}", {})
