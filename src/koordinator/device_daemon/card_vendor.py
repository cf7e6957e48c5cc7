"""What the daemon has to know about a vendor, and what vendors' modules may ask of the machine."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from msgspec.structs import replace

from koordinator.domain.devices.xpu import Xpu, XpuStatus, XpuTopology
from koordinator.foundation.errors import InputError

HEALTHY: Final = XpuStatus(healthy=True)


class CardMachine(Protocol):
    """The machine, as the modules of vendors see it."""

    def ask(self, *words: str) -> str:
        """Run a tool; return what it prints.  Raises ToolError."""

    def device_numbers(self, name: str) -> Sequence[int]:
        """Return the numbers of ``/dev/<name><number>``, ascending."""

    def topology(self, bus_id: str) -> XpuTopology:
        """Return where a PCI device is; the address alone where sysfs does not know it."""


@dataclass(frozen=True, slots=True)
class DescribedCard:
    """``key`` is what the vendor's tool calls it."""

    key: str
    xpu: Xpu

    def with_status(self, status: XpuStatus) -> "DescribedCard":
        """Return the same card in another state."""
        return DescribedCard(self.key, replace(self.xpu, status=status))


@dataclass(frozen=True, slots=True, kw_only=True)
class CardVendor:
    """``pci_vendor`` is its id on the bus, without the products that are no accelerators.

    ``cards`` takes the inventory, ``status`` asks for one card.  Both raise ToolError, and
    InputError for an answer that is not understood.
    """

    name: str
    pci_vendor: str
    other_products: frozenset[str] = frozenset()
    cards: Callable[[CardMachine], list[DescribedCard]]
    status: Callable[[CardMachine, DescribedCard], XpuStatus]


def values_of(text: str, name: str) -> list[str]:
    """Return what stands behind ``name … :`` in every line that has it; trimmed."""
    return [
        value.strip()
        for line in text.splitlines()
        for before, colon, value in [line.partition(":")]
        if colon and before.strip().startswith(name)
    ]


def value_of(text: str, name: str, tool: str) -> str:
    """Return the first of ``values_of``.  Raises InputError if there is none."""
    found = values_of(text, name)
    if not found or not found[0]:
        raise InputError(f"found no {name!r}; accepted is a line with it", source=tool)
    return found[0]


def number_of(text: str, what: str, tool: str) -> int:
    """Return a whole number.  Raises InputError for anything else, and for one below 0."""
    if not text.isascii() or not text.isdigit():
        raise InputError(f"found {text[:80]!r}; accepted is a number", source=tool, path=what)
    return int(text)
