"""The device nodes of RDMA cards that a container is given."""

from typing import Any

import pytest
from tests.memory_host import MemoryHost
from tests.unit.koordlet.hooks.test_gpu_sharing import creation

from koordinator.foundation.errors import InputError
from koordinator.koordlet.adjustments import ContainerDevice
from koordinator.koordlet.collectors.accelerators import SysfsVerbs
from koordinator.koordlet.hooks.devices import rdma_adjustment

PCI = "/sys/bus/pci/devices"
MANAGER = ContainerDevice("/dev/infiniband/rdma_cm", 10, 58)


def machine(*, has_manager: bool = True) -> MemoryHost:
    """Return a machine with a card and two of its virtual functions."""
    host = MemoryHost(
        {
            f"{PCI}/0000:01:00.0/infiniband_verbs/uverbs0/dev": "231:192\n",
            f"{PCI}/0000:01:00.2/infiniband_verbs/uverbs1/dev": "231:193\n",
            f"{PCI}/0000:01:00.3/infiniband_verbs/uverbs2/dev": "231:194\n",
            f"{PCI}/0000:02:00.0/class": "0x020000\n",
        }
    )
    if has_manager:
        host.put("/sys/class/misc/rdma_cm/dev", "10:58\n")
    return host


def given_devices(*cards: dict[str, Any], host: MemoryHost | None = None) -> list[tuple[str, int]]:
    verbs = SysfsVerbs(host or machine(), "/sys")
    adjustment = rdma_adjustment(creation({"rdma": cards}), verbs)
    assert adjustment.env == {}
    return [(device.path, device.minor) for device in adjustment.devices]


def slices(*buses: str) -> dict[str, Any]:
    vfs = [{"minor": -1, "busID": bus} for bus in buses]
    return {"minor": 0, "id": "0000:01:00.0", "extension": {"vfs": vfs}}


def test_slices_of_a_card_are_given_and_not_the_card() -> None:
    """With the connection manager, once."""
    assert given_devices(slices("0000:01:00.2", "0000:01:00.3")) == [
        ("/dev/infiniband/rdma_cm", 58),
        ("/dev/infiniband/uverbs1", 193),
        ("/dev/infiniband/uverbs2", 194),
    ]


def test_a_card_without_slices_is_given_whole() -> None:
    """By its id, which is its address."""
    assert given_devices({"minor": 0, "id": "0000:01:00.0"})[1] == ("/dev/infiniband/uverbs0", 192)


def test_every_user_of_the_container_may_access_devices() -> None:
    """As the original has it: programs that use RDMA are seldom root."""
    verbs = SysfsVerbs(machine(), "/sys")

    adjustment = rdma_adjustment(creation({"rdma": [slices("0000:01:00.2")]}), verbs)
    assert adjustment.devices[0] == MANAGER
    assert {(device.kind, device.mode) for device in adjustment.devices} == {("c", 0o666)}


def test_a_pod_without_rdma_gets_nothing() -> None:
    """The result is the same on a machine without the RDMA module."""
    verbs = SysfsVerbs(machine(has_manager=False), "/sys")
    assert rdma_adjustment(creation({"gpu": [{"minor": 0}]}), verbs).is_empty


@pytest.mark.parametrize(
    ("card", "problem"),
    [
        (slices("0000:01:00.9"), r"rdma\[0\].extension.vfs\[0\].busID: must be a PCI address"),
        (slices("../../../../dev"), "must be a PCI address"),
        ({"minor": 0, "id": ""}, r"rdma\[0\].id: must be a PCI address"),
        (slices("0000:02:00.0"), "PCI function 0000:02:00.0 has no RDMA device"),
        (slices(*["0000:01:00.2"] * 600), "at most 512 functions, got 600"),
    ],
)
def test_invalid_or_foreign_address_is_rejected(card: dict[str, Any], problem: str) -> None:
    """With the path in the annotation."""
    with pytest.raises(InputError, match=problem):
        given_devices(card)


def test_missing_module_is_reported() -> None:
    """Verbs alone are not enough to connect."""
    with pytest.raises(InputError, match="rdma_cm; load the module"):
        given_devices(slices("0000:01:00.2"), host=machine(has_manager=False))
