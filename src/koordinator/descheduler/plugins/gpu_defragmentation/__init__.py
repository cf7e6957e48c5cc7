"""GPUDefragmentation: moves pods to make room for pending pods with whole GPUs.

``gpu_cluster``    nodes and pods as arrays
``pending_gangs``  pending gangs and their requests; GPU capacity that is expected to remain unused
``room``           search for the pods to move
``plugin``         the cycle; arguments

The original has no such plugin.
"""

from koordinator.descheduler.plugins.gpu_defragmentation.plugin import GPU_DEFRAGMENTATION

__all__ = ["GPU_DEFRAGMENTATION"]
