"""Libraries for analysis, which the extra ``research`` installs."""

from importlib import import_module
from typing import Any

from koordinator.foundation.errors import InputError


def library(name: str) -> Any:
    """Return an optional module.  Raises InputError with the command that installs it."""
    try:
        return import_module(name)
    except ModuleNotFoundError:
        text = "is not installed; run: pip install 'koordinator[research]'"
        raise InputError(text, source=name.partition(".")[0]) from None
