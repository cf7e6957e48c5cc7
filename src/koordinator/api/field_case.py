"""Names of JSON fields in another case than their type declares.

Source: Go encoding/json, ``Unmarshal``: a key without an exact match sets the field that it equals
regardless of case; of several keys for one field the last one counts.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any

import msgspec
from msgspec import inspect

from koordinator.foundation.decoders import decode_json


def with_declared_case(text: str, kind: type[Any]) -> str:
    """Return JSON with the names that the type declares; text that is no JSON is unchanged."""
    key: Any = kind  # mypy doubts that a type can be hashed
    try:
        tree = decode_json(text)
    except (msgspec.DecodeError, RecursionError):
        return text
    renamed = _renamed(tree, _type_of(key))
    return text if renamed == tree else msgspec.json.encode(renamed).decode()


def names_in_other_case(text: str, kind: type[Any]) -> list[str]:
    """Return the names in JSON that the type declares in another case."""
    renamed = with_declared_case(text, kind)
    if renamed is text:
        return []
    return sorted(set(_names(decode_json(text))) - set(_names(decode_json(renamed))))


def _names(tree: Any) -> Iterator[str]:
    if isinstance(tree, dict):
        yield from tree
    for value in tree.values() if isinstance(tree, dict) else tree:
        if isinstance(value, dict | list):
            yield from _names(value)


@cache
def _type_of(kind: type[Any]) -> inspect.Type:
    return inspect.type_info(kind)


def _renamed(tree: Any, node: inspect.Type) -> Any:
    if isinstance(node, inspect.Metadata):
        return _renamed(tree, node.type)
    if isinstance(node, inspect.UnionType):
        for each in node.types:
            tree = _renamed(tree, each)
    elif isinstance(node, inspect.VarTupleType) and isinstance(tree, list):
        return [_renamed(value, node.item_type) for value in tree]
    elif isinstance(node, inspect.DictType) and isinstance(tree, dict):
        return {key: _renamed(value, node.value_type) for key, value in tree.items()}
    elif isinstance(node, inspect.StructType) and isinstance(tree, dict):
        fields = {field.encode_name.lower(): field for field in node.fields}
        renamed = {}
        for key, value in tree.items():
            field = fields.get(key.lower())
            if field is None:
                renamed[key] = value
            else:
                renamed[field.encode_name] = _renamed(value, field.type)
        return renamed
    return tree
