"""What a device daemon asks of the machine: the tools of vendors, and device nodes."""

from collections.abc import Sequence
from typing import Protocol

from koordinator.foundation.errors import HostError


class ToolError(HostError):
    """A vendor's tool is missing, failed, or did not answer in time.

    ``output`` is what it printed all the same.
    """

    def __init__(self, problem: str, output: str = "") -> None:
        self.output = output
        super().__init__(problem)


class VendorTools(Protocol):
    """Programs that vendors of accelerators install, and the device nodes of their drivers."""

    def ask(self, *words: str) -> str:
        """Run a program of the machine; return what it prints.  Raises ToolError."""

    def device_numbers(self, name: str) -> Sequence[int]:
        """Return the numbers of ``/dev/<name><number>``, ascending."""
