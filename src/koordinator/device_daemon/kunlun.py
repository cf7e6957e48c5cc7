"""Kunlun XPUs of Baidu, described with ``xpu_smi``, which prints one line per card.

Source: koordinator pkg/device-daemon/resource/xpu.go, utils.go.
"""

from typing import Final

from koordinator.api.labels import GpuVendor
from koordinator.api.resource_names import GPU_CORE, GPU_MEMORY, WHOLE_DEVICE
from koordinator.device_daemon.card_vendor import (
    HEALTHY,
    CardMachine,
    CardVendor,
    DescribedCard,
    number_of,
)
from koordinator.domain.devices.requests import Xpu, XpuStatus
from koordinator.foundation.errors import InputError

_TOOL: Final = "xpu_smi"
_BUS_ID, _MEMORY, _MODEL = 0, 18, 21  # indices of words in a line


def xpu_cards(machine: CardMachine) -> list[DescribedCard]:
    """Return the XPUs, each with the values of its own line."""
    lines = [line for line in machine.ask(_TOOL, "-m").splitlines() if line.strip()]
    return [_card(machine, index, line.split()) for index, line in enumerate(lines)]


def xpu_status(machine: CardMachine, card: DescribedCard) -> XpuStatus:
    """Return a healthy status if the card responds; the tool reports no other state."""
    if not machine.ask(_TOOL, "-m", "-d", f"/dev/xpu{card.key}").strip():
        raise InputError("the output is empty", source=f"{_TOOL} -m -d /dev/xpu{card.key}")
    return HEALTHY


def _card(machine: CardMachine, index: int, words: list[str]) -> DescribedCard:
    tool = f"{_TOOL} -m"
    if len(words) <= _MODEL:
        raise InputError(
            f"must have at least {_MODEL + 1} words, got {len(words)}",
            source=tool,
            path=f"[{index}]",
        )
    xpu = Xpu(
        vendor=GpuVendor.BAIDU,
        model=words[_MODEL],
        uuid=f"xpu-{index}",
        minor=str(index),
        resources={
            GPU_MEMORY: f"{number_of(words[_MEMORY], f'[{index}]', tool)}Mi",
            GPU_CORE: str(WHOLE_DEVICE),
        },
        topology=machine.topology(words[_BUS_ID]),
    )
    return DescribedCard(str(index), xpu)


KUNLUN_CARDS: Final = CardVendor(
    name=GpuVendor.BAIDU, pci_vendor="1d22", cards=xpu_cards, status=xpu_status
)
