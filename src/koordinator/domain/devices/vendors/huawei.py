"""Huawei Ascend NPUs: whole, or in parts described by virtual templates.

Source: koordinator pkg/scheduler/plugins/deviceshare/utils.go and device_plugin_adapter.go.
"""

from collections.abc import Mapping, Sequence

from koordinator.api.annotations.devices import (
    HUAWEI_ASCEND_310P,
    HUAWEI_NPU_CORE,
    HUAWEI_PREDICATE_TIME,
    DeviceAllocation,
)
from koordinator.api.labels import GpuVendor
from koordinator.api.resource_names import (
    GPU_MEMORY,
    GPU_MEMORY_RATIO,
    GPU_SHARED,
    NPU_CORE,
    NPU_CPU,
    NPU_DVPP,
    WHOLE_DEVICE,
)
from koordinator.domain.devices.combinations import percentages
from koordinator.domain.devices.vendors.vendor import Vendor

_DUO = "Ascend-310P3-300I-DUO"


def _part_of_one(amounts: Mapping[str, int]) -> str | None:
    if amounts[GPU_SHARED] > 1:
        return GPU_SHARED
    return NPU_DVPP if amounts.get(NPU_DVPP, 0) > WHOLE_DEVICE else None


def _adapt(devices: Sequence[DeviceAllocation], *, model: str, now_ns: int) -> dict[str, str]:
    first = devices[0]
    template = first.extension.gpu_shared_resource_template if first.extension else ""
    key, taken = HUAWEI_NPU_CORE, ",".join(str(device.minor) for device in devices)
    if model == _DUO:
        key, taken = HUAWEI_ASCEND_310P, ",".join(f"Ascend310P-{d.minor}" for d in devices)
    elif template:
        taken = f"{first.minor}-{template}"
    return {HUAWEI_PREDICATE_TIME: str(now_ns), key: taken}


HUAWEI = Vendor(
    labels=(GpuVendor.HUAWEI,),
    amounts=(NPU_CORE, NPU_CPU, NPU_DVPP),
    combinations={
        frozenset({NPU_CORE, GPU_MEMORY_RATIO}): percentages,
        frozenset({GPU_SHARED, NPU_CORE, NPU_CPU, GPU_MEMORY}): _part_of_one,
        frozenset({GPU_SHARED, NPU_CORE, NPU_CPU, NPU_DVPP, GPU_MEMORY}): _part_of_one,
    },
    adapt=_adapt,
)
