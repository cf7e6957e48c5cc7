"""Semantic versions, ordered by their precedence.

Source: https://semver.org/spec/v2.0.0.html sections 2, 9 to 11.
"""

import re
from dataclasses import dataclass
from functools import total_ordering

from koordinator.foundation.errors import InputError

_NUMBER = r"0|[1-9][0-9]{0,18}"
_TEXT = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})"
    r"(?:-((?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*)"
    r"(?:\.(?:0|[1-9][0-9]*|[0-9]*[a-zA-Z-][0-9a-zA-Z-]*))*))?"
    r"(?:\+[0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*)?"
)
_MAX_TEXT = 256  # characters
_LOOSE = re.compile(r"v?([0-9]+)(\.[0-9]+)?(\.[0-9]+)?(.*)", re.DOTALL)


@total_ordering
@dataclass(frozen=True, slots=True, eq=False)
class SemanticVersion:
    """Compared by precedence: build metadata does not count."""

    major: int
    minor: int
    patch: int
    pre_release: tuple[str, ...] = ()

    @classmethod
    def parse(cls, text: str, *, normalize: bool = False) -> "SemanticVersion":
        """Return the version; to ``normalize`` fills in parts and takes off a ``v`` and zeros.

        Raises InputError.
        """
        given = _normalized(text) if normalize and len(text) <= _MAX_TEXT else text
        found = _TEXT.fullmatch(given) if len(given) <= _MAX_TEXT else None
        if found is None:
            raise InputError(f"must be a semantic version such as 1.2.3, got {text[:_MAX_TEXT]!r}")
        major, minor, patch, pre_release = found.groups()
        parts = pre_release.split(".") if pre_release else ()
        return cls(int(major), int(minor), int(patch), tuple(parts))

    @property
    def _precedence(self) -> tuple[object, ...]:
        parts = tuple(
            (0, int(part), "") if part.isdecimal() else (1, 0, part)
            for part in self.pre_release
            if part
        )
        return self.major, self.minor, self.patch, not parts, parts

    def __eq__(self, other: object) -> bool:
        return isinstance(other, SemanticVersion) and self._precedence == other._precedence

    def __lt__(self, other: "SemanticVersion") -> bool:
        return self._precedence < other._precedence

    def __hash__(self) -> int:
        return hash(self._precedence)


def _normalized(text: str) -> str:
    found = _LOOSE.fullmatch(text)
    if found is None:
        return text
    major, minor, patch, rest = found.groups()
    numbers = [str(int(part.strip("."))) for part in (major, minor or "0", patch or "0")]
    return ".".join(numbers) + rest
