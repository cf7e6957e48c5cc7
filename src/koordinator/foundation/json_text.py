"""Duplicate keys in JSON text, which decoders accept, and streams of JSON values."""

import json
import re

from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import InputError

LARGEST_CHECKED_BYTES = 1 << 20  # what people write; to check what programs write takes too long
_NO_SPACE = re.compile(r"\S")
_TOKEN = re.compile(rb'(?P<text>"(?:[^"\\]|\\.)*")(?:\s*(?P<colon>:))?|[{}\[\]]', re.DOTALL)


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
