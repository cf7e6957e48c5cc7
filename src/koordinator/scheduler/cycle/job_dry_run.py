"""Dry runs of filters and reserve plugins on states without the victims of a job."""

from collections.abc import Iterable, Sequence

import numpy as np

from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.contract import ActivePlugin, AllocationResult, Profile, Reads
from koordinator.scheduler.cycle.evaluation import view_for
from koordinator.scheduler.cycle.nominated_pods import Nominations
from koordinator.scheduler.cycle.reserve import reserve
from koordinator.scheduler.job_preemption import PreemptionProblem, Shape
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot
from koordinator.scheduler.transaction import Transaction


class StateDryRun:
    """Implements ``job_preemption.PreemptionDryRun``: the state is changed and changed back."""

    def __init__(
        self,
        profile: Profile,
        state: ClusterState,
        problem: PreemptionProblem,
        nominated_pods: Nominations,
    ) -> None:
        self._profile, self._state = profile, state
        self._problem, self._rivals = problem, nominated_pods
        self._filters = {
            shape.pod_class.id: applicable(profile, state, shape.pod_class)
            for shape in problem.shapes
        }

    @property
    def is_local(self) -> bool:
        """Whether no filter looks at other nodes."""
        return not any(_is_cluster_scoped(filters) for filters in self._filters.values())

    def taken(
        self, evicted: BoolArray, rows: IntArray, places: Sequence[IntArray]
    ) -> list[IntArray]:
        """Return how many of the planned members the nodes take: see ``PreemptionDryRun``."""
        victims = self._problem.victims
        taken = [np.zeros_like(planned) for planned in places]
        selected = np.zeros(len(self._problem.rows), bool)
        selected[rows] = True
        there = selected[victims.row] if self.is_local else np.ones(len(evicted), bool)
        with Transaction(self._state) as transaction:
            for at in np.flatnonzero(evicted & there).tolist():
                transaction.displace(victims.pods[at])
            self._place_rivals(transaction, rows)
            later = np.sum(places, axis=0)
            for shape, planned, count in zip(self._problem.shapes, places, taken, strict=True):
                later = later - planned
                wanted = np.where(selected, planned, 0)
                for number in range(int(wanted.max(initial=0))):
                    these = np.flatnonzero((wanted > number) & (count == number))
                    is_last = wanted[these] + later[these] == number + 1
                    count[self._fill(transaction, shape, these, is_last)] += 1
        return taken

    def _fill(
        self, transaction: Transaction, shape: Shape, these: IntArray, is_last: BoolArray
    ) -> IntArray:
        """Put one more member on each of these nodes; return the nodes that take it.

        The last one of a node need not be put there unless it takes more than amounts.
        """
        rows, filters = self._problem.rows[these], self._filters[shape.pod_class.id]
        if _is_cluster_scoped(filters):
            return np.array(
                [
                    index
                    for index, row in zip(these.tolist(), rows.tolist(), strict=True)
                    if self._accepts(filters, shape.pod_class, row)
                    and self._put(transaction, shape, row)
                ],
                np.int64,
            )
        view, fits = self._view(shape.pod_class)[rows], np.ones(len(rows), bool)
        with view.restoring():
            for active in filters:
                fits &= active.plugin.filter(view, shape.pod_class).codes == 0
        put = fits & ~is_last if not self._reserves(shape.pod_class) else fits.copy()
        for index in np.flatnonzero(put).tolist():
            fits[index] = self._put(transaction, shape, int(rows[index]))
        return these[fits]

    def _reserves(self, pod_class: PodClass) -> bool:
        whole = self._view(pod_class)
        return any(active.hints.filters(whole, pod_class) for active in self._profile.reserve)

    def _view(self, pod_class: PodClass) -> Snapshot:
        return view_for(self._profile, self._state, pod_class)

    def _accepts(self, filters: Iterable[ActivePlugin], pod_class: PodClass, row: int) -> bool:
        view = self._view(pod_class)[np.array([row])]
        with view.restoring():
            return all(not active.plugin.filter(view, pod_class).codes[0] for active in filters)

    def _put(self, transaction: Transaction, shape: Shape, row: int) -> bool:
        """Put a member on a node with all that it takes there."""
        reserved = reserve(self._profile, self._view(shape.pod_class), shape.pod_class, row)
        if not isinstance(reserved, AllocationResult):
            return False
        key = f"member:{len(self._state.pods.by_key)}"
        transaction.assume(key, shape.pod, shape.pod_class, row, reserved)
        return True

    def _place_rivals(self, transaction: Transaction, rows: IntArray) -> None:
        names = self._state.nodes.names
        for row in self._problem.rows[rows].tolist() if self._rivals else ():
            for other, other_class in self._rivals.get(names[row], ()):
                transaction.place(f"nominated:{other.key}", other, other_class, row)


def applicable(profile: Profile, state: ClusterState, pod_class: PodClass) -> list[ActivePlugin]:
    """Return the filters that may reject some node for such a pod."""
    whole = view_for(profile, state, pod_class)
    return [active for active in profile.filter if active.hints.filters(whole, pod_class)]


def reads_other_nodes(profile: Profile, state: ClusterState, pod_class: PodClass) -> bool:
    """Return whether pods on other nodes may keep such a pod off a node."""
    return _is_cluster_scoped(applicable(profile, state, pod_class))


def _is_cluster_scoped(filters: Iterable[ActivePlugin]) -> bool:
    return any(active.plugin.reads is Reads.CLUSTER for active in filters)
