"""The loop of the daemon: inventory now and then, health often, a file when something is new.

A tool that fails costs nothing that is known: the cards stay as they were described last.  A card
that does not answer while others of its vendor do is broken.
"""

import logging
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import msgspec

from koordinator.device_daemon.cambricon import CAMBRICON_CARDS
from koordinator.device_daemon.card_vendor import CardVendor, DescribedCard
from koordinator.device_daemon.huawei import HUAWEI_CARDS
from koordinator.device_daemon.kunlun import KUNLUN_CARDS
from koordinator.device_daemon.metax import METAX_CARDS
from koordinator.domain.devices.xpu import Xpu, XpuStatus, XpuTopology
from koordinator.foundation.clock import Clock
from koordinator.foundation.errors import HostError, InputError
from koordinator.host.pci import BUS_ID, numa_node_of, pci_functions, pcie_id_of
from koordinator.host.port import Files
from koordinator.host.vendor_tools import VendorTools

log = logging.getLogger(__name__)

CARD_VENDORS: Final = (HUAWEI_CARDS, CAMBRICON_CARDS, KUNLUN_CARDS, METAX_CARDS)
SILENT: Final = "NotAnswering"
_INDENT: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonIntervals:
    """Seconds between two inventories, and between two questions after health."""

    inventory_s: float = 900.0
    health_s: float = 10.0


class LinuxCardMachine:
    """Implements ``card_vendor.CardMachine`` over the ports of the machine."""

    def __init__(self, tools: VendorTools, files: Files, sys_root: str) -> None:
        self._tools, self._files, self._sys = tools, files, sys_root

    def ask(self, *words: str) -> str:
        return self._tools.ask(*words)

    def device_numbers(self, name: str) -> Sequence[int]:
        return self._tools.device_numbers(name)

    def topology(self, bus_id: str) -> XpuTopology:
        address = bus_id.strip().lower()
        if not BUS_ID.fullmatch(address):
            return XpuTopology(bus_id=bus_id.strip())
        try:
            folder = self._files.target(f"{self._sys}/bus/pci/devices/{address}")
        except HostError:
            return XpuTopology(bus_id=address)
        node = numa_node_of(self._files, folder)
        return XpuTopology(
            bus_id=address,
            node_id=str(node) if node >= 0 else "",
            pcie_id=pcie_id_of(folder),
        )

    def vendors(self) -> list[CardVendor]:
        """Return the vendors of which the bus has a card.  Raises HostError if there is no bus."""
        found = list(pci_functions(self._files, self._sys))
        if not found:
            raise HostError(f"no PCI devices below {self._sys}")
        return [
            vendor
            for vendor in CARD_VENDORS
            if any(
                each.vendor == vendor.pci_vendor and each.device not in vendor.other_products
                for each in found
            )
        ]


class DeviceDaemon:
    """``step`` does what is due; ``output`` is the file, ``files`` writes it."""

    def __init__(
        self,
        machine: LinuxCardMachine,
        files: Files,
        clock: Clock,
        *,
        output: str,
        intervals: DaemonIntervals,
    ) -> None:
        self._machine = machine
        self._files = files
        self._clock = clock
        self._output = output
        self._intervals = intervals
        self._cards: dict[str, tuple[CardVendor, list[DescribedCard]]] = {}
        self._written: str | None = None
        self._inventory_s = self._health_s = clock.now_s()
        self.has_failed = False  # some tool, the last time that it was asked

    @property
    def described(self) -> tuple[Xpu, ...]:
        """The cards as they are known."""
        return tuple(card.xpu for _, cards in self._cards.values() for card in cards)

    def look_again(self) -> None:
        """Take the inventory with the next step."""
        self._inventory_s = self._clock.now_s()

    def next_s(self) -> float:
        """Return when something is due."""
        return min(self._inventory_s, self._health_s)

    def step(self) -> None:
        """Do what is due, and write what is new.  Raises nothing of tools and files."""
        now_s = self._clock.now_s()
        if now_s < self.next_s():
            return
        if now_s >= self._inventory_s:
            self._inventory_s = now_s + self._intervals.inventory_s
            self._take_inventory()
        self._health_s = now_s + self._intervals.health_s
        self._cards = {
            name: (vendor, self._with_status(vendor, cards))
            for name, (vendor, cards) in self._cards.items()
        }
        self._write()

    def _take_inventory(self) -> None:
        self.has_failed = False
        try:
            vendors = self._machine.vendors()
        except HostError as error:
            self.has_failed = True
            log.warning("bus not looked at, cards known stay", extra={"error": str(error)})
            return
        names = {vendor.name for vendor in vendors}
        self._cards = {name: found for name, found in self._cards.items() if name in names}
        for vendor in vendors:
            try:
                cards = vendor.cards(self._machine)
            except (HostError, InputError) as error:
                self.has_failed = True
                log.warning(
                    "cards not described, those known stay",
                    extra={"vendor": vendor.name, "error": str(error)},
                )
                continue
            self._cards[vendor.name] = (vendor, cards)

    def _with_status(
        self, vendor: CardVendor, cards: Iterable[DescribedCard]
    ) -> list[DescribedCard]:
        found: list[tuple[DescribedCard, XpuStatus | str]] = []
        for card in cards:
            try:
                found.append((card, vendor.status(self._machine, card)))
            except (HostError, InputError) as error:
                found.append((card, str(error)))
        answers = any(isinstance(answer, XpuStatus) for _, answer in found)
        return [_judged(card, answer, others_answer=answers) for card, answer in found]

    def _write(self) -> None:
        text = format_xpus(self.described)
        if text == self._written:
            return
        try:
            self._files.replace(self._output, text)
        except HostError as error:
            self.has_failed = True
            log.warning("descriptions not written", extra={"error": str(error)})
            return
        self._written = text
        log.info("cards described", extra={"cards": len(self.described)})


def format_xpus(xpus: Sequence[Xpu]) -> str:
    """Return the content of the file: a list, indented by two."""
    return msgspec.json.format(msgspec.json.encode(xpus), indent=_INDENT).decode() + "\n"


def _judged(card: DescribedCard, answer: XpuStatus | str, *, others_answer: bool) -> DescribedCard:
    if isinstance(answer, XpuStatus):
        return card.with_status(answer)
    if others_answer:
        return card.with_status(XpuStatus(False, SILENT, answer))
    before = card.xpu.status or XpuStatus()
    return card.with_status(
        XpuStatus(before.healthy, before.err_code, f"as known before: {answer}")
    )
