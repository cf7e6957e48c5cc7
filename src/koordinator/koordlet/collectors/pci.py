"""RDMA cards and their device nodes, from sysfs.

Source: koordinator pkg/koordlet/metricsadvisor/devices/rdma, helper.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from koordinator.foundation.errors import HostError
from koordinator.host.pci import numa_node_of, pcie_id_of
from koordinator.host.port import Files
from koordinator.koordlet.adjustments import ContainerDevice


@dataclass(frozen=True, slots=True)
class RdmaFunction:
    """RDMA card with its virtual functions; ``pcie_id`` is the root port above it."""

    bus_id: str
    numa_node: int
    pcie_id: str
    is_healthy: bool
    virtual_functions: tuple[str, ...]


def rdma_functions(files: Files, sys_root: str) -> list[RdmaFunction]:
    """Return the RDMA cards by bus address."""
    cards = []
    for name in files.names(f"{sys_root}/class/infiniband"):
        link = f"{sys_root}/class/infiniband/{name}"
        try:
            folder = files.target(f"{link}/device")
        except HostError:
            continue
        if files.exists(f"{folder}/physfn"):
            continue  # a virtual function of another card
        bus_id = folder.rpartition("/")[2]
        cards.append(
            RdmaFunction(
                bus_id,
                numa_node_of(files, folder),
                pcie_id_of(folder),
                _is_active(files, link),
                _virtual_functions(files, folder),
            )
        )
    return sorted(cards, key=lambda card: card.bus_id)


def _is_active(files: Files, link: str) -> bool:
    states = []
    for port in files.names(f"{link}/ports"):
        try:
            states.append("ACTIVE" in files.read(f"{link}/ports/{port}/state"))
        except HostError:
            continue
    return any(states) or not states


def _virtual_functions(files: Files, folder: str) -> tuple[str, ...]:
    addresses = []
    for name in files.names(folder):
        if name.startswith("virtfn"):
            try:
                addresses.append(files.target(f"{folder}/{name}").rpartition("/")[2])
            except HostError:
                continue
    return tuple(sorted(addresses))


class SysfsVerbs:
    """Implementation of ``hooks.rdma_devices.VerbsLookup`` over the current sysfs."""

    def __init__(self, files: Files, sys_root: str) -> None:
        self._files = files
        self._sys = sys_root

    def connection_manager(self) -> ContainerDevice | None:
        return self._node(f"{self._sys}/class/misc/rdma_cm", "rdma_cm")

    def of_function(self, bus_id: str) -> Sequence[ContainerDevice]:
        folder = f"{self._sys}/bus/pci/devices/{bus_id}/infiniband_verbs"
        nodes = (self._node(f"{folder}/{name}", name) for name in self._files.names(folder))
        return [device for device in nodes if device is not None]

    def _node(self, folder: str, name: str) -> ContainerDevice | None:
        try:
            major, _, minor = self._files.read(f"{folder}/dev").strip().partition(":")
            return ContainerDevice(f"/dev/infiniband/{name}", int(major), int(minor))
        except (HostError, ValueError):
            return None
