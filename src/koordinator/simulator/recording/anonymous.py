"""Anonymisation of recordings: each secret text is replaced by a consistent pseudonym.

Structure is kept: the fields and words of ``vocabulary``, and values typed as a number, quantity,
time or enumeration.  Every other text is replaced part by part: names, keys and values of labels,
vendors' resources, addresses, images, paths, reasons.  Messages, resource versions, the content of
ConfigMaps and annotations that do not affect decisions are left out.  A short number at the end of
a pod's name is kept, as it gives the rank of a gang member.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import inspect

from koordinator.api.core import ConfigMap
from koordinator.api.meta import JsonObject, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.registry import find_kind
from koordinator.domain.devices.model import DATA_KEY, read_templates
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError
from koordinator.simulator.recording.vocabulary import NUMERIC, annotation_types, vocabulary

_SEPARATORS = re.compile(r"(__|[/:@])")
_ORDINAL = re.compile(r"(.*[^0-9-])(-[0-9]{1,4})", re.DOTALL)
_DOMAIN = re.compile(r"(?:(.+)\.)?(kubernetes\.io|k8s\.io|koordinator\.sh)")
_HUGE_PAGES = re.compile(r"hugepages-[0-9]{1,4}[KMGT]i")
_PREFIXED = re.compile(r"(attachable-volumes-csi-|requests\.)(.+)", re.DOTALL)
_NUMBERS = re.compile(
    r"[+-]?[0-9]{1,10}(?:\.[0-9]{1,6})?(?:[numkMGTPE]i?)?"
    r"|(?:[0-9]{1,6}(?:\.[0-9]{1,6})?(?:ns|us|µs|ms|[smh])){1,4}"
    r"|[0-9]{1,4}(?:,[0-9]{1,4}){1,16}"
)
_AMOUNT = re.compile(  # also a time
    r"[+-]?[0-9.]{1,30}(?:[eE][+-]?[0-9]{1,3}|[numkMGTPE]i?)?"
    r"|-?(?:[0-9.]{1,20}(?:ns|us|µs|ms|[smh])){1,4}"
    r"|[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9:.]{1,20}(?:Z|[+-][0-9:]{1,5})"
)
_CPUS = re.compile(r"[0-9]{1,4}(?:[-,][0-9]{1,4})*")
_NUMA_NODE = re.compile(r"node-[0-9]{1,3}")
_NUMBER_OR_PERCENT = re.compile(r"[0-9]{1,9}%?")
#: Texts that are numbers in disguise, by type and field.
_DISGUISED = {
    **dict.fromkeys(("cpuset", "reservedCPUs"), _CPUS),
    **dict.fromkeys(("Zone.name", "CostInfo.name", "Zone.parent"), _NUMA_NODE),
    **dict.fromkeys(
        ("minAvailable", "maxUnavailable", "allocationScore"),
        _NUMBER_OR_PERCENT,
    ),
}
#: Types whose field ``name`` is a pod's name, unless a field ``kind`` names another kind.
_NAMING_PODS = frozenset(("PodUsage", "PodCpuAllocation", "DeviceHolder", "ObjectReference"))
_DROPPED = frozenset(("message", "generateName", "resourceVersion", "containerID", "description"))
_PSEUDONYM_BYTES = 8
_MAX_CACHED = 100_000  # pseudonyms

_Shape = Callable[["Anonymiser", Any], Any]


class Anonymiser:
    """Replaces secrets by a keyed hash, which prevents guessing without the key.

    ``words`` are further words to keep, such as names of plugins.
    """

    def __init__(self, key: bytes, words: Iterable[str] = ()) -> None:
        self._key = key
        self._words = vocabulary().union(words)
        self._known: dict[str, str] = {}

    def manifest(self, manifest: JsonObject) -> JsonObject:
        """Return the anonymous manifest of an object of a registered kind."""
        kind = find_kind(manifest["apiVersion"], manifest["kind"])
        head = {"apiVersion": kind.API_VERSION, "kind": kind.KIND}
        if kind is ConfigMap:
            return head | self._config_map(manifest)
        shown: JsonObject = _shape(kind)(self, manifest)
        if kind is Pod and "name" in shown.get("metadata", {}):
            shown["metadata"]["name"] = self.pod_name(manifest["metadata"]["name"])
        return head | shown

    def configuration(self, tree: JsonObject) -> JsonObject:
        """Return an anonymous scheduler configuration; numbers and durations are kept."""
        shown: JsonObject = self.tree(tree, numbers=True)
        return shown

    def name(self, text: str) -> str:
        """Return the pseudonym of a name, or of each name in a comma-separated text."""
        known = self._known.get(text)
        if known is None:
            if len(self._known) >= _MAX_CACHED:
                self._known.clear()
            known = self._known[text] = ",".join(map(self._item, text.split(",")))
        return known

    def pod_name(self, text: str) -> str:
        """Return the pseudonym of a pod's name; the number at its end is kept."""
        if numbered := _ORDINAL.fullmatch(text):
            return self.name(numbered[1]) + numbered[2]
        return self.name(text)

    def text(self, text: str, pattern: re.Pattern[str] | None) -> str:
        """Return a text that matches the pattern unchanged, and the pseudonym of any other."""
        return text if pattern is not None and pattern.fullmatch(text) else self.name(text)

    def tree(self, tree: Any, *, numbers: bool = False) -> Any:
        """Return anonymous untyped JSON; ``numbers`` keeps texts that are numbers."""
        match tree:
            case dict():
                return {
                    (key if key in _fields() else self.name(key)): self.tree(value, numbers=numbers)
                    for key, value in tree.items()
                    if key not in _DROPPED
                }
            case list():
                return [self.tree(value, numbers=numbers) for value in tree]
            case str() if not (numbers and _NUMBERS.fullmatch(tree)):
                return self.name(tree)
            case _:
                return tree

    def entries(self, entries: dict[str, str]) -> dict[str, str]:
        """Return anonymous labels; numeric values are kept."""
        _expect(dict, entries)
        shown: dict[str, str] = {}
        for key, value in entries.items():
            pattern = _NUMBERS if key in NUMERIC else None
            is_text = isinstance(value, str)
            shown[self.name(key)] = self.text(value, pattern) if is_text else self.tree(value)
        return shown

    def annotations(self, annotations: dict[str, str]) -> dict[str, str]:
        """Return the anonymous annotations that affect decisions."""
        types = annotation_types()
        shown: dict[str, str] = {}
        for key, text in annotations.items():
            kind = types.get(key)
            if kind is str:
                shown[key] = self.text(text, _NUMBERS if key in NUMERIC else None)
            elif kind is not None:
                shown[key] = self._json(text, kind)
        return shown

    def _json(self, text: str, kind: Any) -> str:
        try:
            tree = decode_json(text)
            return msgspec.json.encode(_shape(kind)(self, tree)).decode()
        except (msgspec.DecodeError, RecursionError, _OtherShapeError):
            return self.name(text)  # unreadable text stays unreadable

    def _config_map(self, manifest: JsonObject) -> JsonObject:
        """Return a ConfigMap with its device templates only."""
        shown: JsonObject = _shape(ConfigMap)(self, manifest | {"data": {}})
        text = (manifest.get("data") or {}).get(DATA_KEY)
        if isinstance(text, str):
            try:
                table = read_templates(ConfigMap(data={DATA_KEY: text}))
            except InputError:
                return shown
            models = {
                "-".join(map(self.name, model.split("-", 1))): {
                    self.name(name): {self.name(r): str(amount) for r, amount in amounts.items()}
                    for name, amounts in templates.items()
                }
                for model, templates in table.models.items()
            }
            shown["data"] = {DATA_KEY: msgspec.json.encode(models).decode()}
        return shown

    def _item(self, text: str) -> str:
        if text in self._words:
            return text
        if _HUGE_PAGES.fullmatch(text):
            return text
        if prefixed := _PREFIXED.fullmatch(text):
            return prefixed[1] + self.name(prefixed[2])
        head, slash, rest = text.partition("/")
        if slash and (domain := _DOMAIN.fullmatch(head)):
            above = f"{self._part(domain[1])}." if domain[1] else ""
            return f"{above}{domain[2]}/{self.name(rest)}"
        parts = _SEPARATORS.split(text)
        parts[::2] = map(self._part, parts[::2])
        return "".join(parts)

    def _part(self, text: str) -> str:
        if not text or text in self._words:
            return text
        encoded = text.encode(errors="surrogatepass")
        digest = blake2b(encoded, key=self._key, digest_size=_PSEUDONYM_BYTES)
        return f"x{digest.hexdigest()}"


class _OtherShapeError(Exception):
    """JSON does not match its type."""


@cache
def _fields() -> frozenset[str]:
    """Return the field names of all API types, which are kept in untyped JSON."""
    names: set[str] = set()
    todo: list[type[msgspec.Struct]] = [msgspec.Struct]
    while todo:
        each: type[msgspec.Struct]
        for each in todo.pop().__subclasses__():
            if each.__module__.startswith("koordinator.api."):
                names |= {field.encode_name for field in msgspec.structs.fields(each)}
            todo.append(each)
    return frozenset(names)


@cache
def _shape(kind: Any) -> _Shape:
    return _shape_of(inspect.type_info(kind), None)


def _shape_of(  # noqa: C901, PLR0911 -- one branch for each form of types
    kind: inspect.Type, pattern: re.Pattern[str] | None
) -> _Shape:
    """Return the anonymiser of a type; texts that match the pattern are kept."""
    match kind:
        case inspect.Metadata(type=inner):
            return _shape_of(inner, pattern)
        case inspect.StructType():
            return _struct_shape(kind)
        case inspect.DictType():
            return _map_shape(kind)
        case (
            inspect.ListType(item_type=item)
            | inspect.VarTupleType(item_type=item)
            | inspect.SetType(item_type=item)
            | inspect.FrozenSetType(item_type=item)
        ):
            return _list_shape(_shape_of(item, pattern))
        case inspect.UnionType(types=types):
            return _union_shape(types, pattern)
        case inspect.StrType():
            return _text_shape(pattern)
        case inspect.AnyType() | inspect.RawType():
            return Anonymiser.tree
        case inspect.CustomType() | inspect.DateTimeType():
            return _text_shape(_AMOUNT)
        case inspect.LiteralType(values=values):
            return _text_shape(_any_of(values))
        case inspect.EnumType(cls=cls):
            return _text_shape(_any_of(each.value for each in cls))
        case _:  # numbers and booleans; a value of another type is replaced
            return Anonymiser.tree


def _any_of(words: Iterable[object]) -> re.Pattern[str]:
    return re.compile("|".join(re.escape(str(word)) for word in words))


def _struct_shape(kind: inspect.StructType) -> _Shape:
    shapes: dict[str, _Shape] = {}
    for field in kind.fields:
        name = field.encode_name
        pattern = _DISGUISED.get(f"{kind.cls.__name__}.{name}", _DISGUISED.get(name))
        if kind.cls is ObjectMeta and name == "annotations":
            shapes[name] = Anonymiser.annotations
        elif name not in _DROPPED or field.required:
            shapes[name] = _shape_of(field.type, pattern)
    has_values = {"key", "values"} <= shapes.keys()  # a requirement, of labels
    names_pods = kind.cls.__name__ in _NAMING_PODS

    def struct(anonymiser: Anonymiser, tree: Any) -> Any:
        if tree is None:
            return None
        _expect(dict, tree)
        shown = {
            name: shape(anonymiser, tree[name]) for name, shape in shapes.items() if name in tree
        }
        if names_pods and isinstance(tree.get("name"), str) and tree.get("kind", "Pod") == "Pod":
            shown["name"] = anonymiser.pod_name(tree["name"])
        if has_values and tree.get("key") in NUMERIC:
            shown["values"] = [
                anonymiser.text(value, _NUMBERS) for value in tree.get("values") or ()
            ]
        return shown

    return struct


def _map_shape(kind: inspect.DictType) -> _Shape:
    if isinstance(kind.value_type, inspect.StrType):
        return Anonymiser.entries
    value_shape = _shape_of(kind.value_type, None)
    pattern = _NUMBERS if isinstance(kind.key_type, inspect.IntType) else None

    def entries(anonymiser: Anonymiser, tree: Any) -> Any:
        if tree is None:
            return None
        _expect(dict, tree)
        return {
            anonymiser.text(key, pattern): value_shape(anonymiser, value)
            for key, value in tree.items()
        }

    return entries


def _list_shape(item_shape: _Shape) -> _Shape:
    def items(anonymiser: Anonymiser, tree: Any) -> Any:
        if tree is None:
            return None
        _expect(list, tree)
        return [item_shape(anonymiser, item) for item in tree]

    return items


def _union_shape(types: Iterable[inspect.Type], pattern: re.Pattern[str] | None) -> _Shape:
    """Return the anonymiser that selects by the type of the value."""
    shapes = {_json_type(each): _shape_of(each, pattern) for each in types}

    def either(anonymiser: Anonymiser, tree: Any) -> Any:
        return shapes.get(type(tree), Anonymiser.tree)(anonymiser, tree)

    return either


def _json_type(kind: inspect.Type) -> type:
    match kind:
        case inspect.Metadata(type=inner):
            return _json_type(inner)
        case inspect.StructType() | inspect.DictType():
            return dict
        case (
            inspect.StrType()
            | inspect.CustomType()
            | inspect.DateTimeType()
            | inspect.LiteralType()
            | inspect.EnumType()
        ):
            return str
        case inspect.ListType() | inspect.VarTupleType() | inspect.SetType():
            return list
        case _:
            return type(None)


def _text_shape(pattern: re.Pattern[str] | None) -> _Shape:
    def text(anonymiser: Anonymiser, tree: Any) -> Any:
        if isinstance(tree, str):
            return anonymiser.text(tree, pattern)
        return anonymiser.tree(tree)

    return text


def _expect(wanted: type, tree: Any) -> None:
    if not isinstance(tree, wanted):
        raise _OtherShapeError
