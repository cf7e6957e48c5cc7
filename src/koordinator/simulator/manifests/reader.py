"""Read manifests: files, folders and standard input to typed, defaulted, validated objects.

JSON goes straight to typed objects; YAML takes a detour over dictionaries.  Files may have 1 GiB,
YAML 256 MiB and what ``foundation.yaml_documents`` allows.
Source: k8s.io/cli-runtime pkg/resource/visitor.go (what kubectl accepts after ``-f``);
foundation.yaml_documents (how YAML becomes JSON).
"""

import codecs
import gc
import hashlib
import logging
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO, Final, TextIO, TypeVar

import msgspec
from msgspec.structs import replace

from koordinator.api.codec import decode, decode_object, subject_of
from koordinator.api.defaults import with_defaults
from koordinator.api.kubescheduler import did_you_mean
from koordinator.api.meta import JsonObject, KubeObject
from koordinator.api.pod import Pod
from koordinator.api.registry import BY_NAME
from koordinator.api.validation import validate, validate_beside_spec
from koordinator.api.workload import PodController
from koordinator.foundation.clock import Clock, SystemClock
from koordinator.foundation.decoders import check_keys, convert, decoder_of, split_stream
from koordinator.foundation.errors import InputError
from koordinator.foundation.files import MEBI, PACKED, read_file, read_stream, unpacked
from koordinator.foundation.yaml_documents import YamlList, documents_and_lists
from koordinator.simulator.manifests.input_objects import InputObjects
from koordinator.simulator.manifests.known_fields import (
    PodText,
    SharedSpecs,
    UnknownField,
    check_is_manifest,
    groups_of_kubernetes,
    kinds_of,
    knows_kind,
    named_yaml_problem,
    unknown_fields,
)
from koordinator.simulator.operator_workloads import OPERATOR_GROUPS, read_operator_workload
from koordinator.simulator.pod_controllers import CONTROLLER_KINDS, check_controller

KindT = TypeVar("KindT", bound=KubeObject)

_LOGGER = logging.getLogger(__name__)
PATIENCE_S: Final = 2.0  # before anything is shown
INTERVAL_S: Final = 0.5

STDIN = "-"
_STANDARD_INPUT = "standard input"
SUFFIXES = (".json", ".yaml", ".yml")
LARGEST_YAML_BYTES = 256 * MEBI  # reading it takes a minute, of JSON two seconds
_RUNTIME_CLASS: Final = ("node.k8s.io/v1", "RuntimeClass")

_BEGIN = 1024  # bytes in which the first brace of JSON is expected


class ReadingProgress:
    """Progress line on standard error, which is removed at the end."""

    def __init__(self, stream: TextIO | None = None, clock: Clock | None = None) -> None:
        self._stream, self._clock = stream or sys.stderr, clock or SystemClock()
        self._next_s = self._clock.now_s() + PATIENCE_S
        self._is_shown = False

    def show(self, source: str, done: int, total: int) -> None:
        """Print the number of bytes read, unless the line was printed a moment ago."""
        if not self._stream.isatty() or self._clock.now_s() < self._next_s:
            return
        self._next_s = self._clock.now_s() + INTERVAL_S
        self._is_shown = True
        self._stream.write(f"\r\033[Kreading {source}: {done / MEBI:.0f} of {total / MEBI:.0f} MiB")
        self._stream.flush()

    def end(self) -> None:
        """Remove the line."""
        if self._is_shown:
            self._stream.write("\r\033[K")
            self._stream.flush()


def read_manifests(
    paths: Sequence[str],
    stdin: BinaryIO | None = None,
    *,
    strict: bool = False,
    on_notice: Callable[[str], object] = _LOGGER.warning,
) -> list[KubeObject]:
    """Return all objects of the files, of the files below the folders, and of ``-``, in order.

    Lists are replaced by their items; after a workload, such as a Deployment, come the pods that
    it makes.  ``on_notice`` receives a sentence for each input without effect.
    Raises InputError as ``read_input_objects`` does.
    """
    return read_input_objects(paths, stdin, strict=strict).completed(on_notice)


def read_input_objects(
    paths: Sequence[str], stdin: BinaryIO | None = None, *, strict: bool = False
) -> InputObjects:
    """Return the objects in files, folders and standard input (``-``).

    Kinds that no scheduling depends on are counted.  Raises InputError that names file, place in
    it, object and field; also for an object that is there twice and not the same, and, if
    ``strict``, for a field that its kind does not have.
    """
    progress = ReadingProgress()
    with collector_paused():
        given, specs = InputObjects(), SharedSpecs()
        places = dict[tuple[type[KubeObject], str], tuple[str, int]]()
        try:
            for source, text in read_texts(paths, stdin or sys.stdin.buffer):
                for place, manifest, list_kind in _manifests(source, text, progress):
                    parts = None
                    if not isinstance(manifest, dict):
                        parts = specs.parts_of(manifest, list_kind.api_version, list_kind.kind)
                    pod = None if parts is None else _read_pod(specs, parts, place)
                    if pod is not None:
                        _keep(given, places, pod, place, None)
                        continue
                    obj = _add(given, places, manifest, place, list_kind, strict=strict)
                    if parts is not None and isinstance(obj, Pod):
                        specs.learn(parts, obj)
        finally:
            progress.end()
        return given


def _add(
    given: InputObjects,
    places: dict[tuple[type[KubeObject], str], tuple[str, int]],
    manifest: JsonObject | bytes | msgspec.Raw,
    place: str,
    list_kind: "_ListKind",
    *,
    strict: bool,
) -> KubeObject | None:
    """Add the objects of a manifest; return the object if all of its fields are known.

    The items of a list in a list are added as if they were in the outer one.
    """
    api_version, kind = _header(manifest, list_kind)
    nested = _nested(manifest, place, api_version, kind)
    if nested is not None:
        for item_place, item, kind_of_items in nested:
            _add(given, places, item, item_place, kind_of_items, strict=strict)
        return None
    try:
        if _is_custom(api_version, kind):
            _add_custom(given, manifest, api_version, kind)
        is_left_out = _is_left_out(api_version, kind)
    except InputError as error:
        raise error.within(source=place) from None
    if is_left_out:
        if not _is_custom(api_version, kind):
            counted = given.left_out if knows_kind(api_version, kind) else given.unknown_kinds
            counted[f"{kind} ({api_version})"] += 1
            if (api_version, kind) == _RUNTIME_CLASS:
                given.runtime_classes.add(_name_of(manifest))
        return None
    obj = _read_object(manifest, place, list_kind)
    controller = _read_controller(manifest, place, obj)
    unknown = _unknown_fields(manifest, place, api_version, kind)
    for field in unknown:
        accepted = f"; must be one of {', '.join(field.accepted)}" if strict else ""
        wrong = InputError(
            f"unknown field{field.hint or accepted}",
            source=place,
            subject=subject_of(obj),
            path=field.path,
        )
        if strict:
            try:
                raise wrong
            finally:
                del wrong  # the traceback refers to this frame
        given.unknown.setdefault((kind, field.name), []).append(str(wrong))
    _keep(given, places, obj, place, controller)
    return None if unknown else obj


def _nested(
    manifest: JsonObject | bytes | msgspec.Raw, place: str, api_version: str, kind: str
) -> "Iterator[_Place] | None":
    """Return the items of a list that is itself an item; None for other objects."""
    if not kind.endswith("List"):
        return None
    tree = manifest if isinstance(manifest, dict) else decode(manifest, JsonObject)
    items = tree.get("items")
    if not _is_list(api_version, kind, has_items=isinstance(items, list)):
        return None
    if not isinstance(items, list | None):
        raise InputError(f"must be a list, got {_shape(items)}", source=place, path="items")
    return _items(items or (), place, api_version, kind)


def _read_pod(specs: SharedSpecs, parts: PodText, place: str) -> Pod | None:
    """Return a pod whose spec is known; None if it has to be read whole."""
    pod = specs.pod(parts)
    if pod is None:
        return None
    pod = _named(pod, place)
    try:
        validate_beside_spec(pod)
    except InputError:
        return None
    return pod


def _keep(
    given: InputObjects,
    places: dict[tuple[type[KubeObject], str], tuple[str, int]],
    obj: KubeObject,
    place: str,
    controller: PodController | None,
) -> None:
    """Add an object, unless the very same is there already."""
    key = (type(obj), obj.key)
    if key in places:
        first, index = places[key]
        if given.objects[index] != obj or given.controllers.get(key) != controller:
            raise InputError(
                f"differs from the object of that name in {first}; each object must be given once",
                source=place,
                subject=subject_of(obj),
            )
        return
    places[key] = (place, len(given.objects))
    given.objects.append(obj)
    if controller is not None:
        given.controllers[key] = controller


def _unknown_fields(
    manifest: JsonObject | bytes | msgspec.Raw, place: str, api_version: str, kind: str
) -> list[UnknownField]:
    try:
        return unknown_fields(manifest, api_version, kind)
    except InputError as error:
        raise error.within(source=place) from None


def _add_custom(
    given: InputObjects, manifest: JsonObject | bytes | msgspec.Raw, api_version: str, kind: str
) -> None:
    """Note an object of an operator: the pods that it makes, or that its kind is not known."""
    tree = manifest if isinstance(manifest, dict) else decode(manifest, JsonObject)
    given.custom.append(tree)
    workload = read_operator_workload(api_version, kind, tree)
    if workload is not None:
        given.workloads.append((len(given.objects), workload))
    elif (api_version, kind) not in BY_NAME:
        given.unknown_kinds[f"{kind} ({api_version})"] += 1


def _name_of(manifest: JsonObject | bytes | msgspec.Raw) -> str:
    tree = manifest if isinstance(manifest, dict) else decode(manifest, JsonObject)
    meta = tree.get("metadata")
    name = meta.get("name") if isinstance(meta, dict) else None
    return name if isinstance(name, str) else ""


@cache
def _is_custom(api_version: str, kind: str) -> bool:
    """Return whether the kind is of an operator, not of Kubernetes or Koordinator."""
    group = api_version.rpartition("/")[0]
    if "." not in group or not kind or group in groups_of_kubernetes():
        return False
    ours = [name for version, name in BY_NAME if version.rpartition("/")[0] == group]
    return group in OPERATOR_GROUPS or not (kind in ours or did_you_mean(kind, ours))


def _is_left_out(api_version: str, kind: str) -> bool:
    """Return whether nothing here reads such objects.

    Raises InputError for a kind that is misspelt, or of a version that is no more.
    """
    if not api_version or not kind or (api_version, kind) in BY_NAME:
        return False
    if knows_kind(api_version, kind) or _is_custom(api_version, kind):
        return True
    if any(name == kind for _, name in BY_NAME):
        return False  # of another version: refused with those that are accepted
    known = [name for version, name in BY_NAME if version == api_version]
    known += kinds_of(api_version)
    hint = did_you_mean(kind, known)
    if hint or kinds_of(api_version):
        raise InputError(f"unknown kind {kind} of {api_version}{hint}", path="kind")
    return True


def _read_controller(
    manifest: JsonObject | bytes | msgspec.Raw, place: str, obj: KubeObject
) -> PodController | None:
    """Return how a workload makes pods; None for other kinds."""
    if not isinstance(obj, CONTROLLER_KINDS):
        return None
    try:
        controller = decode(manifest, PodController)
        check_controller(obj, controller)
    except InputError as error:
        raise error.within(source=place, subject=subject_of(obj)) from None
    return controller


@contextmanager
def collector_paused() -> Iterator[None]:
    """Pause the garbage collector while objects are made that stay alive.

    Collections would take half of the time of reading, and find nothing: only cycles need them.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


class _Envelope(msgspec.Struct, rename="camel"):
    """Fields of a JSON text that identify a list."""

    api_version: str | None = None
    kind: str | None = None
    items: list[msgspec.Raw] | None = None


class _ListKind(msgspec.Struct, frozen=True):
    """Default type of the items of a list; empty for the kind List."""

    api_version: str = ""
    kind: str = ""


class _Header(msgspec.Struct, rename="camel"):
    api_version: str | None = None
    kind: str | None = None


_HEADER_DECODER = decoder_of(_Header)
_Place = tuple[str, JsonObject | bytes | msgspec.Raw, _ListKind]
_NO_LIST = _ListKind()
_ENVELOPE_DECODER = decoder_of(_Envelope)


def _read_object(
    manifest: JsonObject | bytes | msgspec.Raw, place: str, list_kind: _ListKind
) -> KubeObject:
    try:
        obj = decode_object(manifest, api_version=list_kind.api_version, kind=list_kind.kind)
        obj = _named(with_defaults(obj), place)
        validate(obj)
    except InputError as error:
        raise error.within(source=place) from None
    except RecursionError:
        raise _too_deep(place) from None
    return obj


def _named(obj: KindT, place: str) -> KindT:
    """Give a name to what has ``metadata.generateName`` only: the same at the same place."""
    meta = obj.metadata
    if meta.name or not meta.generate_name:
        return obj
    suffix = hashlib.blake2b(place.encode(), digest_size=4).hexdigest()[:5]
    return replace(obj, metadata=replace(meta, name=meta.generate_name + suffix))


def _header(manifest: JsonObject | bytes | msgspec.Raw, list_kind: _ListKind) -> tuple[str, str]:
    """Return version and kind; empty if they can't be read, which is reported later."""
    try:
        if isinstance(manifest, dict):
            header = convert(manifest, _Header)
        else:
            header = _HEADER_DECODER.decode(manifest)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return "", ""
    return header.api_version or list_kind.api_version, header.kind or list_kind.kind


def read_texts(paths: Iterable[str], stdin: BinaryIO) -> Iterator[tuple[str, bytes]]:
    """Yield the texts of files, of manifests below folders and of ``-``, with their sources."""
    for name in paths:
        if name == STDIN:
            text = unpacked(read_stream(stdin, _STANDARD_INPUT), _STANDARD_INPUT)
            yield _STANDARD_INPUT, _as_utf8(text)
            continue
        for file in files_below(Path(name)):
            try:
                yield str(file), _as_utf8(unpacked(read_file(file), str(file)))
            except OSError as error:
                raise InputError(
                    f"cannot be read: {error.strerror}; must be a file, a folder or -",
                    source=str(file),
                ) from None


def _as_utf8(text: bytes) -> bytes:
    """Return a text without its byte order mark, as UTF-8; a text that is not UTF-16 stays."""
    if text.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        try:
            return text.decode("utf-16").encode()
        except UnicodeDecodeError:
            return text
    return text.removeprefix(codecs.BOM_UTF8)


def files_below(path: Path) -> list[Path]:
    """Return the manifests below a folder, or the file itself.  Raises InputError if none."""
    if not path.is_dir():
        return [path]
    files = sorted(
        file
        for file in path.rglob("*")
        if file.name.removesuffix(PACKED).endswith(SUFFIXES) and file.is_file()
    )
    if not files:
        raise InputError(
            f"has no manifests; must be a folder with *{', *'.join(SUFFIXES)}",
            source=str(path),
        )
    return files


def _manifests(source: str, text: bytes, progress: ReadingProgress) -> Iterator[_Place]:
    begins_like_json = text[:_BEGIN].lstrip()[:1] == b"{" and b"\n---" not in text
    must_be_json = source.removesuffix(PACKED).endswith(".json")
    if begins_like_json or must_be_json:
        try:
            envelope = _ENVELOPE_DECODER.decode(text)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            stream = split_stream(text) if len(text) <= LARGEST_YAML_BYTES else ()
            for number, document in enumerate(stream, start=1):
                yield from _json_document(f"{source}: document {number}", document)
            if stream:
                return
            if must_be_json:
                raise InputError(f"not a JSON manifest: {error}", source=source) from None
        except RecursionError:
            raise _too_deep(source) from None
        else:
            check_keys(text, source)
            yield from _json_manifests(source, text, envelope)
            return
    try:
        yield from _yaml_manifests(source, text, progress)  # braces are YAML too
    except InputError as error:
        raise named_yaml_problem(error, text) from None


def _json_document(place: str, text: bytes) -> Iterator[_Place]:
    """Yield what one of several JSON documents has.  Raises InputError."""
    check_keys(text, place)
    try:
        envelope = _ENVELOPE_DECODER.decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InputError(f"not a JSON manifest: {error}", source=place) from None
    except RecursionError:
        raise _too_deep(place) from None
    yield from _json_manifests(place, text, envelope)


def _json_manifests(source: str, text: bytes, envelope: _Envelope) -> Iterator[_Place]:
    if not _is_list(envelope.api_version, envelope.kind, has_items=envelope.items is not None):
        yield source, text, _NO_LIST
        return
    list_kind = _kind_of_items(envelope.api_version, envelope.kind)
    for index, item in enumerate(envelope.items or ()):
        yield f"{source}: items[{index}]", item, list_kind


def _yaml_manifests(source: str, text: bytes, progress: ReadingProgress) -> Iterator[_Place]:
    if len(text) > LARGEST_YAML_BYTES:
        raise InputError(
            f"must be at most {LARGEST_YAML_BYTES // MEBI} MiB of YAML; JSON may be larger",
            source=source,
        )

    def on_position(done: int) -> None:
        progress.show(source, done, len(text))

    for number, document in documents_and_lists(text, source, _is_list_header, on_position):
        place = f"{source}: document {number}"
        if document is None:
            continue
        if isinstance(document, YamlList):
            header, listed = document.header, document.items(source, on_position)
            yield from _items(listed, place, header.get("apiVersion"), header.get("kind"))
            continue
        if not isinstance(document, dict):
            raise _not_an_object(document, place)
        try:
            check_is_manifest(document, source)
        except InputError as error:
            raise error.within(source=place) from None
        items, kind = document.get("items"), document.get("kind")
        version = document.get("apiVersion")
        has_items = isinstance(items, list)
        if not (items is None or has_items) or not _is_list(version, kind, has_items=has_items):
            yield place, document, _NO_LIST
            continue
        yield from _items(items or (), place, version, kind)


def _is_list_header(header: JsonObject) -> bool:
    return _is_list(header.get("apiVersion"), header.get("kind"), has_items=True)


def _items(items: Iterable[Any], place: str, version: Any, kind: Any) -> Iterator[_Place]:
    """Yield the items of a list with their places."""
    list_kind = _kind_of_items(version, kind)
    for index, item in enumerate(items):
        item_place = f"{place}: items[{index}]"
        if not isinstance(item, dict):
            raise _not_an_object(item, item_place)
        yield item_place, item, list_kind


def _not_an_object(value: object, place: str) -> InputError:
    return InputError(
        f"must be an object with apiVersion and kind, got {_shape(value)}", source=place
    )


def _shape(value: object) -> str:
    """Return the type of a value in the terms of YAML and JSON."""
    if value is None:
        return "null"
    names = {str: "a string", list: "a list", dict: "an object", bool: "a boolean"}
    return names.get(type(value), "a number")


def _too_deep(place: str) -> InputError:
    return InputError("nested too deep; at most 100 levels are allowed", source=place)


def _is_list(api_version: object, kind: object, *, has_items: bool) -> bool:
    """Return whether an object is a list; without items, its kind has to be a known list."""
    if not isinstance(kind, str) or not kind.endswith("List"):
        return False
    of = kind.removesuffix("List")
    version = str(api_version)
    return has_items or not of or (version, of) in BY_NAME or knows_kind(version, of)


def _kind_of_items(api_version: str | None, kind: str | None) -> _ListKind:
    kind = (kind or "").removesuffix("List")
    return _ListKind(api_version or "", kind) if kind else _NO_LIST
