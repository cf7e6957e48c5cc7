"""Output of vendors' tools in their documented formats, and a machine that has the tools."""

from collections.abc import Mapping, Sequence

from tests.memory_host import MemoryHost

from koordinator.host.port import ToolError

NPU_LIST = """\
\tTotal Count                    : 2

\tNPU ID                         : 4
\tProduct Name                   : IT21HMDB02-B2
\tChip Count                     : 1

\tNPU ID                         : 5
\tProduct Name                   : IT21HMDB02-B2
\tChip Count                     : 1
"""
NPU_MAP = """\
\tNPU ID      Chip ID      Chip Logic ID      Chip Name
\t4      0      0      Ascend 910B3
\t4      1      -      Mcu
\t5      0      1      Ascend 910C
\t5      1      -      Mcu
"""
NPU_MEMORY = """\
\tNPU ID                         : 4
\tChip Count                     : 1

\tDDR Capacity(MB)               : {ddr}
\tDDR Clock Speed(MHz)           : 0
\tHBM Capacity(MB)               : {hbm}
\tHBM Clock Speed(MHz)           : 1600
\tChip ID                        : 0
"""
NPU_COMMON = "\tNPU ID                         : 4\n\tAicore Count                   : {cores}\n"
NPU_CPUS = "\tAI CPU number                  : 6\n\tControl CPU number             : 1\n"
NPU_BOARD = """\
\tNPU ID                         : 4
\tSoftware Version               : 23.0.rc3
\tPCIe Bus Info                  : 0000:{bus}:00.0
\tChip Fault                     : {faults}
"""
MLU_LIST = """\
Card 0: MLU370-X8 (UUID: MLU-30302001-0715-0000-0000-000000000000)
Card 1: MLU370-S4 (UUID: MLU-30302001-0715-0000-0000-000000000001)
"""
MLU_INFO = """\
Card 0
    Product Name          : MLU370-X8
    UUID                  : {uuid}
    Health State
        Device            : {health}
        Link              : Good
    PCIe Info
        Device            : {device}
        Function          : 0
        Domain ID         : 0000
        Bus num           : {bus}
    NUMA node id          : 1
    Physical Memory Usage
        Total             : 24576 MiB
        Used              : 0 MiB
    Virtual Memory Usage
        Total             : 1048576 MiB
"""
XPU_LINE = "{bus} 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 {memory} 19 20 {model} 22\n"
MX_HWINFO = """\
mx-smi  version: 2.1.9
GPU#{key}  MXC500  0000:{bus}:00.0
    Model Name            : MXC500
    Memory Capacity       : {memory}
"""
MX_LIST = """\
GPU#0   MXC500  0000:05:00.0  Available  UUID: (GPU-mx-zero)
GPU#1   MXC500  0000:06:00.0  Available  UUID: (GPU-mx-one)
SGPU#0  GPU#1   0000:06:00.0  Available  UUID: (GPU-slice)
GPU#10  MXC500  0000:10:00.0  Available  UUID: (GPU-mx-ten)
"""
MX_ECC = """\
GPU#0
    SRAM Correctable      : 7
    SRAM Uncorrectable    : {sram}
    DRAM Uncorrectable    : {dram}
    Double Bit ECC        : 0
"""


class RecordedTools:
    """Implements ``vendor_tools.VendorTools``; a command without answer fails as a missing tool."""

    def __init__(self) -> None:
        self.answers: dict[str, str | ToolError] = {}
        self.nodes: dict[str, Sequence[int]] = {}
        self.commands: list[str] = []

    def ask(self, *words: str) -> str:
        command = " ".join(words)
        self.commands.append(command)
        answer = self.answers.get(command, ToolError(f"{command}: No such file or directory"))
        if isinstance(answer, ToolError):
            raise answer
        return answer

    def device_numbers(self, name: str) -> Sequence[int]:
        return self.nodes.get(name, ())


def bus(functions: Mapping[str, tuple[str, str]]) -> MemoryHost:
    """Return a machine with PCI functions: vendor and product by address."""
    host = MemoryHost()
    for at, (address, (vendor, product)) in enumerate(functions.items()):
        folder = f"/sys/devices/pci0000:{at:02x}/{address}"
        link = f"/sys/bus/pci/devices/{address}"
        host.put(f"{folder}/numa_node", f"{at % 2}\n")
        host.put(f"{link}/vendor", f"0x{vendor}\n")
        host.put(f"{link}/device", f"0x{product}\n")
        host.link(link, folder)
    return host


def npus(tools: RecordedTools, faults: int = 0) -> MemoryHost:
    """Record two NPUs of different models, cards 4 and 5."""
    tools.nodes["davinci"] = (0, 1)
    tools.answers |= {
        "npu-smi info -l": NPU_LIST,
        "npu-smi info -m": NPU_MAP,
        "npu-smi info -t memory -i 4": NPU_MEMORY.format(ddr=0, hbm=65536),
        "npu-smi info -t memory -i 5": NPU_MEMORY.format(ddr=15360, hbm=32768),
        "npu-smi info -t common -i 4": NPU_COMMON.format(cores=20),
        "npu-smi info -t common -i 5": NPU_COMMON.format(cores=24),
        "npu-smi info -t cpu-num-cfg -i 5": NPU_CPUS,
        "npu-smi info -t board -i 4": NPU_BOARD.format(bus="C1", faults=0),
        "npu-smi info -t board -i 5": NPU_BOARD.format(bus="C2", faults=faults),
    }
    return bus({"0000:c1:00.0": ("19e5", "d802"), "0000:c2:00.0": ("19e5", "d802")})


def mlus(tools: RecordedTools, health: str = "Good") -> MemoryHost:
    """Record two MLUs."""
    tools.answers |= {
        "cnmon -l": MLU_LIST,
        "cnmon info -c 0": MLU_INFO.format(uuid="MLU-a", health="Good", device="0", bus="0f"),
        "cnmon info -c 1": MLU_INFO.format(uuid="MLU-b", health=health, device="0a", bus="5"),
    }
    return bus({"0000:0f:00.0": ("cabc", "0370")})


def kunluns(tools: RecordedTools) -> MemoryHost:
    """Record two XPUs."""
    lines = [
        XPU_LINE.format(bus="0000:1b:00.0", memory=32768, model="R200"),
        XPU_LINE.format(bus="0000:1c:00.0", memory=98304, model="P800"),
    ]
    tools.answers |= {
        "xpu_smi -m": "".join(lines),
        "xpu_smi -m -d /dev/xpu0": lines[0],
        "xpu_smi -m -d /dev/xpu1": lines[1],
    }
    return bus({"0000:1b:00.0": ("1d22", "3684"), "0000:1c:00.0": ("1d22", "3684")})


def metaxes(tools: RecordedTools, sram: int = 0, dram: int = 0) -> MemoryHost:
    """Record two MetaX GPUs; the first one has errors."""
    infos = [
        MX_HWINFO.format(key=0, bus="05", memory="64 GB"),
        MX_HWINFO.format(key=1, bus="06", memory="65536 MB"),
    ]
    tools.answers |= {
        "mx-smi --show-hwinfo": "".join(infos),
        "mx-smi --show-hwinfo -i 0": infos[0],
        "mx-smi --show-hwinfo -i 1": infos[1],
        "mx-smi --list": MX_LIST,
        "mx-smi --count-ecc -i 0": MX_ECC.format(sram=sram, dram=dram),
        "mx-smi --count-ecc -i 1": MX_ECC.format(sram=0, dram=0),
    }
    return bus({"0000:05:00.0": ("9999", "4000"), "0000:06:00.0": ("9999", "4000")})
