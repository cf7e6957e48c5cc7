"""GPU nodes and GPU pods as the placement policies of ``koordinator.domain`` see them.

A GPU has 1000 milli of its memory; models are the values of the node label, by number.
"""

from collections.abc import Callable, Sequence

import numpy as np

from koordinator.domain.gpus.mix import (
    ANY_MODEL,
    WHOLE_GPU,
    ExpectedPods,
    GpuClass,
    PodMix,
    mix_of,
)
from koordinator.domain.gpus.options import (
    BestOptions,
    GpuNodes,
    GpuRequest,
    GpuRequestError,
    NodeKinds,
    best_options,
    gpu_request,
)
from koordinator.foundation.arrays import FloatArray, IntArray
from koordinator.foundation.memo import Memo
from koordinator.scheduler.snapshot.axis import CPU, MEMORY
from koordinator.scheduler.snapshot.classes import PodClass
from koordinator.scheduler.snapshot.nodes import MEMORY_OF_GPU, RATIO_OF_GPU
from koordinator.scheduler.snapshot.selection import matches_required
from koordinator.scheduler.snapshot.view import Snapshot

MODEL_LABEL = "node.koordinator.sh/gpu-model"
OTHER_MODEL = 62  # the bit of nodes without the label, and of models beyond the first 62
#: Amounts of the largest machine of the published experiments, to which policies scale.
LARGEST_CPU_MILLI, LARGEST_GPU_MILLI = 128_000, 8_000
MILLI_PER_PERCENT = WHOLE_GPU // 100
MIB = 1 << 20
_REQUEST: Memo[GpuRequest | GpuRequestError | None] = Memo()
_CLASS: Memo[GpuClass] = Memo()
_KINDS: Memo[tuple[NodeKinds, IntArray]] = Memo()


def request_of(snapshot: Snapshot, pod: PodClass) -> GpuRequest | GpuRequestError | None:
    """Return the pod's request for GPUs; an error if its resource names don't go together."""
    return _REQUEST.of(pod, _request, snapshot.resources, pod)


def _request(names: Sequence[str], pod: PodClass) -> GpuRequest | GpuRequestError | None:
    try:
        return gpu_request({names[column]: amount for column, amount in pod.demand})
    except GpuRequestError as error:
        return error


def node_kinds(snapshot: Snapshot) -> tuple[NodeKinds, IntArray]:
    """Return the kinds of nodes in the whole cluster, and every row's kind ``(n_all,)``."""
    cluster = snapshot.cluster
    version = (cluster.node_version, cluster.device_version)
    return _KINDS.as_of(cluster.shared, version, _node_kinds, cluster)


def _node_kinds(cluster: Snapshot) -> tuple[NodeKinds, IntArray]:
    gpus = (cluster.gpu_total[:, :, RATIO_OF_GPU] > 0).sum(axis=1)
    return NodeKinds.of(_models(cluster), gpus, cluster.allocatable[:, CPU])


def gpu_nodes(snapshot: Snapshot) -> GpuNodes:
    """Return the free amounts of the rows."""
    _, kind = node_kinds(snapshot)
    exists = snapshot.gpu_total[:, :, RATIO_OF_GPU] > 0
    free = snapshot.gpu_free[:, :, RATIO_OF_GPU] * MILLI_PER_PERCENT
    return GpuNodes(
        cpu_free=snapshot.allocatable[:, CPU] - snapshot.requested[:, CPU],
        gpu_free=np.where(exists, free, -1),
        kind=kind if snapshot.rows is None else kind[snapshot.rows],
    )


def gpu_class(snapshot: Snapshot, pod: PodClass) -> GpuClass:
    """Return the pod's shape; bytes of GPU memory count as a share of the cluster's largest GPU."""
    cluster = snapshot.cluster
    version = (cluster.node_version, cluster.device_version)
    return _CLASS.as_of(pod, version, _gpu_class, cluster, pod)


def expected_mix(snapshot: Snapshot, expected: Sequence[ExpectedPods]) -> PodMix:
    """Return the mix that a configuration expects, in the model numbers of this cluster."""
    models = snapshot.label(MODEL_LABEL)[1]
    return mix_of(expected, {name: bit for bit, name in enumerate(models)})


def best_ways(
    snapshot: Snapshot,
    pod: PodClass,
    potential: Callable[[GpuNodes], FloatArray],
    score: Callable[[FloatArray], IntArray],
) -> BestOptions:
    """Return the best way to take the pod on every row; see ``gpus.options.best_options``."""
    shape, (kinds, _) = gpu_class(snapshot, pod), node_kinds(snapshot)
    accepts = kinds.accept(np.array([shape.models]))[:, 0]
    return best_options(shape, gpu_nodes(snapshot), accepts, potential, score)


def slot_preference(node: Snapshot, best: BestOptions) -> IntArray:
    """Return ``(n_minors,)``: 1 for the GPU that the best way on this one row takes."""
    taken: IntArray = (np.arange(node.gpu_total.shape[1]) == best.slot[0]).astype(np.int64)
    return taken


def fuller_gpus(node: Snapshot) -> IntArray:
    """Return ``(n_minors,)``: a fuller GPU of this one row ranks higher."""
    fullness: IntArray = -gpu_nodes(node).gpu_free[0]
    return fullness


def _gpu_class(cluster: Snapshot, pod: PodClass) -> GpuClass:
    request = request_of(cluster, pod)
    cpu, memory_mib = pod.amount(CPU), -(-pod.amount(MEMORY) // MIB)
    if not isinstance(request, GpuRequest):
        return GpuClass(cpu, memory_mib=memory_mib)
    ratio = request.ratio
    if not ratio:
        largest = int(cluster.gpu_total[:, :, MEMORY_OF_GPU].max(initial=1))
        ratio = min(-(-request.memory * 100 // max(largest, 1)), 100)
    matched = matches_required(cluster, pod) & cluster.alive
    models = ANY_MODEL
    if not matched[cluster.alive].all():
        models = sum(1 << int(model) for model in np.unique(_models(cluster)[matched]))
    return GpuClass(cpu, request.count, ratio * MILLI_PER_PERCENT, models, memory_mib)


def _models(cluster: Snapshot) -> IntArray:
    ids = cluster.label(MODEL_LABEL)[0].astype(np.int64)
    return np.where((ids < 0) | (ids >= OTHER_MODEL), OTHER_MODEL, ids)
