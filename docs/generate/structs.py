"""Fields of msgspec structs as rows of a table."""

import enum
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from docs.generate.common_fields import COMMON_FIELDS
from docs.generate.declarations import field_comments
from docs.generate.markdown import code, table
from msgspec import NODEFAULT, inspect

from koordinator.api.bounds import accepted_by
from koordinator.foundation.clock import Duration
from koordinator.foundation.quantity import Quantity

#: Structs whose fields are Kubernetes' own; their tables would repeat its reference.
_OF_KUBERNETES = frozenset(
    {"ObjectMeta", "PodTemplateSpec", "PodSpec", "LabelSelector", "ObjectReference", "Condition"}
)
_DEEPEST = 8
_CUSTOM_TYPES: Mapping[type, str] = {Quantity: "quantity", Duration: "duration"}
_PLAIN_TYPES: Mapping[type, str] = {
    inspect.IntType: "integer",
    inspect.FloatType: "number",
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
    inspect.DateTimeType: "time",
    inspect.BytesType: "base64",
    inspect.AnyType: "any value",
    inspect.StructType: "object",
}


@dataclass(frozen=True, slots=True)
class StructField:
    """A field by its JSON path; ``default`` is None where the field is required."""

    path: str
    type: str
    default: str | None
    accepted: str
    text: str


def struct_fields(struct: type[msgspec.Struct]) -> Iterator[StructField]:
    """Yield every field of a struct and of the structs inside it, in order, depth first."""
    info = inspect.type_info(struct)
    if isinstance(info, inspect.StructType):
        yield from _fields(info, "", ())


def field_table(struct: type[msgspec.Struct]) -> str:
    """Return the fields of a struct as a Markdown table, or a sentence if it has none."""
    rows = [
        (
            code(each.path),
            each.type,
            "required" if each.default is None else code(each.default),
            " ".join(filter(None, (each.text, each.accepted and f"Accepted: {each.accepted}."))),
        )
        for each in struct_fields(struct)
    ]
    if not rows:
        return "It has no fields.\n"
    return table(("field", "type", "default", "meaning"), rows)


def type_text(node: Any) -> str:
    """Return the type of a field in the words of a reader of JSON or YAML."""
    match node:
        case inspect.Metadata():
            text = type_text(node.type)
        case inspect.UnionType():
            members = [each for each in node.types if not isinstance(each, inspect.NoneType)]
            text = " or ".join(dict.fromkeys(map(type_text, members)))
        case inspect.VarTupleType() | inspect.ListType() | inspect.SetType():
            text = f"list of {type_text(node.item_type)}"
        case inspect.DictType():
            text = f"map of {type_text(node.value_type)}"
        case inspect.LiteralType():
            text = " or ".join(code(str(value) or '""') for value in node.values)
        case inspect.EnumType():
            text = " or ".join(code(str(each.value)) for each in node.cls)
        case inspect.CustomType():
            text = _CUSTOM_TYPES.get(node.cls, "value")
        case _:
            text = _PLAIN_TYPES.get(type(node), "value")
    return text


def _fields(
    info: inspect.StructType, prefix: str, outer: tuple[type, ...]
) -> Iterator[StructField]:
    comments, accepted = field_comments(info.cls), accepted_by(info.cls)
    for field in info.fields:
        path = f"{prefix}{field.encode_name}"
        inner, suffix = _inner_struct(field.type)
        limits = accepted.get(field.encode_name) or accepted.get(field.name)
        yield StructField(
            path,
            type_text(field.type),
            _default(field),
            "" if limits is None or "Literal" in type(field.type).__name__ else str(limits),
            comments.get(field.name) or COMMON_FIELDS.get(field.name, ""),
        )
        if inner is not None and _is_shown(inner.cls, outer):
            yield from _fields(inner, f"{path}{suffix}.", (*outer, inner.cls))


def _is_shown(struct: type, outer: tuple[type, ...]) -> bool:
    return struct.__name__ not in _OF_KUBERNETES and struct not in outer and len(outer) < _DEEPEST


def _inner_struct(node: Any) -> tuple[inspect.StructType | None, str]:
    match node:
        case inspect.Metadata():
            return _inner_struct(node.type)
        case inspect.UnionType():
            for each in node.types:
                found, suffix = _inner_struct(each)
                if found is not None:
                    return found, suffix
        case inspect.StructType():
            return node, ""
        case inspect.VarTupleType() | inspect.ListType():
            found, suffix = _inner_struct(node.item_type)
            return found, f"[]{suffix}"
        case inspect.DictType():
            found, suffix = _inner_struct(node.value_type)
            return found, f".<key>{suffix}"
    return None, ""


def _default(field: inspect.Field) -> str | None:
    if field.required:
        return None
    value = field.default if field.default is not NODEFAULT else field.default_factory()
    return _default_text(value)


def _default_text(value: object) -> str:
    match value:
        case None | msgspec.UNSET:
            text = "unset"
        case bool():
            text = str(value).lower()
        case enum.Enum():
            text = str(value.value)
        case msgspec.Struct():
            text = "{…}"
        case list() | tuple() | set() | frozenset():
            text = "[" + ", ".join(map(_default_text, value)) + "]"
        case dict():
            text = (
                "{"
                + ", ".join(f"{key}: {_default_text(each)}" for key, each in value.items())
                + "}"
            )
        case _:
            text = str(value) or '""'
    return text
