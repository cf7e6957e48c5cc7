"""Libraries for analysis, which the extra ``research`` installs."""

from importlib import import_module
from typing import Any

from koordinator.foundation.errors import InputError, not_installed


def library(name: str) -> Any:
    """Return an optional module.  Raises InputError with the command that installs it."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        raise InputError(not_installed("research"), source=name.partition(".")[0]) from None
