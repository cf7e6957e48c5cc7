"""Between JSON and typed objects, and the difference of two objects as a merge patch.

msgspec does the work; only when it refuses is the input walked again, to name the field as
Kubernetes does and to show what was found there.
``LazySequence`` is decoded at the first access.

Source: RFC 7396 (merge patches); apimachinery pkg/util/json for null meaning absent.
"""

import datetime as dt
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Annotated, Any, TypeVar, overload

import msgspec
from msgspec import inspect

from koordinator.api.core import MicroTime
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.nesting import TOO_DEEP, check_nesting
from koordinator.api.registry import find_kind
from koordinator.api.syntax import join_path
from koordinator.foundation.clock import Duration
from koordinator.foundation.decoders import JsonDecoder, convert, decode_json, decoder_of
from koordinator.foundation.errors import BugError, InputError
from koordinator.foundation.quantity import Quantity
from koordinator.foundation.text import cut

ItemT = TypeVar("ItemT")
KindT = TypeVar("KindT", bound=KubeObject)
ValueT = TypeVar("ValueT")

_MESSAGE = re.compile(r"(?P<problem>.*?)(?: - at .*?`(?P<path>\$[^`]*)`)?", re.DOTALL)
_STEP = re.compile(r"\.(?P<name>[^.\[]+)|\[(?P<index>[0-9]+)\]|\[\.\.\.\]")
_EXPECTED = re.compile(r"Expected `(?P<accepted>[^`]*)`(?P<more>.*?)(?:, got `(?P<got>[^`]*)`)?")
_MISSING = re.compile(r"Object missing required field `(?P<name>[^`]*)`")
_AwareTime = Annotated[dt.datetime, msgspec.Meta(tz=True)]
#: Types as messages of msgspec name them, in the words of a manifest.
_TYPE_NAMES = {
    "array": "a list",
    "bool": "true or false",
    "float": "a number",
    "int": "an integer",
    "object": "an object",
    "str": "a string",
}
_SHOWN = 80  # characters of a wrong value that a message shows

_SPELT = (Quantity, Duration)  # a union would be created at every call


class _Header(msgspec.Struct, rename="camel"):
    api_version: str | None = None
    kind: str | None = None


def decode(data: JsonObject | bytes | msgspec.Raw, kind: type[ValueT]) -> ValueT:
    """Return the typed object of JSON text or of JSON that is decoded already.

    ``kind`` may be any type, such as that of an annotation's content.
    ``apiVersion`` and ``kind`` are not looked at.  A null anywhere means that the field is absent.
    Text is nested no deeper than ``nesting.DEEPEST`` where the type takes just anything; what the
    type doesn't have is skipped, and not decoded.
    Raises InputError with subject and path.
    """
    key: Any = kind  # mypy doubts that a type can be hashed
    try:
        if isinstance(data, dict):
            return _convert(data, kind)
        if _takes_anything(key):
            check_nesting(bytes(data))
        obj: ValueT = json_decoder(key).decode(data)
    except msgspec.ValidationError:
        return _decode_without_nulls(data, kind)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _not_json(error) from None
    except RecursionError:
        raise InputError(TOO_DEEP) from None
    return obj


def decode_object(
    data: JsonObject | bytes | msgspec.Raw, *, api_version: str = "", kind: str = ""
) -> KubeObject:
    """Return the typed object of the type that its ``apiVersion`` and ``kind`` name.

    Those given here count where the object has none, as in lists that the API server sends.
    Raises InputError, also for a kind that is not in the registry.
    """
    try:
        header = convert(data, _Header) if isinstance(data, dict) else _HEADER_DECODER.decode(data)
    except msgspec.ValidationError as error:
        problem, path = _split(str(error))
        expected = _EXPECTED.fullmatch(problem)
        raise InputError(
            "must be an object whose apiVersion and kind are strings, got "
            f"{expected['got'] if expected else problem}",
            path=path.removeprefix("$").removeprefix("."),
        ) from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _not_json(error) from None
    except RecursionError:
        raise InputError(TOO_DEEP) from None
    kind = header.kind or kind
    try:
        wanted = find_kind(header.api_version or api_version, kind)
    except InputError as error:
        raise error.within(subject=_name_in(_tree(data), kind or "object")) from None
    return decode(data, wanted)


def encode(obj: KubeObject) -> bytes:
    """Return the object as JSON text; fields that have their default are left out."""
    body = _ENCODER.encode(obj)
    return _head(type(obj)) + (b"}" if body == b"{}" else b"," + body[1:])


def encode_lines(objects: Iterable[KubeObject]) -> str:
    """Return objects as JSON text, one per line."""
    return "\n".join(encode(each).decode() for each in objects)


def decode_lines(text: str) -> list[KubeObject]:
    """Return the objects of ``encode_lines``.  Raises InputError.

    Only a line feed ends a line: JSON does not escape other separators, such as U+2028.
    """
    return [decode_object(line.encode()) for line in text.split("\n") if line]


def encode_part(part: object) -> bytes:
    """Return a part of an object as JSON text, such as the content of an annotation.

    Equal parts have equal texts: keys of dictionaries are sorted.
    """
    return _SORTING_ENCODER.encode(part)


def to_manifest(obj: KubeObject) -> JsonObject:
    """Return the object as JSON-like containers, ``apiVersion`` and ``kind`` first."""
    manifest: JsonObject = decode_json(encode(obj))
    return manifest


def with_all_fields(value: object) -> Any:
    """Return a struct as JSON-like containers with every field, those with defaults as well.

    Of bytes only the number is shown: they are keys and certificates.
    """
    match value:
        case msgspec.Struct():
            fields = msgspec.structs.fields(value)
            return {f.encode_name: with_all_fields(getattr(value, f.name)) for f in fields}
        case Mapping():
            return {str(key): with_all_fields(item) for key, item in value.items()}
        case list() | tuple() | set() | frozenset() | LazySequence():
            return [with_all_fields(item) for item in value]
        case bytes():
            return f"({len(value)} bytes)"
        case str() | int() | float() | None:
            return value
        case _:
            return str(value)  # durations and quantities


def merge_patch(before: KindT, after: KindT) -> JsonObject:
    """Return the merge patch that makes ``after`` of ``before``; empty if they are equal.

    Fields that our types don't have survive, but not inside of lists: a changed list replaces the
    whole list.
    """
    return difference(to_manifest(before), to_manifest(after))


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> JsonObject:
    """Return the merge patch between two dictionaries; empty if they are equal."""
    patch: JsonObject = {key: None for key in before if key not in after}
    for key, new in after.items():
        old = before.get(key)
        if isinstance(old, dict) and isinstance(new, dict):
            if inner := difference(old, new):
                patch[key] = inner
        elif old != new:
            patch[key] = new
    return patch


def apply_merge_patch(target: JsonObject, patch: JsonObject) -> JsonObject:
    """Return ``target`` with ``patch`` applied; neither argument is changed."""
    patched = dict(target)
    for key, change in patch.items():
        if change is None:
            patched.pop(key, None)
        elif isinstance(change, dict):
            inner = patched.get(key)
            patched[key] = apply_merge_patch(inner if isinstance(inner, dict) else {}, change)
        else:
            patched[key] = change
    return patched


def joined_patches(first: JsonObject, second: JsonObject) -> JsonObject:
    """Return the merge patch that does what both do, one after the other.

    But for an object that the first takes away and the second brings back: no merge patch can say
    that, so it keeps the fields that the second does not name.
    """
    joined = dict(first)
    for key, change in second.items():
        before = joined.get(key)
        if isinstance(change, dict) and isinstance(before, dict):
            joined[key] = joined_patches(before, change)
        else:
            joined[key] = change
    return joined


def subject_of(obj: KubeObject) -> str:
    """Return how messages call an object: ``Pod default/x``."""
    return _subject(obj.KIND, obj.metadata.namespace, obj.metadata.name, obj.NAMESPACED)


def _from_json(wanted: type, value: Any) -> Any:
    """Decode what msgspec doesn't know; msgspec adds the path to a ValueError."""
    if wanted is Quantity or wanted is Duration:
        try:
            return wanted.parse(value)
        except InputError as error:
            raise ValueError(error.problem) from None
    if wanted is MicroTime:
        return _parse_micro_time(value)
    raise BugError(f"no decoder for {wanted}")


def _to_json(value: Any) -> Any:
    if isinstance(value, _SPELT):
        return str(value)
    if isinstance(value, LazySequence):
        return value.text
    if isinstance(value, MicroTime):
        utc = value.astimezone(dt.UTC)
        return utc.strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    raise BugError(f"no encoder for {type(value)}")


_ENCODER = msgspec.json.Encoder(enc_hook=_to_json)
_SORTING_ENCODER = msgspec.json.Encoder(enc_hook=_to_json, order="deterministic")
_HEADER_DECODER = decoder_of(_Header)


@cache
def json_decoder(kind: type[ValueT]) -> JsonDecoder[ValueT]:
    """Return what decodes a type as ``decode`` does, but knows neither nulls nor good messages."""
    return decoder_of(kind, dec_hook=_from_json)


def _convert(tree: JsonObject, kind: type[ValueT]) -> ValueT:
    obj: ValueT = convert(tree, kind, str_keys=True, dec_hook=_from_json)
    return obj


@cache
def _takes_anything(kind: type[Any]) -> bool:
    """Return whether some part of the type may be any JSON there is."""
    waiting, seen = [inspect.type_info(kind)], set[Any]()
    while waiting:
        match waiting.pop():
            case inspect.AnyType():
                return True
            case inspect.StructType(cls=cls, fields=fields) if cls not in seen:
                seen.add(cls)
                waiting += (each.type for each in fields)
            case inspect.DictType(key_type=key, value_type=value):
                waiting += (key, value)
            case (
                inspect.ListType(item_type=inner)
                | inspect.VarTupleType(item_type=inner)
                | inspect.SetType(item_type=inner)
                | inspect.FrozenSetType(item_type=inner)
                | inspect.Metadata(type=inner)
            ):
                waiting.append(inner)
            case inspect.UnionType(types) | inspect.TupleType(types):
                waiting += types
    return False


@cache
def _head(kind: type[KubeObject]) -> bytes:
    head = {"apiVersion": kind.API_VERSION, "kind": kind.KIND}
    return msgspec.json.encode(head).removesuffix(b"}")


def _parse_micro_time(value: object) -> MicroTime:
    try:
        time = convert(value, _AwareTime)
    except msgspec.ValidationError:
        raise ValueError(
            f"must be a time such as 2024-01-31T08:00:00.000000Z, got {_show(value)}"
        ) from None
    return MicroTime.combine(time.date(), time.timetz()).astimezone(dt.UTC)


# What follows runs only after msgspec refused the input.


def _decode_without_nulls(data: JsonObject | bytes | msgspec.Raw, kind: type[ValueT]) -> ValueT:
    try:
        tree = without_nulls(_tree(data))
        return _convert(tree, kind)
    except msgspec.ValidationError as error:
        raise _explain(tree, kind, str(error)) from None
    except RecursionError:
        raise InputError(TOO_DEEP) from None


def _tree(data: JsonObject | bytes | msgspec.Raw) -> Any:
    """Return decoded JSON.  Raises InputError also for text that is nested too deep."""
    if isinstance(data, dict):
        return data
    check_nesting(bytes(data))
    try:
        return decode_json(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise _not_json(error) from None


def without_nulls(tree: Any) -> Any:
    """Return a copy of decoded JSON without null fields: Kubernetes treats null as absent."""
    if isinstance(tree, dict):
        return {key: without_nulls(value) for key, value in tree.items() if value is not None}
    if isinstance(tree, list):
        return [without_nulls(value) for value in tree]
    return tree


def _explain(tree: Any, kind: type[Any], message: str) -> InputError:
    """Translate an error of msgspec into the terms of the manifest."""
    subject = ""
    if isinstance(kind, type) and issubclass(kind, KubeObject):
        subject = _name_in(tree, kind.KIND, namespaced=kind.NAMESPACED)
    problem, steps = _split(message)
    path, value = _locate(tree, kind, steps, message)
    if missing := _MISSING.fullmatch(problem):
        return InputError("is required", subject=subject, path=join_path(path, missing["name"]))
    if expected := _EXPECTED.fullmatch(problem):
        named = (_TYPE_NAMES.get(each, each) for each in expected["accepted"].split(" | "))
        accepted = " or ".join(named) + expected["more"]
        problem = f"must be {accepted}, got {_show(value)}"
    elif choices := _choices(kind, steps):
        problem = f"must be {' or '.join(choices)}, got {_show(value)}"
    elif problem.startswith("Invalid"):
        problem = f"{problem[0].lower()}{problem[1:]}, got {_show(value)}"
    return InputError(problem, subject=subject, path=path)


def _split(message: str) -> tuple[str, str]:
    """Return problem and path of a message of msgspec."""
    match = _MESSAGE.fullmatch(message)
    return (match["problem"], match["path"] or "$") if match else (message, "$")


def _locate(tree: Any, kind: type[Any], steps: str, message: str) -> tuple[str, object]:
    """Return path and value of the wrong field; ``tree`` is spoilt by the search.

    msgspec leaves keys of dictionaries out of its path: the wrong key is the one that, left
    alone in its dictionary, gives the same message.
    """
    path, node = "", tree
    for step in _STEP.finditer(steps):
        if step["name"]:
            key = step["name"]
            path, node = join_path(path, key), node[key]
        elif step["index"]:
            path, node = f"{path}[{step['index']}]", node[int(step["index"])]
        else:
            for key, value in tuple(node.items()):
                node.clear()
                node[key] = value
                if _refusal(tree, kind) == message:
                    break
            path, node = join_path(path, key), node[key]
    return path, node


def _choices(kind: type[Any], steps: str) -> tuple[str, ...]:
    """Return the words that a field may be; empty: it is not about words."""
    wanted = inspect.type_info(kind)
    for step in _STEP.finditer(steps):
        match _without_none(wanted):
            case inspect.StructType(fields=fields):
                wanted = next(each.type for each in fields if each.encode_name == step["name"])
            case inspect.DictType(value_type=inner) | inspect.VarTupleType(item_type=inner):
                wanted = inner
            case _:
                return ()
    match _without_none(wanted):
        case inspect.LiteralType(values):
            return tuple(map(str, values))
        case inspect.EnumType(cls):
            return tuple(str(each.value) for each in cls)
        case _:
            return ()


def _without_none(wanted: inspect.Type) -> inspect.Type:
    """Return what a field is if it is there; a value with constraints counts as the value."""
    match wanted:
        case inspect.UnionType(types):
            return next(each for each in types if not isinstance(each, inspect.NoneType))
        case inspect.Metadata(type=inner):
            return _without_none(inner)
        case _:
            return wanted


def _refusal(tree: Any, kind: type[Any]) -> str:
    try:
        _convert(tree, kind)
    except msgspec.ValidationError as error:
        return str(error)
    return ""


def _not_json(error: Exception) -> InputError:
    text = str(error).removeprefix("JSON is malformed: ")
    return InputError(f"not valid JSON: {text[0].lower()}{text[1:]}")


def _name_in(tree: Any, kind: str, *, namespaced: bool = True) -> str:
    metadata = tree.get("metadata") if isinstance(tree, dict) else None
    if not isinstance(metadata, dict):
        return kind
    names = (metadata.get("namespace") or "", metadata.get("name") or "")
    return _subject(kind, str(names[0]), str(names[1]), namespaced)


def _subject(kind: str, namespace: str, name: str, namespaced: bool) -> str:
    if not name:
        return f"{kind} without name"
    return f"{kind} {namespace or 'default'}/{name}" if namespaced else f"{kind} {name}"


def _show(value: object) -> str:
    return cut(msgspec.json.encode(value, enc_hook=str).decode(), _SHOWN)


class LazySequence(Sequence[ItemT]):
    """A tuple as JSON text until then: equal to it, and written as it was read.

    ``read`` decodes it.  Invalid content is reported at that time.
    """

    __slots__ = ("_items", "_read", "text")

    def __init__(self, text: msgspec.Raw, read: Callable[[], tuple[ItemT, ...]]) -> None:
        self.text = text
        self._read = read
        self._items: tuple[ItemT, ...] | None = None

    @property
    def items(self) -> tuple[ItemT, ...]:
        """The tuple.  Raises InputError if it can't be read."""
        if self._items is None:
            self._items = self._read()
        return self._items

    @overload
    def __getitem__(self, index: int) -> ItemT: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[ItemT, ...]: ...
    def __getitem__(self, index: Any) -> Any:
        return self.items[index]

    def __len__(self) -> int:
        return len(self.items)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, LazySequence):
            return self.text == other.text or self.items == other.items
        return self.items == other

    def __hash__(self) -> int:
        return hash(self.items)

    def __repr__(self) -> str:
        return repr(self.items)
