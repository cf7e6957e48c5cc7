"""GPU nodes of the trace as arrays, with placement policies.

The policies use the functions of the scheduler's plugins (``domain.gpus.price``,
``domain.gpus.options``); a test compares their placements with the
scheduler's.  Unlike in a replay, pods also end, and a week takes minutes.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from typing import Final, Protocol

import numpy as np

from koordinator.domain.gpus.mix import WHOLE_GPU, GpuClass, PodMix
from koordinator.domain.gpus.options import (
    BestOptions,
    Fragmentation,
    GpuNodes,
    NodeKinds,
    best_options,
    fgd_score,
)
from koordinator.domain.gpus.price import PriceModel, price_score
from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray
from koordinator.foundation.errors import InputError
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.simulator.research.openb import OpenbTrace

#: Number of rows changed since the last evaluation of a class that forces a full evaluation.
_MANY_ROWS: Final = 300


@dataclass(frozen=True)
class FleetClasses:
    """The distinct requests of a trace's pods, by number; columns are ``(n_classes,)``."""

    of_pod: IntArray  # (n_pods,) of the trace
    requests: tuple[GpuClass, ...]

    @classmethod
    def of(cls, trace: OpenbTrace) -> "FleetClasses":
        """Return the classes of a trace, numbered."""
        of_pod = [trace.gpu_class(pod) for pod in trace.pods]
        requests = tuple(sorted(set(of_pod)))
        number = {request: index for index, request in enumerate(requests)}
        return cls(np.array([number[each] for each in of_pod], np.int64), requests)

    @cached_property
    def mix(self) -> PodMix:
        """Number of pods of each class in the list."""
        return PodMix.of(
            dict(zip(self.requests, np.bincount(self.of_pod).astype(float).tolist(), strict=True))
        )

    @cached_property
    def memory_mib(self) -> IntArray:
        """Per pod."""
        return np.array([each.memory_mib for each in self.requests], np.int64)

    @cached_property
    def shapes(self) -> tuple[GpuClass, ...]:
        """The distinct requests without memory, which policies evaluate."""
        return tuple(sorted({replace(each, memory_mib=0) for each in self.requests}))

    @cached_property
    def shape_of(self) -> IntArray:
        """The number of each class's shape."""
        number = {shape: index for index, shape in enumerate(self.shapes)}
        return np.array([number[replace(each, memory_mib=0)] for each in self.requests], np.int64)


class FleetPolicy(Protocol):
    """Score of the nodes as a placement would leave them."""

    def potential(self, nodes: GpuNodes) -> FloatArray:
        """Return ``(k,)`` GPU milli; the lower the better."""
        ...

    def score(self, growth: FloatArray) -> IntArray:
        """Return the score of a growth of potential; the highest wins."""
        ...

    def arrive(self, nodes: GpuNodes) -> bool:
        """Take note of an arrival; return whether potentials are others from now on."""
        ...


class PricePolicy:
    """GPUPrice with a known mix."""

    def __init__(self, mix: PodMix, kinds: NodeKinds) -> None:
        self._mix, self._model = mix, PriceModel(kinds)
        self._arrived = 0

    def potential(self, nodes: GpuNodes) -> FloatArray:
        return self._model.prices.potential(nodes)

    def score(self, growth: FloatArray) -> IntArray:
        return price_score(growth)

    def arrive(self, nodes: GpuNodes) -> bool:
        self._arrived += 1
        first = self._arrived == 1
        if first:
            self._model.solve(self._mix, nodes)
        if self._model.due(self._arrived, mix_is_known=True):
            self._model.solve(self._mix, nodes)
            return True
        return first


class FgdPolicy:
    """GPUFragmentation with a known mix."""

    def __init__(self, mix: PodMix, kinds: NodeKinds) -> None:
        self._measure = Fragmentation(mix.typical(), kinds)

    def potential(self, nodes: GpuNodes) -> FloatArray:
        return self._measure.unusable(nodes)

    def score(self, growth: FloatArray) -> IntArray:
        return fgd_score(growth)

    def arrive(self, nodes: GpuNodes) -> bool:
        del nodes
        return False


FLEET_POLICIES: Final[Mapping[str, type[PricePolicy] | type[FgdPolicy]]] = {
    "price": PricePolicy,
    "fgd": FgdPolicy,
}


@dataclass(slots=True)
class _Judgement:
    """Result of a policy for a shape on every node, with its position in the log of changes."""

    version: int
    seen: int  # entries of the log of changed rows
    best: BestOptions


@dataclass(frozen=True, slots=True)
class FleetPlace:
    """Node and GPUs of a pod."""

    row: int
    gpus: tuple[int, ...]


class GpuFleet:
    """Free amounts of every node, and the placement by a policy.

    ``cpu_free``, ``memory_free`` (MiB) are ``(n_nodes,)``, ``gpu_free`` ``(n_nodes, n_slots)``
    milli, -1 where there is no GPU.  Only the methods change them.

    Raises InputError for an unknown policy.
    """

    def __init__(
        self, trace: OpenbTrace, classes: FleetClasses, rank: IntArray, policy: str
    ) -> None:
        if policy not in FLEET_POLICIES:
            accepted = ", ".join(FLEET_POLICIES)
            raise InputError(f"must be one of {accepted}, got {policy!r}", source="--policy")
        nodes = trace.nodes
        gpus = np.array([node.gpu for node in nodes], np.int64)
        bits = {model: bit for bit, model in enumerate(trace.models)}
        models = np.array([bits.get(node.model, len(bits)) for node in nodes], np.int64)
        self.classes, self._rank = classes, rank
        self.cpu_free = np.array([node.cpu_milli for node in nodes], np.int64)
        self.memory_free = np.array([node.memory_mib for node in nodes], np.int64)
        exists = np.arange(gpus.max()) < gpus[:, None]
        self.gpu_free = np.where(exists, WHOLE_GPU, -1)
        self._kinds, self._kind = NodeKinds.of(models, gpus, self.cpu_free)
        requests = classes.requests
        #: (n_classes, n_nodes): the class accepts the node's GPU model
        self.accepts: BoolArray = (
            np.array([each.models for each in requests], np.int64)[:, None] >> models
        ) & 1 > 0
        self._kinds_of_shape = self._kinds.accept(
            np.array([shape.models for shape in classes.shapes], np.int64)
        ).T
        self.policy: FleetPolicy = FLEET_POLICIES[policy](classes.mix, self._kinds)
        self._version = 0
        self._changed: list[int] = []
        self._known: dict[int, _Judgement] = {}

    def __len__(self) -> int:
        return len(self.cpu_free)

    @property
    def nodes(self) -> GpuNodes:
        """All nodes as policies see them."""
        return GpuNodes(self.cpu_free, self.gpu_free, self._kind)

    def arrive(self) -> None:
        """Report an arrival to the policy."""
        if self.policy.arrive(self.nodes):
            self._version += 1

    def choose(self, kind: int, but: int = -1) -> FleetPlace | None:
        """Return where the policy puts a pod of a class, not on row ``but``; None: nowhere."""
        best = self._judged(int(self.classes.shape_of[kind]))
        suitable = best.possible & (self.memory_free >= self.classes.memory_mib[kind])
        if but >= 0:
            suitable[but] = False
        rows = np.flatnonzero(suitable)
        if not len(rows):
            return None
        scores = best.score[rows]
        leading = rows[scores == scores.max()]
        row = int(leading[np.argmin(self._rank[leading])])
        return FleetPlace(row, self._gpus(kind, row, int(best.slot[row])))

    def choose_on(self, kind: int, row: int) -> FleetPlace | None:
        """Return which GPUs of one row the policy gives to a pod of a class; None: it can't."""
        if self.memory_free[row] < self.classes.memory_mib[kind]:
            return None
        best = self._best(int(self.classes.shape_of[kind]), self.nodes[np.array([row])])
        if not best.possible[0]:
            return None
        return FleetPlace(row, self._gpus(kind, row, int(best.slot[0])))

    def take(self, kind: int, place: FleetPlace) -> None:
        """Put a pod of a class where it has room."""
        self._add(kind, place, -1)

    def give_back(self, kind: int, place: FleetPlace) -> None:
        """Take a pod of a class away."""
        self._add(kind, place, 1)

    def fitting(self, row: int) -> BoolArray:
        """Return ``(n_classes,)``: whether a pod of the class has room on a row."""
        mix = self.classes.mix
        with_room = np.count_nonzero(
            self.gpu_free[row] >= np.maximum(mix.gpu_milli, 1)[:, None], axis=1
        )
        fits: BoolArray = (
            (mix.cpu_milli <= self.cpu_free[row])
            & (self.classes.memory_mib <= self.memory_free[row])
            & (with_room >= mix.num_gpu)
            & self.accepts[:, row]
        )
        return fits

    def save(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return the free amounts, for ``restore``."""
        return self.cpu_free.copy(), self.memory_free.copy(), self.gpu_free.copy()

    def restore(self, saved: tuple[IntArray, IntArray, IntArray]) -> None:
        """Restore saved free amounts."""
        before = self.save()
        self.cpu_free[:], self.memory_free[:], self.gpu_free[:] = saved
        is_other = np.any(self.gpu_free != before[2], axis=1)
        is_other |= (self.cpu_free != before[0]) | (self.memory_free != before[1])
        self._changed.extend(np.flatnonzero(is_other).tolist())

    def _add(self, kind: int, place: FleetPlace, sign: int) -> None:
        request, row = self.classes.requests[kind], place.row
        self.cpu_free[row] += sign * request.cpu_milli
        self.memory_free[row] += sign * request.memory_mib
        for slot in place.gpus:
            self.gpu_free[row, slot] += sign * request.gpu_milli
        self._changed.append(row)

    def _gpus(self, kind: int, row: int, slot: int) -> tuple[int, ...]:
        request = self.classes.requests[kind]
        if request.is_share:
            return (slot,)
        with_room = np.flatnonzero(self.gpu_free[row] >= max(request.gpu_milli, 1))
        return tuple(with_room[: request.num_gpu].tolist())

    def _judged(self, shape: int) -> BestOptions:
        known, changed = self._known.get(shape), len(self._changed)
        if known is None or known.version != self._version or changed - known.seen > _MANY_ROWS:
            best = self._best(shape, self.nodes)
            self._known[shape] = _Judgement(self._version, changed, best)
            return best
        if known.seen < changed:
            rows = np.unique(np.array(self._changed[known.seen :], np.int64))
            some = self._best(shape, self.nodes[rows])
            known.best.score[rows] = some.score
            known.best.slot[rows] = some.slot
            known.best.possible[rows] = some.possible
            known.seen = changed
        return known.best

    def _best(self, shape: int, nodes: GpuNodes) -> BestOptions:
        return best_options(
            self.classes.shapes[shape],
            nodes,
            self._kinds_of_shape[shape],
            self.policy.potential,
            self.policy.score,
        )
