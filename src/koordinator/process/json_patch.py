"""The difference of two JSON objects as a JSON patch (RFC 6902)."""

from collections.abc import Iterator
from typing import Any


def json_patch(before: Any, after: Any) -> list[dict[str, Any]]:
    """Return the operations that make ``after`` of ``before``; none if they are equal.

    Lists of one length are compared place by place, others are replaced.
    """
    return list(_operations(before, after, ""))


def _operations(before: Any, after: Any, path: str) -> Iterator[dict[str, Any]]:
    if before is after or (before == after and type(before) is type(after)):
        return
    if isinstance(before, dict) and isinstance(after, dict):
        for key in before:
            if key not in after:
                yield {"op": "remove", "path": f"{path}/{_escaped(key)}"}
        for key, value in after.items():
            if key not in before:
                yield {"op": "add", "path": f"{path}/{_escaped(key)}", "value": value}
            elif before[key] is not value:
                yield from _operations(before[key], value, f"{path}/{_escaped(key)}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for index, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from _operations(old, new, f"{path}/{index}")
    else:
        yield {"op": "replace", "path": path, "value": after}


def _escaped(key: str) -> str:
    return key.replace("~", "~0").replace("/", "~1")
