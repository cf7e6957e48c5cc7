"""Keyword arguments whose names are none of Python's."""

from collections.abc import Mapping
from typing import Any


def as_keywords(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return arguments such as ``example.com/gpu`` for a function that takes any by name.

    A literal of one type would be checked against every named parameter of the function.
    """
    return dict(arguments)
