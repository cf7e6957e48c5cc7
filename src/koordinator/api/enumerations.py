"""Values of enumerations in place of their names, in comments that users read."""

import pkgutil
import re
from collections.abc import Mapping
from enum import StrEnum
from functools import cache
from importlib import import_module
from typing import Final

from koordinator import api

_ENUMERATION: Final = re.compile(r"\ban? ([A-Z]\w+)\b")


def with_values(comment: str) -> str:
    """Return a comment with the values, in back quotes, of each enumeration that it names."""
    return _ENUMERATION.sub(_values_of, comment)


def _values_of(named: re.Match[str]) -> str:
    members = _enumerations().get(named[1])
    if members is None:
        return named[0]
    *most, last = (f"`{each}`" if each else '`""`' for each in members)
    return f"{', '.join(most)} or {last}" if most else last


@cache
def _enumerations() -> Mapping[str, type[StrEnum]]:
    return {
        name: each
        for info in pkgutil.walk_packages(api.__path__, f"{api.__name__}.")
        for name, each in vars(import_module(info.name)).items()
        if isinstance(each, type) and issubclass(each, StrEnum)
    }
