"""Proven upper bounds of the GPU that placements of given pods on given nodes can allocate.

``bound_of`` is of any placement: of every choice of the pods to place, in any order.

``conserving_bound`` is of placements that are work-conserving: pods arrive in an order and stay
where they are, and a pod is placed if any node has room for it.  Then a pod that is refused shows
that no node has room for its requests, now and later.  All later pods that request as much or more
of everything are refused too, and all pods before it that request as much or less were placed.  So
for each distinct request and each part of the arrivals there is a switch: 1 while pods with this
request are not yet refused at the beginning of the part.  Switches only fall over the parts, and
that of a larger request is at most that of a smaller one.  Pods of a class that are placed are at
most the arrivals of parts whose switch is 1, and at least the arrivals of parts after which the
switch is still 1.  The search takes switches between 0 and 1, which can only raise the bound.

``repacked_bound`` includes running pods, which may move but must keep a place.

The module ``filling_search`` has the proof, and ``node_packing`` what is ignored of nodes; the
bounds that have no order also ignore pods without GPUs.

Proven upper bounds of the GPU allocation of a plan whose pods stay.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from koordinator.api.labels import GPU_MODEL
from koordinator.api.node import Node
from koordinator.api.pod import Pod
from koordinator.api.resource_names import CPU, GPU_CORE, MEMORY, NVIDIA_GPU
from koordinator.domain.gpus.mix import ANY_MODEL, WHOLE_GPU, GpuClass
from koordinator.foundation.arrays import BoolArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.simulator.generation import SimulationPlan
from koordinator.simulator.job_metrics import PodDemands
from koordinator.simulator.research.node_packing import (
    CPU_UNIT,
    ROUNDS,
    FillingSearch,
    NodeShape,
    Switches,
)

#: Parts of the arrivals, each with a switch.  20 and 24 of them lead to bounds of openb that differ
#: by 0.02 % of its GPUs.
_PARTS = 24

_PERCENT = 100
_MIB = 1 << 20


@dataclass(frozen=True, slots=True)
class AllocationBound:
    """No placement of these pods gives out more than ``gpu_milli``."""

    gpu_milli: float
    method: str
    rounds: int  # of column generation
    gap_milli: float  # how much lower the same program could at most come with more rounds


def bound_of(
    pods: Sequence[GpuClass], nodes: Sequence[NodeShape], rounds: int = ROUNDS
) -> AllocationBound:
    """Return the bound for pods and nodes."""
    arrived = Counter(_without_memory(pods))
    shapes = Counter(nodes)
    demand = sum(pod.total_gpu_milli * count for pod, count in arrived.items())
    capacity = sum(WHOLE_GPU * shape.gpus * count for shape, count in shapes.items())
    trivial = float(min(demand, capacity))
    if not arrived or not shapes:
        return AllocationBound(trivial, "nothing to place", 0, 0.0)
    search = FillingSearch(
        list(arrived), list(shapes), list(arrived.values()), list(shapes.values())
    )
    return _searched(search, trivial, rounds, "demand" if demand < capacity else "capacity")


def conserving_bound(
    pods: Sequence[GpuClass], nodes: Sequence[NodeShape], rounds: int = ROUNDS
) -> AllocationBound:
    """Return the bound of work-conserving placements of pods, in their order of arrival.

    Nodes without GPUs are needed too if pods without GPUs may be placed there.
    """
    pods = [pod for pod in pods if pod.num_gpu or pod.cpu_milli >= CPU_UNIT]
    free = bound_of(pods, nodes, rounds)
    if not pods or not nodes:
        return free
    requests = list(dict.fromkeys(pods))
    arrived = Counter(replace(pod, memory_mib=0) for pod in pods)
    shapes = Counter(nodes)
    classes, counts, sizes = list(arrived), list(arrived.values()), list(shapes.values())
    # The fillings of the program without switches are a good start for the one with them.
    start = FillingSearch(classes, list(shapes), counts, sizes)
    start.run(rounds)
    none = [0] * len(classes)
    switches = _refusals(pods, requests, classes)
    search = FillingSearch(classes, list(shapes), none, sizes, none, switches=switches)
    for shape, filling in start.columns:
        search.add_column(shape, filling)
    return _searched(search, free.gpu_milli, rounds, free.method)


def repacked_bound(
    waiting: Iterable[GpuClass],
    nodes: Sequence[tuple[NodeShape, Sequence[GpuClass]]],
    rounds: int = ROUNDS,
) -> AllocationBound:
    """Return the bound for nodes with the pods that run on each, when others wait.

    Memory is not looked at, and the requests of waiting and running pods may differ in it.
    """
    fillings = [(shape, Counter(_without_memory(pods))) for shape, pods in nodes]
    running = Counter[GpuClass]()
    for _, filling in fillings:
        running.update(filling)
    total = running + Counter(_without_memory(waiting))
    shapes = Counter(shape for shape, _ in fillings)
    demand = sum(pod.total_gpu_milli * count for pod, count in total.items())
    capacity = sum(WHOLE_GPU * shape.gpus * count for shape, count in shapes.items())
    trivial = float(min(demand, capacity))
    if not total or not shapes:
        return AllocationBound(trivial, "nothing to place", 0, 0.0)
    search = FillingSearch(
        list(total),
        list(shapes),
        list(total.values()),
        list(shapes.values()),
        [running[pod] for pod in total],
    )
    for shape, filling in fillings:
        search.add_filling(shape, filling)
    return _searched(search, trivial, rounds, "demand" if demand < capacity else "capacity")


@dataclass(frozen=True, slots=True)
class NodeFilling:
    """Pods that a node of a shape can take, memory aside: counts by class."""

    shape: NodeShape
    counts: Mapping[GpuClass, int]


def useful_fillings(
    waiting: Mapping[GpuClass, int],
    nodes: Sequence[tuple[NodeShape, Mapping[GpuClass, int]]],
    rounds: int = ROUNDS,
) -> list[NodeFilling]:
    """Return fillings by which pods that run and pods that wait would use nodes better.

    They are the columns that ``repacked_bound`` would generate, and some at prices near by, as the
    relaxation needs fewer than whole numbers do; but with CPU rounded up, so that nodes have it.
    Classes are distinct requests, memory included, which is the caller's to check.
    """
    running = Counter[GpuClass]()
    for _, filling in nodes:
        running.update(filling)
    total = running + Counter(waiting)
    shapes = Counter(shape for shape, _ in nodes)
    classes = list(total)
    search = FillingSearch(
        classes,
        list(shapes),
        list(total.values()),
        list(shapes.values()),
        [running[pod] for pod in classes],
        round_up=True,
    )
    for shape, filling in nodes:
        search.add_filling(shape, filling)
    given = len(search.columns)
    search.run(rounds)
    search.vary(np.random.default_rng(0))
    return [
        NodeFilling(
            search.shapes[number], {classes[pod]: round(count) for pod, count in counts.items()}
        )
        for number, counts in search.columns[given:]
        if all(count.is_integer() for count in counts.values())
    ]


def _refusals(
    pods: Sequence[GpuClass], requests: Sequence[GpuClass], classes: Sequence[GpuClass]
) -> Switches:
    """Return the switches of each request: at the start of each part of arrivals, at the end."""
    row = {request: number for number, request in enumerate(requests)}
    arrivals = np.zeros((len(requests), _PARTS))
    for number, pod in enumerate(pods):
        arrivals[row[pod], number * _PARTS // len(pods)] += 1.0
    switches = Switches()
    for request, counts in zip(requests, arrivals.tolist(), strict=True):
        number = classes.index(replace(request, memory_mib=0))
        first = len(switches.most)
        switches.most += [*({number: count} for count in counts), {}]
        switches.least += [{}, *({number: count} for count in counts)]
        switches.order += [(first + part + 1, first + part) for part in range(_PARTS)]
    for smaller, larger in np.argwhere(_next_larger(requests)).tolist():
        switches.order += [
            (larger * (_PARTS + 1) + part, smaller * (_PARTS + 1) + part)
            for part in range(_PARTS + 1)
        ]
    return switches


def _next_larger(requests: Sequence[GpuClass]) -> BoolArray:
    """Return for pairs whether the second request is larger, and none is between them."""
    columns = (
        np.array([p.cpu_milli for p in requests]),
        np.array([p.memory_mib for p in requests]),
        np.array([p.num_gpu for p in requests]),
        np.array([p.gpu_milli for p in requests]),
    )
    models = np.array([p.models for p in requests])
    larger = np.logical_and.reduce([column[:, None] <= column for column in columns])
    larger &= models[:, None] & models == models  # what accepts fewer models is larger
    np.fill_diagonal(larger, val=False)
    between = larger.astype(np.float32)
    is_next: BoolArray = larger & (between @ between == 0)
    return is_next


def _without_memory(pods: Iterable[GpuClass]) -> Iterable[GpuClass]:
    return (
        GpuClass(p.cpu_milli, p.num_gpu, p.gpu_milli, p.models) for p in pods if p.total_gpu_milli
    )


def _searched(search: FillingSearch, trivial: float, rounds: int, method: str) -> AllocationBound:
    done = search.run(rounds)
    if search.bound < trivial:
        method = "fillings of nodes (Lagrangian bound of column generation)"
    bound = min(search.bound, trivial)
    return AllocationBound(bound, method, done, max(0.0, bound - search.reached))


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
