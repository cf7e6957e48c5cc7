"""JSON decoders, and JSON texts that the standard decoder doesn't read.

msgspec works out once for each class how it is decoded, and for that time hands to other threads
what it has so far: a process of two threads that decode one class for the first time can end with
a segmentation fault (seen with 0.22 on CPython 3.11).  So the first time is one thread's alone.
"""

import json
import re
from collections.abc import Callable
from contextlib import suppress
from threading import RLock
from typing import Any, TypeVar, overload

import msgspec

from koordinator.foundation.errors import InputError

WantedT = TypeVar("WantedT")
DecodeHook = Callable[[type, Any], Any]
JsonDecoder = msgspec.json.Decoder  # noqa: TID251 -- the type alone

_known: set[object] = set()
_first_time = RLock()

LARGEST_CHECKED_BYTES = 1 << 20  # what people write; to check what programs write takes too long
_NO_SPACE = re.compile(r"\S")
_TOKEN = re.compile(rb'(?P<text>"(?:[^"\\]|\\.)*")(?:\s*(?P<colon>:))?|[{}\[\]]', re.DOTALL)


@overload
def decode_json(text: bytes | str | msgspec.Raw) -> Any: ...
@overload
def decode_json(text: bytes | str | msgspec.Raw, wanted: type[WantedT]) -> WantedT: ...
def decode_json(text: bytes | str | msgspec.Raw, wanted: Any = Any) -> Any:
    """Return the decoded text.  Raises msgspec.DecodeError, or UnicodeDecodeError."""
    _prepare(wanted)
    return msgspec.json.decode(text, type=wanted)  # noqa: TID251 -- prepared


def decoder_of(wanted: type[WantedT], dec_hook: DecodeHook | None = None) -> JsonDecoder[WantedT]:
    """Return what decodes a type again and again; ``dec_hook`` makes what msgspec doesn't know."""
    _prepare(wanted)
    return JsonDecoder(wanted, dec_hook=dec_hook)


def convert(
    tree: Any, wanted: type[WantedT], *, str_keys: bool = False, dec_hook: DecodeHook | None = None
) -> WantedT:
    """Return the value that a tree of containers means; ``str_keys``: it comes from JSON.

    Raises msgspec.ValidationError.
    """
    _prepare(wanted)
    return msgspec.convert(  # noqa: TID251 -- prepared
        tree, wanted, str_keys=str_keys, dec_hook=dec_hook
    )


def _prepare(wanted: object) -> None:
    if wanted in _known:
        return
    with _first_time:
        with suppress(msgspec.ValidationError):  # the value is irrelevant; the type is known now
            msgspec.convert(None, wanted)  # noqa: TID251 -- here is where it is safe
        _known.add(wanted)


def check_keys(text: bytes, source: str) -> None:
    """Raise InputError with ``source``, line and path for a key that an object has twice.

    A text that is longer than ``LARGEST_CHECKED_BYTES``, or is no JSON, passes.
    """
    if len(text) > LARGEST_CHECKED_BYTES:
        return
    try:
        json.loads(text, object_pairs_hook=_checked, parse_int=str, parse_float=str)
    except _RepeatedKeyError:
        _search(text, source)
    except (ValueError, RecursionError):  # the decoder reports it
        return


def split_stream(text: bytes) -> tuple[bytes, ...]:
    """Return the two and more JSON values that follow each other in a text, as ``jq`` prints them.

    Empty for one value, and for a text with something else in it.
    """
    decoder, documents, at = json.JSONDecoder(), list[bytes](), 0
    try:
        whole = text.decode().rstrip()
        while at < len(whole):
            begin = _NO_SPACE.search(whole, at)
            at = begin.start() if begin is not None else at
            _, end = decoder.raw_decode(whole, at)
            documents.append(whole[at:end].encode())
            at = end
    except (ValueError, RecursionError):
        return ()
    return tuple(documents) if len(documents) > 1 else ()


class _RepeatedKeyError(Exception):
    """An object has a key twice; it is not known where."""


def _checked(pairs: list[tuple[str, object]]) -> None:
    if len({key for key, _ in pairs}) != len(pairs):
        raise _RepeatedKeyError


def _search(text: bytes, source: str) -> None:
    objects: list[set[str] | None] = []  # that are open; None for a list
    path: list[str] = []
    for token in _TOKEN.finditer(text):
        match token[0]:
            case b"{" | b"[" as begin:
                objects.append(set() if begin == b"{" else None)
                path.append("")
            case b"}" | b"]":
                objects.pop()
                path.pop()
            case _ if token["colon"] and objects:
                keys, key = objects[-1], decode_json(token["text"], str)
                path[-1] = key
                if keys is None:
                    continue
                if key in keys:
                    line = text.count(b"\n", 0, token.start()) + 1
                    raise InputError(
                        f"key must be given only once, got it again in line {line}",
                        source=source,
                        path=".".join(filter(None, path)),
                    )
                keys.add(key)
