"""What is free while moves are tried: every change can be taken back."""

from collections.abc import Iterable

import numpy as np

from koordinator.descheduler.plugins.gpu_defragmentation.room.problem import (
    MemberPlace,
    RoomCluster,
    RoomMove,
    RoomPod,
)
from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.arrays import BoolArray, IntArray


class RoomLedger:
    """Free amounts by row, where pods are, and what has been moved and given so far."""

    def __init__(self, cluster: RoomCluster) -> None:
        self.pods = cluster.pods
        self.free, self.gpu_free = cluster.free.copy(), cluster.gpu_free.copy()
        self.on_row: list[set[int]] = [set() for _ in range(len(cluster.free))]
        for index, pod in enumerate(cluster.pods):
            self.on_row[pod.row].add(index)
        self.moves: dict[int, RoomMove] = {}  # by pod, in the order in which they are made
        self.places: list[MemberPlace] = []
        #: (n_nodes,) nothing may be moved there: room is made, or just being made
        self.closed: BoolArray = np.zeros(len(cluster.free), bool)

    def whole_free(self) -> IntArray:
        """Return ``(n_nodes,)`` how many GPUs are free as a whole."""
        whole: IntArray = np.count_nonzero(self.gpu_free == WHOLE_GPU, axis=1)
        return whole

    def gpus_for(self, pod: RoomPod, row: int) -> tuple[int, ...] | None:
        """Return GPUs of a row for a pod: for a share the fullest that has room; None: none."""
        free = self.gpu_free[row]
        if pod.is_share:
            able = np.flatnonzero(free >= pod.gpu_milli)
            return (int(able[np.argmin(free[able])]),) if len(able) else None
        able = np.flatnonzero(free >= max(pod.gpu_milli, 1))
        if len(able) < len(pod.gpus):
            return None
        tightest = able[np.argsort(free[able], kind="stable")]
        return tuple(sorted(tightest[: len(pod.gpus)].tolist()))

    def rows_for(self, pod: RoomPod) -> IntArray:
        """Return rows with room for a pod, not its own and not closed."""
        able = (self.free >= pod.requests).all(axis=1) & ~self.closed
        if pod.accepts is not None:
            able &= pod.accepts
        able[pod.row] = False
        if pod.gpus:
            with_room = self.gpu_free >= max(pod.gpu_milli, 1)
            able &= np.count_nonzero(with_room, axis=1) >= len(pod.gpus)
        return np.flatnonzero(able)

    def move(self, pod: int, row: int) -> bool:
        """Move a pod to a row that has room; return False if its GPUs have none there."""
        gpus = self.gpus_for(self.pods[pod], row)
        if gpus is None:
            return False
        move = RoomMove(pod, row, gpus)
        self._lift(pod)
        self._add(move.row, self.pods[pod].requests, gpus, self.pods[pod].gpu_milli, -1)
        self.moves[pod] = move
        return True

    def give(self, place: MemberPlace, requests: IntArray) -> None:
        """Keep room for a member."""
        self._add(place.row, requests, place.gpus, WHOLE_GPU, -1)
        self.places.append(place)

    def undo_moves(self, count: int) -> None:
        """Take back the last moves until so many are left."""
        while len(self.moves) > count:
            index, move = self.moves.popitem()
            pod = self.pods[index]
            self._add(move.row, pod.requests, move.gpus, pod.gpu_milli, 1)
            self._add(pod.row, pod.requests, pod.gpus, pod.gpu_milli, -1)
            self.on_row[pod.row].add(index)

    def cost(self) -> float:
        """Return the cost of all moves."""
        return sum(self.pods[index].cost for index in self.moves)

    def fits(self, requests: IntArray, row: int, going: Iterable[int]) -> bool:
        """Return whether a row has these amounts free when some pods of it are gone."""
        return bool((self.after(row, going) >= requests).all())

    def after(self, row: int, going: Iterable[int]) -> IntArray:
        """Return ``(n_resources,)`` what is free on a row when some pods of it are gone."""
        free: IntArray = self.free[row].copy()
        for index in going:
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
