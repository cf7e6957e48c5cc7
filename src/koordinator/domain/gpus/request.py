"""GPU request of a pod, in the three amounts of the snapshot's GPU arrays.

``devices.requests`` covers every type of device and every amount.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from koordinator.api.device import DeviceType
from koordinator.domain.devices.amounts import CORE, MEMORY, RATIO
from koordinator.domain.devices.requests import DeviceRequestError, device_requests

GpuRequestError = DeviceRequestError  # alias for the snapshot and its plugins


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """``count`` devices, each with these amounts; 0 means not requested."""

    count: int
    core: int  # percent of one GPU
    memory: int  # bytes
    ratio: int  # percent of one GPU's memory

    @property
    def amounts(self) -> tuple[int, int, int]:
        """(core, memory, ratio), the order of the snapshot's GPU arrays."""
        return self.core, self.memory, self.ratio


def gpu_request(requests: Mapping[str, int]) -> GpuRequest | None:
    """Return the request per device; None if the pod requests no GPU.

    Raises DeviceRequestError as ``devices.requests.device_requests`` does.
    """
    request = device_requests(requests).get(DeviceType.GPU)
    if request is None:
        return None
    amounts = request.amounts
    return GpuRequest(request.count, amounts[CORE], amounts[MEMORY], amounts[RATIO])
