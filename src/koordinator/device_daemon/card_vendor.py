"""Description of a vendor, and the machine's interface for the vendors' modules."""

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from msgspec.structs import replace

from koordinator.domain.devices.requests import Xpu, XpuStatus, XpuTopology
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass

HEALTHY: Final = XpuStatus(healthy=True)


class CardMachine(Protocol):
    """Machine of the accelerators.

    Rule R13: ``daemon``, which implements it, is above the vendors.
    """

    def ask(self, *words: str) -> str:
        """Run a tool; return its output.  Raises ToolError."""

    def device_numbers(self, name: str) -> Sequence[int]:
        """Return the numbers of the nodes ``/dev/<name><number>``, ascending."""

    def topology(self, bus_id: str) -> XpuTopology:
        """Return the place of a PCI device; only its address if sysfs does not list it."""


@dataclass(frozen=True, slots=True)
class DescribedCard:
    """Card with its description; ``key`` is its id in the vendor's tool."""

    key: str
    xpu: Xpu

    def with_status(self, status: XpuStatus) -> "DescribedCard":
        """Return the card with another status."""
        return DescribedCard(self.key, replace(self.xpu, status=status))


@dataclass(frozen=True, slots=True, kw_only=True)
class CardVendor:
    """Vendor of accelerators.

    ``pci_vendor`` is its PCI id; ``other_products`` are its products that are no accelerators.
    ``cards`` returns the inventory, ``status`` the status of one card.  Both raise ToolError, and
    InputError for unexpected output.
    """

    name: str
    pci_vendor: str
    other_products: frozenset[str] = frozenset()
    cards: Callable[[CardMachine], list[DescribedCard]]
    status: Callable[[CardMachine, DescribedCard], XpuStatus]


def values_of(text: str, name: str) -> list[str]:
    """Return the trimmed values of all lines ``name … : value``."""
    return [
        value.strip()
        for line in text.splitlines()
        for before, colon, value in [line.partition(":")]
        if colon and before.strip().startswith(name)
    ]


def value_of(text: str, name: str, tool: str) -> str:
    """Return the first value of ``values_of``.  Raises InputError if there is none."""
    values = values_of(text, name)
    if not values or not values[0]:
        raise InputError(f"the output has no line with {name!r}", source=tool)
    return values[0]


def number_of(text: str, name: str, tool: str) -> int:
    """Return a non-negative integer.  Raises InputError for any other text."""
    if not text.isascii() or not text.isdigit():
        raise InputError(f"must be a number, got {text[:80]!r}", source=tool, path=name)
    return int(text)
