"""Manifests beside their typed objects, so that JSON fields which our types don't have survive.

A manifest is kept unchanged, with the object that was decoded from it.  Writes don't change it: the
changes are applied only when the whole object is read.
"""

import msgspec

from koordinator.api.codec import to_manifest
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.cluster.unknown_fields import carried_over
from koordinator.foundation.decoders import decode_json

Manifest = JsonObject | bytes | msgspec.Raw


class Manifests:
    """Manifests by kind and key."""

    def __init__(self) -> None:
        self._kept: dict[tuple[type[KubeObject], str], tuple[Manifest, KubeObject]] = {}

    def keep(self, stored: KubeObject, manifest: Manifest, decoded: KubeObject) -> None:
        """Keep the manifest of a stored object; ``decoded`` is what our types read of it.

        The caller may not change the manifest any more.
        """
        self._kept[type(stored), stored.key] = (manifest, decoded)

    def has(self, obj: KubeObject) -> bool:
        return (type(obj), obj.key) in self._kept

    def forget(self, obj: KubeObject) -> None:
        self._kept.pop((type(obj), obj.key), None)

    def whole(self, stored: KubeObject) -> JsonObject:
        """Return the JSON of an object with all its fields, known to us or not."""
        kept = self._kept.get((type(stored), stored.key))
        now = to_manifest(stored)
        if kept is None:
            return now
        manifest, decoded = kept
        tree = manifest if isinstance(manifest, dict) else decode_json(manifest)
        return carried_over(tree, to_manifest(decoded), now)
