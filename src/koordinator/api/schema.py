"""CustomResourceDefinitions, made from the types.

The schemas are structural, as the API server demands: every node has a type or may be an integer
or a text, or keeps what it doesn't know; nothing is referred to; nothing is nullable, because a
missing value is a missing field.
Source: k8s.io/apiextensions-apiserver pkg/apiserver/schema/structural.go, validation.go;
pkg/apis/apiextensions/v1/types.go.
"""

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import NODEFAULT
from msgspec.inspect import (
    BoolType,
    CustomType,
    DateTimeType,
    DictType,
    Field,
    IntType,
    ListType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    VarTupleType,
    type_info,
)

from koordinator.api.codec import encode_part
from koordinator.api.crd import CustomResource
from koordinator.api.field_comments import field_comments, with_values
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.registry import KINDS
from koordinator.api.syntax import join_path
from koordinator.foundation.clock import Duration
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import BugError
from koordinator.foundation.quantity import Quantity

API_VERSION = "apiextensions.k8s.io/v1"
_KEEPS_UNKNOWN = "x-kubernetes-preserve-unknown-fields"
_QUANTITY_PATTERN = (
    r"^(\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))"
    r"(([KMGTPE]i)|[numkMGTPE]|([eE](\+|-)?(([0-9]+(\.[0-9]*)?)|(\.[0-9]+))))?$"
)
_INT_OR_STRING: JsonObject = {
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "x-kubernetes-int-or-string": True,
}
_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)
_CODE = re.compile(r"`(\w+)`")
_APPROVAL = "api-approved.kubernetes.io"


def all_crds(*, explained: bool = False) -> list[JsonObject]:
    """Return the CRD of every custom resource, by group and plural.

    The descriptions of fields are read from the source if ``explained`` is set; programs that check
    fields have no use for them.
    """
    custom = [kind for kind in KINDS if issubclass(kind, CustomResource)]
    made = (crd(kind, explained=explained) for kind in custom)
    return sorted(made, key=lambda each: str(each["metadata"]["name"]))


def crd(kind: type[CustomResource], *, explained: bool = False) -> JsonObject:
    """Return the CustomResourceDefinition of a kind, as JSON."""
    group = kind.API_VERSION.partition("/")[0]
    metadata: JsonObject = {"name": f"{kind.PLURAL}.{group}"}
    if kind.API_APPROVED:
        metadata["annotations"] = {_APPROVAL: kind.API_APPROVED}
    names: JsonObject = {
        "kind": kind.KIND,
        "listKind": f"{kind.KIND}List",
        "plural": kind.PLURAL,
        "singular": kind.KIND.lower(),
    }
    if kind.SHORT_NAMES:
        names["shortNames"] = list(kind.SHORT_NAMES)
    versions = [_version(kind, kind, is_stored=kind.STORED_AS is None)]
    types: list[type[KubeObject]] = [kind]
    if kind.STORED_AS is not None:
        versions.append(_version(kind, kind.STORED_AS, is_stored=True))
        types.append(kind.STORED_AS)
    if explained:
        for version, made in zip(types, versions, strict=True):
            _explain(type_info(version), made["schema"]["openAPIV3Schema"])
    return {
        "apiVersion": API_VERSION,
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": {
            "group": group,
            "names": names,
            "scope": "Namespaced" if kind.NAMESPACED else "Cluster",
            "versions": versions,
        },
    }


def object_schema(kind: type[KubeObject]) -> JsonObject:
    """Return the structural schema of a kind."""
    info = type_info(kind)
    if not isinstance(info, StructType):
        raise BugError(f"{kind} is no struct")
    schema = _struct(info)
    properties = schema.pop("properties")
    properties.pop("metadata")
    schema["properties"] = {
        "apiVersion": {"type": "string"},
        "kind": {"type": "string"},
        "metadata": {"type": "object"},
        **properties,
    }
    return schema


def _version(
    kind: type[CustomResource], version: type[KubeObject], *, is_stored: bool
) -> JsonObject:
    made: JsonObject = {
        "name": version.API_VERSION.partition("/")[2],
        "served": True,
        "storage": is_stored,
        "schema": {"openAPIV3Schema": object_schema(version)},
    }
    if kind.SUBRESOURCE_STATUS:
        made["subresources"] = {"status": {}}
    if kind.PRINTER_COLUMNS:
        made["additionalPrinterColumns"] = [
            {"name": column.name, "type": column.type, "jsonPath": column.json_path}
            for column in kind.PRINTER_COLUMNS
        ]
    return made


def _schema(node: Type) -> JsonObject:
    made: JsonObject
    match node:
        case Metadata():
            made = _annotated(node)
        case StructType():
            made = _struct(node)
        case UnionType():
            made = _union(node)
        case VarTupleType() | ListType():
            items = {"type": "array", "items": _schema(node.item_type)}
            made = items | _present(minItems=node.min_length, maxItems=node.max_length)
        case DictType():
            made = {"type": "object", "additionalProperties": _schema(node.value_type)}
        case LiteralType():
            made = {"type": "string", "enum": list(node.values)}
        case CustomType():
            made = _custom(node)
        case _:
            made = _scalar(node)
    return made


def _scalar(node: Type) -> JsonObject:
    made: JsonObject
    match node:
        case IntType() if (node.ge, node.le) == _INT32:
            made = {"type": "integer", "format": "int32"}
        case IntType() if (node.ge, node.le) == _INT64:
            made = {"type": "integer", "format": "int64"}
        case IntType():
            number = {"type": "integer", "format": "int64"}
            made = number | _present(minimum=node.ge, maximum=node.le)
        case StrType():
            made = {"type": "string"} | _present(
                minLength=node.min_length, maxLength=node.max_length, pattern=node.pattern
            )
        case BoolType():
            made = {"type": "boolean"}
        case DateTimeType():
            made = {"type": "string", "format": "date-time"}
        case _:
            raise BugError(f"no schema for {node}")
    return made


def _custom(node: CustomType) -> JsonObject:
    if node.cls is Quantity:
        return {**_INT_OR_STRING, "pattern": _QUANTITY_PATTERN}
    if node.cls is Duration:
        return {"type": "string"}
    raise BugError(f"no schema for {node.cls}")


def documented(struct: type[msgspec.Struct]) -> str:
    """Return the docstring of a struct as Markdown, with the JSON names of its fields."""
    names = {each.name: each.encode_name for each in msgspec.structs.fields(struct)}
    text = (inspect.getdoc(struct) or "").replace("``", "`")
    return _CODE.sub(lambda code: f"`{names.get(code[1], code[1])}`", text)


def _annotated(node: Metadata) -> JsonObject:
    extra = node.extra_json_schema or {}
    if extra.get(_KEEPS_UNKNOWN):
        return {"type": "object", **extra}
    return {**_schema(node.type), **extra}


def _union(node: UnionType) -> JsonObject:
    members = [member for member in node.types if not isinstance(member, NoneType)]
    if len(members) == 1:
        return _schema(members[0])
    if {type(member) for member in members} == {IntType, StrType}:
        return dict(_INT_OR_STRING)
    raise BugError(f"no structural schema for {node}")


def _struct(node: StructType) -> JsonObject:
    schema: JsonObject = {"type": "object"}
    if documentation := documented(node.cls):
        schema["description"] = " ".join(documentation.split())
    schema["properties"] = {field.encode_name: _field(field) for field in node.fields}
    if required := [field.encode_name for field in node.fields if field.required]:
        schema["required"] = required
    return schema


def _field(field: Field) -> JsonObject:
    """Return the schema of a field, with its default unless that is the same as nothing."""
    schema = _schema(field.type)
    is_nothing = field.default is NODEFAULT or not field.default
    if is_nothing or isinstance(field.default, msgspec.Struct):
        return schema
    return {**schema, "default": decode_json(encode_part(field.default))}


def _explain(node: Type, schema: JsonObject) -> None:
    """Describe each field of a schema by the comment that its declaration has."""
    match node:
        case Metadata():
            _explain(node.type, schema)
        case UnionType():
            for member in node.types:
                _explain(member, schema)
        case VarTupleType() | ListType() if "items" in schema:
            _explain(node.item_type, schema["items"])
        case DictType() if "additionalProperties" in schema:
            _explain(node.value_type, schema["additionalProperties"])
        case StructType() if "properties" in schema:
            _explain_fields(node, schema["properties"])


def _explain_fields(struct: StructType, properties: JsonObject) -> None:
    comments = field_comments(struct.cls)
    for field in struct.fields:
        schema = properties.get(field.encode_name)
        if schema is None or field.encode_name == "metadata":
            continue
        _explain(field.type, schema)
        if text := with_values(comments.get(field.name, "")):
            schema["description"] = f"{text[0].upper()}{text[1:]}."


def _present(**limits: object) -> JsonObject:
    return {name: limit for name, limit in limits.items() if limit is not None}


def missing_fields(
    expected: Any, actual: Mapping[str, Any], path: str = "", *, skipped: str = ""
) -> Iterator[str]:
    """Yield the paths of fields that an API server with the actual schema drops, outermost first.

    The field at the path ``skipped`` is not compared, nor an expected schema that is no mapping.
    """
    if not isinstance(expected, Mapping) or actual.get(_KEEPS_UNKNOWN):
        return
    properties = actual.get("properties") or {}
    theirs = expected.get("properties")
    for name, inner in theirs.items() if isinstance(theirs, Mapping) else ():
        below = join_path(path, name)
        if below == skipped:
            continue
        if name in properties:
            yield from missing_fields(inner, properties[name], below, skipped=skipped)
        elif not isinstance(actual.get("additionalProperties"), dict):
            yield below
    for key, mark in (("items", "[]"), ("additionalProperties", "[*]")):
        if isinstance(expected.get(key), dict) and isinstance(actual.get(key), dict):
            yield from missing_fields(expected[key], actual[key], path + mark, skipped=skipped)
