"""Features that are off by default: a gate switches each on, in the whole agent."""

from collections.abc import Sequence
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from tests.core_scheduling import Kernel
from tests.nodes import GIB, START_S, pod, slo
from tests.unit.koordlet.app.world import World

from koordinator.api.device import Device
from koordinator.api.meta import ObjectMeta
from koordinator.api.node_metric import NodeMetric
from koordinator.api.node_slo import NodeSlo
from koordinator.domain.cgroups.files import CgroupFile
from koordinator.foundation.clock import VirtualClock
from koordinator.foundation.errors import HostError, InputError, NotFoundError
from koordinator.host.gpus import Gpu, NoGpus
from koordinator.host.linux.core_scheduling import LinuxCoreScheduling
from koordinator.host.port import PerfCounting, PerfCounts
from koordinator.koordlet.app.metrics import NodeGauges
from koordinator.koordlet.app.options import OFF, ON, gates_of, parse_gates


class Counters:
    """Counters that find three cycles for two instructions."""

    open = 0

    def start(self, folder: str, cpus: Sequence[int]) -> PerfCounting:
        assert (folder.startswith("/sys/fs/cgroup/perf_event/kubepods"), len(cpus)) == (True, 8)
        self.open += 1
        return self

    def stop(self) -> PerfCounts:
        self.open -= 1
        return PerfCounts(3.0, 2.0)


def world_with(options: dict[str, Any] | None = None, **gates: bool) -> World:
    """Return a node whose agent has some gates on."""
    return World(gates=gates_of(gates), **(options or {}))


def scraped(registry: CollectorRegistry, name: str) -> list[str]:
    """Return the lines of a metric."""
    lines = generate_latest(registry).decode().splitlines()
    return [line for line in lines if line.startswith(f"koordlet_{name}{{")]


def test_feature_gates_match_the_original() -> None:
    """An unknown gate is rejected; a gate without effect here changes nothing."""
    assert "BECPUSuppress" in gates_of({})
    assert "BECPUSuppress" not in gates_of({"BECPUSuppress": False})
    assert gates_of({"Libpfm4": True}) == gates_of({})
    with pytest.raises(InputError, match="unknown feature gate 'Typo'; known gates:"):
        gates_of({"Typo": True})


def test_all_alpha_and_all_beta_cover_the_gates_of_the_original() -> None:
    """As in the manifests of its repository; a single gate takes precedence."""
    every = gates_of(parse_gates("AllAlpha=true,AllBeta=true,CoreSched=false"))

    assert every == (ON | OFF) - {"CoreSched", "GPUResourceSlices", "DRAConsumableCapacity"}
    assert gates_of(parse_gates("AllBeta=false,CPUBurst=true")) == {"CPUBurst"}


@pytest.mark.parametrize("is_on", [False, True])
def test_cpi_of_containers_is_measured_behind_its_gate(is_on: bool) -> None:
    """Counted, shown, and closed when the agent ends."""
    world = world_with(CPICollector=is_on)
    world.add(pod("a", "LS", requests={"cpu": 1}))
    registry, counters = CollectorRegistry(), Counters()
    gauges = NodeGauges(registry, "n1", START_S)
    world.agent = world.start(perf_events=counters, gauges=gauges)
    world.seconds(12)

    assert [line.rpartition(" ")[2] for line in scraped(registry, "container_cpi")] == (
        ["3.0", "2.0"] if is_on else []
    )
    world.seconds(50)
    assert counters.open == int(is_on)
    world.agent.close()
    assert counters.open == 0


@pytest.mark.parametrize("is_on", [False, True])
def test_pressure_of_pods_is_measured_behind_its_gate(is_on: bool) -> None:
    """Read every ten seconds, and shown."""
    world = world_with(PSICollector=is_on)
    view = world.add(pod("a", "LS", requests={"cpu": 1}))
    text = "some avg10=1.5 avg60=2 avg300=3 total=4"
    world.tree.set(CgroupFile.MEMORY_PRESSURE, view.folder, text)
    registry = CollectorRegistry()
    world.agent = world.start(gauges=NodeGauges(registry, "n1", START_S))
    world.seconds(11)

    assert len(scraped(registry, "pod_psi")) == (3 if is_on else 0)


@pytest.mark.parametrize(("flag", "gate"), [(True, True), (True, False), (False, True)])
def test_caches_are_monitored_with_gate_and_flag(flag: bool, gate: bool) -> None:
    """As in the original, which wants both."""
    world = world_with({"monitors_resctrl": flag}, ResctrlCollector=gate)
    world.tree.host.put("/sys/fs/resctrl/BE/mon_data/mon_L3_00/llc_occupancy", "4096\n")
    registry = CollectorRegistry()
    world.agent = world.start(gauges=NodeGauges(registry, "n1", START_S))
    world.seconds(11)

    assert len(scraped(registry, "resctrl_llc_occupancy")) == int(flag and gate)


@pytest.mark.parametrize("is_on", [False, True])
def test_shares_of_the_cache_of_a_single_pod(is_on: bool) -> None:
    """The pod's own group exists only with the gate; the pod never joins its class's group."""
    world = world_with(Resctrl=is_on)
    host, root = world.tree.host, "/sys/fs/resctrl"
    own = {"node.koordinator.sh/resctrl": '{"llc":{"schemata":{"range":[0,50]}}}'}
    view = world.add(pod("a", "BE", annotations=own))
    world.tree.set(CgroupFile.TASKS, view.containers[0].folder, "77")
    host.put(f"{root}/info/L3/cbm_mask", "ff\n")
    for group in ("", "/BE", f"/koordlet-{view.uid}"):
        host.put(f"{root}{group}/schemata", "L3:0=ff\n")
        host.put(f"{root}{group}/tasks", "")
    world.seconds(2)

    result = (
        host.read(f"{root}/koordlet-{view.uid}/schemata"),
        host.read(f"{root}/koordlet-{view.uid}/tasks"),
    )
    assert result == (("L3:0=f\n", "77\n") if is_on else ("L3:0=ff\n", ""))
    assert host.read(f"{root}/BE/tasks") == ""


@pytest.mark.parametrize("is_on", [False, True])
def test_processes_of_pods_get_cookies_of_their_group(is_on: bool) -> None:
    """A change of the policy removes the cookies; a restart changes none."""
    world = world_with(CoreSched=is_on)
    kernel = Kernel(1, 2)
    registry = CollectorRegistry()

    def start() -> None:
        world.agent = world.start(
            core_scheduling=LinuxCoreScheduling(kernel.prctl),
            gauges=NodeGauges(registry, "n1", START_S),
        )

    start()
    for name, pid in (("a", 1), ("b", 2)):
        labels = {"koordinator.sh/core-sched-group-id": name}
        view = world.add(pod(name, "BE", labels=labels))
        world.tree.set(CgroupFile.PROCS, view.containers[0].folder, str(pid))
    on = {"beClass": {"cpuQOS": {"enable": True}}, "policies": {"cpuPolicy": "coreSched"}}
    spec = slo(resourceQOSStrategy=on)
    world.cluster.create(NodeSlo(metadata=ObjectMeta(name="n1"), spec=spec))
    world.seconds(2)

    before, changes = dict(kernel.cookies), kernel.changes
    assert (0 not in before.values(), len(set(before.values())) == 2) == (is_on, is_on)
    assert len(scraped(registry, "container_core_sched_cookie")) == (2 if is_on else 0)
    registry = CollectorRegistry()
    start()
    world.seconds(2)
    assert (kernel.cookies, kernel.changes) == (before, changes)

    world.cluster.update(NodeSlo(metadata=ObjectMeta(name="n1"), spec=slo()))
    world.seconds(2)
    assert set(kernel.cookies.values()) == {0}


def test_the_age_of_a_report_follows_the_clock_of_the_machine() -> None:
    """A clock that is set moves no sample; what the manager compares with its own is right."""
    world = World()
    wall = VirtualClock(START_S)
    world.agent = world.start(wall_clock=wall)
    world.cluster.create(NodeMetric(metadata=ObjectMeta(name="n1")))
    world.seconds(30)
    wall.advance_to(START_S + 86_400)
    world.seconds(60)
    world.outbox.deliver(world.cluster)

    status = world.cluster.get(NodeMetric, "n1").status
    assert status.update_time is not None
    assert status.update_time.timestamp() == START_S + 86_400
    assert status.node_metric is not None


class Driver(NoGpus):
    """A GPU, and a driver that fails at times."""

    fails = False

    def devices(self) -> Sequence[Gpu]:
        if self.fails:
            raise HostError("NVML: driver not loaded")
        return [Gpu(minor=0, uuid="GPU-0", model="T4", memory_bytes=16 * GIB, bus_id="")]


def test_a_driver_that_fails_for_a_while_takes_no_gpu_away() -> None:
    """Pods are on it, and the scheduler would forget that."""
    world, driver = world_with(Accelerators=True), Driver()
    world.agent = world.start(gpus=driver)
    world.seconds(2)
    driver.fails = True
    world.seconds(120)
    world.outbox.deliver(world.cluster)

    assert [info.id for info in world.cluster.get(Device, "n1").spec.devices] == ["GPU-0"]


def test_driver_is_ignored_with_only_described_accelerators() -> None:
    """The driver is not asked."""
    world = world_with({"only_described_xpus": True}, Accelerators=True)
    world.agent = world.start(gpus=Driver())
    world.seconds(2)
    world.outbox.deliver(world.cluster)

    with pytest.raises(NotFoundError):
        world.cluster.get(Device, "n1")


CARD = """[{"vendor": "metax", "model": "MXC500", "uuid": "GPU-mx", "minor": "0",
"resources": {"koordinator.sh/gpu-core": "100"}, "status": {"healthy": %s, "errCode": "%s"}}]"""


def described() -> World:
    """Return a node with a card that a device daemon describes as sound."""
    world = world_with({"xpu_folder": "/xpus"}, Accelerators=True)
    world.tree.host.put("/xpus/ic-device", CARD % ("true", ""))
    world.agent = world.start()
    world.seconds(2)
    world.outbox.deliver(world.cluster)
    return world


def test_a_broken_card_is_reported_within_seconds() -> None:
    """With a reason that the API server takes, whatever the daemon calls it."""
    world = described()
    world.tree.host.put("/xpus/ic-device", CARD % ("false", "chip error"))
    world.seconds(4)
    world.outbox.deliver(world.cluster)

    (card,) = world.cluster.get(Device, "n1").spec.devices
    assert not card.health
    assert [(each.status, each.reason) for each in card.conditions] == [("False", "ChipError")]


def test_devices_that_stay_as_they_are_cost_the_api_server_nothing() -> None:
    """The agent reads unchanged devices every minute, and writes nothing."""
    world = described()
    world.seconds(30)
    world.cluster.delete(Device, "n1")
    assert world.outbox.deliver(world.cluster) == 0
    with pytest.raises(NotFoundError):
        world.cluster.get(Device, "n1")

    world.seconds(60)
    world.outbox.deliver(world.cluster)
    assert world.cluster.get(Device, "n1").spec.devices


def test_truncated_description_keeps_the_known_cards() -> None:
    """A file that is being written adds no card."""
    world = described()
    world.tree.host.put("/xpus/ic-device", CARD[:40])
    world.tree.host.put("/xpus/ic-device.tmp", (CARD % ("true", "")).replace("GPU-mx", "GPU-x"))
    world.seconds(4)
    world.outbox.deliver(world.cluster)

    assert [info.id for info in world.cluster.get(Device, "n1").spec.devices] == ["GPU-mx"]
