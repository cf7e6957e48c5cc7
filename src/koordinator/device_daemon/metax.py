"""MetaX GPUs, described with ``mx-smi``.

Source: koordinator pkg/device-daemon/resource/mx.go, utils.go.
"""

import re
from typing import Final

from koordinator.api.labels import GpuVendor
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, WHOLE_DEVICE
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

_TOOL: Final = "mx-smi"
_SLICE: Final = "SGPU"
_FAULTS: Final = ("SRAM Uncorrectable", "DRAM Uncorrectable", "Double Bit ECC")
_CAPACITY = re.compile(r"(?P<number>[0-9]+)\s*(?P<unit>GB|GiB|MB|MiB)")


def metax_cards(machine: CardMachine) -> list[DescribedCard]:
    """Return the GPUs, without their virtual GPUs."""
    models = values_of(machine.ask(_TOOL, "--show-hwinfo"), "Model Name")
    listed = machine.ask(_TOOL, "--list")
    return [_card(machine, index, model, listed) for index, model in enumerate(models)]


def metax_status(machine: CardMachine, card: DescribedCard) -> XpuStatus:
    """Return an unhealthy status if any kind of uncorrectable error occurred."""
    tool = f"{_TOOL} --count-ecc -i {card.key}"
    lines = machine.ask(_TOOL, "--count-ecc", "-i", card.key).splitlines()
    errors = sum(
        number_of(line.split()[-1], name, tool)
        for line in lines
        for name in _FAULTS
        if name in line
    )
    if not errors:
        return HEALTHY
    message = f"GPU {card.key} has {errors} uncorrectable memory errors"
    return XpuStatus(False, "EccError", message)


def _card(machine: CardMachine, index: int, model: str, listed: str) -> DescribedCard:
    key, tool = str(index), f"{_TOOL} --show-hwinfo -i {index}"
    text = machine.ask(_TOOL, "--show-hwinfo", "-i", key)
    xpu = Xpu(
        vendor=GpuVendor.METAX,
        model=model.split(maxsplit=1)[0] if model else "",
        uuid=_word(listed, key, 5, f"{_TOOL} --list").strip("()"),
        minor=key,
        resources={GPU_MEMORY: _memory(text, tool), GPU_CORE: str(WHOLE_DEVICE)},
        topology=machine.topology(_word(text, key, 2, tool)),
    )
    return DescribedCard(key, xpu)


def _word(text: str, key: str, place: int, tool: str) -> str:
    """Return a word from the line of a GPU; ``GPU#1`` does not match ``GPU#10``."""
    gpu = re.compile(rf"GPU#{key}(?![0-9])")
    for line in text.splitlines():
        words = line.split()
        if _SLICE not in line and gpu.search(line) and len(words) > place:
            return words[place]
    raise InputError(f"the output has no line of GPU#{key} with {place + 1} words", source=tool)


def _memory(text: str, tool: str) -> str:
    stated = value_of(text, "Memory Capacity", tool)
    capacity = _CAPACITY.search(stated)
    if capacity is None:
        raise InputError(f"must be a capacity such as 64 GB, got {stated[:80]!r}", source=tool)
    return capacity["number"] + ("Gi" if capacity["unit"].startswith("G") else "Mi")


METAX_CARDS: Final = CardVendor(
    name=GpuVendor.METAX, pci_vendor="9999", cards=metax_cards, status=metax_status
)
