"""Pods decided together with the outcome of deciding them one by one: batches, runs, sequences.

For plugins that evaluate each node alone, the score of a node after j more pods of a class does not
depend on the other nodes: it is a *trajectory*.  Taking the best node again and again is a merge of
trajectories.  An entry is taken when its node is the best, and a node whose score rises with a pod
is taken again immediately, so the order is by the running minimum of each trajectory, best first,
ties by rank and then by j.

Pods that take devices or CPUs of their nodes are decided in sequence: each choice sees the pods
before it placed, but plugins, programs and evaluations are looked up once per class.
"""

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from weakref import WeakValueDictionary

import numpy as np

from koordinator.api.annotations.reservation import RESERVE_POD
from koordinator.foundation.arrays import IntArray
from koordinator.foundation.memo import Memo
from koordinator.scheduler.contract import (
    NOTHING,
    ActivePlugin,
    AllocationResult,
    Profile,
    SchedulerExtender,
)
from koordinator.scheduler.cycle.batch import COMPILED_FROM, MOST_CLASSES, Batch, choose_batch
from koordinator.scheduler.cycle.choose import NodeChoice, NodeChooser, preferred_rows
from koordinator.scheduler.cycle.evaluation import Evaluation
from koordinator.scheduler.cycle.reserve import reserve
from koordinator.scheduler.cycle.score_table import UNFIT
from koordinator.scheduler.cycle.scorecard import prefilter
from koordinator.scheduler.snapshot import ClusterState, PodClass, Snapshot

_LONG_RUN = 8  # pods
_LONG_STREAK = 64  # pods that a batch may take, for which a sequence ends
#: Cost of a batch against decisions one by one, which update only changed rows.  A batch copies the
#: amounts of all rows, as costly as reading the scores of so many classes, and reads the scores of
#: each class once; a decision takes as long as reading so many rows.
_ROWS_COPIED = 2
_ROWS_PER_DECISION = 14_000
FIRST_BLOCK = 4


def merge_run(evaluation: Evaluation, snapshot: Snapshot, rank: IntArray, count: int) -> IntArray:
    """Return the rows that ``count`` pods go to, in order; fewer when the nodes are full before.

    ``evaluation`` must be up to date, of a linear program whose relative scores (if any) are flat.
    """
    totals = evaluation.totals
    rows = np.flatnonzero(totals != UNFIT)
    if len(rows) > count:  # the first entries of ``count`` rows suffice
        order = np.lexsort((rank[rows], -totals[rows]))
        rows = rows[order[:count]]
    if not len(rows):
        return rows
    taken = _Trajectories(evaluation, snapshot, rows)
    while True:
        low, node, step = taken.entries()
        order = np.lexsort((step, rank[rows[node]], -low))[:count]
        open_ended = taken.exhausted(node[order])
        if not len(open_ended):
            return rows[node[order]]
        taken.extend(open_ended)


class _Trajectories:
    """Running minima of ``totals`` per row, computed in blocks that double."""

    def __init__(self, evaluation: Evaluation, snapshot: Snapshot, rows: IntArray) -> None:
        self._evaluation, self._snapshot, self._rows = evaluation, snapshot, rows
        self._known = np.ones(len(rows), np.int64)  # entries computed per row
        self._ended = np.zeros(len(rows), bool)  # the row has no further entries
        self._last = evaluation.totals[rows].copy()
        self._low = [self._last.copy()]
        self._node = [np.arange(len(rows))]
        self._step = [np.zeros(len(rows), np.int64)]

    def entries(self) -> tuple[IntArray, IntArray, IntArray]:
        """Return (running minimum, index of the row, pods taken before) of everything computed."""
        return np.concatenate(self._low), np.concatenate(self._node), np.concatenate(self._step)

    def exhausted(self, chosen: IntArray) -> IntArray:
        """Return the rows all of whose entries are chosen although they could go on."""
        used = np.bincount(chosen, minlength=len(self._rows))
        return np.flatnonzero((used == self._known) & ~self._ended)

    def extend(self, open_ended: IntArray) -> None:
        """Compute another block for some rows."""
        block = max(FIRST_BLOCK, int(self._known[open_ended].max()))
        times = self._known[open_ended][:, None] + np.arange(block)
        scores = self._evaluation.trajectory(
            self._snapshot, np.repeat(self._rows[open_ended], block), times.ravel()
        ).reshape(len(open_ended), block)
        fits = np.logical_and.accumulate(scores != UNFIT, axis=1)
        low = np.minimum.accumulate(np.minimum(scores, self._last[open_ended][:, None]), axis=1)
        self._low.append(low[fits])
        self._node.append(np.repeat(open_ended, block).reshape(fits.shape)[fits])
        self._step.append(times[fits])
        taken = fits.sum(axis=1)
        self._known[open_ended] += taken
        self._ended[open_ended] = taken < block
        self._last[open_ended] = np.where(
            taken > 0, low[np.arange(len(open_ended)), taken - 1], self._last[open_ended]
        )


class RunKey:
    """Identity of pods that are decided as one run."""

    __slots__ = ("__weakref__",)


class RunChooser(NodeChooser):
    """Decisions about neighbours in the queue: batches, and runs of identical pods."""

    def __init__(
        self, profile: Profile, state: ClusterState, extenders: Sequence[SchedulerExtender] = ()
    ) -> None:
        super().__init__(profile, state, extenders)
        #: per pod class, valid for one version of the traits
        self._run_key: Memo[RunKey] = Memo()
        self._queue_key: Memo[Hashable] = Memo()
        self._batch_key = RunKey()  # of all pods that batches may take
        self._run_keys: WeakValueDictionary[Hashable, RunKey] = WeakValueDictionary()
        #: plugins that limit pods across nodes, such as quotas
        self.limiting = [a for a in profile.pre_filter if "run_limit" in a.has]
        judging = {active.name: active for active in (*profile.filter, *profile.score)}
        self._distinguishing = [a for a in judging.values() if "distinguishes" in a.has]

    def run_key(self, pod: PodClass) -> Hashable:
        """Return the key that pods of one run share; cheap to compare."""
        return self._run_key.as_of(pod, self.state.traits, self._find_run_key, pod)

    def _find_run_key(self, pod: PodClass) -> RunKey:
        shared = (
            self._evaluator.key(pod),
            pod.demand,
            pod.nonzero_cpu,
            pod.nonzero_memory,
            pod.effective.nonzero_cpu,
            pod.effective.nonzero_memory,
            tuple(a.hints.key(pod) for a in self.limiting),
        )
        return self._run_keys.setdefault(shared, RunKey())

    def queue_key(self, pod: PodClass) -> Hashable:
        """Return what neighbours in the queue share to be popped together.

        The run key, or one key for all pods that a batch may take; None where a plugin decides the
        pod with its group.
        """
        return self._queue_key.as_of(pod, self.state.traits, self._find_queue_key, pod)

    def _find_queue_key(self, pod: PodClass) -> Hashable:
        if not self.runs_with_others(pod):
            return None
        snapshot = self._evaluator.snapshot
        if (
            (self._is_arithmetic(pod) or not self._has_own_attempt(pod))
            and not self._must_schedule_individually(snapshot, pod)
            and not self.permits((pod,))
        ):
            return self._batch_key
        return self.run_key(pod)

    def kind_key(self, pod: PodClass) -> Hashable:
        """Return the key of pods that no plugin distinguishes, cluster-wide plugins included."""
        snapshot = self._evaluator.view(pod)
        filters = self._applicable(pod).cluster_filters
        around = any(active.hints.filters(snapshot, pod) for active in filters)
        return self.run_key(pod), pod.id if around else None

    def runs_with_others(self, pod: PodClass) -> bool:
        """Return whether such a pod may be one of a run: no plugin decides it with its group."""
        return not any(active.applies(pod) for active in self.profile.gangs)

    def distinguishes(self, keys: Collection[str]) -> bool:
        """Return whether some plugin may count one of these pods otherwise than its class.

        A joint decision may then differ from decisions one by one.
        """
        return any(
            active.plugin.distinguishes(self._evaluator.snapshot, keys)
            for active in self._distinguishing
        )

    def permits(self, pods: Iterable[PodClass]) -> bool:
        """Return whether a permit plugin applies to one of these pods."""
        return any(self.applicable_plugins(pod).permit for pod in dict.fromkeys(pods))

    def choose_run(self, pods: Sequence[PodClass]) -> IntArray | None:
        """Return the rows for these pods of one run key, in order.

        None if they must be decided one by one.  If there are fewer rows than pods, the next pod
        must be decided alone: most likely it fits nowhere.
        """
        snapshot = self._evaluator.snapshot
        if self.profile.find_one_node or not self._is_linear(pods[0]):
            return None
        different = dict.fromkeys(pods)
        if any(self._must_schedule_individually(snapshot, pod_class) for pod_class in different):
            return None
        if len({self._evaluator.key(pod_class) for pod_class in different}) > 1:
            return None  # their common key has changed since they were queued
        evaluation = self._evaluator.of(pods[0], snapshot)
        if not all(evaluation.flat):
            return None
        count = self.limit(pods[0], len(pods))
        return merge_run(evaluation, snapshot, self.state.nodes.rank, count)

    def choose_batch(self, pods: Sequence[PodClass]) -> Batch:
        """Return the rows for the first of these pods, with the outcome of ``choose`` for each.

        Without rows the first one has to be decided alone: most likely it fits nowhere.
        """
        snapshot = self._evaluator.snapshot
        length = self._run_length(pods)
        # Without kernels, merging the rows of one class is faster than a batch.
        is_long = length >= _LONG_RUN and not snapshot.uses_kernels
        batch = None if is_long else self._choose_mixed(snapshot, pods, length)
        if batch is None and length > 1:
            rows = self.choose_run(pods[:length])
            batch = None if rows is None else Batch(rows)
        return batch or Batch(np.zeros(0, np.int64))

    def _choose_mixed(
        self, snapshot: Snapshot, pods: Sequence[PodClass], length: int
    ) -> Batch | None:
        """Return the rows for pods of several classes, the first ``length`` of one run key.

        None if the first ones are not arithmetic, or few for so many nodes and classes.
        """
        number: dict[PodClass, int] = {}
        kinds: list[int] = []
        for pod_class in pods:
            kind = number.get(pod_class)
            if kind is None:
                if len(number) == MOST_CLASSES or not self._may_be_in_batch(snapshot, pod_class):
                    break
                kind = number[pod_class] = len(number)
            kinds.append(kind)
        rows_read = len(self.state.nodes) * (len(number) + _ROWS_COPIED)
        is_short = len(kinds) < min(len(pods), _LONG_STREAK)
        if is_short or rows_read > len(kinds) * _ROWS_PER_DECISION:
            return None
        members = []
        for pod_class in number:
            evaluation = self._evaluator.of(pod_class, snapshot, rows=False)
            stated = evaluation.program.stated
            if not all(flat or at == stated for at, flat in enumerate(evaluation.flat)):
                kinds = kinds[: kinds.index(number[pod_class])]
                break
            members.append((pod_class, evaluation))
        if not kinds:
            return None
        if self.limiting and not self._are_admitted(snapshot, pods[: len(kinds)]):
            kinds = kinds[: self.limit(pods[0], min(length, len(kinds)))]
        return choose_batch(self._evaluator, members, np.array(kinds, np.int64))

    def choose_in_sequence(self, pods: Sequence[PodClass]) -> Iterator[NodeChoice]:
        """Yield the choices for the first of these pods, with the outcome of ``choose`` for each.

        The caller assumes each pod before the next choice is made, and does nothing else
        meanwhile.  Ends before a pod that has to be decided alone: most likely it fits nowhere.
        """
        snapshot, evaluator = self._evaluator.snapshot, self._evaluator
        pods = pods[: self._sequence_length(snapshot, pods)]
        if not pods:
            return
        self.state.nodes.had_many_pods |= len(pods) >= COMPILED_FROM
        is_limited = bool(self.limiting) and not self._are_admitted(snapshot, pods)
        evaluations: dict[PodClass, Evaluation] = {}
        names = self.state.nodes.names
        for pod_class in pods:
            evaluation = evaluations.get(pod_class)
            if evaluation is None:
                if self._must_schedule_individually(snapshot, pod_class):
                    return
                evaluation = evaluations[pod_class] = evaluator.of(pod_class, snapshot)
            else:
                evaluation.apply_changes(evaluator, snapshot)
            if is_limited and any(self.refuses(active, pod_class) for active in self.limiting):
                return
            program = evaluation.program
            row = self._best_locally(evaluation, snapshot, None)
            if row is None:
                return
            allocation = NOTHING
            if program.reserve:
                reserved = reserve(program.profile, snapshot, pod_class, row, program.reserve)
                if not isinstance(reserved, AllocationResult) or not reserved.is_on_node:
                    return
                allocation = reserved
            yield NodeChoice(row, names[row], allocation, program.profile)

    def _sequence_length(self, snapshot: Snapshot, pods: Sequence[PodClass]) -> int:
        """Return the number of pods before the next single decision or streak for a batch.

        Pods behind are not read: whether they fit a batch may take reading their claims.
        """
        fit_batch: dict[PodClass, bool] = {}
        streak = 0
        for at, pod_class in enumerate(pods):
            if pod_class not in fit_batch:
                if self._has_own_attempt(pod_class) or len(fit_batch) == MOST_CLASSES:
                    return at
                fit_batch[pod_class] = self._may_be_in_batch(snapshot, pod_class)
            streak = streak + 1 if fit_batch[pod_class] else 0
            if _LONG_STREAK <= streak <= at:
                return at + 1 - streak
        return len(pods)

    def _has_own_attempt(self, pod: PodClass) -> bool:
        """Return whether a plugin handles each such pod, or the pod's place is of use to others."""
        return (
            bool(self.profile.find_one_node or self._learning)
            or RESERVE_POD in pod.annotations
            or bool(self.applicable_plugins(pod).pre_bind)
        )

    def _is_arithmetic(self, pod: PodClass) -> bool:
        """Return whether arithmetic and facts of nodes are all that chooses a node."""
        program = self._evaluator.program(pod, self._evaluator.view(pod))[0]
        return program.is_arithmetic and not self.profile.find_one_node

    def _run_length(self, pods: Sequence[PodClass]) -> int:
        """Return how many of the first pods have one run key."""
        first, length = self.run_key(pods[0]), 1
        while length < len(pods) and (
            pods[length] is pods[0] or self.run_key(pods[length]) is first
        ):
            length += 1
        return length

    def _may_be_in_batch(self, snapshot: Snapshot, pod: PodClass) -> bool:
        """Return whether arithmetic and states choose the nodes of such pods, as things are."""
        if not self._is_arithmetic(pod) or self._must_schedule_individually(snapshot, pod):
            return False
        program = self._evaluator.program(pod, snapshot)[0]
        if program.stated is None:
            return True
        states = program.relative[program.stated].active.hints.states
        return (
            states is not None
            and not self._has_own_attempt(pod)
            and states(snapshot).column(snapshot, pod) is not None
        )

    def _are_admitted(self, snapshot: Snapshot, pods: Sequence[PodClass]) -> bool:
        """Return whether no plugin that limits pods across nodes refuses one of all these."""
        return all(
            active.hints.limits_sums and active.plugin.shortfall(snapshot, pods) is None
            for active in self.limiting
        )

    def _must_schedule_individually(self, snapshot: Snapshot, pod: PodClass) -> bool:
        """Return whether a placement depends on other nodes, or the pod has restorable holds."""
        applicable = self._applicable(pod)
        return (
            self._evaluator.view(pod).restorable is not None
            or self.extenders.concerns(pod)
            or prefilter(applicable.profile, snapshot, pod) is not None
            or any(a.hints.filters(snapshot, pod) for a in applicable.cluster_filters)
            or any(a.hints.scores(snapshot, pod) for a in applicable.cluster_scores)
            or bool(preferred_rows(applicable.profile, snapshot, pod))
        )

    def limit(self, pod: PodClass, most: int) -> int:
        """Return how many such pods in a row are not refused as a whole, at most ``most``."""
        for active in self.limiting:
            if self.refuses(active, pod):
                return 0
            most = active.plugin.run_limit(self._evaluator.snapshot, pod, most)
        return most

    def refuses(self, active: ActivePlugin, pod_class: PodClass) -> bool:
        """Return whether a plugin refuses a pod as a whole, as things are now."""
        return active.plugin.prefilter(self._evaluator.snapshot, pod_class) is not None

    def headroom_for(self, active: ActivePlugin, pod_class: PodClass, most: int) -> int:
        """Return how many such pods in a row one plugin does not refuse, at most ``most``."""
        if self.refuses(active, pod_class):
            return 0
        headroom: int = active.plugin.run_limit(self._evaluator.snapshot, pod_class, most)
        return headroom

    def version(self, active: ActivePlugin) -> Hashable:
        """Return the version of a plugin."""
        version = active.hints.version
        return version(self._evaluator.snapshot) if version is not None else None

    def _is_linear(self, pod: PodClass) -> bool:
        return self._evaluator.is_linear(pod, self._evaluator.view(pod))
