"""Cards of every vendor, described from what their tools print."""

import json
from collections.abc import Callable
from typing import Any

import pytest
from tests.memory_host import MemoryHost
from tests.unit.device_daemon.recorded_tools import (
    MLU_INFO,
    MX_ECC,
    NPU_BOARD,
    NPU_LIST,
    NPU_MAP,
    RecordedTools,
    bus,
    kunluns,
    metaxes,
    mlus,
    npus,
)

from koordinator.device_daemon.daemon import DaemonIntervals, DeviceDaemon, LinuxCardMachine
from koordinator.foundation.clock import VirtualClock
from koordinator.host.port import ToolError
from koordinator.koordlet.collectors.accelerators import read_xpus

FOLDER = "/var/run/koordlet/xpu-device-infos"
MEMORY, CORE = "koordinator.sh/gpu-memory", "koordinator.sh/gpu-core"


class Machine:
    """A machine with tools, and the daemon on it."""

    def __init__(self, record: Callable[[RecordedTools], MemoryHost]) -> None:
        self.tools = RecordedTools()
        self.host = record(self.tools)
        self.clock = VirtualClock(1e9)
        self.start()

    def start(self) -> None:
        """Start the daemon; what an earlier one knew is lost."""
        self.daemon = DeviceDaemon(
            LinuxCardMachine(self.tools, self.host, "/sys"),
            self.host,
            self.clock,
            output=f"{FOLDER}/ic-device",
            intervals=DaemonIntervals(inventory_s=900, health_s=10),
        )

    def after(self, seconds: float = 0.0) -> list[dict[str, Any]]:
        """Return the cards of the file when so much time has passed."""
        self.clock.advance_to(self.clock.now_s() + seconds)
        self.daemon.step()
        devices: list[dict[str, Any]] = json.loads(self.host.read(f"{FOLDER}/ic-device"))
        return devices


def topology(card: dict[str, Any]) -> tuple[str, str, str]:
    location = card["topology"]
    assert location["socketID"] == "-1"
    return location["busID"], location["nodeID"], location["pcieID"]


def test_npus_are_described_each_by_its_own_figures() -> None:
    """Model, memory, cores and CPUs; the original asks card 1 and takes it for all."""
    first, second = Machine(npus).after()

    assert (first["vendor"], first["model"], first["uuid"], first["minor"]) == (
        "huawei",
        "Ascend-910B3",
        "npu-4-0",
        "0",
    )
    assert first["resources"] == {
        MEMORY: "65536Mi",
        "huawei.com/npu-core": "20",
        "huawei.com/npu-cpu": "7",
        "huawei.com/npu-dvpp": "100",
    }
    assert (second["model"], second["resources"][MEMORY]) == ("Ascend-910C", "48128Mi")
    assert second["resources"]["huawei.com/npu-cpu"] == "6"
    assert topology(second) == ("0000:c2:00.0", "1", "pci0000:01")
    assert first["status"] == {"healthy": True, "errCode": "", "errMessage": ""}


def test_the_eleventh_npu_has_the_eleventh_device_node() -> None:
    """Nodes are counted as numbers: 2 comes before 10."""

    def many(tools: RecordedTools) -> MemoryHost:
        host = npus(tools)
        tools.nodes["davinci"] = tuple(range(12))
        tools.answers["npu-smi info -l"] = "".join(f"NPU ID : {at}\n" for at in range(12))
        heading = NPU_MAP.splitlines()[0]
        rows = [f"{at} 0 {at} Ascend 910B3" for at in range(12)]
        tools.answers["npu-smi info -m"] = "\n".join([heading, *rows])
        for at in range(12):
            for what, text in (
                ("memory", "HBM Capacity(MB) : 65536\n"),
                ("common", "Aicore Count : 20\n"),
                ("board", NPU_BOARD.format(bus=f"{at:02x}", faults=0)),
            ):
                tools.answers[f"npu-smi info -t {what} -i {at}"] = text
        return host

    cards = Machine(many).after()
    assert [card["uuid"] for card in cards] == [f"npu-{at}-{at}" for at in range(12)]


def test_an_npu_without_figures_for_memory_is_a_310p3() -> None:
    """The tool of such a card lacks the option; the number of its cores is known."""

    def old(tools: RecordedTools) -> MemoryHost:
        host = npus(tools)
        tools.answers["npu-smi info -m"] = NPU_MAP.replace("910B3", "310P3")
        refused = ToolError("exit code 1", "Command or option is not found")
        tools.answers["npu-smi info -t memory -i 4"] = refused
        tools.answers["npu-smi info -t cpu-num-cfg -i 4"] = "AI CPU number : 1\n"
        return host

    first, _ = Machine(old).after()
    assert (first["resources"][MEMORY], first["resources"]["huawei.com/npu-core"]) == (
        "21527Mi",
        "8",
    )


def test_models_and_addresses_of_mlus_are_reported() -> None:
    """Models by card; an address of hexadecimal digits, which the original takes for a fault."""
    first, second = Machine(mlus).after()

    assert (first["vendor"], first["model"], first["uuid"]) == ("cambricon", "MLU370-X8", "MLU-a")
    assert first["resources"] == {MEMORY: "24576Mi", CORE: "100"}
    assert topology(first) == ("0000:0f:00.0", "0", "pci0000:00")
    assert second["model"] == "MLU370-S4"
    assert topology(second) == ("0000:05:0a.0", "1", "")  # not in sysfs: the tool's value
    assert second["status"]["healthy"]


def test_xpus_of_kunlun_have_the_vendor_that_others_know() -> None:
    """baidu, and not kunlun, which no adaptation knows; memory and model of each."""
    first, second = Machine(kunluns).after()

    assert (first["vendor"], first["model"], first["uuid"]) == ("baidu", "R200", "xpu-0")
    assert first["resources"] == {MEMORY: "32768Mi", CORE: "100"}
    assert (second["model"], second["resources"][MEMORY]) == ("P800", "98304Mi")
    assert topology(second) == ("0000:1c:00.0", "1", "pci0000:01")


def test_gpus_of_metax_are_described_without_their_slices() -> None:
    """GPU#1 is not GPU#10, and a slice of it is none."""
    first, second = Machine(metaxes).after()

    assert (first["vendor"], first["model"], first["uuid"]) == ("metax", "MXC500", "GPU-mx-zero")
    assert first["resources"] == {MEMORY: "64Gi", CORE: "100"}
    assert (second["uuid"], second["resources"][MEMORY]) == ("GPU-mx-one", "65536Mi")
    assert topology(first) == ("0000:05:00.0", "0", "pci0000:00")


@pytest.mark.parametrize(
    ("record", "code"),
    [
        (lambda tools: npus(tools, faults=2), "ChipError"),
        (lambda tools: mlus(tools, health="Warning"), "DeviceError"),
        (lambda tools: metaxes(tools, sram=3), "EccError"),
        (lambda tools: metaxes(tools, dram=1), "EccError"),
    ],
)
def test_broken_card_has_code_and_message(
    record: Callable[[RecordedTools], MemoryHost], code: str
) -> None:
    """With a word that a condition may have as its reason; the other card is sound."""
    states = [card["status"] for card in Machine(record).after()]

    (broken,) = [state for state in states if not state["healthy"]]
    assert broken["errCode"] == code
    assert broken["errMessage"]


def test_card_without_reported_state_is_healthy() -> None:
    """The layout of a tool may change; the original takes that for a fault."""

    def new(tools: RecordedTools) -> MemoryHost:
        host = mlus(tools)
        text = MLU_INFO.format(uuid="MLU-b", health="?", device="0", bus="05")
        lines = [line for line in text.splitlines() if "?" not in line]
        tools.answers["cnmon info -c 1"] = "\n".join(lines)
        return host

    assert [card["status"]["healthy"] for card in Machine(new).after()] == [True, True]


def test_a_fault_is_in_the_file_within_ten_seconds() -> None:
    """Without a new inventory, which takes long."""
    machine = Machine(metaxes)
    machine.after()
    machine.tools.commands.clear()
    machine.tools.answers["mx-smi --count-ecc -i 1"] = MX_ECC.format(sram=0, dram=5)

    assert [card["status"]["healthy"] for card in machine.after(10)] == [True, False]
    assert machine.tools.commands == ["mx-smi --count-ecc -i 0", "mx-smi --count-ecc -i 1"]


def test_a_card_that_does_not_answer_while_others_do_is_broken() -> None:
    """The card is healthy again as soon as it answers."""
    machine = Machine(metaxes)
    machine.after()
    answer = machine.tools.answers.pop("mx-smi --count-ecc -i 1")
    first, second = machine.after(10)
    assert first["status"]["healthy"]
    assert second["status"]["errCode"] == "NotAnswering"
    assert "No such file" in second["status"]["errMessage"]

    machine.tools.answers["mx-smi --count-ecc -i 1"] = answer
    assert all(card["status"]["healthy"] for card in machine.after(10))


def test_a_tool_that_fails_takes_no_card_away() -> None:
    """A failed inventory or health check keeps the cards; the original removes the file."""
    machine = Machine(lambda tools: npus(tools, faults=1))
    machine.after()
    machine.tools.answers.clear()
    cards = machine.after(900)

    assert [card["uuid"] for card in cards] == ["npu-4-0", "npu-5-1"]
    assert [card["status"]["healthy"] for card in cards] == [True, False]
    assert cards[1]["status"]["errCode"] == "ChipError"
    assert cards[0]["status"]["errMessage"].startswith("last known status: npu-smi")
    assert machine.daemon.has_failed


def test_a_tool_that_fails_at_the_start_takes_no_card_away() -> None:
    """A driver that starts late, or a bus that cannot be read, must not empty the Device."""
    machine = Machine(metaxes)
    before = machine.after()
    answers, machine.tools.answers = machine.tools.answers, {}
    machine.start()
    assert machine.after() == before
    assert machine.daemon.has_failed

    machine.tools.answers = answers | {"mx-smi --show-hwinfo": "Model Name : MXC500\n"}
    assert len(machine.after(60)) == 1  # not only at the next inventory
    assert not machine.daemon.has_failed


def test_descriptions_of_an_earlier_daemon_end_with_their_cards() -> None:
    """Descriptions by other vendors end, too; a file that cannot be read has none."""
    machine = Machine(metaxes)
    path = f"{FOLDER}/ic-device"
    other = '[{"vendor": "baidu", "model": "R200", "uuid": "x", "minor": "0"}]'
    for text in (other, "no JSON", "{}"):
        machine.host.put(path, text)
        machine.start()
        assert [card["vendor"] for card in machine.after()] == ["metax", "metax"]


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("npu-smi info -m", ""),
        ("npu-smi info -t memory -i 4", "HBM Capacity(MB) : many"),
        ("npu-smi info -t memory -i 5", ""),
        ("npu-smi info -t board -i 4", "PCIe Bus Info :"),
        ("npu-smi info -l", NPU_LIST + "\tNPU ID : 9\n"),
        ("npu-smi info -t common -i 4", "\x00\xff" * 1000),
    ],
)
def test_unexpected_output_does_not_replace_the_inventory(command: str, text: str) -> None:
    """Half-described cards would be scheduled on."""
    machine = Machine(npus)
    machine.tools.answers[command] = text

    assert machine.after() == []
    assert machine.daemon.has_failed


def test_machines_without_such_cards_are_left_in_peace() -> None:
    """No tool is asked; a bridge of Huawei's is no NPU."""
    machine = Machine(
        lambda _: bus({"0000:01:00.0": ("19e5", "1711"), "0000:02:00.0": ("10de", "2330")})
    )

    assert machine.after() == []
    assert machine.tools.commands == []


def test_removed_cards_disappear_with_the_next_inventory() -> None:
    """Cards stay in the inventory while the bus cannot be read."""
    machine = Machine(kunluns)
    assert len(machine.after()) == 2
    for address in ("0000:1b:00.0", "0000:1c:00.0"):
        machine.host.vanish(f"/sys/bus/pci/devices/{address}/vendor")
    assert len(machine.after(900)) == 2

    machine.host.put("/sys/bus/pci/devices/0000:00:00.0/vendor", "0x8086")
    machine.host.put("/sys/bus/pci/devices/0000:00:00.0/device", "0x1234")
    assert machine.after(900) == []


def test_node_agent_reads_the_daemons_file() -> None:
    """The daemon and the agent share one description of a card."""
    machine = Machine(metaxes)
    machine.after()

    assert list(read_xpus(machine.host, FOLDER)) == sorted(
        machine.daemon.described, key=lambda xpu: xpu.uuid
    )


def test_nothing_is_written_while_nothing_changes() -> None:
    """The file has no time in it."""
    machine = Machine(metaxes)
    machine.after()
    machine.host.read_only.add(f"{FOLDER}/ic-device")
    machine.after(10)

    assert not machine.daemon.has_failed
