"""Manifests beside their typed objects, so that JSON fields which our types don't have survive.

A manifest is kept as it came, with the object as decoded from it.  Writes don't touch it: only who
asks for the whole object pays for carrying over what changed since.
"""

from typing import Any

import msgspec

from koordinator.api.codec import to_manifest
from koordinator.api.meta import JsonObject, KubeObject

Manifest = JsonObject | bytes | msgspec.Raw

_LIST_KEYS = ("name", "key", "type")  # by which items of a list are told apart, as kubectl does


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
        tree = manifest if isinstance(manifest, dict) else msgspec.json.decode(manifest)
        return _carried_over(tree, to_manifest(decoded), now)


def _carried_over(manifest: JsonObject, before: JsonObject, after: JsonObject) -> JsonObject:
    """Return ``manifest`` with the difference between ``before`` and ``after`` made to it."""
    result = {key: value for key, value in manifest.items() if key in after or key not in before}
    for key, new in after.items():
        if before.get(key) != new:
            result[key] = _carry_value(manifest.get(key), before.get(key), new)
    return result


def _carry_value(found: Any, before: Any, after: Any) -> Any:
    if isinstance(found, dict) and isinstance(after, dict):
        return _carried_over(found, before if isinstance(before, dict) else {}, after)
    if isinstance(found, list) and isinstance(before, list) and isinstance(after, list):
        return _carry_list(found, before, after)
    return after


def _carry_list(found: list[Any], before: list[Any], after: list[Any]) -> list[Any]:
    """Match items by their name; items without one are replaced."""
    for key in _LIST_KEYS:
        if all(isinstance(item, dict) and key in item for item in (*found, *before, *after)):
            old = {item[key]: item for item in found}
            read = {item[key]: item for item in before}
            return [_carry_value(old.get(item[key]), read.get(item[key]), item) for item in after]
    return after
