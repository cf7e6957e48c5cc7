"""Distinct ways to place a pod on GPU nodes, the best one per node, and FGD's fragmentation.

Only CPU and GPUs count: other filters check memory and everything else. The fragmentation of a node
is the GPU milli on it that a typical pod could not use.
Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 3;
kubernetes-scheduler-simulator pkg/utils/frag.go and pkg/simulator/plugin/fgd_score.go.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from koordinator.domain.gpus.mix import GpuClass, PodMix
from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray

#: Below this many nodes it costs more to find equal ones than to look at each.
_WORTH_COMPARING = 64


@dataclass(frozen=True, slots=True)
class GpuNodes:
    """What is left on ``k`` nodes."""

    cpu_free: IntArray  # (k,) milli
    gpu_free: IntArray  # (k, n_slots) milli; -1: the node has no such GPU
    kind: IntArray  # (k,) row of ``NodeKinds``

    def __len__(self) -> int:
        return len(self.cpu_free)

    def __getitem__(self, rows: IntArray) -> "GpuNodes":
        """Return some nodes, which may repeat."""
        return GpuNodes(self.cpu_free[rows], self.gpu_free[rows], self.kind[rows])


@dataclass(frozen=True, slots=True)
class NodeKinds:
    """Nodes of the same size and GPU model are of one kind."""

    model: IntArray  # (n_kinds,) number of the GPU model
    gpus: IntArray  # (n_kinds,)
    cpu_milli: IntArray  # (n_kinds,)

    @classmethod
    def of(
        cls, model: IntArray, gpus: IntArray, cpu_milli: IntArray
    ) -> tuple["NodeKinds", IntArray]:
        """Return the kinds of some nodes, and each node's kind."""
        facts, kind = np.unique(np.stack((model, gpus, cpu_milli), 1), axis=0, return_inverse=True)
        return cls(*facts.T.copy()), kind.reshape(-1)

    def accept(self, models: IntArray) -> BoolArray:
        """Return ``(n_kinds, len(models))``: the kind's GPU model is among the model bits."""
        return (models >> self.model[:, None]) & 1 > 0


@dataclass(frozen=True, slots=True)
class GpuOptions:
    """``m`` ways to take a pod: at least one per node that can, ordered by node, then slot."""

    node: IntArray  # (m,) position in the nodes asked about
    slot: IntArray  # (m,) the GPU taken, for a share; -1: no choice is left to make
    after: GpuNodes  # (m,) what is left


@dataclass(frozen=True, slots=True)
class BestOptions:
    """The best way per node; ``possible`` False where there is none, with score 0 and slot -1."""

    score: IntArray  # (k,)
    slot: IntArray  # (k,)
    possible: BoolArray  # (k,)


def options(pod: GpuClass, nodes: GpuNodes, accepts: BoolArray) -> GpuOptions:
    """Enumerate.  ``accepts (n_kinds,)`` says which kinds have a model that the pod accepts.

    Of a node's equally free GPUs only the first is an option for a share; other pods take the first
    GPUs with room.
    """
    gpu = nodes.gpu_free
    headroom = gpu >= max(pod.gpu_milli, 1)
    able = (nodes.cpu_free >= pod.cpu_milli) & accepts[nodes.kind]
    if pod.is_share:
        first = headroom & able[:, None]
        for slot in range(1, gpu.shape[1]):
            first[:, slot] &= (gpu[:, :slot] != gpu[:, slot : slot + 1]).all(1)
        node, slots = np.nonzero(first)
        after = gpu[node]
        after[np.arange(len(node)), slots] -= pod.gpu_milli
    else:
        if pod.num_gpu:
            able &= np.count_nonzero(headroom, axis=1) >= pod.num_gpu
        node = np.flatnonzero(able)
        slots = np.full(len(node), -1)
        after = gpu[node]
        if pod.num_gpu:
            taken = headroom[node]
            taken &= taken.cumsum(1) <= pod.num_gpu
            after -= pod.gpu_milli * taken
    return GpuOptions(
        node, slots, GpuNodes(nodes.cpu_free[node] - pod.cpu_milli, after, nodes.kind[node])
    )


def best_options(
    pod: GpuClass,
    nodes: GpuNodes,
    accepts: BoolArray,
    potential: Callable[[GpuNodes], FloatArray],
    score: Callable[[FloatArray], IntArray],
) -> BestOptions:
    """Return per node the option with the highest ``score(growth of potential)``.

    Among equals the lowest slot.

    ``potential`` must judge a node by its own state alone: equal nodes are looked at once.
    """
    alike = distinct(nodes)
    if alike is not None:
        first, same_as = alike
        best = _best(pod, nodes[first], accepts, potential, score)
        return BestOptions(best.score[same_as], best.slot[same_as], best.possible[same_as])
    return _best(pod, nodes, accepts, potential, score)


def distinct(nodes: GpuNodes) -> tuple[IntArray, IntArray] | None:
    """Return one node of each state, and for every node the position of its state among them.

    None where it isn't worth it: few nodes, or (never seen) two states with one fingerprint.
    """
    if len(nodes) < _WORTH_COMPARING:
        return None
    columns = nodes.gpu_free.shape[1]
    with np.errstate(over="ignore"):
        fingerprint = nodes.gpu_free @ _multipliers(columns)
        fingerprint += nodes.cpu_free * _CPU_MULTIPLIER + nodes.kind * _KIND_MULTIPLIER
    _, first, same_as = np.unique(fingerprint, return_index=True, return_inverse=True)
    found = first[same_as]
    equal = (
        np.array_equal(nodes.gpu_free[found], nodes.gpu_free)
        and np.array_equal(nodes.cpu_free[found], nodes.cpu_free)
        and np.array_equal(nodes.kind[found], nodes.kind)
    )
    return (first, same_as) if equal else None


#: Odd numbers without pattern, so that sums of products differ where states do.
_CPU_MULTIPLIER = np.int64(-7046029254386353131)
_KIND_MULTIPLIER = np.int64(-4417276706812531889)


def _multipliers(columns: int) -> IntArray:
    powers = [pow(0x9E3779B97F4A7C15, slot + 3, 1 << 64) for slot in range(columns)]
    return np.array(powers, np.uint64).astype(np.int64)


def _best(
    pod: GpuClass,
    nodes: GpuNodes,
    accepts: BoolArray,
    potential: Callable[[GpuNodes], FloatArray],
    score: Callable[[FloatArray], IntArray],
) -> BestOptions:
    ways = options(pod, nodes, accepts)
    best = BestOptions(
        np.zeros(len(nodes), np.int64), np.full(len(nodes), -1), np.zeros(len(nodes), bool)
    )
    if len(ways.node) == 0:
        return best
    scores = score(potential(ways.after) - potential(nodes)[ways.node])
    node, slot = ways.node, ways.slot
    if pod.is_share:
        order = np.lexsort((slot, -scores, node))
        node, slot, scores = node[order], slot[order], scores[order]
        leads = np.ones(len(node), bool)
        leads[1:] = node[1:] != node[:-1]
        node, slot, scores = node[leads], slot[leads], scores[leads]
    best.score[node] = scores
    best.slot[node] = slot
    best.possible[node] = True
    return best


class Fragmentation:
    """Measures nodes against a mix whose counts are probabilities (``PodMix.typical``)."""

    def __init__(self, mix: PodMix, kinds: NodeKinds) -> None:
        self._mix = mix
        self._sizes, self._size_of = np.unique(mix.gpu_milli, return_inverse=True)
        #: (n_kinds, n_classes): the pod wants GPUs, and accepts those of the kind
        self._usable = kinds.accept(mix.models) & (mix.num_gpu > 0)

    def unusable(self, nodes: GpuNodes) -> FloatArray:
        """Return the expected unusable GPU milli, ``(k,)``.

        A pod that fits can't use the GPUs with less room than it takes of one; one that doesn't fit
        can't use any.
        """
        free = np.maximum(nodes.gpu_free, 0)
        all_free = free.sum(1)[:, None]
        headroom = nodes.gpu_free[:, :, None] >= self._sizes
        gpus_with_headroom = np.count_nonzero(headroom, axis=1)[:, self._size_of]
        too_small = all_free - np.einsum("kdm,kd->km", headroom, free)[:, self._size_of]
        fits = (
            (gpus_with_headroom >= self._mix.num_gpu)
            & (nodes.cpu_free[:, None] >= self._mix.cpu_milli)
            & self._usable[nodes.kind]
        )
        expected: FloatArray = np.where(fits, too_small, all_free) @ self._mix.counts
        return expected


def fgd_score(growth: FloatArray) -> IntArray:
    """Return FGD's score of a growth of fragmentation in milli: 0..100, no growth is 50."""
    score: IntArray = np.floor(100.0 / (1.0 + np.exp(growth / 1000.0))).astype(np.int64)
    return score
