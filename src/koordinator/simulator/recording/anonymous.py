"""Secrets replaced in recordings, the same one always by the same, whatever they are secrets of.

Kept is what is known to be structure: the fields and words of ``vocabulary``, and what a type says
to be a number, an amount, a time or a choice.  Every other text is replaced, part by part: names,
keys and values of labels, resources of vendors, addresses, images, paths, reasons.  Messages,
versions of objects, the content of ConfigMaps and annotations that nobody decides by are left out.
A short number at the end of a pod's name stays: ranks of members go by it.
"""

import re
from collections.abc import Callable, Iterable
from functools import cache
from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import inspect

from koordinator.api.config_map import ConfigMap
from koordinator.api.meta import JsonObject, ObjectMeta
from koordinator.api.pod import Pod
from koordinator.api.registry import find_kind
from koordinator.domain.devices.templates import DATA_KEY, read_templates
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
#: Types whose field ``name`` is that of a pod, unless a field ``kind`` says otherwise.
_NAMING_PODS = frozenset(("PodUsage", "PodCpuAllocation", "DeviceHolder", "ObjectReference"))
_DROPPED = frozenset(("message", "generateName", "resourceVersion", "containerID", "description"))
_PSEUDONYM_BYTES = 8
_MOST_KNOWN = 100_000  # texts whose pseudonyms are kept, to be faster

_Shape = Callable[["Anonymiser", Any], Any]


class Anonymiser:
    """Replaces secrets by a keyed hash: who has the file, but not the key, can't try secrets.

    ``words`` are kept beside those that are known: names of plugins.
    """

    def __init__(self, key: bytes, words: Iterable[str] = ()) -> None:
        self._key = key
        self._words = vocabulary().union(words)
        self._known: dict[str, str] = {}

    def manifest(self, manifest: JsonObject) -> JsonObject:
        """Return an object of a kind that is in the registry without secrets."""
        kind = find_kind(manifest["apiVersion"], manifest["kind"])
        head = {"apiVersion": kind.API_VERSION, "kind": kind.KIND}
        if kind is ConfigMap:
            return head | self._config_map(manifest)
        shown: JsonObject = _shape(kind)(self, manifest)
        if kind is Pod and "name" in shown.get("metadata", {}):
            shown["metadata"]["name"] = self.pod_name(manifest["metadata"]["name"])
        return head | shown

    def configuration(self, tree: JsonObject) -> JsonObject:
        """Return a scheduler's configuration without secrets; numbers and durations stay."""
        shown: JsonObject = self.tree(tree, numbers=True)
        return shown

    def name(self, text: str) -> str:
        """Return what stands for a name, or for each of the names in a text."""
        known = self._known.get(text)
        if known is None:
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            known = self._known[text] = ",".join(map(self._item, text.split(",")))
        return known

    def pod_name(self, text: str) -> str:
        """Return what stands for the name of a pod; the number at its end stays."""
        if numbered := _ORDINAL.fullmatch(text):
            return self.name(numbered[1]) + numbered[2]
        return self.name(text)

    def text(self, text: str, pattern: re.Pattern[str] | None) -> str:
        """Return a text as it is if the pattern fits it, else what stands for it."""
        return text if pattern is not None and pattern.fullmatch(text) else self.name(text)

    def tree(self, tree: Any, *, numbers: bool = False) -> Any:
        """Return JSON of which no type is known; with ``numbers`` texts that are one stay."""
        match tree:
            case dict():
                return {
                    self._field(key): self.tree(value, numbers=numbers)
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
        """Return labels: those that are numbers stay."""
        _expect(dict, entries)
        shown: dict[str, str] = {}
        for key, value in entries.items():
            pattern = _NUMBERS if key in NUMERIC else None
            is_text = isinstance(value, str)
            shown[self.name(key)] = self.text(value, pattern) if is_text else self.tree(value)
        return shown

    def annotations(self, annotations: dict[str, str]) -> dict[str, str]:
        """Return the annotations that somebody decides by."""
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
            return self.name(text)  # what can't be read can't be read then, either

    def _config_map(self, manifest: JsonObject) -> JsonObject:
        """Return a ConfigMap with the templates of devices, if it has any."""
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

    def _field(self, key: str) -> str:
        return key if key in _fields() else self.name(key)

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
    """JSON is not what its type says."""


@cache
def _fields() -> frozenset[str]:
    """Return the fields of all types: a key of them, where no type is known, is no secret."""
    found: set[str] = set()
    todo: list[type[msgspec.Struct]] = [msgspec.Struct]
    while todo:
        each: type[msgspec.Struct]
        for each in todo.pop().__subclasses__():
            if each.__module__.startswith("koordinator.api."):
                found |= {field.encode_name for field in msgspec.structs.fields(each)}
            todo.append(each)
    return frozenset(found)


@cache
def _shape(kind: Any) -> _Shape:
    return _shape_of(inspect.type_info(kind), None)


def _shape_of(  # noqa: C901, PLR0911 -- one branch for each form of types
    kind: inspect.Type, pattern: re.Pattern[str] | None
) -> _Shape:
    """Return what makes a value of a type anonymous; texts that the pattern fits stay."""
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
        case _:  # numbers and truth values; what they should not be is replaced
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
    """Return what makes the value anonymous by the type that it turns out to have."""
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
