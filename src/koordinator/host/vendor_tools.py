"""Port to the tools of device vendors, and to device nodes."""

from collections.abc import Sequence
from typing import Protocol

from koordinator.foundation.errors import HostError


class ToolError(HostError):
    """A vendor's tool is missing, failed, or timed out.

    ``output`` is what it printed before it failed.
    """

    def __init__(self, problem: str, output: str = "") -> None:
        self.output = output
        super().__init__(problem)


class VendorTools(Protocol):
    """Programs installed by vendors of accelerators, and device nodes of their drivers."""

    def ask(self, *words: str) -> str:
        """Run a program of the machine; return its output.  Raises ToolError."""

    def device_numbers(self, name: str) -> Sequence[int]:
        """Return the numbers of the nodes ``/dev/<name><number>``, ascending."""
