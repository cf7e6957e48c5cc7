"""Modules that are loaded at their first use.

A command loads the modules of everything that its configuration may need; much of it is never used
in a small cluster, such as the evaluator of selectors where no claim has one.  A module that names
such a part declares it so, and uses it by its attributes (``selectors.matches(…)``):

    if TYPE_CHECKING:
        from koordinator.domain.dynamic_resources import selectors
    else:
        selectors = lazy_module("koordinator.domain.dynamic_resources.selectors")

Type checkers and import-linter see an ordinary import.  Functions that run once per command import
in their body instead.
"""

from importlib import import_module
from typing import Any


class _LazyModule:
    """Proxy of a module, which is imported when one of its attributes is read."""

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        value = getattr(import_module(self._name), attribute)
        vars(self)[attribute] = value  # the next read is an ordinary attribute's
        return value


def lazy_module(name: str) -> Any:
    """Return a module that is imported when one of its attributes is read."""
    return _LazyModule(name)
