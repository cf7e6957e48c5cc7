"""Validated names from API objects for paths on this machine.

The author of a pod chooses some of its strings, and a string such as ``../../etc`` in a path would
lead outside its folder.  So every string of an API object must become a ``PathComponent`` first.
"""

from typing import Final, NewType

from koordinator.foundation.errors import InputError

MOST_BYTES: Final = 255  # NAME_MAX of Linux


#: A string that ``path_component`` has validated; at run time a plain string.
PathComponent = NewType("PathComponent", str)


def path_component(text: str, *, path: str = "") -> PathComponent:
    """Return one name in a path: printable, without slash, neither ``.`` nor ``..``.

    Raises InputError for any other text; ``path`` is the field that it came from.
    """
    if (
        text in {"", ".", ".."}
        or "/" in text
        or not text.isprintable()
        or len(text.encode()) > MOST_BYTES
    ):
        raise InputError(
            f"must be a name of 1 to {MOST_BYTES} printable bytes without '/', not '.' or "
            f"'..', got {text[:80]!r}",
            path=path,
        )
    return PathComponent(text)


def relative_path(text: str, *, path: str = "") -> str:
    """Return components joined by single slashes, without slashes around; empty for none.

    Raises InputError if one of them ``path_component`` refuses.
    """
    return "/".join(path_component(part, path=path) for part in text.split("/") if part)
