"""GPU requests, and the options that a node has for them.

Only CPU and GPUs count: other filters check memory and everything else. The fragmentation of a node
is the GPU milli on it that a typical pod could not use.

``devices.requests`` covers every type of device and every amount.

Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023, section 3;
kubernetes-scheduler-simulator pkg/utils/frag.go and pkg/simulator/plugin/fgd_score.go.
"""

from collections.abc import Callable, Mapping

import numpy as np

from koordinator.api.device import DeviceType
from koordinator.domain.devices.allocation import CORE, MEMORY, RATIO
from koordinator.domain.devices.requests import DeviceRequestError, device_requests
from koordinator.domain.gpus.mix import GpuClass, PodMix
from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass

#: Minimum number of nodes for which deduplication pays off.
_WORTH_COMPARING = 64

#: Arbitrary odd multipliers that make fingerprints of different states differ.
_CPU_MULTIPLIER = np.int64(-7046029254386353131)
_KIND_MULTIPLIER = np.int64(-4417276706812531889)


@dataclass(frozen=True, slots=True)
class GpuNodes:
    """Free resources of ``k`` nodes."""

    cpu_free: IntArray  # (k,) milli
    gpu_free: IntArray  # (k, n_slots) milli; -1: no such GPU
    kind: IntArray  # (k,) row of ``NodeKinds``

    def __len__(self) -> int:
        return len(self.cpu_free)

    def __getitem__(self, rows: IntArray) -> "GpuNodes":
        """Return some nodes, with possible repetition."""
        return GpuNodes(self.cpu_free[rows], self.gpu_free[rows], self.kind[rows])


@dataclass(frozen=True, slots=True)
class NodeKinds:
    """Kinds of nodes: equal size and GPU model."""

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
    """``m`` placements of a pod: at least one per feasible node, ordered by node, then slot."""

    node: IntArray  # (m,) index into the given nodes
    slot: IntArray  # (m,) the GPU taken by a share; -1: no choice
    after: GpuNodes  # (m,) free resources afterwards


@dataclass(frozen=True, slots=True)
class BestOptions:
    """The best placement per node; without one, ``possible`` is False, score 0 and slot -1."""

    score: IntArray  # (k,)
    slot: IntArray  # (k,)
    possible: BoolArray  # (k,)


def options(pod: GpuClass, nodes: GpuNodes, accepts: BoolArray) -> GpuOptions:
    """Enumerate the placements; ``accepts (n_kinds,)`` marks kinds with an accepted model.

    Among a node's equally free GPUs only the first is an option for a share; other pods take the
    first GPUs with room.
    """
    gpu = nodes.gpu_free
    headroom = gpu >= max(pod.gpu_milli, 1)
    suitable = (nodes.cpu_free >= pod.cpu_milli) & accepts[nodes.kind]
    if pod.is_share:
        first = headroom & suitable[:, None]
        for slot in range(1, gpu.shape[1]):
            first[:, slot] &= (gpu[:, :slot] != gpu[:, slot : slot + 1]).all(1)
        node, slots = np.nonzero(first)
        after = gpu[node]
        after[np.arange(len(node)), slots] -= pod.gpu_milli
    else:
        if pod.num_gpu:
            suitable &= np.count_nonzero(headroom, axis=1) >= pod.num_gpu
        node = np.flatnonzero(suitable)
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

    Ties go to the lowest slot. ``potential`` must depend on a node's own state only: equal nodes
    are evaluated once.
    """
    alike = distinct(nodes)
    if alike is not None:
        first, same_as = alike
        best = _best(pod, nodes[first], accepts, potential, score)
        return BestOptions(best.score[same_as], best.slot[same_as], best.possible[same_as])
    return _best(pod, nodes, accepts, potential, score)


def distinct(nodes: GpuNodes) -> tuple[IntArray, IntArray] | None:
    """Return one node of each state, and for every node the index of its state.

    None if deduplication does not pay off: few nodes, or two states with one fingerprint.
    """
    if len(nodes) < _WORTH_COMPARING:
        return None
    columns = nodes.gpu_free.shape[1]
    with np.errstate(over="ignore"):
        fingerprint = nodes.gpu_free @ _multipliers(columns)
        fingerprint += nodes.cpu_free * _CPU_MULTIPLIER + nodes.kind * _KIND_MULTIPLIER
    _, first, same_as = np.unique(fingerprint, return_index=True, return_inverse=True)
    firsts = first[same_as]
    equal = (
        np.array_equal(nodes.gpu_free[firsts], nodes.gpu_free)
        and np.array_equal(nodes.cpu_free[firsts], nodes.cpu_free)
        and np.array_equal(nodes.kind[firsts], nodes.kind)
    )
    return (first, same_as) if equal else None


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
    """Fragmentation of nodes for a mix whose counts are probabilities (``PodMix.typical``)."""

    def __init__(self, mix: PodMix, kinds: NodeKinds) -> None:
        self._mix = mix
        self._sizes, self._size_of = np.unique(mix.gpu_milli, return_inverse=True)
        #: (n_kinds, n_classes): the pod requests GPUs and accepts the kind's model
        self._usable = kinds.accept(mix.models) & (mix.num_gpu > 0)

    def unusable(self, nodes: GpuNodes) -> FloatArray:
        """Return the expected unusable GPU milli, ``(k,)``.

        A pod that fits can't use GPUs with less room than it takes of one; a pod that doesn't fit
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
    """Return FGD's score, 0..100, of a growth of fragmentation in milli; no growth is 50."""
    score: IntArray = np.floor(100.0 / (1.0 + np.exp(growth / 1000.0))).astype(np.int64)
    return score


GpuRequestError = DeviceRequestError  # alias for the snapshot and its plugins


@dataclass(frozen=True, slots=True)
class GpuRequest:
    """``count`` devices, each with these amounts; 0 means not requested."""

    count: int
    core: int  # percent of one GPU
    memory: int  # bytes
    ratio: int  # percent of one GPU's memory

    @property
    def amounts(self) -> tuple[int, int, int]:
        """(core, memory, ratio), the order of the snapshot's GPU arrays."""
        return self.core, self.memory, self.ratio


def gpu_request(requests: Mapping[str, int]) -> GpuRequest | None:
    """Return the request per device; None if the pod requests no GPU.

    Raises DeviceRequestError as ``devices.requests.device_requests`` does.
    """
    request = device_requests(requests).get(DeviceType.GPU)
    if request is None:
        return None
    amounts = request.amounts
    return GpuRequest(request.count, amounts[CORE], amounts[MEMORY], amounts[RATIO])
