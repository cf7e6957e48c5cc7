"""Huawei Ascend NPUs, described with ``npu-smi``.

Source: koordinator pkg/device-daemon/resource/npu.go, utils.go; Huawei "npu-smi Command
Reference".
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from koordinator.api.labels import GpuVendor
from koordinator.api.resource_names import GPU_MEMORY, NPU_CORE, NPU_CPU, NPU_DVPP, WHOLE_DEVICE
from koordinator.device_daemon.card_vendor import (
    HEALTHY,
    CardMachine,
    CardVendor,
    DescribedCard,
    number_of,
    value_of,
    values_of,
)
from koordinator.domain.devices.requests import Xpu, XpuStatus
from koordinator.foundation.errors import InputError
from koordinator.host.port import ToolError

_TOOL: Final = "npu-smi"
_NODES: Final = "davinci"
_CONTROLLER: Final = "Mcu"  # row of the chip table that is no NPU
_SINGLE_CHIP_WORDS: Final = 4  # card, chip, logical id, and a name of at least one word
#: Amounts of models for which the tool does not report them.
_CORES: Final[Mapping[str, int]] = MappingProxyType({"Ascend-310P3": 8})
_CPUS: Final[Mapping[str, int]] = MappingProxyType(
    {"Ascend-910B": 0, "Ascend-910B2": 6, "Ascend-910B3": 7, "Ascend-910B4": 7}
)
_UNREPORTED_MEMORY: Final = 21527  # MiB, of a 310P3
_NO_SUCH_OPTION: Final = "Command or option is not found"


def npu_cards(machine: CardMachine) -> list[DescribedCard]:
    """Return the NPUs; the n-th card has the n-th device node in order of number."""
    keys = values_of(machine.ask(_TOOL, "info", "-l"), "NPU ID")
    minors = machine.device_numbers(_NODES)
    if len(minors) < len(keys):
        raise InputError(
            f"must have a device node per NPU, got {len(minors)} for {len(keys)} NPUs",
            source=f"/dev/{_NODES}*",
        )
    models = _models(machine.ask(_TOOL, "info", "-m"))
    return [_card(machine, key, minor, models) for key, minor in zip(keys, minors, strict=False)]


def npu_status(machine: CardMachine, card: DescribedCard) -> XpuStatus:
    """Return an unhealthy status if a chip of the card has faults."""
    text = machine.ask(_TOOL, "info", "-t", "board", "-i", card.key)
    faults = sum(
        number_of(value, "Chip Fault", f"{_TOOL} info -t board -i {card.key}")
        for value in values_of(text, "Chip Fault")
    )
    if not faults:
        return HEALTHY
    return XpuStatus(False, "ChipError", f"NPU {card.key} has {faults} chip faults")


def _card(machine: CardMachine, key: str, minor: int, models: Mapping[str, str]) -> DescribedCard:
    model = models.get(key)
    if model is None:
        raise InputError(f"the output has no chip of NPU {key}", source=f"{_TOOL} info -m")
    board = machine.ask(_TOOL, "info", "-t", "board", "-i", key)
    bus_id = value_of(board, "PCIe Bus Info", f"{_TOOL} info -t board -i {key}")
    xpu = Xpu(
        vendor=GpuVendor.HUAWEI,
        model=model,
        uuid=f"npu-{key}-{minor}",
        minor=str(minor),
        resources={
            GPU_MEMORY: f"{_memory(machine, key)}Mi",
            NPU_CPU: str(_CPUS[model] if model in _CPUS else _cpus(machine, key)),
            NPU_CORE: str(_CORES[model] if model in _CORES else _cores(machine, key)),
            NPU_DVPP: str(WHOLE_DEVICE),
        },
        topology=machine.topology(bus_id),
    )
    return DescribedCard(key, xpu)


def _models(text: str) -> dict[str, str]:
    """Return the name of each card's first chip: its last two words, joined."""
    models: dict[str, str] = {}
    for line in text.splitlines()[1:]:
        words = line.split()
        if len(words) >= _SINGLE_CHIP_WORDS and words[-1] != _CONTROLLER:
            models.setdefault(words[0], "-".join(words[3:][-2:]))
    return models


def _memory(machine: CardMachine, key: str) -> int:
    words = (_TOOL, "info", "-t", "memory", "-i", key)
    try:
        text = machine.ask(*words)
    except ToolError as error:
        if _NO_SUCH_OPTION in error.output:
            return _UNREPORTED_MEMORY
        raise
    capacities = [*values_of(text, "DDR Capacity"), *values_of(text, "HBM Capacity")]
    mebi = sum(number_of(value, "Capacity", " ".join(words)) for value in capacities)
    if not mebi:
        raise InputError("the output has neither DDR nor HBM capacity", source=" ".join(words))
    return mebi


def _cores(machine: CardMachine, key: str) -> int:
    words = (_TOOL, "info", "-t", "common", "-i", key)
    text = machine.ask(*words)
    return number_of(value_of(text, "Aicore Count", " ".join(words)), "Aicore", " ".join(words))


def _cpus(machine: CardMachine, key: str) -> int:
    words = (_TOOL, "info", "-t", "cpu-num-cfg", "-i", key)
    counts = values_of(machine.ask(*words), "AI")
    return sum(number_of(value, "AI CPU", " ".join(words)) for value in counts)


HUAWEI_CARDS: Final = CardVendor(
    name=GpuVendor.HUAWEI,
    pci_vendor="19e5",
    other_products=frozenset({"1710", "1711"}),  # bridges and management controllers
    cards=npu_cards,
    status=npu_status,
)
