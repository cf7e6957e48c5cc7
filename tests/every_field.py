"""Objects in which every field of their type is filled, and every string in them.

Made from the types themselves, so that a field, an annotation or a label that is added is in them
without any list to maintain.
"""

import copy
import importlib
import json
import pkgutil
from collections.abc import Iterator
from typing import Any

from msgspec import inspect

import koordinator.api.annotations
from koordinator.api.annotations.codec import AnnotationCodec

Path = tuple[str | int, ...]

#: Steps of a path that lead into a text that is JSON itself, and to the key of a mapping.
INSIDE, KEY = "<inside>", "<key>"


def filled(kind: Any) -> Any:
    """Return JSON of a type: one of everything, the string ``x`` everywhere."""
    type_info = inspect.type_info(kind)
    return _filled(type_info)


def labels_of_the_project() -> dict[str, str]:
    """Return every label that the project knows."""
    return _named_in("koordinator.api.labels")


def annotations_of_the_project() -> dict[str, str]:
    """Return every annotation that the project knows, with JSON values filled."""
    package = koordinator.api.annotations
    values: dict[str, str] = {}
    for module in pkgutil.iter_modules(package.__path__):
        values = _named_in(f"{package.__name__}.{module.name}") | values
    return values


def strings(tree: Any, path: Path = ()) -> Iterator[tuple[Path, str]]:
    """Yield place and string: values, keys of mappings, and strings inside of JSON."""
    if isinstance(tree, dict):
        for key, value in tree.items():
            yield (*path, KEY, key), key
            yield from strings(value, (*path, key))
    elif isinstance(tree, list):
        for index, value in enumerate(tree):
            yield from strings(value, (*path, index))
    elif isinstance(tree, str):
        yield path, tree
        inside = _json_in(tree)
        if inside is not None:
            yield from strings(inside, (*path, INSIDE))


def with_string(tree: Any, path: Path, text: str) -> Any:
    """Return a copy that has another text in one place."""
    if not path:
        return text
    step, *rest = path
    if step == INSIDE:
        return json.dumps(with_string(json.loads(tree), tuple(rest), text))
    made = copy.copy(tree)
    if step == KEY:
        made[text] = made.pop(rest[0])
    else:
        made[step] = with_string(tree[step], tuple(rest), text)
    return made


def _named_in(module: str) -> dict[str, str]:
    values: dict[str, str] = {}
    for value in vars(importlib.import_module(module)).values():
        if isinstance(value, AnnotationCodec):
            values[value.key] = json.dumps(filled(value.type))
        elif isinstance(value, str) and "koordinator.sh/" in value and " " not in value:
            values.setdefault(value, "x")
    return values


def _json_in(text: str) -> Any:
    if not text.startswith(("{", "[")):
        return None
    try:
        return json.loads(text)
    except ValueError:
        return None


def _filled(kind: inspect.Type, above: tuple[type, ...] = ()) -> Any:  # noqa: C901, PLR0911, PLR0912 -- a case for each kind of type
    match kind:
        case inspect.Metadata():
            return _filled(kind.type, above)
        case inspect.StructType():
            if kind.cls in above:
                return {}
            inner = (*above, kind.cls)
            return {field.encode_name: _filled(field.type, inner) for field in kind.fields}
        case inspect.DictType():
            return {_filled(kind.key_type, above): _filled(kind.value_type, above)}
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType():
            return [_filled(kind.item_type, above)]
        case inspect.TupleType():
            return [_filled(each, above) for each in kind.item_types]
        case inspect.UnionType():
            first = next(each for each in kind.types if not isinstance(each, inspect.NoneType))
            return _filled(first, above)
        case inspect.BoolType():
            return True
        case inspect.IntType() | inspect.FloatType():
            return int(max(kind.ge or 0, 1))
        case inspect.DateTimeType():
            return "2023-11-01T00:00:00Z"
        case inspect.EnumType():
            return next(iter(kind.cls)).value
        case inspect.LiteralType():
            return kind.values[0]
        case inspect.CustomType():
            return "1"
        case _:
            return "x"
