"""Loop of the device daemon: take inventory, check health, and write a file on changes.

If a tool fails, the last descriptions are kept, also after a restart.  A card that does
not respond while others of its vendor do is unhealthy.
"""

import logging
from collections.abc import Iterable, Sequence
from typing import Final

import msgspec

from koordinator.device_daemon.cambricon import CAMBRICON_CARDS
from koordinator.device_daemon.card_vendor import CardVendor, DescribedCard
from koordinator.device_daemon.huawei import HUAWEI_CARDS
from koordinator.device_daemon.kunlun import KUNLUN_CARDS
from koordinator.device_daemon.metax import METAX_CARDS
from koordinator.domain.devices.requests import Xpu, XpuStatus, XpuTopology
from koordinator.foundation.clock import Clock
from koordinator.foundation.decoders import decode_json
from koordinator.foundation.errors import HostError, InputError, MissingFileError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.host.gpus import BUS_ID, numa_node_of, pci_functions, pcie_id_of
from koordinator.host.port import Files, VendorTools

log = logging.getLogger(__name__)

CARD_VENDORS: Final = (HUAWEI_CARDS, CAMBRICON_CARDS, KUNLUN_CARDS, METAX_CARDS)
SILENT: Final = "NotAnswering"
#: Pause after a failed inventory: a driver may take minutes to start.
RETRY_S: Final = 60.0
_INDENT: Final = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class DaemonIntervals:
    """Intervals between inventories and between health checks, in seconds."""

    inventory_s: float = 900.0
    health_s: float = 10.0


class LinuxCardMachine:
    """Implementation of ``card_vendor.CardMachine`` over the ports of the machine."""

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
        """Return the vendors with a card on the bus.  Raises HostError without a bus."""
        functions = list(pci_functions(self._files, self._sys))
        if not functions:
            raise HostError(f"no PCI devices below {self._sys}")
        return [
            vendor
            for vendor in CARD_VENDORS
            if any(
                each.vendor == vendor.pci_vendor and each.device not in vendor.other_products
                for each in functions
            )
        ]


class DeviceDaemon:
    """Device daemon; ``output`` is the path of its file, which ``files`` writes."""

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
        #: Descriptions of an earlier process by vendor, until the vendor's tool responds.
        self._restored = _restored(files, output)
        self._written: str | None = None
        self._inventory_s = self._health_s = clock.now_s()
        self.has_failed = False  # whether a tool failed in the last inventory

    @property
    def described(self) -> tuple[Xpu, ...]:
        """Descriptions of the known cards."""
        known = [card.xpu for _, cards in self._cards.values() for card in cards]
        return (*known, *(xpu for xpus in self._restored.values() for xpu in xpus))

    def request_inventory(self) -> None:
        """Take inventory in the next step."""
        self._inventory_s = self._clock.now_s()

    def next_s(self) -> float:
        """Return the time of the next inventory or health check."""
        return min(self._inventory_s, self._health_s)

    def step(self) -> None:
        """Run due work, and write changes.  Errors of tools and files are logged."""
        now_s = self._clock.now_s()
        if now_s < self.next_s():
            return
        if now_s >= self._inventory_s:
            self._take_inventory()
            pause_s = self._intervals.inventory_s
            self._inventory_s = now_s + (min(RETRY_S, pause_s) if self.has_failed else pause_s)
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
            log.warning("PCI bus not readable; known cards are kept", extra={"error": str(error)})
            return
        names = {vendor.name for vendor in vendors}
        self._cards = {name: entry for name, entry in self._cards.items() if name in names}
        self._restored = {name: xpus for name, xpus in self._restored.items() if name in names}
        for vendor in vendors:
            try:
                cards = vendor.cards(self._machine)
            except (HostError, InputError) as error:
                self.has_failed = True
                log.warning(
                    "cards not described; known cards are kept",
                    extra={"vendor": vendor.name, "error": str(error)},
                )
                continue
            self._cards[vendor.name] = (vendor, cards)
            self._restored.pop(vendor.name, None)

    def _with_status(
        self, vendor: CardVendor, cards: Iterable[DescribedCard]
    ) -> list[DescribedCard]:
        results: list[tuple[DescribedCard, XpuStatus | str]] = []
        for card in cards:
            try:
                results.append((card, vendor.status(self._machine, card)))
            except (HostError, InputError) as error:
                results.append((card, str(error)))
        others_respond = any(isinstance(result, XpuStatus) for _, result in results)
        return [_updated(card, result, others_respond=others_respond) for card, result in results]

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
    """Return the content of the file: a JSON list, indented by two spaces."""
    return msgspec.json.format(msgspec.json.encode(xpus), indent=_INDENT).decode() + "\n"


def _restored(files: Files, path: str) -> dict[str, list[Xpu]]:
    """Return the descriptions that an earlier process wrote, by vendor."""
    try:
        described = decode_json(files.read(path), list[Xpu])
    except MissingFileError:
        return {}
    except (HostError, msgspec.DecodeError, msgspec.ValidationError) as error:
        log.warning("earlier descriptions not readable", extra={"error": str(error)})
        return {}
    by_vendor: dict[str, list[Xpu]] = {}
    for xpu in described:
        by_vendor.setdefault(xpu.vendor, []).append(xpu)
    return by_vendor


def _updated(
    card: DescribedCard, result: XpuStatus | str, *, others_respond: bool
) -> DescribedCard:
    """Return the card with its status, or with the error of a failed status query."""
    if isinstance(result, XpuStatus):
        return card.with_status(result)
    if others_respond:
        return card.with_status(XpuStatus(False, SILENT, result))
    before = card.xpu.status or XpuStatus()
    return card.with_status(
        XpuStatus(before.healthy, before.err_code, f"last known status: {result}")
    )
