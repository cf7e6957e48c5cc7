"""Fields of msgspec structs as rows of a table."""

import enum
from collections.abc import Container, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
from docs.generate.common_fields import COMMON_FIELDS
from docs.generate.dated import Row, dated_table, deprecation
from docs.generate.markdown import code
from msgspec import NODEFAULT, inspect

from koordinator.api.bounds import ANY, AcceptedValues, Bounds, accepted_by
from koordinator.api.field_comments import field_comments, with_values
from koordinator.foundation.clock import Duration
from koordinator.foundation.quantity import Quantity

#: Structs whose fields are Kubernetes' own; their tables would repeat its reference.
_OF_KUBERNETES = frozenset(
    {"ObjectMeta", "PodTemplateSpec", "PodSpec", "LabelSelector", "ObjectReference", "Condition"}
)
#: Bounds of integers of 32 and 64 bits, which limit every number.
_OF_MACHINES = frozenset((-(2**31), 2**31 - 1, -(2**63), 2**63 - 1))
_EMPTY: tuple[object, ...] = (None, "", (), {})
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
    replacement: str  # what replaces a deprecated field


def struct_fields(
    struct: type[msgspec.Struct], in_effect: msgspec.Struct | None = None
) -> Iterator[StructField]:
    """Yield every field of a struct and of the structs inside it, in order, depth first.

    ``in_effect`` has the values that a component uses for unset fields; they become the defaults.
    """
    info = inspect.type_info(struct)
    if isinstance(info, inspect.StructType):
        yield from _fields(info, "", (), in_effect)


def field_table(
    struct: type[msgspec.Struct],
    scope: str,
    in_effect: msgspec.Struct | None = None,
    hidden: Container[str] = (),
) -> str:
    """Return the fields of a struct as a Markdown table, or a sentence if it has none.

    ``scope`` has the recorded releases; ``hidden`` names paths that are left out.
    """
    rows = [
        Row(
            each.path,
            (
                code(each.path),
                ", ".join(filter(None, (each.type, each.accepted))),
                "required" if each.default is None else code(each.default),
                each.text,
            ),
            each.replacement,
        )
        for each in struct_fields(struct, in_effect)
        if each.path not in hidden
    ]
    if not rows:
        return "It has no fields.\n"
    return dated_table(scope, ("field", "type", "default", "meaning"), rows)


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
    info: inspect.StructType,
    prefix: str,
    outer: tuple[type, ...],
    given: msgspec.Struct | None,
) -> Iterator[StructField]:
    comments, accepted = field_comments(info.cls), accepted_by(info.cls)
    for field in info.fields:
        path = f"{prefix}{field.encode_name}"
        inner, suffix = inner_struct(field.type)
        limits = accepted.get(field.name)
        comment = comments.get(field.name) or COMMON_FIELDS.get(field.name, "")
        meaning, replacement = deprecation(with_values(comment))
        value = getattr(given, field.name, None)
        default = _default(field) if value is None else _default_text(value)
        yield StructField(
            path,
            type_text(field.type),
            default,
            _constraint(field.type) if limits is None else _limits(limits),
            f"{meaning}; must be more than {code(limits.exceeds)}"
            if limits is not None and limits.exceeds
            else meaning,
            replacement,
        )
        if inner is not None and _is_shown(inner.cls, outer):
            within = _default_value(field) if value is None else value
            within = within if isinstance(within, msgspec.Struct) else None
            yield from _fields(inner, f"{path}{suffix}.", (*outer, inner.cls), within)


def _limits(limits: AcceptedValues) -> str:
    """Return what the manager and the node agent accept in a field."""
    texts = [" or ".join(map(code, limits.words)), _range(limits.configured)]
    if limits.node is not None and limits.node != limits.configured:
        texts.append(f"koordlet: {_range(limits.node)}")
    return ", ".join(filter(None, texts))


def _range(bounds: Bounds) -> str:
    if bounds == ANY:
        return ""
    if bounds.least is not None and bounds.most is not None:
        return f"{bounds.least} to {bounds.most}"
    return str(bounds)


def _constraint(node: Any) -> str:
    """Return the bounds of the numbers in a field, as its type declares them."""
    match node:
        case inspect.IntType() | inspect.FloatType():
            least, most = (None if b in _OF_MACHINES else b for b in (node.ge, node.le))
            return _range(Bounds(least, most, node.gt))
        case inspect.Metadata():
            return _constraint(node.type)
        case inspect.UnionType():
            return next(filter(None, map(_constraint, node.types)), "")
        case inspect.VarTupleType() | inspect.ListType():
            return _constraint(node.item_type)
        case inspect.DictType():
            return _constraint(node.value_type)
    return ""


def _is_shown(struct: type, outer: tuple[type, ...]) -> bool:
    return struct.__name__ not in _OF_KUBERNETES and struct not in outer and len(outer) < _DEEPEST


def inner_struct(node: Any) -> tuple[inspect.StructType | None, str]:
    """Return the struct in a type, and the rest of the path to its fields: lists and maps."""
    match node:
        case inspect.Metadata():
            return inner_struct(node.type)
        case inspect.UnionType():
            for each in node.types:
                found, suffix = inner_struct(each)
                if found is not None:
                    return found, suffix
        case inspect.StructType():
            return node, ""
        case inspect.VarTupleType() | inspect.ListType():
            found, suffix = inner_struct(node.item_type)
            return found, f"[]{suffix}"
        case inspect.DictType():
            found, suffix = inner_struct(node.value_type)
            return found, f".<key>{suffix}"
    return None, ""


def _default(field: inspect.Field) -> str | None:
    return None if field.required else _default_text(_default_value(field))


def _default_value(field: inspect.Field) -> object:
    if field.required:
        return None
    return field.default if field.default is not NODEFAULT else field.default_factory()


def _default_text(value: object) -> str:
    match value:
        case None | msgspec.UNSET:
            text = "unset"
        case bool():
            text = str(value).lower()
        case enum.Enum():
            text = str(value.value) or '""'
        case msgspec.Struct():
            text = "{…}"
        case list() | tuple() | set() | frozenset():
            text = "[" + ", ".join(map(_item_text, value)) + "]"
        case dict():
            text = (
                "{" + ", ".join(f"{key}: {_item_text(each)}" for key, each in value.items()) + "}"
            )
        case _:
            text = str(value) or '""'
    return text


def _item_text(value: object) -> str:
    """Return an item of a list or map; a struct, which has no rows of its own, with its fields."""
    if not isinstance(value, msgspec.Struct):
        return _default_text(value)
    parts = (
        f"{field.encode_name}: {_item_text(each)}"
        for field in msgspec.structs.fields(value)
        if (each := getattr(value, field.name)) not in _EMPTY
    )
    return "{" + ", ".join(parts) + "}"
