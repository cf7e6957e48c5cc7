"""Cambricon MLUs, described with ``cnmon``.

Source: koordinator pkg/device-daemon/resource/mlu.go, utils.go.
"""

import re
from typing import Final

from msgspec.structs import replace

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

_TOOL: Final = "cnmon"
_GOOD: Final = "Good"
_NUMBER = re.compile(r"[0-9a-fA-F]{1,2}")
_MEMORY: Final = "Physical Memory Usage"


def mlu_cards(machine: CardMachine) -> list[DescribedCard]:
    """Return the MLUs; a node may have several models."""
    listed = machine.ask(_TOOL, "-l")
    first = re.search(r"\S*MLU\S*", listed)
    lines = [line for line in listed.splitlines() if "UUID" in line]
    if lines and first is None:
        raise InputError("the output has no model name with 'MLU'", source=f"{_TOOL} -l")
    models = (re.search(r"\S*MLU\S*", line.partition("UUID")[0]) or first for line in lines)
    return [_card(machine, at, model[0]) for at, model in enumerate(models) if model]


def mlu_status(machine: CardMachine, card: DescribedCard) -> XpuStatus:
    """Return the state that the tool reports; a card without a reported state is healthy."""
    values = values_of(_info(machine, card.key), "Device")
    words = [value for value in values if value and not _NUMBER.fullmatch(value)]
    if not words or words[-1] == _GOOD:
        return HEALTHY
    return XpuStatus(False, "DeviceError", f"MLU {card.key} is {words[-1]}")


def _card(machine: CardMachine, index: int, model: str) -> DescribedCard:
    key, tool = str(index), f"{_TOOL} info -c {index}"
    text = _info(machine, key)
    domain, bus, function = (
        value_of(text, name, tool).split()[-1] for name in ("Domain ID", "Bus num", "Function")
    )
    device = next((value for value in values_of(text, "Device") if _NUMBER.fullmatch(value)), "0")
    topology = machine.topology(f"{domain:0>4}:{bus:0>2}:{device:0>2}.{function}")
    node = values_of(text, "NUMA node id")
    if node and not topology.node_id:
        topology = replace(topology, node_id=node[0])
    xpu = Xpu(
        vendor=GpuVendor.CAMBRICON,
        model=model,
        uuid=value_of(text, "UUID", tool).split()[0],
        minor=key,
        resources={GPU_MEMORY: f"{_memory(text, tool)}Mi", GPU_CORE: str(WHOLE_DEVICE)},
        topology=topology,
    )
    return DescribedCard(key, xpu)


def _info(machine: CardMachine, key: str) -> str:
    return machine.ask(_TOOL, "info", "-c", key)


def _memory(text: str, tool: str) -> int:
    """Return the MiB of the line ``Total`` below the heading."""
    _, _, after = text.partition(_MEMORY)
    total = value_of(after, "Total", tool)
    return number_of(total.split()[0], "Total", tool)


CAMBRICON_CARDS: Final = CardVendor(
    name=GpuVendor.CAMBRICON, pci_vendor="cabc", cards=mlu_cards, status=mlu_status
)
