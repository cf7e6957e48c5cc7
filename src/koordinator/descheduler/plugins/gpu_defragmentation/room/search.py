"""Bounded heuristic search for room.

Nodes are cleared in the order of the number of pods to move for a member.  Each pod moves to the
best fitting node; if it fits nowhere, other pods are moved for it, to a depth of two.  Several
attempts use different orders of ties; the plan with the fewest moves, then the lowest cost, wins.
The GPUs of a member on a node are chosen exactly: GPUs shared by a pod are freed together, and
dynamic programming finds the fewest pods that free enough of them.
"""

import heapq
from collections.abc import Sequence
from typing import Final

import numpy as np

from koordinator.descheduler.plugins.gpu_defragmentation.room.problem import (
    MemberPlace,
    RoomCluster,
    RoomLedger,
    RoomPlan,
    RoomPod,
    RoomRequest,
)
from koordinator.domain.gpus.mix import WHOLE_GPU
from koordinator.foundation.arrays import BoolArray, FloatArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass

_DEEPEST: Final = 2  # moves that make room for a move, for one that makes room
_ROWS_TRIED: Final = 4  # for a pod that fits nowhere, of those looked at
_ROWS_LOOKED_AT: Final = 24  # for a pod that fits nowhere
_ROWS_PER_MEMBER: Final = 16  # where a member might go; at least _FEWEST_ROWS in all
_FEWEST_ROWS: Final = 64
_FAILURES: Final = 64  # nodes that can't be emptied, more than members, until an attempt ends
_WORK: Final = 8_000  # pods that all attempts together look at
_ATTEMPTS: Final = (2, 60)  # at least, at most
_NOISES: Final = (1.0, 1.0, 2.0, 3.0)  # of attempts: below 1, orders among equals only
_DOUBTS: Final = (0.0, 0.0, 0.6, 1.2, 2.0)  # of attempts: about how many moves a pod takes


#: What rows are sorted by: moves, cost, noise; and the row.
_Entry = tuple[int, float, float, int]


@dataclass(frozen=True, slots=True)
class _Clearance:
    """Pods to move from a row, and the GPUs that a member gets."""

    pods: tuple[int, ...]
    gpus: tuple[int, ...]
    cost: float


def find_room(
    cluster: RoomCluster, request: RoomRequest, rng: np.random.Generator
) -> RoomPlan | None:
    """Return a plan with few moves; None if the search finds none, which is no proof of absence."""
    fewest, most = _ATTEMPTS
    attempts = min(max(_WORK // max(len(cluster.pods), 1), fewest), most)
    best: RoomPlan | None = None
    for rows in _rows_by_domain(cluster, request):
        for number in range(attempts):
            noise = rng.random(len(cluster.free)) * _NOISES[number % len(_NOISES)]
            if not number:
                noise[:] = 0.0
            doubts = rng.random(len(cluster.pods)) * _DOUBTS[number % len(_DOUBTS)]
            avoids = number % 2 == 0
            plan = _Attempt(cluster, request, rows, noise, doubts, avoids=avoids).run(best)
            if plan is not None and (best is None or plan.rank < best.rank):
                best = plan
            if best is not None and not best.moves:
                return best
    return best


def _rows_by_domain(cluster: RoomCluster, request: RoomRequest) -> list[BoolArray]:
    suitable = (
        np.ones(len(cluster.free), bool) if request.accepts is None else request.accepts.copy()
    )
    suitable &= np.count_nonzero(cluster.gpu_free >= 0, axis=1) >= request.gpus
    if request.domain is None:
        return [suitable]
    return [
        suitable & (request.domain == domain)
        for domain in np.unique(request.domain[request.domain >= 0]).tolist()
    ]


class _Attempt:
    """Greedy attempt; ``rows`` are the nodes that admit members."""

    def __init__(
        self,
        cluster: RoomCluster,
        request: RoomRequest,
        rows: BoolArray,
        noise: FloatArray,
        doubts: FloatArray,
        *,
        avoids: bool,
    ) -> None:
        self._request, self._rows, self._noise, self._avoids = request, rows, noise, avoids
        self._ledger = RoomLedger(cluster)
        self._most_free = int(self._ledger.whole_free().max(initial=0))
        #: by pod: how many moves it takes to move it, about
        self._weights = [
            1.0 + self._shortage(index) + doubt for index, doubt in enumerate(doubts.tolist())
        ]
        self._is_candidate: BoolArray = np.zeros(len(cluster.free), bool)

    def run(self, best: RoomPlan | None) -> RoomPlan | None:
        """Return a plan with fewer moves than ``best``, None without one."""
        members, ledger = self._request.members, self._ledger
        heap: list[_Entry] = []
        for row in self._promising_rows().tolist():
            self._push(heap, row)
        for entry in heapq.nsmallest(2 * members, heap):
            self._is_candidate[entry[-1]] = self._avoids
        failures = 0
        while heap and len(ledger.places) < members and failures <= members + _FAILURES:
            row = heapq.heappop(heap)[-1]
            clearance = self._clearance(row, self._request)
            if clearance is None:
                continue
            entry = self._entry(row, clearance)
            if heap and entry > heap[0]:
                heapq.heappush(heap, entry)
            elif self._clear(row, clearance):
                ledger.give(MemberPlace(row, clearance.gpus), self._request.requests)
                ledger.closed[row] = False  # its remaining capacity may be taken
                self._push(heap, row)
            else:
                failures += 1
            if best is not None and len(ledger.moves) > len(best.moves):
                return None
        if len(ledger.places) < members:
            return None
        return RoomPlan(tuple(ledger.moves.values()), tuple(ledger.places), ledger.cost())

    def _push(self, heap: list[_Entry], row: int) -> None:
        """Add a row to the candidates if a member can get room there."""
        clearance = self._clearance(row, self._request)
        if clearance is not None:
            heapq.heappush(heap, self._entry(row, clearance))

    def _promising_rows(self) -> IntArray:
        """Return candidate rows; in large clusters only those with few pods to move."""
        rows, ledger = np.flatnonzero(self._rows), self._ledger
        most = max(_ROWS_PER_MEMBER * self._request.members, _FEWEST_ROWS)
        if len(rows) <= most:
            return rows
        missing = np.maximum(self._request.gpus - ledger.whole_free()[rows], 0)
        holder_rows = [
            sum(1 for index in ledger.on_row[row] if ledger.pods[index].gpus)
            for row in rows.tolist()
        ]
        holders = np.array(holder_rows, np.int64)
        few = np.minimum(missing, holders)
        return rows[np.lexsort((self._noise[rows], holders, few))[:most]]

    def _entry(self, row: int, clearance: _Clearance) -> _Entry:
        """Return the sort key: moves, including those that make room for moves, then cost."""
        noise = float(self._noise[row])
        moves = sum(self._weights[index] for index in clearance.pods)
        return int(moves + noise), round(clearance.cost, 6) + noise % 1.0, noise, row

    def _shortage(self, index: int) -> int:
        """Return the shortfall of GPUs of a pod on the node with the most free ones."""
        pod = self._ledger.pods[index]
        return 0 if pod.is_share else max(len(pod.gpus) - self._most_free, 0)

    # -- making room ---------------------------------------------------------------------------

    def _clear(self, row: int, clearance: _Clearance, depth: int = 0) -> bool:
        """Close a row and move pods from it; undo all moves if one has no target."""
        ledger, mark = self._ledger, len(self._ledger.moves)
        was_closed = bool(ledger.closed[row])
        ledger.closed[row] = True
        pods = ledger.pods
        largest_first = sorted(
            clearance.pods,
            key=lambda index: (-len(pods[index].gpus), -pods[index].gpu_milli, index),
        )
        for index in largest_first:
            if not self._relocate(index, depth):
                ledger.undo_moves(mark)
                ledger.closed[row] = was_closed
                return False
        return True

    def _relocate(self, index: int, depth: int) -> bool:
        ledger = self._ledger
        rows = ledger.rows_for(ledger.pods[index])
        if len(rows):
            return ledger.move(index, self._tightest(ledger.pods[index], rows))
        return depth < _DEEPEST and self._displace(index, depth + 1)

    def _tightest(self, pod: RoomPod, rows: IntArray) -> int:
        """Return the fullest row for a pod, preferring rows that are no candidates."""
        ledger = self._ledger
        gpu_free = ledger.gpu_free[rows]
        whole = np.count_nonzero(gpu_free == WHOLE_GPU, axis=1)
        hole = np.zeros(len(rows), np.int64)
        if pod.is_share:
            hole = np.where(gpu_free >= pod.gpu_milli, gpu_free, WHOLE_GPU + 1).min(axis=1)
        elif not pod.gpus:
            whole = np.where((ledger.gpu_free[rows] >= 0).any(axis=1), whole + 1, 0)
        left = (ledger.free[rows] - pod.requests).sum(axis=1)
        avoided = self._is_candidate[rows]
        jitter = np.floor(self._noise[rows]).astype(np.int64)
        order = np.lexsort((self._noise[rows], left, whole, hole + jitter, avoided))
        return int(rows[order[0]])

    def _displace(self, index: int, depth: int) -> bool:
        """Make room for a pod on the row with the fewest other pods to move."""
        ledger, pod = self._ledger, self._ledger.pods[index]
        suitable = ~ledger.closed
        if pod.accepts is not None:
            suitable &= pod.accepts
        suitable[pod.row] = False
        options = []
        for row in self._nearly_free(pod, np.flatnonzero(suitable)).tolist():
            clearance = self._clearance_for(row, pod)
            if clearance is not None:
                options.append((len(clearance.pods), clearance.cost, row, clearance))
        for _, _, row, clearance in heapq.nsmallest(_ROWS_TRIED, options, key=lambda o: o[:3]):
            mark = len(ledger.moves)
            if self._clear(row, clearance, depth):
                ledger.closed[row] = False
                if row in ledger.rows_for(pod) and ledger.move(index, row):
                    return True
                ledger.undo_moves(mark)
        return False

    def _nearly_free(self, pod: RoomPod, rows: IntArray) -> IntArray:
        """Return the rows with the smallest shortfall for a pod."""
        ledger = self._ledger
        gpu_free = ledger.gpu_free[rows]
        if pod.is_share:
            shortfall = pod.gpu_milli - gpu_free.max(axis=1)
        else:
            shortfall = len(pod.gpus) - np.count_nonzero(gpu_free == WHOLE_GPU, axis=1)
        other_shortfall = np.maximum(pod.requests - ledger.free[rows], 0)
        other_shortfall = (other_shortfall / np.maximum(pod.requests, 1)).sum(axis=1)
        order = np.lexsort((self._noise[rows], other_shortfall, shortfall))
        return rows[order[:_ROWS_LOOKED_AT]]

    # -- pods to move -------------------------------------------------------------------------

    def _clearance(self, row: int, request: RoomRequest) -> _Clearance | None:
        """Return the fewest pods to move so that a member fits on a row."""
        if request.groups is None:
            freed = self._freed(row, request.gpus)
        else:
            options = [
                option
                for group in request.groups[row]
                if len(group) >= request.gpus
                and (option := self._freed(row, request.gpus, frozenset(group))) is not None
            ]
            freed = min(options, key=lambda f: (len(f[0]), self._cost(f[0]), f[1]), default=None)
        if freed is None:
            return None
        return self._with_resources(row, request.requests, *freed)

    def _clearance_for(self, row: int, pod: RoomPod) -> _Clearance | None:
        """Return the fewest pods to move so that a pod fits on a row."""
        if pod.is_share:
            freed = self._freed_hole(row, pod.gpu_milli)
        elif pod.gpu_milli not in (0, WHOLE_GPU):
            return None  # shares of several GPUs: no pods are moved for these
        else:
            freed = self._freed(row, len(pod.gpus))
        return None if freed is None else self._with_resources(row, pod.requests, *freed)

    def _freed(
        self, row: int, gpus: int, among: frozenset[int] | None = None
    ) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the fewest, then cheapest pods that free the number of GPUs, and these GPUs."""
        if not gpus:
            return (), ()
        #: by how many GPUs are freed: (weight, cost), pods, GPUs
        best: dict[int, tuple[tuple[float, float], tuple[int, ...], tuple[int, ...]]] = {
            0: ((0.0, 0.0), (), ())
        }
        for pods, slots in self._joined(row):
            useful = slots if among is None else tuple(s for s in slots if s in among)
            if not useful:
                continue
            more = (sum(self._weights[index] for index in pods), self._cost(pods))
            for count, (rank, removed, freed) in list(best.items()):
                total = min(count + len(useful), gpus)
                new = (rank[0] + more[0], rank[1] + more[1])
                if total not in best or new < best[total][0]:
                    best[total] = new, (*removed, *pods), (*freed, *useful)
        if gpus not in best:
            return None
        _, removed, freed = best[gpus]
        return removed, tuple(sorted(freed[:gpus]))

    def _joined(self, row: int) -> list[tuple[tuple[int, ...], tuple[int, ...]]]:
        """Return the groups of GPUs of a row that are freed together, with the pods to move."""
        ledger = self._ledger
        free = ledger.gpu_free[row].tolist()
        parts: dict[int, tuple[set[int], set[int]]] = {
            slot: (set(), {slot}) for slot, milli in enumerate(free) if milli >= 0
        }
        free_milli = dict(enumerate(free))
        stuck: set[int] = set()
        for index in sorted(ledger.on_row[row]):
            pod = ledger.pods[index]
            if not pod.gpus:
                continue
            pods, slots = {index}, set(pod.gpus)
            for slot in pod.gpus:
                free_milli[slot] += pod.gpu_milli
                others, more = parts[slot]
                pods |= others
                slots |= more
            for slot in slots:
                parts[slot] = pods, slots
            if not pod.may_move or index in ledger.moves:
                stuck |= set(pod.gpus)
        by_first_slot = {min(slots): (pods, slots) for pods, slots in parts.values()}
        joined = []
        for pods, slots in by_first_slot.values():
            usable = {s for s in slots if free_milli[s] == WHOLE_GPU}
            if usable and not stuck & slots:
                joined.append((tuple(sorted(pods)), tuple(sorted(usable))))
        return sorted(joined, key=lambda part: (len(part[0]) / len(part[1]), part))

    def _freed_hole(self, row: int, milli: int) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
        """Return the smallest share to move so that the free part of a GPU is large enough."""
        ledger = self._ledger
        options = []
        for index in ledger.on_row[row]:
            pod = ledger.pods[index]
            if pod.is_share and pod.may_move and index not in ledger.moves:
                hole = int(ledger.gpu_free[row, pod.gpus[0]]) + pod.gpu_milli
                if hole >= milli and pod.gpu_milli < milli:
                    options.append((pod.cost, pod.gpu_milli, index))
        if not options:
            return None
        index = min(options)[-1]
        return (index,), ledger.pods[index].gpus

    def _with_resources(
        self, row: int, requests: IntArray, pods: Sequence[int], gpus: tuple[int, ...]
    ) -> _Clearance | None:
        """Return the clearance, with further pods to move for CPU, memory and other resources."""
        ledger, removed = self._ledger, list(dict.fromkeys(pods))
        while not ledger.fits(requests, row, removed):
            shortfall = np.maximum(requests - ledger.after(row, removed), 0)
            options = [
                (
                    -float((np.minimum(pod.requests, shortfall) / np.maximum(shortfall, 1)).sum()),
                    pod.cost,
                    i,
                )
                for i in sorted(ledger.on_row[row].difference(removed))
                if (pod := ledger.pods[i]).may_move and i not in ledger.moves
            ]
            if not options or min(options)[0] == 0:
                return None
            removed.append(min(options)[-1])
        return _Clearance(tuple(removed), gpus, self._cost(removed))

    def _cost(self, pods: Sequence[int]) -> float:
        return sum(self._ledger.pods[index].cost for index in pods)
