"""Requests for devices in the resources of a pod.

Source: koordinator pkg/scheduler/plugins/deviceshare/utils.go, ``ConvertDeviceRequest``;
devicehandler_gpu.go, ``calcDesiredRequestsAndCountForGPU``; devicehandler_default.go;
koordinator pkg/koordlet/util/device.go, ``XPUDeviceInfo``.
"""

from collections.abc import Mapping
from typing import Final

import msgspec
from msgspec import Struct

from koordinator.api.device import DeviceType
from koordinator.api.resource_names import (
    CURRENT_DEVICE_NAMES,
    GPU,
    GPU_CORE,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    WHOLE_DEVICE,
)
from koordinator.domain.devices.allocation import NAMES, RATIO, DeviceAmounts, current_names
from koordinator.domain.devices.vendor import COMMON, Combinations, anything, percentages
from koordinator.domain.devices.vendors import VENDORS

_WHOLE_CARDS = tuple(vendor.whole_card for vendor in VENDORS if vendor.whole_card)

_COMBINATIONS: Combinations = {
    **COMMON,
    **{frozenset({name}): anything for name in _WHOLE_CARDS},
    **{names: check for vendor in VENDORS for names, check in vendor.combinations.items()},
}

_NAMES_OF: Mapping[DeviceType, frozenset[str]] = {
    DeviceType.GPU: frozenset((GPU, GPU_SHARED, *_WHOLE_CARDS, *NAMES[DeviceType.GPU])),
    DeviceType.RDMA: frozenset(NAMES[DeviceType.RDMA]),
    DeviceType.FPGA: frozenset(NAMES[DeviceType.FPGA]),
}
_KIND_OF = {name: kind for kind, names in _NAMES_OF.items() for name in names}
#: Names of device types in messages.
CALLED: Final = {
    DeviceType.GPU: "GPU",
    DeviceType.RDMA: "RDMA device",
    DeviceType.FPGA: "FPGA",
}
#: All resources of devices, including former names.
DEVICE_NAMES: Final = frozenset({*_KIND_OF, *CURRENT_DEVICE_NAMES})


def names_of(kind: DeviceType) -> frozenset[str]:
    """Return the resource names of a type of device, including former names."""
    former = {old for old, new in CURRENT_DEVICE_NAMES.items() if new in _NAMES_OF[kind]}
    return _NAMES_OF[kind] | former


class DeviceRequestError(ValueError):
    """A request that no device can satisfy."""


class DeviceRequest(Struct, frozen=True):
    """``count`` devices, each with these amounts; 0 means not requested."""

    kind: DeviceType
    count: int
    amounts: DeviceAmounts

    @property
    def is_share(self) -> bool:
        """Whether a part of each GPU is requested; memory in bytes always counts as a part."""
        return self.kind is DeviceType.GPU and self.amounts[RATIO] < WHOLE_DEVICE


def device_requests(requests: Mapping[str, int]) -> dict[DeviceType, DeviceRequest]:
    """Return the request for each type of device, in the order of ``DeviceType``.

    Empty if the pod requests none. Former resource names are accepted. Raises DeviceRequestError
    for an invalid combination of names (``invalid resource device requests``) and for an invalid
    amount (``invalid resource unit``).
    """
    by_kind: dict[DeviceType, dict[str, int]] = {kind: {} for kind in _NAMES_OF}
    for name, amount in current_names(requests).items():
        kind = _KIND_OF.get(name)
        if kind is not None and amount > 0:
            by_kind[kind][name] = amount
    parsed = {}
    for kind, amounts_of_kind in by_kind.items():
        if amounts_of_kind:
            _check(amounts_of_kind)
            parsed[kind] = (
                _gpus(amounts_of_kind) if kind is DeviceType.GPU else _others(kind, amounts_of_kind)
            )
    return parsed


def _check(amounts: Mapping[str, int]) -> None:
    if percentages({GPU: amounts.get(GPU, 0)}):  # precedes the check of the names
        raise _wrong_unit(GPU, amounts)
    check = _COMBINATIONS.get(frozenset(amounts))
    if check is None:
        raise DeviceRequestError(f"invalid resource device requests: [{' '.join(sorted(amounts))}]")
    wrong = check(amounts)
    if wrong is not None:
        raise _wrong_unit(wrong, amounts)


def _wrong_unit(name: str, amounts: Mapping[str, int]) -> DeviceRequestError:
    return DeviceRequestError(f"invalid resource unit {name}: {amounts[name]}")


def _gpus(requested: Mapping[str, int]) -> DeviceRequest:
    cards = sum(requested.get(name, 0) for name in _WHOLE_CARDS)
    percent = cards * WHOLE_DEVICE or requested.get(GPU, 0)
    if percent:
        requested = {GPU_CORE: percent, GPU_MEMORY_RATIO: percent}
    ratio = requested.get(GPU_MEMORY_RATIO, 0)
    whole = ratio // WHOLE_DEVICE if ratio > WHOLE_DEVICE and not ratio % WHOLE_DEVICE else 1
    count = requested.get(GPU_SHARED, 0) or whole
    amounts = tuple(requested.get(name, 0) // count for name in NAMES[DeviceType.GPU])
    if not any(amounts):  # less than one unit per device
        raise _wrong_unit(
            next(name for name in NAMES[DeviceType.GPU] if name in requested), requested
        )
    return DeviceRequest(DeviceType.GPU, count, amounts)


def _others(kind: DeviceType, amounts: Mapping[str, int]) -> DeviceRequest:
    (amount,) = amounts.values()
    count = max(amount // WHOLE_DEVICE, 1)
    return DeviceRequest(kind, count, (amount // count,))


class P2pLink(msgspec.Struct, frozen=True, rename="camel"):
    """``peer_minor`` is a comma-separated list of minors; ``type`` is NVLink, HCCS and so on."""

    peer_minor: str = ""
    type: str = ""


class XpuTopology(msgspec.Struct, frozen=True, rename="camel"):
    """Location and links of an accelerator.  Ids are texts; empty means unknown."""

    p2p_links: tuple[P2pLink, ...] = msgspec.field(name="p2pLinks", default=())
    must_honor_partition: bool = False
    socket_id: str = msgspec.field(name="socketID", default="-1")
    node_id: str = msgspec.field(name="nodeID", default="")
    pcie_id: str = msgspec.field(name="pcieID", default="")
    bus_id: str = msgspec.field(name="busID", default="")


class XpuStatus(msgspec.Struct, frozen=True, rename="camel"):
    """Health of an accelerator; ``err_code`` is machine-readable."""

    healthy: bool = True
    err_code: str = ""
    err_message: str = ""


class Xpu(msgspec.Struct, frozen=True, rename="camel"):
    """One accelerator of any vendor.  ``resources`` are quantities by name."""

    vendor: str
    model: str
    uuid: str
    minor: str
    resources: dict[str, str] = {}
    topology: XpuTopology | None = None
    status: XpuStatus | None = None
