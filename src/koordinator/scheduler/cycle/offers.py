"""The number of pods of a class that each node takes, one after another.

For a *linear* class the answer is found by bisection over all nodes at a time.  For any other class
(devices, NUMA nodes, ports) a first pod is placed on every node in a dry run, then a second one,
and so on.  Plugins that read other nodes are called for the first pod, and for a second one when
every node has one: that finds "one per node", but no subtler rule.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from koordinator.api.pod import Pod
from koordinator.foundation.arrays import BoolArray, IntArray
from koordinator.scheduler.contract import ActivePlugin, AllocationResult
from koordinator.scheduler.cycle.evaluation import Evaluation, Evaluator
from koordinator.scheduler.cycle.program import compared
from koordinator.scheduler.cycle.score_table import UNFIT
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot
from koordinator.scheduler.transaction import Transaction

UNLIMITED = 1 << 40


@dataclass(frozen=True, slots=True)
class SamplePod:
    """A pod of the class, with the plugins that apply to it."""

    pod: Pod
    pod_class: PodClass
    cluster_filters: Sequence[ActivePlugin]  # those that look at other nodes
    #: What a pod would hold on a row; None if it can't have there what it needs.
    reserve: Callable[[PodClass, int], AllocationResult | None]


def offers(evaluator: Evaluator, sample: SamplePod, rows: IntArray, most: int) -> IntArray:
    """Return how many such pods each of the rows takes, at most ``most``, ``(n_rows,)``."""
    pod, pod_class = sample.pod, sample.pod_class
    state, evaluation = evaluator.state, evaluator.of(pod_class)
    slots = np.zeros(len(rows), np.int64)
    accepted = evaluation.best[rows] != UNFIT
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
    """Return how many such pods each row takes at most, for what they request."""
    amounts = compared(evaluator.profile, evaluator.state, pod_class)
    asked, nodes = np.flatnonzero(amounts), evaluator.state.nodes
    at = np.ix_(asked, rows)
    free = nodes.allocatable[at] - nodes.requested[at]
    most: IntArray = (free // amounts[asked][:, None]).min(axis=0, initial=UNLIMITED)
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
            left = left[evaluator.of(sample.pod_class).best[rows[left]] != UNFIT]
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
