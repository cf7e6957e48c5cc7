"""Names of others that become part of a path on this machine.

Whoever makes a pod chooses some of its strings, and a string such as ``../../etc`` in a path leads
anywhere.  So every string of an API object that ends up in a path is a ``PathComponent`` first.
"""

from typing import Final, Self

from koordinator.foundation.errors import InputError

MOST_BYTES: Final = 255  # NAME_MAX of Linux


class PathComponent(str):
    """One name in a path: printable, without slash, neither ``.`` nor ``..``.

    Making one raises InputError for any other text; ``path`` is the field that it came from.
    """

    __slots__ = ()

    def __new__(cls, text: str, *, path: str = "") -> Self:
        if (
            text in {"", ".", ".."}
            or "/" in text
            or not text.isprintable()
            or len(text.encode()) > MOST_BYTES
        ):
            raise InputError(
                f"found {text[:80]!r}; accepted is a name of 1 to {MOST_BYTES} printable bytes "
                "without '/', not '.' or '..'",
                path=path,
            )
        return super().__new__(cls, text)


def relative_path(text: str, *, path: str = "") -> str:
    """Return components joined by single slashes, without slashes around; empty for none.

    Raises InputError if one of them is no ``PathComponent``.
    """
    return "/".join(PathComponent(part, path=path) for part in text.split("/") if part)
