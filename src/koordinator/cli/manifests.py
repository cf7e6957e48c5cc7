"""Read manifests: files, folders and standard input to typed, defaulted, validated objects.

JSON goes straight to typed objects; YAML takes a detour over dictionaries.
Source: k8s.io/cli-runtime pkg/resource/visitor.go (what kubectl accepts after ``-f``);
sigs.k8s.io/yaml (how scalars of YAML become JSON).
"""

import gc
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import yaml

from koordinator.api.codec import decode_object, subject_of
from koordinator.api.defaults import with_defaults
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.validation import validate
from koordinator.foundation.errors import InputError

STDIN = "-"
SUFFIXES = (".json", ".yaml", ".yml")


def read_manifests(paths: Sequence[str], stdin: BinaryIO) -> list[KubeObject]:
    """Return all objects of the files, of the files below the folders, and of ``-``, in order.

    Lists are replaced by their items.
    Raises InputError that names file, place in it, object and field; also for an object that is
    there twice.
    """
    with _collector_paused():
        return _read_all(_texts(paths, stdin))


def _read_all(texts: Iterable[tuple[str, bytes]]) -> list[KubeObject]:
    objects: list[KubeObject] = []
    places: dict[tuple[type[KubeObject], str], str] = {}
    for source, text in texts:
        for place, manifest, list_kind in _manifests(source, text):
            obj = _read_object(manifest, place, list_kind)
            first = places.setdefault((type(obj), obj.key), place)
            if first is not place:
                raise InputError(
                    f"found twice, first in {first}; accepted is each object once",
                    source=place,
                    subject=subject_of(obj),
                )
            objects.append(obj)
    return objects


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Spare the garbage collector a million objects that are all alive: half of the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Envelope(msgspec.Struct, rename="camel"):
    """What has to be known of a JSON text to see whether it is a list."""

    api_version: str | None = None
    kind: str | None = None
    items: list[msgspec.Raw] | None = None


class _ListKind(msgspec.Struct, frozen=True):
    """What the items of a list are if they don't say themselves; empty for the kind List."""

    api_version: str = ""
    kind: str = ""


_Place = tuple[str, JsonObject | bytes | msgspec.Raw, _ListKind]
_BEGIN = 1024  # bytes in which the first brace of JSON is expected
_NO_LIST = _ListKind()
_ENVELOPE_DECODER = msgspec.json.Decoder(_Envelope)


def _read_object(
    manifest: JsonObject | bytes | msgspec.Raw, place: str, list_kind: _ListKind
) -> KubeObject:
    try:
        obj = decode_object(manifest, api_version=list_kind.api_version, kind=list_kind.kind)
        obj = with_defaults(obj)
        validate(obj)
    except InputError as error:
        raise error.within(source=place) from None
    return obj


def _texts(paths: Sequence[str], stdin: BinaryIO) -> Iterator[tuple[str, bytes]]:
    for name in paths:
        if name == STDIN:
            yield "standard input", stdin.read()
            continue
        for file in _files(Path(name)):
            try:
                yield str(file), file.read_bytes()
            except OSError as error:
                raise InputError(
                    f"can't be read: {error.strerror}; accepted is a file, a folder or -",
                    source=str(file),
                ) from None


def _files(path: Path) -> list[Path]:
    if not path.is_dir():
        return [path]
    files = sorted(file for file in path.rglob("*") if file.suffix in SUFFIXES and file.is_file())
    if not files:
        raise InputError(
            f"found no manifests; accepted is a folder with *{', *'.join(SUFFIXES)}",
            source=str(path),
        )
    return files


def _manifests(source: str, text: bytes) -> Iterator[_Place]:
    begins_like_json = text[:_BEGIN].lstrip()[:1] == b"{" and b"\n---" not in text
    must_be_json = source.endswith(".json")
    if begins_like_json or must_be_json:
        try:
            envelope = _ENVELOPE_DECODER.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            if must_be_json:
                raise InputError(f"not a JSON manifest: {error}", source=source) from None
        else:
            yield from _json_manifests(source, text, envelope)
            return
    yield from _yaml_manifests(source, text)  # braces are YAML too


def _json_manifests(source: str, text: bytes, envelope: _Envelope) -> Iterator[_Place]:
    if envelope.items is None or not _is_list(envelope.kind):
        yield source, text, _NO_LIST
        return
    list_kind = _kind_of_items(envelope.api_version, envelope.kind)
    for index, item in enumerate(envelope.items):
        yield f"{source}: items[{index}]", item, list_kind


def _yaml_manifests(source: str, text: bytes) -> Iterator[_Place]:
    try:
        documents = [_with_text_keys(document) for document in yaml.load_all(text, _Loader)]
    except yaml.YAMLError as error:
        problem = " ".join(str(error).split())
        raise InputError(f"not valid YAML: {problem}", source=source) from None
    except RecursionError:
        raise InputError("not usable YAML: nested too deep, or in itself", source=source) from None
    for number, document in enumerate(documents, start=1):
        place = f"{source}: document {number}"
        if document is None:
            continue
        if not isinstance(document, dict):
            raise _not_an_object(document, place)
        items, kind = document.get("items"), document.get("kind")
        if not isinstance(items, list) or not _is_list(kind):
            yield place, document, _NO_LIST
            continue
        list_kind = _kind_of_items(document.get("apiVersion"), kind)
        for index, item in enumerate(items):
            item_place = f"{place}: items[{index}]"
            if not isinstance(item, dict):
                raise _not_an_object(item, item_place)
            yield item_place, item, list_kind


def _not_an_object(found: object, place: str) -> InputError:
    return InputError(
        f"found {type(found).__name__}; accepted is an object with apiVersion and kind",
        source=place,
    )


def _is_list(kind: object) -> bool:
    return isinstance(kind, str) and kind.endswith("List")


def _kind_of_items(api_version: str | None, kind: str | None) -> _ListKind:
    kind = (kind or "").removesuffix("List")
    return _ListKind(api_version or "", kind) if kind else _NO_LIST


def _with_text_keys(tree: Any) -> Any:
    """Spell keys as JSON does: YAML reads ``8: x`` and ``on: x`` with other keys than text."""
    if isinstance(tree, dict):
        return {_as_key(key): _with_text_keys(value) for key, value in tree.items()}
    if isinstance(tree, list):
        return [_with_text_keys(value) for value in tree]
    return tree


def _as_key(key: object) -> str:
    return str(key).lower() if isinstance(key, bool) else str(key)


class _Loader(yaml.CSafeLoader):
    """YAML 1.1 as Kubernetes reads it: no dates, no numbers to the base of 60, ``1e3`` a number."""

    yaml_implicit_resolvers = {  # noqa: RUF012 -- PyYAML reads it from the class
        first: [
            (tag, pattern)
            for tag, pattern in resolvers
            if tag.rpartition(":")[2] not in {"timestamp", "int", "float"}
        ]
        for first, resolvers in yaml.CSafeLoader.yaml_implicit_resolvers.items()
    }


_INT = re.compile(r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"(?:[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)"
    r"|\.(?:nan|NaN|NAN))$"
)
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", _INT, list("-+0123456789"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:float", _FLOAT, list("-+0123456789."))
