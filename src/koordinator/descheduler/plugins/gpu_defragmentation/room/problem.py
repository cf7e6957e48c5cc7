"""Problem of making room for a gang, and the ledger of a search."""

from collections.abc import Iterable

import numpy as np

from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class RoomPod:
    """Running pod."""

    key: str
    row: int  # of its node
    requests: IntArray  # (n_resources,) besides GPUs
    gpus: tuple[int, ...] = ()  # minors
    gpu_milli: int = 0  # of each GPU
    accepts: BoolArray | None = None  # (n_nodes,) nodes that its constraints admit; None: all
    may_move: bool = True
    cost: float = 1.0  # of moving it; breaks ties of plans with equally many moves

    @property
    def is_share(self) -> bool:
        """Whether it uses a share of one GPU."""
        return len(self.gpus) == 1 and self.gpu_milli < WHOLE_GPU


@dataclass(frozen=True, slots=True, eq=False)
class RoomCluster:
    """Nodes by row, and their pods.

    Amounts that are neither free nor allocated to a listed pod (reservations, broken GPUs) are
    never freed.
    """

    free: IntArray  # (n_nodes, n_resources)
    gpu_free: IntArray  # (n_nodes, n_slots) milli; -1: no such GPU
    pods: tuple[RoomPod, ...]


@dataclass(frozen=True, slots=True, eq=False)
class RoomRequest:
    """Members to place, each with whole GPUs of one node."""

    members: int
    gpus: int
    requests: IntArray  # (n_resources,) of a member, besides GPUs
    accepts: BoolArray | None = None  # (n_nodes,) nodes that admit members; None: all
    #: By row: groups of GPUs, such as a NUMA node's or an NVLink partition's; the GPUs of a
    #: member are in one group.  None: any GPUs of a node.
    groups: tuple[tuple[tuple[int, ...], ...], ...] | None = None
    #: (n_nodes,) network domain, which all members share; None: no restriction
    domain: IntArray | None = None


@dataclass(frozen=True, slots=True)
class RoomMove:
    """Move of a pod, by position, to a row and its GPUs."""

    pod: int
    row: int
    gpus: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class MemberPlace:
    """Place of a member after all moves."""

    row: int
    gpus: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class RoomPlan:
    """Moves in an order in which each target has room, and the places that they make."""

    moves: tuple[RoomMove, ...]
    places: tuple[MemberPlace, ...]
    cost: float = 0.0

    @property
    def rank(self) -> tuple[int, float]:
        """Number of moves and their cost; lower is better."""
        return len(self.moves), self.cost


class RoomLedger:
    """Free amounts by row, positions of pods, moves and assigned places."""

    def __init__(self, cluster: RoomCluster) -> None:
        self.pods = cluster.pods
        self.free, self.gpu_free = cluster.free.copy(), cluster.gpu_free.copy()
        self.on_row: list[set[int]] = [set() for _ in range(len(cluster.free))]
        for index, pod in enumerate(cluster.pods):
            self.on_row[pod.row].add(index)
        self.moves: dict[int, RoomMove] = {}  # by pod, in the order in which they are made
        self.places: list[MemberPlace] = []
        #: (n_nodes,) rows that are no targets, as room is made there
        self.closed: BoolArray = np.zeros(len(cluster.free), bool)

    def whole_free(self) -> IntArray:
        """Return ``(n_nodes,)``: the number of completely free GPUs."""
        whole: IntArray = np.count_nonzero(self.gpu_free == WHOLE_GPU, axis=1)
        return whole

    def gpus_for(self, pod: RoomPod, row: int) -> tuple[int, ...] | None:
        """Return GPUs of a row for a pod, for a share the fullest with room; None without room."""
        free = self.gpu_free[row]
        if pod.is_share:
            suitable = np.flatnonzero(free >= pod.gpu_milli)
            return (int(suitable[np.argmin(free[suitable])]),) if len(suitable) else None
        suitable = np.flatnonzero(free >= max(pod.gpu_milli, 1))
        if len(suitable) < len(pod.gpus):
            return None
        tightest = suitable[np.argsort(free[suitable], kind="stable")]
        return tuple(sorted(tightest[: len(pod.gpus)].tolist()))

    def rows_for(self, pod: RoomPod) -> IntArray:
        """Return the rows with room for a pod, except its own and closed ones."""
        suitable = (self.free >= pod.requests).all(axis=1) & ~self.closed
        if pod.accepts is not None:
            suitable &= pod.accepts
        suitable[pod.row] = False
        if pod.gpus:
            with_room = self.gpu_free >= max(pod.gpu_milli, 1)
            suitable &= np.count_nonzero(with_room, axis=1) >= len(pod.gpus)
        return np.flatnonzero(suitable)

    def move(self, pod: int, row: int) -> bool:
        """Move a pod to a row with room; return False if the row has no GPUs for it."""
        gpus = self.gpus_for(self.pods[pod], row)
        if gpus is None:
            return False
        move = RoomMove(pod, row, gpus)
        self._lift(pod)
        self._add(move.row, self.pods[pod].requests, gpus, self.pods[pod].gpu_milli, -1)
        self.moves[pod] = move
        return True

    def give(self, place: MemberPlace, requests: IntArray) -> None:
        """Assign a place to a member."""
        self._add(place.row, requests, place.gpus, WHOLE_GPU, -1)
        self.places.append(place)

    def undo_moves(self, count: int) -> None:
        """Undo the last moves until ``count`` are left."""
        while len(self.moves) > count:
            index, move = self.moves.popitem()
            pod = self.pods[index]
            self._add(move.row, pod.requests, move.gpus, pod.gpu_milli, 1)
            self._add(pod.row, pod.requests, pod.gpus, pod.gpu_milli, -1)
            self.on_row[pod.row].add(index)

    def cost(self) -> float:
        """Return the cost of all moves."""
        return sum(self.pods[index].cost for index in self.moves)

    def fits(self, requests: IntArray, row: int, removed: Iterable[int]) -> bool:
        """Return whether a row has the amounts free without the removed pods."""
        return bool((self.after(row, removed) >= requests).all())

    def after(self, row: int, removed: Iterable[int]) -> IntArray:
        """Return ``(n_resources,)``: the free amounts of a row without the removed pods."""
        free: IntArray = self.free[row].copy()
        for index in removed:
            free += self.pods[index].requests
        return free

    def _lift(self, index: int) -> None:
        pod = self.pods[index]
        self._add(pod.row, pod.requests, pod.gpus, pod.gpu_milli, 1)
        self.on_row[pod.row].discard(index)

    def _add(
        self, row: int, requests: IntArray, gpus: tuple[int, ...], milli: int, sign: int
    ) -> None:
        self.free[row] += sign * requests
        for slot in gpus:
            self.gpu_free[row, slot] += sign * milli
