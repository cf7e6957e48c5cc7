"""Proven upper bounds of the GPU allocation of a plan whose pods stay."""

from collections.abc import Mapping

from koordinator.api.labels import GPU_MODEL
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.resource_names import CPU, GPU_CORE, MEMORY, NVIDIA_GPU
from koordinator.domain.gpus.mix import ANY_MODEL, GpuClass
from koordinator.simulator.generation import SimulationPlan
from koordinator.simulator.pod_demand import PodDemands
from koordinator.simulator.research.bound import AllocationBound, bound_of, conserving_bound
from koordinator.simulator.research.node_packing import NodeShape

_PERCENT = 100
_MIB = 1 << 20


def bound_of_plan(plan: SimulationPlan, *, conserving: bool) -> AllocationBound:
    """Return the bound for the pods of a plan on its nodes.

    ``conserving``: only of placements that place every pod that fits, by CPU, memory, GPUs and
    their models.
    """
    nodes = [obj for obj in plan.objects if isinstance(obj, Node)]
    bits = {model: 1 << bit for bit, model in enumerate(sorted({_model(node) for node in nodes}))}
    shapes = [
        NodeShape(_gpus(n), n.status.allocatable[CPU].milli(), bits[_model(n)]) for n in nodes
    ]
    demands = PodDemands()
    pods = [
        GpuClass(
            *demands.of(each.pod), _accepted(demands.models(each.pod), bits), _memory_mib(each.pod)
        )
        for each in plan.submissions
    ]
    if conserving:
        return conserving_bound(pods, shapes)
    return bound_of(pods, [shape for shape in shapes if shape.gpus])


def _memory_mib(pod: Pod) -> int:
    requests = (container.resources.requests for container in pod.spec.containers)
    return sum(each[MEMORY].value() for each in requests if MEMORY in each) // _MIB


def _model(node: Node) -> str:
    return node.metadata.labels.get(GPU_MODEL, "")


def _gpus(node: Node) -> int:
    amounts = node.status.allocatable
    if NVIDIA_GPU in amounts:
        return amounts[NVIDIA_GPU].value()
    return amounts[GPU_CORE].value() // _PERCENT if GPU_CORE in amounts else 0


def _accepted(models: tuple[str, ...], bits: Mapping[str, int]) -> int:
    return sum(bits.get(model, 0) for model in models) if models else ANY_MODEL
