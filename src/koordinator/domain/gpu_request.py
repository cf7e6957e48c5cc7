"""What a pod asks of GPUs, from any of the resource names that Koordinator accepts.

Source: koordinator pkg/scheduler/plugins/deviceshare/utils.go and device_handler_gpu.go; the valid
combinations are those of the project's device documentation.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from koordinator.api.resource_names import (
    AMD_GPU,
    GPU,
    GPU_CORE,
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    HYGON_DCU,
    NVIDIA_GPU,
)

WHOLE_CARDS = (NVIDIA_GPU, AMD_GPU, HYGON_DCU)
NAMES = frozenset((GPU, GPU_SHARED, GPU_CORE, GPU_MEMORY, GPU_MEMORY_RATIO, *WHOLE_CARDS))

#: The sets of names that may stand together.
VALID = frozenset(
    frozenset(names)
    for names in (
        (NVIDIA_GPU,),
        (AMD_GPU,),
        (HYGON_DCU,),
        (GPU,),
        (GPU_MEMORY,),
        (GPU_MEMORY_RATIO,),
        (GPU_CORE, GPU_MEMORY),
        (GPU_CORE, GPU_MEMORY_RATIO),
        (GPU_SHARED, GPU_MEMORY),
        (GPU_SHARED, GPU_MEMORY_RATIO),
        (GPU_SHARED, GPU_CORE, GPU_MEMORY),
        (GPU_SHARED, GPU_CORE, GPU_MEMORY_RATIO),
    )
)


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


class GpuRequestError(ValueError):
    """The pod's GPU resources don't go together."""


def gpu_request(requests: Mapping[str, int]) -> GpuRequest | None:
    """Return the request per device; None if the pod asks for no GPU.

    Raises GpuRequestError for an invalid set of names (``invalid resource device requests``) or
    amount (``invalid resource unit``).
    """
    asked = {name: amount for name, amount in requests.items() if name in NAMES and amount > 0}
    if not asked:
        return None
    if frozenset(asked) not in VALID:
        raise GpuRequestError(f"invalid resource device requests: [{' '.join(sorted(asked))}]")
    for name in WHOLE_CARDS:
        if name in asked:
            return GpuRequest(asked[name], 100, 0, 100)
    if GPU in asked:
        _check_percent(GPU, asked[GPU])
        asked = {GPU_CORE: asked[GPU], GPU_MEMORY_RATIO: asked[GPU]}
    shared = asked.get(GPU_SHARED, 0)
    for name in (GPU_CORE, GPU_MEMORY_RATIO):
        amount = asked.get(name, 0)
        if shared and (amount % shared or amount // shared > 100):  # noqa: PLR2004 (percent)
            raise GpuRequestError(f"invalid resource unit {name}: {amount}")
        if not shared:
            _check_percent(name, amount)
    ratio = asked.get(GPU_MEMORY_RATIO, 0)
    count = shared or (ratio // 100 if ratio > 100 else 1)  # noqa: PLR2004 (percent)
    return GpuRequest(
        count=count,
        core=asked.get(GPU_CORE, 0) // count,
        memory=asked.get(GPU_MEMORY, 0) // count,
        ratio=ratio // count,
    )


def _check_percent(name: str, amount: int) -> None:
    if amount > 100 and amount % 100:  # noqa: PLR2004 (percent)
        raise GpuRequestError(f"invalid resource unit {name}: {amount}")
