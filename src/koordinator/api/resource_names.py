"""Names of resources, the former ones too.

Source: koordinator apis/extension/resource.go, device_share.go, deprecated.go.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from koordinator.api.qos import PriorityBand

CPU: Final = "cpu"  # CPUs
MEMORY: Final = "memory"  # bytes of memory
EPHEMERAL_STORAGE: Final = "ephemeral-storage"  # bytes of local storage
PODS: Final = "pods"  # number of pods

BATCH_CPU: Final = "kubernetes.io/batch-cpu"  # milli-CPU, as a whole number
BATCH_MEMORY: Final = "kubernetes.io/batch-memory"  # bytes of memory
MID_CPU: Final = "kubernetes.io/mid-cpu"  # milli-CPU, as a whole number
MID_MEMORY: Final = "kubernetes.io/mid-memory"  # bytes of memory

NVIDIA_GPU: Final = "nvidia.com/gpu"  # whole GPUs
AMD_GPU: Final = "amd.com/gpu"  # whole GPUs
HYGON_DCU: Final = "dcu.com/gpu"  # whole DCUs
NPU_CORE: Final = "huawei.com/npu-core"  # cores of an NPU
NPU_CPU: Final = "huawei.com/npu-cpu"  # CPUs of an NPU
NPU_DVPP: Final = "huawei.com/npu-dvpp"  # video units of an NPU in percent

#: percent of a GPU; requests as much of koordinator.sh/gpu-core and of gpu-memory-ratio
GPU: Final = "koordinator.sh/gpu"
GPU_SHARED: Final = "koordinator.sh/gpu.shared"  # number of GPUs that a request is spread over
GPU_CORE: Final = "koordinator.sh/gpu-core"  # percent of the computing power of a GPU
GPU_MEMORY: Final = "koordinator.sh/gpu-memory"  # bytes of GPU memory
GPU_MEMORY_RATIO: Final = "koordinator.sh/gpu-memory-ratio"  # percent of the memory of a GPU
RDMA: Final = "koordinator.sh/rdma"  # percent of a NIC with RDMA
FPGA: Final = "koordinator.sh/fpga"  # percent of an FPGA
WHOLE_DEVICE: Final = 100  # units of core, ratio, rdma or fpga in one device

CURRENT_BATCH_NAMES: Final = MappingProxyType(
    {
        "koordinator.sh/batch-cpu": BATCH_CPU,
        "koordinator.sh/batch-memory": BATCH_MEMORY,
    }
)
CURRENT_DEVICE_NAMES: Final = MappingProxyType(
    {
        "kubernetes.io/rdma": RDMA,
        "kubernetes.io/fpga": FPGA,
        "kubernetes.io/gpu": GPU,
        "kubernetes.io/gpu-core": GPU_CORE,
        "kubernetes.io/gpu-memory": GPU_MEMORY,
        "kubernetes.io/gpu-memory-ratio": GPU_MEMORY_RATIO,
    }
)

BAND_RESOURCES: Final[Mapping[PriorityBand, Mapping[str, str]]] = MappingProxyType(
    {
        PriorityBand.BATCH: MappingProxyType({CPU: BATCH_CPU, MEMORY: BATCH_MEMORY}),
        PriorityBand.MID: MappingProxyType({CPU: MID_CPU, MEMORY: MID_MEMORY}),
    }
)


def resource_of_band(band: PriorityBand, resource: str) -> str | None:
    """Return what pods of a priority band request in place of CPU or memory.

    That is the resource itself for prod and for none; None if the band has no such resource.
    Source: apis/extension/resource.go, ``TranslateResourceNameByPriorityClass``.
    """
    if band in {PriorityBand.PROD, PriorityBand.NONE}:
        return resource
    return BAND_RESOURCES.get(band, {}).get(resource)
