"""Devices after a restart of the agent while they cannot be read: what was reported stays."""

from collections.abc import Sequence

from tests.unit.koordlet.app.test_gpu_slices import Driver, deliver_after, offering, slices
from tests.unit.koordlet.app.world import World

from koordinator.api.device import Device
from koordinator.foundation.errors import HostError
from koordinator.host.gpus import Gpus, GpusOnDemand
from koordinator.koordlet.app.options import gates_of


class LateDriver:
    """Search for a driver that fails until it ``is_ready``."""

    def __init__(self, driver: Gpus) -> None:
        self.driver = driver
        self.is_ready = False

    def find(self) -> Gpus:
        if not self.is_ready:
            raise HostError("NVML: Driver/library version mismatch")
        return self.driver


def minors(world: World) -> Sequence[int | None]:
    return [info.minor for info in world.cluster.get(Device, "n1").spec.devices]


def test_driver_that_is_not_ready_takes_no_gpu_away() -> None:
    """Device and claims keep their GPUs until the driver is ready and reports its own."""
    world, _ = offering(2)
    before = world.cluster.get(Device, "n1"), slices(world)
    late = LateDriver(Driver(1))
    world.agent = world.start(gpus=GpusOnDemand(late.find))
    deliver_after(world, 130)
    assert (world.cluster.get(Device, "n1"), slices(world)) == before

    late.is_ready = True
    deliver_after(world, 130)
    assert minors(world) == [0]
    (offered,) = slices(world)
    assert len(offered.spec.devices) == 1


def test_node_without_gpus_loses_those_that_it_had() -> None:
    """The driver answers, and has none."""
    world, driver = offering(2)
    driver.count = 0
    world.agent = world.start(gpus=driver)
    deliver_after(world, 70)
    assert minors(world) == []


def test_description_that_cannot_be_read_takes_no_card_away() -> None:
    """A device daemon may be writing it while the agent starts."""
    world = World(gates=gates_of({"Accelerators": True}), xpu_folder="/xpus")
    path = "/xpus/card"
    whole = '[{"vendor": "baidu", "model": "R200", "uuid": "x", "minor": "0"}]'
    world.tree.host.put(path, whole)
    deliver_after(world)
    assert minors(world) == [0]

    world.tree.host.put(path, whole[:20])
    world.agent = world.start()
    deliver_after(world, 70)
    assert minors(world) == [0]

    world.tree.host.put(path, "[]")
    deliver_after(world, 70)
    assert minors(world) == []
