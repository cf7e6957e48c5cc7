"""JSON fields that our types don't have, carried through a change of the fields that they do."""

from typing import Any

from koordinator.api.meta import JsonObject

_LIST_KEYS = ("name", "key", "type")  # keys that identify items of a list, as in kubectl


def carried_over(manifest: JsonObject, before: JsonObject, after: JsonObject) -> JsonObject:
    """Return ``manifest`` with the difference between ``before`` and ``after`` made to it.

    ``before`` is what our types read of the manifest.  Items of a list are matched by their name,
    key or type; those without are replaced.
    """
    # Of {} our types read nothing: that it is missing afterwards is only how defaults are written.
    result = {k: v for k, v in manifest.items() if k in after or before.get(k) in (None, {})}
    for key, new in after.items():
        if before.get(key) != new:
            result[key] = _carry_value(manifest.get(key), before.get(key), new)
    return result


def _carry_value(stored: Any, before: Any, after: Any) -> Any:
    if isinstance(stored, dict) and isinstance(after, dict):
        return carried_over(stored, before if isinstance(before, dict) else {}, after)
    if isinstance(stored, list) and isinstance(before, list) and isinstance(after, list):
        return _carry_list(stored, before, after)
    return after


def _carry_list(stored: list[Any], before: list[Any], after: list[Any]) -> list[Any]:
    for key in _LIST_KEYS:
        if all(isinstance(item, dict) and key in item for item in (*stored, *before, *after)):
            old = {item[key]: item for item in stored}
            read = {item[key]: item for item in before}
            return [_carry_value(old.get(item[key]), read.get(item[key]), item) for item in after]
    return after
