"""JSON and trees of it into types, in any number of threads.

msgspec works out once for each class how it is decoded, and for that time hands to other threads
what it has so far: a process of two threads that decode one class for the first time can end with
a segmentation fault (seen with 0.22 on CPython 3.11).  So the first time is one thread's alone.
"""

from collections.abc import Callable
from contextlib import suppress
from threading import RLock
from typing import Any, TypeVar, overload

import msgspec

WantedT = TypeVar("WantedT")
Hook = Callable[[type, Any], Any]
JsonDecoder = msgspec.json.Decoder  # noqa: TID251 -- the type alone

_known: set[object] = set()
_first_time = RLock()


@overload
def decode_json(text: bytes | str | msgspec.Raw) -> Any: ...
@overload
def decode_json(text: bytes | str | msgspec.Raw, wanted: type[WantedT]) -> WantedT: ...
def decode_json(text: bytes | str | msgspec.Raw, wanted: Any = Any) -> Any:
    """Return what the text means.  Raises msgspec.DecodeError, or UnicodeDecodeError."""
    _prepare(wanted)
    return msgspec.json.decode(text, type=wanted)  # noqa: TID251 -- prepared


def decoder_of(wanted: type[WantedT], dec_hook: Hook | None = None) -> JsonDecoder[WantedT]:
    """Return what decodes a type again and again; ``dec_hook`` makes what msgspec doesn't know."""
    _prepare(wanted)
    return JsonDecoder(wanted, dec_hook=dec_hook)


def convert(
    tree: Any, wanted: type[WantedT], *, str_keys: bool = False, dec_hook: Hook | None = None
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
