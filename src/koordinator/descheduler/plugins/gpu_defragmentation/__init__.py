"""GPUDefragmentation: moves pods so that those who wait for whole GPUs find room.  Our own.

``arguments``    what it is told
``gpu_cluster``  nodes and pods as arrays
``pending_gangs``  who waits, and for what
``stranded``     GPU that is expected to be of no use
``room``         the pods that have to go elsewhere so that pods of whole GPUs fit
``plugin``       a cycle
"""

from koordinator.descheduler.plugins.gpu_defragmentation.plugin import GPU_DEFRAGMENTATION

__all__ = ["GPU_DEFRAGMENTATION"]
