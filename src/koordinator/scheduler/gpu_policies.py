"""Policies of research on the placement of GPUs, which are loaded when a profile names one."""

from typing import Any, Final

from koordinator.scheduler.contract import PluginSpec
from koordinator.scheduler.plugins import (
    gpu_best_fit,
    gpu_clusters,
    gpu_dot_product,
    gpu_fragmentation,
    gpu_packing,
    gpu_price,
    gpu_random,
)

GPU_POLICIES: Final[tuple[PluginSpec[Any], ...]] = (
    gpu_best_fit.PLUGIN,
    gpu_packing.PLUGIN,
    gpu_fragmentation.PLUGIN,
    gpu_price.PLUGIN,
    gpu_random.PLUGIN,
    gpu_dot_product.PLUGIN,
    gpu_clusters.PLUGIN,
)
