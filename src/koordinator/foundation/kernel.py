"""Compiled loops beside the array code that they must agree with.

A ``Kernel`` is two functions of the same arguments: ``reference`` in NumPy, and ``loop``, compiled
by numba on first use and cached on disk.  Callers use the compiled function only for
enough work: importing the compiler takes half a second, too long for a small job.
"""

import functools
from collections.abc import Callable
from typing import Any, Generic, ParamSpec, TypeVar

Parameters = ParamSpec("Parameters")
Result = TypeVar("Result")


class Kernel(Generic[Parameters, Result]):
    """``kernel.reference(…)`` and ``kernel.compiled(…)`` return equal results."""

    def __init__(
        self,
        reference: Callable[Parameters, Result],
        loop: Callable[Parameters, Result],
        signature: Callable[[Any], Any],
    ) -> None:
        """``signature`` gets numba's ``types`` and returns a tuple: the types of the arguments."""
        self.reference = reference
        self._loop = loop
        self._signature = signature

    @functools.cached_property
    def compiled(self) -> Callable[Parameters, Result]:
        """The loop as machine code."""
        import numba  # noqa: PLC0415 (half a second, and only large jobs need it)

        compiled: Callable[Parameters, Result] = numba.njit(
            self._signature(numba.types), cache=True, nogil=True
        )(self._loop)
        return compiled
