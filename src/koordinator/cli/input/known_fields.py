"""Fields of manifests that their kind does not have: most often a word that is misspelt.

The types of this package have a part of Kubernetes' fields only, so a table has the names of all
fields, generated from an API server (``tests/e2e/kubernetes_fields.py``); the fields of
Koordinator's kinds are in the CRDs.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from types import GenericAlias
from typing import Any

import msgspec

from koordinator.api.kubescheduler import did_you_mean
from koordinator.api.meta import JsonObject
from koordinator.api.schema import all_crds
from koordinator.foundation.decoders import JsonDecoder, convert, decode_json, decoder_of
from koordinator.foundation.errors import InputError

Types = dict[str, dict[str, str]]
_TABLE = "data/kubernetes-fields.json"
_LIST, _MAP = "[]", "{}"
_METADATA = "meta.v1.ObjectMeta"
_TEMPLATE = "core.v1.PodTemplateSpec"
#: Fields by which pods name their groups, each in some releases only; not looked into.
_OF_SOME_RELEASES: Types = {"core.v1.PodSpec": {"workloadRef": "", "schedulingGroup": ""}}


class _Table(msgspec.Struct):
    kinds: dict[str, str]  # "apps/v1/Deployment" to type
    types: Types  # type to field to type; empty: not looked into


@dataclass(frozen=True, slots=True)
class UnknownField:
    """A field that the type around it does not have."""

    path: str  # spec.containers[0].resorces
    hint: str  # what was meant, perhaps; else empty
    accepted: tuple[str, ...]

    @property
    def name(self) -> str:
        """The path without numbers: equal for equal mistakes."""
        return "".join(part.partition("]")[2] or part for part in self.path.split("["))


@cache
def _table() -> _Table:
    text = files("koordinator.cli").joinpath(_TABLE).read_bytes()
    return decode_json(text, _Table)


@cache
def _of_crds() -> _Table:
    kinds: dict[str, str] = {}
    types: Types = {}
    for crd in all_crds():
        spec = crd["spec"]
        for version in spec["versions"]:
            name = f"{spec['group']}/{version['name']}/{spec['names']['kind']}"
            schema = version["schema"]["openAPIV3Schema"]
            kinds[name] = _type_of_schema(name, schema, types)
            types[name] |= {"metadata": _METADATA}
    if reservations := [name for name in types if name.endswith("/Reservation.spec")]:
        for name in reservations:  # its schema leaves the template open
            types[name] |= {"template": _TEMPLATE}
    return _Table(kinds, types)


def _type_of_schema(name: str, schema: JsonObject, types: Types) -> str:
    """Enter the schema and what is in it; return its type."""
    if "properties" in schema:
        types[name] = {
            field: _type_of_schema(f"{name}.{field}", inner, types)
            for field, inner in schema["properties"].items()
        }
        return name
    for key, mark in (("items", _LIST), ("additionalProperties", _MAP)):
        inner = schema.get(key)
        if isinstance(inner, dict):
            item_type = _type_of_schema(f"{name}.*", inner, types)
            return mark + item_type if item_type else ""
    return ""


def knows_kind(api_version: str, kind: str) -> bool:
    """Return whether it is a kind of Kubernetes itself."""
    return f"{api_version}/{kind}" in _table().kinds


def groups_of_kubernetes() -> set[str]:
    """Return the names of Kubernetes' own groups, with the empty one."""
    return {name.rpartition("/")[0].rpartition("/")[0] for name in _table().kinds}


def kinds_of(api_version: str) -> list[str]:
    """Return the kinds of a group and version of Kubernetes itself; none for any other."""
    return [
        name.rpartition("/")[2] for name in _table().kinds if name.rpartition("/")[0] == api_version
    ]


def unknown_fields(
    manifest: JsonObject | bytes | msgspec.Raw, api_version: str, kind: str
) -> list[UnknownField]:
    """Return the fields that the kind does not have; none for a kind that is not known.

    Raises InputError for text that is no JSON in a part that our types do not read.
    """
    name = f"{api_version}/{kind}"
    table = _table() if name in _table().kinds else _of_crds()
    if name not in table.kinds:
        return []
    root = table.kinds[name]
    try:
        if isinstance(manifest, dict):
            convert(manifest, _strict(root, json=False), str_keys=True)
        else:
            _decoder(root).decode(manifest)
    except msgspec.ValidationError:
        return list(_unknown(_tree(manifest), root, ""))
    except UnicodeDecodeError as error:
        raise InputError(f"not valid JSON: {error}") from None
    return []


def _tree(manifest: JsonObject | bytes | msgspec.Raw) -> Any:
    if isinstance(manifest, dict):
        return manifest
    try:
        return decode_json(manifest)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not valid JSON: {error}") from None


def _fields(name: str) -> Mapping[str, str]:
    known = _table().types.get(name) or _of_crds().types[name]
    return {**_OF_SOME_RELEASES.get(name, {}), **known}


@cache
def _strict(name: str, *, json: bool) -> type[msgspec.Struct]:
    """Return a type that refuses unknown fields fast; what is not looked into is not decoded."""
    leaf: Any = msgspec.Raw if json else Any
    inner = [
        (f"f{number}", _optional(kind, leaf, json=json), msgspec.field(name=field, default=None))
        for number, (field, kind) in enumerate(_fields(name).items())
    ]
    return msgspec.defstruct("Strict", inner, forbid_unknown_fields=True, gc=False)


def _optional(kind: str, leaf: Any, *, json: bool) -> Any:
    if not kind:
        return leaf
    if not kind.startswith((_LIST, _MAP)):
        return _strict(kind, json=json) | None
    inner = _optional(kind[2:], leaf, json=json)
    of_items = (list, (inner,)) if kind.startswith(_LIST) else (dict, (str, inner))
    return GenericAlias(*of_items) | None


@cache
def _decoder(name: str) -> JsonDecoder[Any]:
    return decoder_of(_strict(name, json=True))


def _unknown(tree: Any, kind: str, path: str) -> Iterator[UnknownField]:
    if not kind:
        return
    if kind.startswith(_LIST):
        for index, item in enumerate(tree if isinstance(tree, list) else ()):
            yield from _unknown(item, kind[2:], f"{path}[{index}]")
    elif kind.startswith(_MAP):
        for key, item in tree.items() if isinstance(tree, dict) else ():
            yield from _unknown(item, kind[2:], f"{path}[{key}]")
    elif isinstance(tree, dict):
        fields = _fields(kind)
        for key, item in tree.items():
            inner = f"{path}.{key}" if path else str(key)
            if key in fields:
                yield from _unknown(item, fields[key], inner)
            else:
                yield UnknownField(inner, did_you_mean(str(key), fields), tuple(fields))
