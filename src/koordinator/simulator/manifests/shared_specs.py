"""Specs of pods by their JSON text: the pods of one owner share a spec, which is read once.

Objects are immutable, so a shared spec is as good as one for each pod.  Only what is beside the
spec, metadata and status, is decoded, completed and validated for each pod.
"""

from typing import Final

import msgspec
from msgspec.structs import replace

from koordinator.api.codec import decode
from koordinator.api.defaults import DEFAULT_NAMESPACE
from koordinator.api.meta import ObjectMeta
from koordinator.api.pod import Pod, PodSpec, PodStatus
from koordinator.foundation.decoders import decoder_of
from koordinator.foundation.errors import InputError
from koordinator.simulator.manifests.known_fields import unknown_fields

MOST_SPECS: Final = 1 << 14
_PENDING: Final = PodStatus(phase="Pending")


class PodText(msgspec.Struct, rename="camel", forbid_unknown_fields=True):
    """The JSON text of a pod in parts."""

    metadata: msgspec.Raw
    spec: msgspec.Raw
    status: msgspec.Raw = msgspec.Raw(b"")
    api_version: str = ""
    kind: str = ""

    @property
    def beside_spec(self) -> bytes:
        """The text without the spec."""
        status = b',"status":' + bytes(self.status) if self.status else b""
        return b'{"metadata":' + bytes(self.metadata) + status + b"}"


class _BesideSpec(msgspec.Struct):
    metadata: ObjectMeta
    status: PodStatus = PodStatus()


_DECODER: Final = decoder_of(PodText)


class SharedSpecs:
    """Specs that have been read, with their defaults, without mistakes and unknown fields."""

    def __init__(self) -> None:
        self._specs: dict[bytes, PodSpec] = {}

    def parts_of(self, text: bytes | msgspec.Raw, api_version: str, kind: str) -> PodText | None:
        """Return the parts of a pod; None for another kind or a text that is to be read whole.

        The version and kind given here count where the text has none.
        """
        try:
            parts = _DECODER.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            return None
        named = (parts.api_version or api_version, parts.kind or kind)
        return parts if named == (Pod.API_VERSION, Pod.KIND) else None

    def pod(self, parts: PodText) -> Pod | None:
        """Return the pod with its defaults; not yet validated beside its spec.

        None if the spec is not known yet, or for a mistake that reading the whole text reports.
        """
        spec = self._specs.get(bytes(parts.spec))
        if spec is None:
            return None
        text = parts.beside_spec
        try:
            if unknown_fields(text, Pod.API_VERSION, Pod.KIND):
                return None
            beside = decode(text, _BesideSpec)
        except (InputError, RecursionError):
            return None
        meta, status = beside.metadata, beside.status
        if not meta.namespace:
            meta = replace(meta, namespace=DEFAULT_NAMESPACE)
        if not status.phase:
            status = replace(status, phase=_PENDING.phase) if parts.status else _PENDING
        return Pod(metadata=meta, spec=spec, status=status)

    def learn(self, parts: PodText, pod: Pod) -> None:
        """Keep the spec of a pod that was read whole, with defaults and without any mistake."""
        if len(self._specs) >= MOST_SPECS:
            self._specs.clear()
        self._specs[bytes(parts.spec)] = pod.spec
