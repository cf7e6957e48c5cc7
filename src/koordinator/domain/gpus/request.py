"""What a pod asks of GPUs, in the three amounts that the snapshot's GPU arrays have.

``devices.requests`` says the same of every type of device and every amount.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from koordinator.api.device import DeviceType
from koordinator.domain.devices.amounts import CORE, MEMORY, RATIO
from koordinator.domain.devices.requests import DeviceRequestError, device_requests

GpuRequestError = DeviceRequestError  # the name by which the snapshot and its plugins know it


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """``count`` devices, each with these amounts; 0 is not asked for."""

    count: int
    core: int  # percent of one GPU
    memory: int  # bytes
    ratio: int  # percent of one GPU's memory

    @property
    def amounts(self) -> tuple[int, int, int]:
        """(core, memory, ratio), the order of the snapshot's GPU arrays."""
        return self.core, self.memory, self.ratio


def gpu_request(requests: Mapping[str, int]) -> GpuRequest | None:
    """Return the request per device; None if the pod asks for no GPU.

    Raises DeviceRequestError as ``devices.requests.device_requests`` does.
    """
    request = device_requests(requests).get(DeviceType.GPU)
    if request is None:
        return None
    amounts = request.amounts
    return GpuRequest(request.count, amounts[CORE], amounts[MEMORY], amounts[RATIO])
