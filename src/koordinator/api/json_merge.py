"""Merges of JSON objects: strategic merge patches, and changes that keep unknown fields.

Source: k8s.io/apimachinery pkg/util/strategicpatch/patch.go; the patchMergeKey tags of k8s.io/api
core/v1/types.go.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from koordinator.api.meta import JsonObject
from koordinator.foundation.errors import InputError

_DIRECTIVE = "$patch"
_RETAIN = "$retainKeys"
_DELETE_FROM = "$deleteFromPrimitiveList/"
_ORDER = "$setElementOrder/"  # only gives the order, which is kept anyway

#: By the name of the list, in pods and everything in them.
MERGE_KEYS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "containers": "name",
        "initContainers": "name",
        "ephemeralContainers": "name",
        "volumes": "name",
        "env": "name",
        "ports": "containerPort",
        "volumeMounts": "mountPath",
        "volumeDevices": "devicePath",
        "imagePullSecrets": "name",
        "hostAliases": "ip",
        "topologySpreadConstraints": "topologyKey",
        "schedulingGates": "name",
        "resourceClaims": "name",
        "ownerReferences": "uid",
        "conditions": "type",
    }
)
_PRIMITIVE: Final = frozenset(("finalizers",))

_LIST_KEYS = ("name", "key", "type")  # keys that identify items of a list, as in kubectl


def strategic_merge(target: JsonObject, patch: Mapping[str, Any]) -> JsonObject:
    """Return ``target`` with a patch of a pod applied; neither argument is changed.

    Raises InputError for a directive that doesn't exist, and for an entry without its key.
    """
    directive = patch.get(_DIRECTIVE)
    if directive == "replace":
        return {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if directive == "delete":
        return {}
    if directive not in (None, "merge"):
        raise InputError(f"must be replace, delete or merge, got {directive!r}", path="$patch")
    merged = dict(target)
    if _RETAIN in patch:
        kept = set(patch[_RETAIN])
        merged = {key: value for key, value in merged.items() if key in kept}
    for key, change in patch.items():
        if key in (_DIRECTIVE, _RETAIN) or key.startswith(_ORDER):
            continue  # directives, not fields
        if key.startswith(_DELETE_FROM):
            name = key.removeprefix(_DELETE_FROM)
            merged[name] = [each for each in merged.get(name) or () if each not in change]
        elif change is None:
            merged.pop(key, None)
        else:
            merged[key] = _merged_value(key, merged.get(key), change)
    return merged


def _merged_value(key: str, old: Any, change: Any) -> Any:
    if isinstance(change, Mapping):
        return strategic_merge(old if isinstance(old, dict) else {}, change)
    if isinstance(change, list):
        items = old if isinstance(old, list) else []
        if key in _PRIMITIVE:
            return [*items, *(each for each in change if each not in items)]
        if key in MERGE_KEYS:
            return _merged_list(key, MERGE_KEYS[key], items, change)
    return change


def _merged_list(name: str, key: str, old: list[Any], change: list[Any]) -> list[Any]:
    if any(isinstance(each, dict) and each == {_DIRECTIVE: "replace"} for each in change):
        return [each for each in change if each != {_DIRECTIVE: "replace"}]
    merged = {each.get(key): each for each in old if isinstance(each, dict)}
    for each in change:
        if not isinstance(each, dict) or key not in each:
            raise InputError(f"every entry must have {key!r}", path=name)
        if each.get(_DIRECTIVE) == "delete":
            merged.pop(each[key], None)
        else:
            merged[each[key]] = strategic_merge(merged.get(each[key], {}), each)
    return list(merged.values())


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
