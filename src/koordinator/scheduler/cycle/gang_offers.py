"""The number of pods of a class that each node takes, one after another.

For a *linear* class the answer is found by bisection over all nodes at a time.  For any other class
(devices, NUMA nodes, ports) a first pod is placed on every node in a dry run, then a second one,
and so on.  Plugins that read other nodes are called for the first pod, and for a second one when
every node has one: that finds "one per node", but no subtler rule.
"""

from collections.abc import Callable, Sequence

import numpy as np

from koordinator.api.pod import Pod
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.foundation.lazy_dataclass import dataclass
from koordinator.scheduler.contract import (
    ActivePlugin,
    AllocationResult,
    Profile,
    SchedulerExtender,
)
from koordinator.scheduler.cycle.choose import NodeChoice
from koordinator.scheduler.cycle.evaluation import (
    Evaluation,
    Evaluator,
    NominatedPods,
    nominated_pods_with_priority,
)
from koordinator.scheduler.cycle.headroom import UNBOUNDED, HeadroomBound, HeadroomTable
from koordinator.scheduler.cycle.program import compared
from koordinator.scheduler.cycle.run import RunChooser
from koordinator.scheduler.cycle.score_table import UNFIT
from koordinator.scheduler.cycle.scorecard import prefilter
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot
from koordinator.scheduler.transaction import Transaction

UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class SamplePod:
    """A pod of the class, with the plugins that apply to it."""

    pod: Pod
    pod_class: PodClass
    cluster_filters: Sequence[ActivePlugin]  # those that look at other nodes
    #: Allocation of a pod on a row; None if the node cannot provide it.
    reserve: Callable[[PodClass, int], AllocationResult | None]


def offers(evaluator: Evaluator, sample: SamplePod, rows: IntArray, most: int) -> IntArray:
    """Return how many such pods each of the rows takes, at most ``most``, ``(n_rows,)``."""
    pod, pod_class = sample.pod, sample.pod_class
    state, evaluation = evaluator.state, evaluator.of(pod_class)
    slots = np.zeros(len(rows), np.int64)
    accepted = evaluation.totals[rows] != UNFIT
    accepted &= _accepted(sample, state)[rows]
    open_ended = np.flatnonzero(accepted)
    if evaluation.program.linear:
        at_most = np.clip(_by_requests(evaluator, pod_class, rows[open_ended]), 1, most)
        slots[open_ended] = _bisected(evaluation, evaluator.snapshot, rows[open_ended], at_most)
    else:
        slots[open_ended] = _tried(evaluator, sample, rows[open_ended], most)
    if sample.cluster_filters and most > 1:
        taken = rows[slots > 0]
        with Transaction(state) as transaction:
            for row in taken.tolist():
                transaction.place(f"offer:{row}", pod, pod_class, row)
            again = _accepted(sample, state)[rows]
        slots = np.where(again, slots, np.minimum(slots, 1))
    return slots


def _accepted(sample: SamplePod, state: ClusterState) -> BoolArray:
    snapshot = Snapshot(state)
    accepted = np.ones(len(snapshot), bool)
    for active in sample.cluster_filters:
        accepted &= active.plugin.filter(snapshot, sample.pod_class).codes == 0
    return accepted


def _by_requests(evaluator: Evaluator, pod_class: PodClass, rows: IntArray) -> IntArray:
    """Return an upper bound of the pods of a class per row, from their requests alone."""
    amounts = compared(evaluator.profile, evaluator.state, pod_class)
    columns, nodes = np.flatnonzero(amounts), evaluator.state.nodes
    at = np.ix_(columns, rows)
    free = nodes.allocatable[at] - nodes.requested[at]
    most: IntArray = (free // amounts[columns][:, None]).min(axis=0, initial=UNLIMITED)
    return most


def _bisected(
    evaluation: Evaluation, snapshot: Snapshot, rows: IntArray, most: IntArray
) -> IntArray:
    """Return the largest numbers that fit, ``most`` or less; one fits everywhere.

    Most rows take as many as they may: that is tried first.
    """
    fits = evaluation.fits(snapshot, rows, most - 1)
    low, high = np.where(fits, most, 1), np.where(fits, most, most - 1)
    step = np.full(len(rows), 1)
    galloping = np.ones(len(rows), bool)
    while len(left := np.flatnonzero(low < high)):
        guess = np.where(
            galloping[left],
            np.minimum(low[left] + step[left], high[left]),
            (low[left] + high[left] + 1) // 2,
        )
        fits = evaluation.fits(snapshot, rows[left], guess - 1)
        low[left] = np.where(fits, guess, low[left])
        high[left] = np.where(fits, high[left], guess - 1)
        galloping[left] &= fits
        step[left] *= 2
    return low


def _tried(evaluator: Evaluator, sample: SamplePod, rows: IntArray, most: int) -> IntArray:
    """Return how many pods could be placed on each row, in a dry run."""
    slots = np.zeros(len(rows), np.int64)
    left = np.arange(len(rows))
    with Transaction(evaluator.state) as transaction:
        for number in range(most):
            left = left[evaluator.of(sample.pod_class).totals[rows[left]] != UNFIT]
            if not len(left):
                break
            went_on = []
            for index in left.tolist():
                row = int(rows[index])
                allocation = sample.reserve(sample.pod_class, row)
                if allocation is not None:
                    key = f"offer:{row}:{number}"
                    transaction.place(
                        key, sample.pod, sample.pod_class, row, allocation.pod_allocation
                    )
                    slots[index] += 1
                    went_on.append(index)
            left = np.array(went_on, np.int64)
    return slots


class GangOffers(RunChooser):
    """Room for gangs: the pods of a class that nodes take, and upper bounds of them."""

    def __init__(
        self, profile: Profile, state: ClusterState, extenders: Sequence[SchedulerExtender] = ()
    ) -> None:
        super().__init__(profile, state, extenders)
        self._headrooms = HeadroomTable(state)
        self._counts_requests = any(a.hints.compares is not None for a in profile.filter)

    def takes_amounts_only(self, pod: PodClass) -> bool:
        """Return whether amounts are all that such pods take, and no other node matters to them."""
        snapshot = self._evaluator.snapshot
        if any(a.hints.filters(snapshot, pod) for a in self._applicable(pod).cluster_filters):
            return False
        if self.extenders.concerns(pod):
            return False
        return self._is_linear(pod)

    def offers(
        self,
        pod: Pod,
        pod_class: PodClass,
        nominated: NominatedPods,
        *,
        most: int,
        rows: IntArray | None = None,
    ) -> IntArray:
        """Return how many such pods each row takes, one after another, ``(n_rows,)``.

        At most ``most``; 0 for rows that are not among ``rows``.  Nominated pods count as placed.
        """
        snapshot = self._evaluator.view(pod_class)
        slots = np.zeros(len(snapshot), np.int64)
        applicable = self._applicable(pod_class)
        if prefilter(applicable.profile, snapshot, pod_class) is not None:
            return slots
        among = np.arange(len(snapshot)) if rows is None else rows
        cluster = [a for a in applicable.cluster_filters if a.hints.filters(snapshot, pod_class)]
        with Transaction(self.state) as transaction:
            for node, nominated_pods in (
                nominated_pods_with_priority(pod, nominated) if nominated else {}
            ).items():
                row = self.state.nodes.rows.get(node)
                for other, other_class in nominated_pods if row is not None else ():
                    transaction.place(f"nominated:{other.key}", other, other_class, row or 0)
            sample = SamplePod(pod, pod_class, cluster, self._allocation_on)
            slots[among] = offers(self._evaluator, sample, among, most)
        return slots

    def _allocation_on(self, pod: PodClass, row: int) -> AllocationResult | None:
        view = self._evaluator.view(pod)
        reserved = self._reserve(view, pod, row, self._evaluator.program(pod, view)[0])
        return reserved.allocation if isinstance(reserved, NodeChoice) else None

    def bound(self, *pods: PodClass) -> HeadroomBound | None:
        """Return an upper bound of the pods of these classes together; None: unknown."""
        if not self._counts_requests:
            return None
        versions = []
        for pod in pods:
            view = self._evaluator.view(pod)
            if view.restorable is not None:
                return None
            versions.append(self._evaluator.versions_of(pod, view))
        return HeadroomBound(
            self._headrooms,
            tuple(map(self.run_key, pods)),
            tuple(versions),
            lambda: np.min([compared(self.profile, self.state, pod) for pod in pods], axis=0),
            lambda below: self._accepted(pods, below),
        )

    def _accepted(self, pods: Sequence[PodClass], below: int | None) -> BoolArray:
        """Return where one of the pods may be, as things are or without less important pods."""
        accepted = np.zeros(len(self.state.nodes), bool)
        for pod in pods:
            evaluation = self._evaluator.of(pod)
            accepted |= evaluation.totals != UNFIT if below is None else evaluation.eligible
        return accepted

    def requests(self, pod: PodClass) -> IntArray:
        """Return ``(n_columns,)``: the pod's requests that are compared with free amounts."""
        return compared(self.profile, self.state, pod)

    def note_headroom(self, pod: PodClass, fits: IntArray) -> None:
        """Note how many such pods the rows take, ``(n_rows,)``, as things are."""
        bound = self.bound(pod)
        if bound is not None:
            bound.note(fits)

    def headroom_at_most(self, pod: PodClass, level: int | None = None) -> int:
        """Return how many such pods may fit by now, at most; with a level: in one domain of it."""
        bound = self.bound(pod)
        most = UNBOUNDED if bound is None else bound.most(of_row=self.domains_at(level))
        return self.limit(pod, most)

    def domains_at(self, level: int | None) -> IntArray | None:
        """Return the number of each row's network domain; None if that does not matter."""
        tree = None if level is None else self.state.network.tree
        return None if tree is None else tree.of_row(level or 0, len(self.state.nodes))
